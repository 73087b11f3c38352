//! Prefetches the items that commands which have arrived will look up.
//!
//! Commands arrive in bunches: a pipeline's in one read, and those of many clients in one look at
//! the sockets. What they will look up can be known by a glance before the first of them is
//! executed; see [`Cache::prefetch`](sherwood_cache::Cache::prefetch).

use super::shared::Service;

/// Prefetches as many of the next keys as can be at once, if they are two or more. What it has not
/// taken stays in `keys`.
pub(super) fn prefetch<'k>(service: &Service, keys: &mut impl Iterator<Item = &'k [u8]>) {
    service.cache.prefetch(keys.filter_map(|key| {
        let (target, name) = service.routing.find(key)?;
        Some((target.partition, name))
    }));
}
