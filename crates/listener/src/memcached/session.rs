//! Executes memcached commands: from a command, a moment and the cache to an answer.
//!
//! No function here blocks. Key lists, which may have to wait for a backend, are in
//! [`super::retrieval`].

use std::borrow::Cow;

use sherwood_cache::OUTDATED;
use sherwood_cache::{Access, AccessFlags, Change, Item, ItemKind, Marks, NewItem, Received, Refused, Value};
use sherwood_model::Instant;
use sherwood_model::query_times::Operation;
use sherwood_wire::memcached::{
    Command, Delta, Expires, Exptime, Meta, Refusal, Retrieval, Storage, StorageVerb, reply,
};

use super::stats;
use super::through::ClientWrite;
use crate::backends::SharedTrust;
use crate::clock::Moment;
use crate::conversation::Wanted;
use crate::counters::{Count, Counters};
use crate::ended::EndedOperations;
use crate::output::Output;
use crate::routing::{Routing, Target};
use crate::shared::Shared;
use crate::tenants::TenantSlot;
use crate::work::{COUNTERS, FLUSH, Work, rebuilt};

/// Executes the memcached commands of one client.
#[derive(Clone, Copy)]
pub(super) struct Session<'a> {
    pub(super) shared: &'a Shared,
    /// The slot of the client's tenant, and its routes.
    pub(super) slot: TenantSlot,
    pub(super) routing: &'a Routing,
    /// Counters of the connections' thread for the client's tenant.
    pub(super) counters: &'a Counters,
    /// Operations that have ended in the thread's present turn.
    pub(super) ended: &'a EndedOperations,
    /// The input in memory of the cache, which an item stored from it keeps.
    pub(super) received: Option<&'a Received>,
    /// The trust in values that other nodes cache, too.
    pub(super) trust: SharedTrust,
}

