//! The Redis commands `WATCH` and `UNWATCH`: a transaction is executed only if keys are unchanged.
//!
//! Writers do not know of watched keys, so they cost nothing. A watched key is remembered with the
//! number that the cache gave to its value when it was stored, and with its expiry; `EXEC` compares
//! them under the lock of the key's shard. A value that was replaced, changed, removed, evicted or
//! has expired is found so. A key that did not exist, was stored and is gone again is unchanged.

use bytes::Bytes;
use sherwood_cache::Access;
use sherwood_model::PartitionId;
use sherwood_wire::resp::{Args, reply};

use super::aside::Aside;
use super::failure::Failure;
use super::gathering::{Gathering, Then};
use super::multi::{Seen, Watched};
use super::session::{CommandResult, Session};
use crate::conversation::Wanted;
use crate::output::Output;

/// Most keys that a client can watch at a time.
const WATCHED_MAX: usize = 1024;
const TOO_MANY: Failure = Failure::text("ERR a client can watch at most 1024 keys");

/// Executes the Redis command `WATCH key …`. Values that a read-through listener does not have are
/// fetched first: otherwise the first read of a key would change it.
pub(super) fn watch(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if session.client.transaction.is_some() {
        return Err(Failure::text("ERR WATCH inside MULTI is not allowed"));
    }
    if session.client.watched.len() + args.len() - 1 > WATCHED_MAX {
        return Err(TOO_MANY);
    }
    let mut keys = Vec::with_capacity(args.len() - 1);
    for key in args.from(1) {
        let (target, name) = session.routing().find(key).ok_or_else(|| Failure::nowhere(key))?;
        keys.push((target.partition, Bytes::copy_from_slice(name)));
    }
    let missing = session.missing(args.from(1));
    if missing.is_empty() {
        session.watch_all(keys);
        out.extend_from_slice(reply::OK);
    } else {
        session.client.aside = Some(Aside::Gathering(Gathering::new(missing, Then::Watch(keys))));
    }
    Ok(())
}

/// Executes the Redis command `UNWATCH`.
pub(super) fn unwatch(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.client.watched.clear();
    out.extend_from_slice(reply::OK);
    Ok(())
}

impl Session<'_> {
    /// Watches keys from now on; a key that is watched already stays as it is.
    pub(super) fn watch_all(&mut self, keys: Vec<(PartitionId, Bytes)>) {
        for (partition, name) in keys {
            if self.client.watched.iter().all(|known| known.place() != (partition, &name[..])) {
                let seen = self.seen(partition, &name);
                self.client.watched.push(Watched { partition, name, seen });
            }
        }
    }

    /// Returns true if a watched key has the item that it had, or still none.
    pub(super) fn is_unchanged(&self, watched: &Watched) -> bool {
        self.seen(watched.partition, &watched.name) == watched.seen
    }

    fn seen(&self, partition: PartitionId, name: &[u8]) -> Option<Seen> {
        let access = Access::at(self.moment.now);
        self.peek_at(partition, name, &access, |item| Seen { cas: item.cas, expires: item.expires })
    }

    /// Returns the keys among `keys` that are to be fetched because the cache does not have them,
    /// each once.
    pub(super) fn missing<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Vec<Wanted> {
        if self.shared.service.backends.is_none() {
            return Vec::new();
        }
        let mut known = std::collections::HashSet::new();
        let missing = keys.filter_map(|key| {
            let (target, name) = self.routing().find(key)?;
            let is_missing = target.read_through && self.peek(key, |_| ()).is_none();
            (is_missing && known.insert((target.partition, name))).then(|| Wanted {
                partition: target.partition,
                key: Bytes::copy_from_slice(name),
                within: None,
            })
        });
        missing.collect()
    }
}
