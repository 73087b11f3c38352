//! Keys of consecutive gets that were not found in the cache and will be fetched.

use bytes::Bytes;
use sherwood_cache::Value;
use sherwood_wire::memcached::binary::{Echo, Status, response};

use crate::backends::{FetchResult, FetchedValue};
use crate::clock::Moment;
use crate::conversation::{Fetched, NextStep, Wanted};
use crate::counters::Count;
use crate::fetch::FETCH_KEYS_MAX;
use crate::memcached::session::{Session, access};
use crate::output;
use crate::routing::Target;

/// The misses that are fetched together, at most [`FETCH_KEYS_MAX`].
#[derive(Debug, Default)]
pub(super) struct Misses {
    list: Vec<Miss>,
}

/// A get whose key is fetched.
#[derive(Debug)]
pub(super) struct Miss {
    /// Offset in the output at which the answer belongs.
    pub(super) at: usize,
    pub(super) target: Target,
    pub(super) echo: Echo,
    pub(super) quiet: bool,
    /// True if the answer includes the key.
    pub(super) with_key: bool,
    /// The key as sent by the client.
    pub(super) key: Bytes,
    /// The key without the prefix that selects its partition, as the partition stores it.
    pub(super) name: Bytes,
}

impl Misses {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn are_full(&self) -> bool {
        self.list.len() == FETCH_KEYS_MAX
    }

    pub(super) fn add(&mut self, miss: Miss) {
        self.list.push(miss);
    }

    /// Returns the memory of the misses, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        let keys: usize = self.list.iter().map(|miss| miss.key.len()).sum();
        self.list.capacity() * size_of::<Miss>() + keys
    }

    /// Returns the step that fetches the keys, of which there is at least one.
    pub(super) fn fetch(&self) -> NextStep {
        let wanted =
            |miss: &Miss| Wanted { partition: miss.target.partition, key: miss.name.clone(), within: None };
        NextStep::Fetch(self.list.iter().map(wanted).collect())
    }

    /// Inserts the answers into `out` at their offsets and clears the misses.
    pub(super) fn answer(
        &mut self,
        session: &Session<'_>,
        moment: Moment,
        fetched: Fetched,
        out: &mut Vec<u8>,
    ) {
        // A client that waits for nothing holds no memory for its misses.
        let misses = std::mem::take(&mut self.list);
        session.counters.add(Count::Fetches, misses.len() as u64);
        let answers = misses.into_iter().zip(fetched).map(|(miss, result)| (miss.at, (miss, result)));
        output::insert(out, answers, |(miss, result), out| miss.answer(session, moment, result, out));
    }
}

impl Miss {
    /// Appends the answer. As in the text protocol, a failed fetch is answered as a miss and a
    /// rejected one by an error. A quiet get, probably one of several, has no answer in either
    /// case.
    fn answer(&self, session: &Session<'_>, moment: Moment, result: FetchResult, out: &mut Vec<u8>) {
        let rejection = match result {
            Ok(Some(found)) => return self.fetched_value(session, moment, &found, out),
            Ok(None) => None,
            Err(failure) => {
                session.counters.increment(Count::FetchErrors);
                failure.rejection()
            }
        };
        match rejection {
            _ if self.quiet => {}
            Some(text) => response::error_text(out, self.echo, Status::TemporaryFailure, &text),
            None => response::miss(out, self.echo, self.returned()),
        }
    }

    /// Appends value and CAS of the item if the cache has stored it, so that the two belong
    /// together; otherwise the fetched value with a CAS of 0.
    fn fetched_value(&self, session: &Session<'_>, moment: Moment, found: &FetchedValue, out: &mut Vec<u8>) {
        let (cache, access) = (&session.shared.service.cache, access(moment));
        let filled = cache.peek(self.target.partition, &self.name, &access, |item| match item.value {
            Value::Bytes(value) => {
                response::value(out, self.echo, self.returned(), item.flags, item.cas, value);
                true
            }
            Value::Declared(_) => false,
        });
        if filled != Some(true) {
            response::value(out, self.echo, self.returned(), found.flags, 0, &found.value);
        }
    }

    /// Returns the key to include in the answer; empty if the client did not ask for it.
    fn returned(&self) -> &[u8] {
        if self.with_key { &self.key } else { b"" }
    }
}
