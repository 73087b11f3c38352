//! Writes of a write-through listener: their form, and the future that makes them.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use sherwood_model::PartitionId;
use sherwood_model::query_times::Operation;

use super::backends::{Backends, StoreChange, StoreFailure};
use super::conversation::Stored;
use super::times::Asked;

/// A change of a key at the store of its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreWrite {
    /// The partition that holds the key.
    pub(super) partition: PartitionId,
    /// The key without the prefix that selects its partition, as the partition stores it.
    pub(super) key: Bytes,
    pub(super) change: StoreChange,
}

/// Makes all `writes` at once. The future borrows nothing. Writes to a partition without a backend
/// fail.
pub(super) fn store(
    backends: Option<&Arc<dyn Backends>>,
    writes: Vec<StoreWrite>,
) -> impl Future<Output = Stored> + Send + use<> {
    let each: Option<Vec<_>> = backends.map(|backends| {
        let store = |StoreWrite { partition, key, change }| backends.store(partition, key, change);
        writes.into_iter().map(store).collect()
    });
    async move {
        let Some(each) = each else { return Err(StoreFailure::Failed("there is no store".to_owned())) };
        join_all(each).await.into_iter().collect()
    }
}

/// Returns the queries that make these writes.
pub(super) fn queries(writes: &[StoreWrite]) -> Asked {
    let operation = |change: &StoreChange| match change {
        StoreChange::Put { .. } => Operation::Set,
        StoreChange::Delete => Operation::Delete,
    };
    writes.iter().map(|write| (write.partition, operation(&write.change))).collect()
}