/// The next step of a connection after a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AfterCommand<'a> {
    /// Execute the next command.
    Continue,
    /// Look up the keys of a `get` command.
    Retrieve(Retrieval<'a>),
    /// Fetch a key, then answer the `mg` that requests it.
    Fetch(Meta<'a>, Wanted),
    /// Make a write at the store, then answer.
    Store(ClientWrite),
    /// Close the connection after sending the output.
    Close,
}

impl<'a> Session<'a> {
    /// Creates the session of a client of thread number `thread`.
    pub(super) fn new(
        shared: &'a Shared,
        thread: usize,
        slot: TenantSlot,
        received: Option<&'a Received>,
    ) -> Self {
        let (routing, counters) = (shared.service.routing(slot), shared.counters(thread, slot));
        let (ended, trust) = (shared.ended(thread), shared.shared_trust());
        Self { shared, slot, routing, counters, ended, received, trust }
    }
}

impl Session<'_> {
    /// Executes `command` and appends its answer to `out`.
    pub(super) fn execute<'c>(
        &self,
        moment: Moment,
        command: Command<'c>,
        out: &mut Output,
    ) -> AfterCommand<'c> {
        if let Some(after) = self.write_through(moment, &command, out) {
            return after;
        }
        if self.trust.refuses_changes && self.refuses(moment, &command, out) {
            return AfterCommand::Continue;
        }
        let (answer, noreply) = match command {
            Command::Retrieval(retrieval) => return AfterCommand::Retrieve(retrieval),
            Command::Meta(meta) => return self.meta(moment, meta, out),
            Command::MetaNoOp => (reply::META_NO_OP, false),
            Command::Quit => return AfterCommand::Close,
            Command::Stats(words) => {
                out.work.add(COUNTERS * self.routing.partitions().len() as u64);
                stats::write(self.shared, self.slot, moment, words, out);
                return AfterCommand::Continue;
            }
            Command::Version => {
                reply::version(out, crate::VERSION);
                return AfterCommand::Continue;
            }
            Command::Arithmetic { key, delta, noreply } => {
                match self.arithmetic(moment, key, delta) {
                    Ok(number) if !noreply => reply::number(out, number),
                    Err(answer) if !noreply => out.extend_from_slice(answer),
                    _ => {}
                }
                return AfterCommand::Continue;
            }
            Command::Storage(storage) => (self.store(moment, &storage, &mut out.work), storage.noreply),
            Command::TooLarge { verb, key, noreply } => (self.too_large(moment, verb, key), noreply),
            Command::Touch { key, exptime, noreply } => (self.touch(moment, key, exptime), noreply),
            Command::Delete { key, noreply } => (self.delete(moment, key), noreply),
            Command::FlushAll { delay, noreply } => {
                out.work.add(FLUSH * self.routing.partitions().len() as u64);
                (self.flush_all(moment, delay), noreply)
            }
            Command::Verbosity { noreply } => (reply::OK, noreply),
        };
        if !noreply {
            out.extend_from_slice(answer);
        }
        AfterCommand::Continue
    }

    /// Returns the access to the cache of a command that reads or stores a key, in the class of the
    /// key's deadline.
    pub(super) fn access(&self, moment: Moment, target: Target, key: &[u8]) -> Access {
        Access { class: self.shared.deadline_class(target, key, None), ..access(moment) }
    }

    /// Answers bytes that are not a memcached command.
    pub(super) fn refuse(&self, refusal: Refusal, noreply: bool, out: &mut Vec<u8>) {
        self.counters.increment(Count::ProtocolErrors);
        if !noreply {
            out.extend_from_slice(refusal.line());
        }
    }

    /// Returns the target of a key and the key without its prefix; none if no prefix matches. A
    /// cached value that may not be trusted is dropped first.
    pub(super) fn find<'k>(&self, key: &'k [u8]) -> Option<(Target, &'k [u8])> {
        let (target, name) = self.routing.find(key)?;
        if self.trust.doubts_values {
            self.shared.service.drop_untrusted(target.partition, name);
        }
        Some((target, name))
    }

    fn store(&self, moment: Moment, storage: &Storage<'_>, work: &mut Work) -> &'static [u8] {
        self.counters.increment(Count::CmdSet);
        let Some((target, key)) = self.find(storage.key) else { return NO_BACKEND };
        let store = || self.store_at(moment, target, key, storage, work);
        let service = &self.shared.service;
        let stored = match storage.verb {
            StorageVerb::Add => service.fill(target, key, store),
            _ => service.write(target, key, store),
        };
        self.ended.note_set((target, key), stored.map(|answer| answer == reply::STORED));
        match stored {
            Ok(answer) => {
                if answer == reply::STORED {
                    self.counters.increment(Count::TotalItems);
                }
                answer
            }
            Err(refused) => self.refused(refused),
        }
    }

    /// Returns the item that a storage command stores.
    pub(super) fn new_item<'v>(&'v self, moment: Moment, storage: &Storage<'v>) -> NewItem<'v> {
        NewItem {
            flags: storage.flags,
            expires: expiry(storage.exptime, moment),
            received: self.received,
            ..NewItem::bytes(storage.value)
        }
    }

    fn store_at(
        &self,
        moment: Moment,
        target: Target,
        key: &[u8],
        storage: &Storage<'_>,
        work: &mut Work,
    ) -> Result<&'static [u8], Refused> {
        let cache = &self.shared.service.cache;
        let access = self.access(moment, target, key);
        let item = self.new_item(moment, storage);
        match storage.verb {
            StorageVerb::Set => cache.set(target.partition, key, item, &access).map(|_| reply::STORED),
            StorageVerb::Add => cache.add(target.partition, key, item, &access).map(|added| match added {
                true => reply::STORED,
                false => reply::NOT_STORED,
            }),
            StorageVerb::Replace => cache.update(target.partition, key, &access, |old| match old {
                Some(_) => (Change::Store(item), reply::STORED),
                None => (Change::Keep, reply::NOT_STORED),
            }),
            StorageVerb::Append | StorageVerb::Prepend => {
                let bytes_max = cache.options().item_bytes_max as usize;
                cache.update(target.partition, key, &access, |old| joined(storage, old, bytes_max, work))
            }
            StorageVerb::Cas(unique) => {
                let stored = cache.update(target.partition, key, &access, |old| match old {
                    Some(old) if old.cas == unique => (Change::Store(item), (Count::CasHits, reply::STORED)),
                    Some(_) => (Change::Keep, (Count::CasBadval, reply::EXISTS)),
                    None => (Change::Keep, (Count::CasMisses, reply::NOT_FOUND)),
                })?;
                self.counters.increment(stored.0);
                Ok(stored.1)
            }
        }
    }

    pub(super) fn too_large(&self, moment: Moment, verb: StorageVerb, key: &[u8]) -> &'static [u8] {
        self.counters.increment(Count::StoreTooLarge);
        if verb == StorageVerb::Set
            && let Some((target, key)) = self.find(key)
        {
            self.remove(moment, target, key);
        }
        reply::TOO_LARGE
    }

    pub(super) fn refused(&self, refused: Refused) -> &'static [u8] {
        match refused {
            Refused::KeyTooLong { .. } => Refusal::BadFormat.line(),
            Refused::ValueTooLarge { .. } => {
                self.counters.increment(Count::StoreTooLarge);
                reply::TOO_LARGE
            }
            Refused::OverBudget { .. } => {
                self.counters.increment(Count::StoreNoMemory);
                reply::OUT_OF_MEMORY
            }
        }
    }

    fn arithmetic(&self, moment: Moment, key: &[u8], delta: Delta) -> Result<u64, &'static [u8]> {
        let (hits, misses) = match delta {
            Delta::Increase(_) => (Count::IncrHits, Count::IncrMisses),
            Delta::Decrease(_) => (Count::DecrHits, Count::DecrMisses),
        };
        let Some((target, key)) = self.find(key) else {
            self.counters.increment(misses);
            return Err(reply::NOT_FOUND);
        };
        let access = access(moment);
        let cache = &self.shared.service.cache;
        let changed = self
            .shared
            .service
            .write(target, key, || cache.update(target.partition, key, &access, |old| counted(old, delta)));
        let changed = changed.map_err(|refused| self.refused(refused))?;
        let found = changed != Err(reply::NOT_FOUND);
        self.ended.note(target, Operation::Other, found);
        self.counters.increment(if found { hits } else { misses });
        changed
    }

    fn touch(&self, moment: Moment, key: &[u8], exptime: Exptime) -> &'static [u8] {
        let found = self.find(key);
        let touched = found.is_some_and(|(target, key)| {
            let touched = self.touch_at(moment, target, key, exptime);
            self.ended.note(target, Operation::Other, touched);
            touched
        });
        match touched {
            true => reply::TOUCHED,
            false => reply::NOT_FOUND,
        }
    }

    /// Sets the expiry of an item, or removes the item if the time is past. Returns true if the
    /// item exists.
    pub(super) fn touch_at(&self, moment: Moment, target: Target, key: &[u8], exptime: Exptime) -> bool {
        let touched = if is_over(exptime, moment) {
            // Removed, because an expired item would stay visible to readers that accept stale
            // values.
            self.remove(moment, target, key)
        } else {
            let expires = expiry(exptime, moment);
            let touch = |old: Option<Item<'_>>| (Change::Touch(expires), old.is_some());
            let cache = &self.shared.service.cache;
            // A touch stores nothing, so it is never refused.
            cache.update(target.partition, key, &access(moment), touch).unwrap_or(false)
        };
        self.counters.increment(Count::CmdTouch);
        self.counters.increment(if touched { Count::TouchHits } else { Count::TouchMisses });
        touched
    }

    fn delete(&self, moment: Moment, key: &[u8]) -> &'static [u8] {
        let found = self.find(key);
        let removed = found.is_some_and(|(target, key)| {
            let removed = self.remove(moment, target, key);
            self.ended.note(target, Operation::Delete, removed);
            removed
        });
        self.counters.increment(if removed { Count::DeleteHits } else { Count::DeleteMisses });
        match removed {
            true => reply::DELETED,
            false => reply::NOT_FOUND,
        }
    }

    pub(super) fn remove(&self, moment: Moment, target: Target, key: &[u8]) -> bool {
        let access = access(moment);
        self.shared
            .service
            .write(target, key, || self.shared.service.cache.remove(target.partition, key, &access))
    }

    pub(super) fn flush_all(&self, moment: Moment, delay: Exptime) -> &'static [u8] {
        self.counters.increment(Count::CmdFlush);
        let at = match delay.resolve(moment.unix_secs) {
            Expires::Never | Expires::Already => moment.now,
            Expires::After(delay) => moment.now + delay,
        };
        for partition in self.routing.partitions() {
            let mut flush = || self.shared.service.cache.flush(Some(partition), at, moment.now);
            match &self.shared.service.backends {
                Some(backends) => backends.flush(partition, at, &mut flush),
                None => flush(),
            }
        }
        reply::OK
    }
}

