//! Continues commands whose answer does not fit in the output, waits for a backend, or takes long.
//!
//! `MGET` may request a thousand values of a megabyte each, and `KEYS` may match millions of keys.
//! Neither may buffer gigabytes or delay the other clients of the thread, so such a command runs in
//! portions: between two portions the connection sends, fetches or lets other connections run.

use std::ops::Range;

use bytes::Bytes;
use sherwood_cache::PREFETCH_KEYS_MAX;
use sherwood_wire::resp::{Args, Version, reply};

use super::each::{Each, Pairs};
use super::gathering::Gathering;
use super::listing::Listing;
use super::session::{CommandResult, Old, Session, arg};
use super::through::Writes;
use crate::FETCH_KEYS_MAX;
use crate::ahead::prefetch;
use crate::backends::FetchResult;
use crate::conversation::{Fetched, NextStep, Wanted};
use crate::counters::Count;
use crate::kept::allocated;
use crate::output::{self, Output};
use crate::work::KEY;

/// A command that was begun and is continued later.
#[derive(Debug)]
pub(super) enum Aside {
    /// A command such as `MGET` that has keys left to look up.
    Values(Values),
    /// A command such as `KEYS` that has keys of the cache left to visit.
    Listing(Listing),
    /// A command of a write-through listener whose writes are to be made.
    Writes(Writes),
    /// A command on transactions that waits for values of its keys.
    Gathering(Gathering),
    /// A command such as `DEL` that has keys left to process.
    Each(Each),
    /// An `MSET` that has pairs left to store.
    Pairs(Pairs),
}

/// The keys of a command whose values are still to be answered, in order.
#[derive(Debug, Default)]
pub(super) struct Values {
    keys: KeptKeys,
    misses: Vec<Miss>,
    muted: bool,
}

/// Copies of the remaining arguments of an unfinished command.
#[derive(Debug, Default)]
pub(super) struct KeptKeys {
    /// The arguments, each preceded by its length in four bytes.
    bytes: Vec<u8>,
    /// Number of leading `bytes` whose arguments were already taken.
    done: usize,
}

/// A key that was not found in the cache and will be fetched.
#[derive(Debug)]
struct Miss {
    /// Offset in the output at which the key's value belongs.
    at: usize,
    wanted: Wanted,
}

impl Aside {
    /// Suppresses the rest of the command's answer.
    pub(super) fn mute(&mut self) {
        match self {
            Self::Values(values) => values.muted = true,
            Self::Listing(listing) => listing.mute(),
            Self::Writes(writes) => writes.mute(),
            Self::Gathering(gathering) => gathering.mute(),
            Self::Each(each) => each.mute(),
            Self::Pairs(pairs) => pairs.mute(),
        }
    }

    /// Returns the memory of the command that is taken from the budget of kept memory, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        match self {
            Self::Gathering(gathering) => gathering.memory(),
            Self::Writes(writes) => writes.memory(),
            Self::Values(_) | Self::Listing(_) | Self::Each(_) | Self::Pairs(_) => 0,
        }
    }

    /// Returns the memory of the command's buffers outside of that budget, bytes.
    pub(super) fn buffer_bytes(&self) -> usize {
        match self {
            Self::Values(values) => {
                let misses: usize = values.misses.iter().map(|miss| allocated(miss.wanted.key.len())).sum();
                values.keys.capacity() + values.misses.capacity() * size_of::<Miss>() + misses
            }
            Self::Listing(listing) => listing.memory(),
            Self::Each(each) => each.memory(),
            Self::Pairs(pairs) => pairs.memory(),
            Self::Gathering(_) | Self::Writes(_) => 0,
        }
    }
}

