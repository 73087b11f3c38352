//! What a client is about to ask for is asked of the memory in time.
//!
//! Commands arrive in bunches: a pipeline's in one read, and those of many clients in one look at the sockets. What they will
//! look up can be known by a glance before the first of them is executed; see [`Cache::prefetch`](sherwood_cache::Cache::prefetch).

use sherwood_cache::PREFETCH_KEYS_MAX;
use sherwood_model::PartitionId;
use sherwood_wire::memcached::Keys;

use super::shared::Service;

/// Prefetches as many of the next keys as can be at once, if they are two or more. What it has not taken stays in `keys`.
pub(super) fn prefetch<'k>(service: &Service, keys: &mut impl Iterator<Item = &'k [u8]>) {
    let mut list = [(PartitionId(0), &b""[..]); PREFETCH_KEYS_MAX];
    let mut len = 0;
    for key in keys.take(PREFETCH_KEYS_MAX) {
        if let Some((target, name)) = service.routing.find(key) {
            list[len] = (target.partition, name);
            len += 1;
        }
    }
    if len > 1 {
        service.cache.prefetch(&list[..len]);
    }
}

/// Prefetches the next keys of a list that has more than one.
pub(super) fn prefetch_list(service: &Service, mut keys: Keys<'_>) {
    if keys.text().contains(&b' ') {
        prefetch(service, &mut keys);
    }
}