/// The answer to a store whose key matches no route to a partition.
pub(super) const NO_BACKEND: &[u8] = b"SERVER_ERROR no backend for this key's prefix\r\n";
/// The answer to an append or prepend beyond the bound on a command's work. memcached has no
/// counterpart.
pub(super) const TOO_MUCH: &[u8] =
    b"SERVER_ERROR the value is too large to append to, since other clients would wait; the sum may have 4 MiB\r\n";
/// Maximum length of a value that is parsed as a number, in bytes. Chosen to bound the work, far
/// above 20 digits and some padding.
const NUMBER_BYTES_MAX: usize = 1024;

/// Returns the access to the cache of a memcached command. Placeholders are visible: to memcached's
/// clients they are items with an empty value.
pub(super) fn access(moment: Moment) -> Access {
    Access { flags: AccessFlags::SEE_PLACEHOLDERS, ..Access::at(moment.now) }
}

/// Converts the expiry time of a command to the instant at which the item expires; one in the past
/// becomes now.
pub(super) fn expiry(exptime: Exptime, moment: Moment) -> Option<Instant> {
    match exptime.resolve(moment.unix_secs) {
        Expires::Never => None,
        Expires::Already => Some(moment.now),
        Expires::After(left) => Some(moment.now + left),
    }
}