impl Session<'_> {
    /// Appends the values of the keys from argument `first` on, as many as fit into the output, and
    /// keeps the remaining keys for later; in a transaction all of them.
    pub(super) fn values(&mut self, args: Args<'_>, first: usize, out: &mut Output) -> CommandResult {
        if self.exclusive.is_some() {
            return self.values_at_once(args, first, out);
        }
        let mut values = Values::default();
        for index in first..args.len() {
            if args.len() > first + 1 && (index - first).is_multiple_of(PREFETCH_KEYS_MAX) {
                out.work.add(KEY * PREFETCH_KEYS_MAX as u64);
                prefetch(&self.shared.service, self.routing(), &mut args.from(index));
            }
            if out.is_full(&self.shared.options) || values.misses.len() == FETCH_KEYS_MAX {
                values.keys = KeptKeys::of(args, index);
                break;
            }
            self.look_up(arg(args, index), &mut values.misses, out);
        }
        if !values.misses.is_empty() || !values.keys.is_empty() {
            self.client.aside = Some(Aside::Values(values));
        }
        Ok(())
    }

    /// Continues the command that was begun and not completed. Returns the next step of the
    /// connection while the command is unfinished.
    pub(super) fn go_on(&mut self, out: &mut Output) -> Option<NextStep> {
        let next = match self.client.aside.take()? {
            Aside::Values(mut values) => {
                let next = self.more_values(&mut values, out);
                (next, Aside::Values(values))
            }
            Aside::Listing(mut listing) => {
                let next = (!listing.go_on(self, out)).then_some(NextStep::Send);
                (next, Aside::Listing(listing))
            }
            Aside::Each(mut each) => {
                let next = (!each.go_on(self, out)).then_some(NextStep::Send);
                (next, Aside::Each(each))
            }
            Aside::Pairs(mut pairs) => {
                let next = (!pairs.go_on(self, out)).then_some(NextStep::Send);
                (next, Aside::Pairs(pairs))
            }
            Aside::Writes(mut writes) => {
                let next = NextStep::Store(writes.take());
                (Some(next), Aside::Writes(writes))
            }
            Aside::Gathering(mut gathering) => match gathering.next() {
                Some(wanted) => (Some(NextStep::Fetch(wanted)), Aside::Gathering(gathering)),
                None => {
                    self.finish(gathering, out);
                    return None;
                }
            },
        };
        let (Some(next), aside) = next else { return None };
        self.client.aside = Some(aside);
        Some(next)
    }

    fn more_values(&self, values: &mut Values, out: &mut Output) -> Option<NextStep> {
        let before = out.mark();
        while values.misses.is_empty() && !out.is_full(&self.shared.options) {
            let Values { keys, misses, muted } = values;
            self.look_up(keys.next()?, misses, out);
            out.work.add(KEY);
            if *muted {
                out.work.add(out.appended(before) as u64);
                out.reset(before);
            }
        }
        if values.misses.is_empty() {
            return Some(NextStep::Send);
        }
        Some(NextStep::Fetch(values.misses.iter().map(|miss| miss.wanted.clone()).collect()))
    }

    /// Inserts the fetched values of the command into `out` at their offsets.
    pub(super) fn resume(&mut self, fetched: Fetched, out: &mut Vec<u8>) {
        let version = self.version();
        self.counters.add(Count::Fetches, fetched.len() as u64);
        self.counters.add(Count::FetchErrors, fetched.iter().filter(|result| result.is_err()).count() as u64);
        let values = match &mut self.client.aside {
            Some(Aside::Values(values)) => values,
            Some(Aside::Gathering(gathering)) => return gathering.take(fetched),
            _ => return,
        };
        let misses = std::mem::take(&mut values.misses);
        if values.muted {
            return;
        }
        let answers = misses.into_iter().map(|miss| miss.at).zip(fetched);
        output::insert(out, answers, |result, out| answer(&result, version, out));
    }

    /// Appends the value of a key that the cache has. Returns true if it has it.
    pub(super) fn answer_hit(&self, key: &[u8], out: &mut Output) -> bool {
        let value = |old: Old<'_>| {
            out.value(&old.item, old.value, |out| reply::bulk_line(out, old.value.len()));
        };
        self.read(key, value).is_some()
    }

    fn look_up(&self, key: &[u8], misses: &mut Vec<Miss>, out: &mut Output) {
        if self.answer_hit(key, out) {
            return;
        }
        let backends = self.shared.service.backends.is_some();
        match self.routing().find(key).filter(|(target, _)| backends && target.read_through) {
            Some((target, name)) => {
                let key = Bytes::copy_from_slice(name);
                let wanted = Wanted { partition: target.partition, key, within: None };
                misses.push(Miss { at: out.len(), wanted });
            }
            None => reply::null(out, self.version()),
        }
    }
}

/// Appends the result of a key's fetch.
pub(super) fn answer(result: &FetchResult, version: Version, out: &mut Vec<u8>) {
    match result {
        Ok(Some(found)) => reply::bulk(out, &found.value),
        Ok(None) => reply::null(out, version),
        Err(failure) => match failure.rejection() {
            Some(text) => reply::error(out, format!("REJECTED {text}").as_bytes()),
            None => reply::null(out, version),
        },
    }
}

impl KeptKeys {
    /// Copies the arguments from `first` on.
    pub(super) fn of(args: Args<'_>, first: usize) -> Self {
        let needed = args.from(first).map(|key| size_of::<u32>() + key.len()).sum();
        let mut bytes = Vec::with_capacity(needed);
        for key in args.from(first) {
            // An argument is at most 512 MiB long.
            bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            bytes.extend_from_slice(key);
        }
        Self { bytes, done: 0 }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the memory of the arguments, bytes.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Takes the next key; none after the last one.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        let place = self.take()?;
        self.bytes.get(place)
    }

    /// Takes the next key and the argument after it; none after the last pair.
    pub(super) fn next_pair(&mut self) -> Option<(&[u8], &[u8])> {
        let (key, value) = (self.take()?, self.take()?);
        Some((self.bytes.get(key)?, self.bytes.get(value)?))
    }

    /// Takes the next argument and returns its range in `bytes`.
    fn take(&mut self) -> Option<Range<usize>> {
        let (len, _) = self.bytes[self.done..].split_first_chunk::<4>()?;
        let start = self.done + len.len();
        self.done = start + u32::from_le_bytes(*len) as usize;
        Some(start..self.done)
    }
}
