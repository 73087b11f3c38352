//! Executes the key lists of memcached's `get` commands: hits, and misses that a backend may have.
//!
//! A client may request thousands of keys of a megabyte each, and the listener must not buffer
//! gigabytes. So a key list is executed in portions: a portion ends when the output exceeds its
//! bound or [`FETCH_KEYS_MAX`] keys have to be fetched, and the connection sends or fetches before
//! the next. Answers are in the order of the keys, fetched or not: each miss records the offset in
//! the output at which its value belongs.

use crate::backends::FetchedValue;
use bytes::Bytes;
use sherwood_cache::{PREFETCH_KEYS_MAX, Value};
use sherwood_wire::memcached::{Retrieval, reply};

use super::session::{Session, access, is_over};
use crate::ahead::prefetch;
use crate::clock::Moment;
use crate::conversation::{Fetched, Wanted};
use crate::counters::Count;
use crate::fetch::FETCH_KEYS_MAX;
use crate::kept::allocated;
use crate::output::{self, Output};
use crate::routing::Target;
use crate::work::{CHANGE, KEY};

/// The result of executing a portion of a key list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// All keys of the list have been looked up.
    Done,
    /// There are more keys: send the output or fetch the misses first.
    More,
}

/// Keys of a key list that were not found in the cache and will be fetched.
#[derive(Debug, Default)]
pub(super) struct Misses {
    list: Vec<Miss>,
}

#[derive(Debug)]
struct Miss {
    /// Offset in the output at which the key's value belongs.
    at: usize,
    target: Target,
    /// The key as sent by the client.
    key: Bytes,
    /// The key without the prefix that selects its partition, as the partition stores it.
    name: Bytes,
}

impl Misses {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the memory of the misses and their keys, bytes.
    pub(super) fn memory(&self) -> usize {
        let keys: usize = self.list.iter().map(|miss| allocated(miss.key.len())).sum();
        self.list.capacity() * size_of::<Miss>() + keys
    }

    /// Returns the keys to fetch, in the order of the misses.
    pub(super) fn wanted(&self) -> Vec<Wanted> {
        let wanted =
            |miss: &Miss| Wanted { partition: miss.target.partition, key: miss.name.clone(), within: None };
        self.list.iter().map(wanted).collect()
    }
}

impl Session<'_> {
    /// Looks up keys of `retrieval` until none is left, `out` is full or there are
    /// [`FETCH_KEYS_MAX`] misses. Keys that were looked up are removed from `retrieval`.
    pub(super) fn retrieve(
        &self,
        moment: Moment,
        retrieval: &mut Retrieval<'_>,
        misses: &mut Misses,
        out: &mut Output,
    ) -> Portion {
        let mut ahead = 0;
        loop {
            let mut rest = retrieval.keys;
            let Some(key) = rest.next() else { return Portion::Done };
            if out.is_full(&self.shared.options) || misses.list.len() == FETCH_KEYS_MAX {
                return Portion::More;
            }
            retrieval.keys = rest;
            if ahead == 0 && !retrieval.keys.text().is_empty() {
                ahead = PREFETCH_KEYS_MAX;
                let key = if retrieval.touch.is_some() { KEY + CHANGE } else { KEY };
                out.work.add(key * PREFETCH_KEYS_MAX as u64);
                prefetch(&self.shared.service, self.routing, &mut { retrieval.keys });
            }
            ahead = ahead.saturating_sub(1);
            self.look_up(moment, retrieval, key, misses, out);
        }
    }

    fn look_up(
        &self,
        moment: Moment,
        retrieval: &Retrieval<'_>,
        key: &[u8],
        misses: &mut Misses,
        out: &mut Output,
    ) {
        self.counters.increment(Count::CmdGet);
        let Some((target, name)) = self.find(key) else {
            self.counters.increment(Count::GetMisses);
            return;
        };
        let access = self.access(moment, target, name);
        let found = self.shared.service.cache.get(target.partition, name, &access, |item| match item.value {
            Value::Bytes(value) => {
                let cas = retrieval.cas.then_some(item.cas);
                out.value(&item, value, |out| reply::value_line(out, key, item.flags, cas, value.len()));
                true
            }
            // Only simulators store an item that has a size but no value.
            Value::Declared(_) => false,
        });
        if found != Some(true) {
            self.counters.increment(Count::GetMisses);
            if retrieval.touch.is_some_and(|exptime| is_over(exptime, moment)) {
                // An item that this client cannot see, such as a stale one, is removed too.
                self.remove(moment, target, name);
            }
            if target.read_through && self.shared.service.backends.is_some() {
                self.ended.note_read(target, name);
                let key = Bytes::copy_from_slice(key);
                let name = key.slice_ref(&key[key.len() - name.len()..]);
                misses.list.push(Miss { at: out.len(), target, key, name });
            } else {
                self.ended.note_miss(target, name);
            }
            return;
        }
        self.counters.increment(Count::GetHits);
        self.ended.note_hit(target, name);
        if let Some(exptime) = retrieval.touch {
            self.touch_at(moment, target, name, exptime);
        }
    }

    /// Inserts the fetched values into `out` at their offsets and clears the misses. Returns the
    /// text for the client of a fetch that was rejected.
    pub(super) fn insert(
        &self,
        moment: Moment,
        cas: bool,
        misses: &mut Misses,
        fetched: Fetched,
        out: &mut Vec<u8>,
    ) -> Option<String> {
        self.counters.add(Count::Fetches, misses.list.len() as u64);
        let mut rejection = None;
        // Their memory is freed: between commands a client has no buffer.
        let misses = std::mem::take(&mut misses.list).into_iter();
        let answers = misses.zip(fetched).map(|(miss, result)| (miss.at, (miss, result)));
        output::insert(out, answers, |(miss, result), out| match result {
            Ok(Some(found)) => self.fetched_value(moment, cas, &miss, &found, out),
            Ok(None) => {}
            Err(failure) => {
                self.counters.increment(Count::FetchErrors);
                rejection = failure.rejection().or(rejection.take());
            }
        });
        rejection
    }

    /// Appends the answer for a fetched value. With `cas`, the value and CAS of the stored item are
    /// answered instead if there is one, since the CAS has to belong to the value; without a stored
    /// item the CAS is 0.
    fn fetched_value(&self, moment: Moment, cas: bool, miss: &Miss, found: &FetchedValue, out: &mut Vec<u8>) {
        if cas {
            let access = access(moment);
            let cache = &self.shared.service.cache;
            let filled = cache.peek(miss.target.partition, &miss.name, &access, |item| match item.value {
                Value::Bytes(value) => {
                    reply::value(out, &miss.key, item.flags, Some(item.cas), value);
                    true
                }
                Value::Declared(_) => false,
            });
            if filled == Some(true) {
                return;
            }
        }
        reply::value(out, &miss.key, found.flags, cas.then_some(0), &found.value);
    }
}