/// Returns true if this expiry time of a command has passed already.
pub(super) fn is_over(exptime: Exptime, moment: Moment) -> bool {
    matches!(exptime.resolve(moment.unix_secs), Expires::Already)
}

/// Returns the change that `append` or `prepend` makes to an item. As in memcached, a value that
/// would become too large is kept unchanged. A value derived from an outdated one is outdated too.
pub(super) fn joined(
    storage: &Storage<'_>,
    old: Option<Item<'_>>,
    bytes_max: usize,
    work: &mut Work,
) -> (Change<'static>, &'static [u8]) {
    let Some(Item { value: Value::Bytes(value), flags, expires, tags, marks, .. }) = old else {
        return (Change::Keep, reply::NOT_STORED);
    };
    if value.len() + storage.value.len() > bytes_max {
        return (Change::Keep, reply::NOT_STORED);
    }
    if work.begin(rebuilt(value.len() + storage.value.len())).is_err() {
        return (Change::Keep, TOO_MUCH);
    }
    let value = match storage.verb {
        StorageVerb::Prepend => [storage.value, value].concat(),
        _ => [value, storage.value].concat(),
    };
    let (value, marks) = (Cow::Owned(value), marks.only(OUTDATED));
    (
        Change::StoreMarked { value, flags, expires, kind: ItemKind::Plain, tags, marks, cas: None },
        reply::STORED,
    )
}

/// Returns the change that `incr` or `decr` makes to an item, and the new number.
pub(super) fn counted(old: Option<Item<'_>>, delta: Delta) -> (Change<'static>, Result<u64, &'static [u8]>) {
    let Some(Item { value: Value::Bytes(value), flags, expires, tags, marks, .. }) = old else {
        return (Change::Keep, Err(reply::NOT_FOUND));
    };
    let Some(number) = number(value) else { return (Change::Keep, Err(reply::NON_NUMERIC)) };
    let number = delta.apply(number);
    let (value, marks) = recounted(number, value, marks);
    (Change::StoreMarked { value, flags, expires, kind: ItemKind::Plain, tags, marks, cas: None }, Ok(number))
}

/// Encodes a number that replaces the value `old`, and returns the marks of the item that remain.
/// As in memcached, a shorter text is padded with spaces, and a longer one resets the marks; but a
/// number derived from an outdated value stays outdated.
pub(super) fn recounted(number: u64, old: &[u8], marks: Marks) -> (Cow<'static, [u8]>, Marks) {
    let mut text = number.to_string().into_bytes();
    let marks = if text.len() > old.len() { marks.only(OUTDATED) } else { marks };
    text.resize(text.len().max(old.len()), b' ');
    (Cow::Owned(text), marks)
}

/// Parses an item's value as a number: digits, optionally surrounded by spaces.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if value.len() > NUMBER_BYTES_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
