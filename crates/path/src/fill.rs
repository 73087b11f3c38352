//! From an answer into the cache.

use std::time::Duration;

use sherwood_cache::{Access, Cache, NewItem, Refused, Value};
use sherwood_model::PartitionId;

/// Stores a value that a dispatcher delivered with `fill` where there are no
/// [`Rules`](crate::Rules), unless its key has a value by now: who wrote it meanwhile knows better.
/// The item lives for `ttl` from `access.now` on, or until it is evicted when there is none. Says
/// whether it was stored.
///
/// To be called once per delivered key, before the dispatcher's lock is let go of.
///
/// # Errors
/// When the cache refuses the item for its size. Nobody is the worse for it: the waiters have their
/// value, and the next request asks the backend again.
pub fn fill(
    cache: &Cache,
    partition: PartitionId,
    key: &[u8],
    value: Value<'_>,
    ttl: Option<Duration>,
    access: &Access,
) -> Result<bool, Refused> {
    let expires = ttl.map(|ttl| access.now + ttl);
    cache.add(partition, key, NewItem { value, expires, ..NewItem::bytes(b"") }, access)
}
