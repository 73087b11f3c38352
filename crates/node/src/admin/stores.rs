//! `/v1/stores`: the replicated stores, with their duplicates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use sherwood_path::{DuplicateStanding, LogsStanding};

use crate::core::Core;

/// A replicated store.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReplicatedStore")]
pub(crate) struct StoreView {
    /// Name of its backend.
    backend: String,
    /// Number of partitions of its keys.
    partitions: usize,
    /// Number of duplicates of each partition.
    duplicates: usize,
    /// Changes in the logs of all partitions.
    log_entries: usize,
    /// Bytes of their keys and values.
    log_bytes: u64,
    /// The duplicates, in the order of the replicas.
    nodes: Vec<DuplicateView>,
}

/// A duplicate of a partition.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Duplicate")]
struct DuplicateView {
    /// Number of the replica, from 0 on.
    replica: usize,
    /// Number of the partition, from 0 on.
    partition: usize,
    /// Number of the last change that it has applied, with all before.
    applied: u64,
    /// Number of changes that it lacks.
    lag: u64,
    /// `current`: read and written; `joining`, `behind`: written, and read when it has everything;
    /// `copying`: filled from another one, or waiting for that; `lost`: not reached; `inspected`,
    /// `landing`, `found`: answers again, and is asked what it has.
    state: &'static str,
}

/// Lists the replicated stores.
pub(super) async fn list(State(core): State<Arc<Core>>) -> Json<Vec<StoreView>> {
    let view = |name: &String| {
        let backend = core.names.backend_id(name)?;
        Some(store(name, &core.backend(backend)?.logs()?))
    };
    Json(core.names.backends().iter().filter_map(view).collect())
}

fn store(backend: &str, logs: &LogsStanding) -> StoreView {
    let partitions = logs.duplicates.last().map_or(0, |last| last.partition + 1);
    let node = |one: &DuplicateStanding| DuplicateView {
        replica: one.replica.index(),
        partition: one.partition,
        applied: one.last.saturating_sub(one.lag),
        lag: one.lag,
        state: one.state.name(),
    };
    StoreView {
        backend: backend.to_owned(),
        partitions,
        duplicates: logs.duplicates.len().checked_div(partitions).unwrap_or(0),
        log_entries: logs.entries,
        log_bytes: logs.bytes,
        nodes: logs.duplicates.iter().map(node).collect(),
    }
}
