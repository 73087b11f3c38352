//! Fetches the keys that a conversation needs, from all partitions concurrently.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sherwood_model::PartitionId;
use sherwood_model::query_times::Operation;

use super::backends::{Backends, FetchFailure, FetchResult};
use super::conversation::Wanted;
use super::times::Asked;

/// Most keys of a connection that are fetched from backends at a time. A longer key list is fetched
/// in several rounds.
pub const FETCH_KEYS_MAX: usize = 64;

/// The outcome of a fetch.
#[derive(Debug)]
pub(super) struct FetchEnd {
    /// The results in the order of the keys.
    pub(super) results: Vec<FetchResult>,
    /// The partition whose keys came last; none if there are no backends.
    pub(super) last: Option<PartitionId>,
}

/// Fetches `wanted`. The future borrows nothing. Keys that a backend does not answer have failed,
/// as have all keys if there are no backends.
pub(super) fn fetch(
    backends: Option<&Arc<dyn Backends>>,
    wanted: Vec<Wanted>,
) -> impl Future<Output = FetchEnd> + Send + use<> {
    let mut results: Vec<FetchResult> =
        wanted.iter().map(|_| Err(FetchFailure::Failed("nobody answered".to_owned()))).collect();
    let mut fetches: FuturesUnordered<_> = backends
        .into_iter()
        .flat_map(|backends| groups(&wanted).into_iter().map(move |group| (backends, group)))
        .map(|(backends, ((partition, within), places))| {
            let keys = places.iter().map(|&place| wanted[place].key.clone()).collect();
            let results = backends.fetch(partition, keys, within);
            async move { (partition, places, results.await) }
        })
        .collect();
    async move {
        let mut last = None;
        while let Some((partition, places, fetched)) = fetches.next().await {
            last = Some(partition);
            for (place, result) in places.into_iter().zip(fetched) {
                results[place] = result;
            }
        }
        FetchEnd { results, last }
    }
}

/// The partition of keys that are fetched together, and the time until their deadline.
type Group = (PartitionId, Option<Duration>);

/// Groups the keys to fetch by partition and time; returns each group with the indices of its
/// keys in `wanted`.
fn groups(wanted: &[Wanted]) -> Vec<(Group, Vec<usize>)> {
    let mut groups: Vec<(Group, Vec<usize>)> = Vec::new();
    for (place, Wanted { partition, within, .. }) in wanted.iter().enumerate() {
        let group = (*partition, *within);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, places)) => places.push(place),
            None => groups.push((group, vec![place])),
        }
    }
    groups
}

/// Returns the queries that fetch these keys.
pub(super) fn queries(wanted: &[Wanted]) -> Asked {
    wanted.iter().map(|wanted| (wanted.partition, Operation::Get)).collect()
}
