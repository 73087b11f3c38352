//! Prefetching of keys that clients will look up next.
//!
//! Commands arrive in batches: pipelined in one read, and from many clients in one poll. Their keys
//! can be found by a quick scan before the first command is executed; see
//! [`Cache::prefetch`](sherwood_cache::Cache::prefetch).

use super::routing::Routing;
use super::shared::Service;

/// Prefetches the cache's entries of as many of a client's next `keys` as possible at once, if
/// there are at least two. Keys that were not prefetched remain in `keys`.
pub(super) fn prefetch<'k>(service: &Service, routing: &Routing, keys: &mut impl Iterator<Item = &'k [u8]>) {
    service.cache.prefetch(keys.filter_map(|key| {
        let (target, name) = routing.find(key)?;
        Some((target.partition, name))
    }));
}
