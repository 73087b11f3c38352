//! The Redis commands `WATCH` and `UNWATCH`: a transaction is executed only if keys are unchanged.
//!
//! Writers do not know of watched keys, so they cost nothing. A watched key is remembered with the
//! number that the cache gave to its value when it was stored, and with its expiry; `EXEC` compares
//! them under the lock of the key's shard. A value that was replaced, changed, removed, evicted or
//! has expired is found so. A key that did not exist, was stored and is gone again is unchanged.
//!
//! A client watches at most [`WATCHED_MAX`] keys that take at most [`WATCHED_BYTES_MAX`], and all
//! clients together what the budget of [kept memory](crate::kept) allows. After a `WATCH` that was
//! refused the next `EXEC` executes nothing, even if the client has overlooked the error.

use std::collections::HashSet;

use bytes::Bytes;
use sherwood_cache::Access;
use sherwood_model::PartitionId;
use sherwood_wire::resp::{Args, reply};

use super::failure::Failure;
use super::gathering::{GatheredKeys, Then};
use super::multi::{Seen, Watched, WatchedKeys};
use super::session::{CommandResult, Session};
use crate::conversation::Wanted;
use crate::output::Output;

/// Most keys that a client can watch at a time.
const WATCHED_MAX: usize = 1024;
/// Maximum memory of the keys that a client watches, bytes. Chosen: three times the memory of
/// [`WATCHED_MAX`] keys of the maximum length.
const WATCHED_BYTES_MAX: usize = 1 << 20;
const TOO_MANY: Failure = Failure::text(
    "ERR a client can watch at most 1024 keys that take 1 MiB; UNWATCH those that it needs no more, or watch fewer",
);

/// Executes the Redis command `WATCH key …`. Values that a read-through listener does not have are
/// fetched first: otherwise the first read of a key would change it.
pub(super) fn watch(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if session.client.transaction.is_some() {
        return Err(Failure::text("ERR WATCH inside MULTI is not allowed"));
    }
    let watched = watch_each(session, args, out);
    session.client.watched.broken |= watched.is_err();
    watched
}

fn watch_each(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (watched, more) = (&session.client.watched, WatchedKeys::memory_of(args.from(1)));
    // Those that are watched already count again: they take memory until they are compared.
    if watched.len() + args.len() - 1 > WATCHED_MAX || watched.memory() + more > WATCHED_BYTES_MAX {
        return Err(TOO_MANY);
    }
    session.keep(more)?;
    let mut keys = Vec::with_capacity(args.len() - 1);
    for key in args.from(1) {
        let (target, name) = session.routing().find(key).ok_or_else(|| Failure::nowhere(key))?;
        // Otherwise the transaction would find a change, since it drops the value.
        session.drop_untrusted(target, name);
        keys.push((target.partition, name.into()));
    }
    let missing = session.missing(args.from(1))?;
    if missing.is_empty() {
        session.watch_all(keys);
        out.extend_from_slice(reply::OK);
    } else {
        session.gather(missing, Then::Watch(keys))?;
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
    pub(super) fn watch_all(&mut self, keys: Vec<(PartitionId, Box<[u8]>)>) {
        self.client.watched.reserve(keys.len());
        for (partition, name) in keys {
            if self.client.watched.iter().all(|known| known.place() != (partition, &name[..])) {
                let seen = self.seen(partition, &name);
                self.client.watched.push(Watched { partition, name, seen });
            }
        }
    }

    /// Drops the values of watched keys that may not be trusted, which count as changed then.
    pub(super) fn drop_untrusted_watched(&self) {
        if self.trust.doubts_values {
            let places = self.client.watched.iter().map(Watched::place);
            places.for_each(|(partition, name)| self.shared.service.drop_untrusted(partition, name));
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
    ///
    /// # Errors
    /// If the missing keys are more than can be fetched for one command.
    pub(super) fn missing<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<GatheredKeys, Failure> {
        let mut missing = GatheredKeys::default();
        if self.shared.service.backends.is_none() {
            return Ok(missing);
        }
        let mut known = HashSet::new();
        for key in keys {
            let Some((target, name)) = self.routing().find(key) else { continue };
            let is_missing = target.read_through && self.peek(key, |_| ()).is_none();
            if is_missing && known.insert((target.partition, name)) {
                let key = Bytes::copy_from_slice(name);
                missing.push(Wanted { partition: target.partition, key, within: None })?;
            }
        }
        Ok(missing)
    }
}
