//! Fetches the keys that a conversation needs, from all partitions concurrently.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use sherwood_model::PartitionId;

use super::backends::Backends;
use super::conversation::{Fetched, Wanted};

/// Fetches `wanted`. The future borrows nothing; its results are in the order of the keys. Keys
/// that a backend does not answer have failed, as have all keys if there are no backends.
pub(super) fn fetch(
    backends: Option<&Arc<dyn Backends>>,
    wanted: Vec<Wanted>,
) -> impl Future<Output = Fetched> + Send + use<> {
    let mut fetched: Fetched = wanted.iter().map(|_| Err("nobody answered".to_owned())).collect();
    let fetches: Vec<_> = backends
        .into_iter()
        .flat_map(|backends| by_partition(&wanted).into_iter().map(move |part| (backends, part)))
        .map(|(backends, (partition, places))| {
            let keys = places.iter().map(|&place| wanted[place].key.clone()).collect();
            let results = backends.fetch(partition, keys);
            async move { (places, results.await) }
        })
        .collect();
    async move {
        for (places, results) in join_all(fetches).await {
            for (place, result) in places.into_iter().zip(results) {
                fetched[place] = result;
            }
        }
        fetched
    }
}

/// Groups the keys to fetch by partition; returns each partition with the indices of its keys in
/// `wanted`.
fn by_partition(wanted: &[Wanted]) -> Vec<(PartitionId, Vec<usize>)> {
    let mut parts: Vec<(PartitionId, Vec<usize>)> = Vec::new();
    for (place, Wanted { partition, .. }) in wanted.iter().enumerate() {
        match parts.iter_mut().find(|(known, _)| known == partition) {
            Some((_, places)) => places.push(place),
            None => parts.push((*partition, vec![place])),
        }
    }
    parts
}
