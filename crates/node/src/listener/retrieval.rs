//! Key lists: as many hits as there is room for, and the misses that somebody may still fetch.
//!
//! A client that asks for thousands of keys of a megabyte each must not make us hold gigabytes. So a key list is worked off
//! in portions: one ends when the output is over its bound or [`FETCH_KEYS_MAX`] keys wait to be fetched, and the
//! connection sends or fetches before it goes on. Answers are in the order of the keys whatever had to be fetched: each
//! miss remembers where in the output its value belongs.

use std::future::Future;

use bytes::Bytes;
use futures_util::future::join_all;
use sherwood_cache::Value;
use sherwood_model::PartitionId;
use sherwood_wire::memcached::{Retrieval, reply};

use super::counters::Count;
use super::routing::Target;
use super::session::{Session, access};
use crate::clock::Moment;

/// Most keys of a connection that are fetched from backends at a time. A longer key list is fetched in several rounds.
pub const FETCH_KEYS_MAX: usize = 64;

/// How a portion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// All keys are looked up.
    Done,
    /// There are more keys: send the output or fetch the misses first.
    More,
}

/// Keys that were not found and are to be fetched.
#[derive(Debug, Default)]
pub(super) struct Misses {
    list: Vec<Miss>,
}

#[derive(Debug)]
struct Miss {
    /// Where in the output its value belongs.
    at: usize,
    target: Target,
    /// As the client calls it.
    key: Bytes,
    /// As the partition calls it.
    name: Bytes,
}

/// What became of each miss, in their order.
pub(super) type Fetched = Vec<Option<Bytes>>;

impl Misses {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl Session<'_> {
    /// Looks up keys of `retrieval` until they are at an end, `out` holds `out_max` bytes or the misses are many. What it
    /// looked up is no longer in `retrieval`.
    pub(super) fn retrieve(
        &self,
        moment: Moment,
        retrieval: &mut Retrieval<'_>,
        misses: &mut Misses,
        out: &mut Vec<u8>,
        out_max: usize,
    ) -> Portion {
        while out.len() < out_max && misses.list.len() < FETCH_KEYS_MAX {
            let Some(key) = retrieval.keys.next() else {
                return Portion::Done;
            };
            self.look_up(moment, retrieval, key, misses, out);
        }
        Portion::More
    }

    fn look_up(
        &self,
        moment: Moment,
        retrieval: &Retrieval<'_>,
        key: &[u8],
        misses: &mut Misses,
        out: &mut Vec<u8>,
    ) {
        self.counters.increment(Count::CmdGet);
        let Some((target, name)) = self.shared.service.routing.find(key) else {
            self.counters.increment(Count::GetMisses);
            return;
        };
        let access = access(moment, target);
        let found = self.shared.service.cache.get(target.partition, name, &access, |item| match item.value {
            Value::Bytes(value) => {
                reply::value(out, key, item.flags, retrieval.cas.then_some(item.cas), value);
                true
            }
            // A size without a value is no answer; nobody but a simulator declares sizes.
            Value::Declared(_) => false,
        });
        if found != Some(true) {
            self.counters.increment(Count::GetMisses);
            if target.read_through && self.shared.service.backends.is_some() {
                let key = Bytes::copy_from_slice(key);
                let name = key.slice_ref(&key[key.len() - name.len()..]);
                misses.list.push(Miss { at: out.len(), target, key, name });
            }
            return;
        }
        self.counters.increment(Count::GetHits);
        if let Some(exptime) = retrieval.touch {
            self.touch_at(moment, target, name, exptime);
        }
    }

    /// Fetches the misses, all partitions at a time. The future borrows nothing.
    pub(super) fn fetch(&self, misses: &Misses) -> impl Future<Output = Vec<FetchedPart>> + Send + use<> {
        let mut parts: Vec<(PartitionId, Vec<usize>)> = Vec::new();
        for (index, miss) in misses.list.iter().enumerate() {
            match parts.iter_mut().find(|(partition, _)| *partition == miss.target.partition) {
                Some((_, indices)) => indices.push(index),
                None => parts.push((miss.target.partition, vec![index])),
            }
        }
        let backends = self.shared.service.backends.iter().cloned();
        let fetches: Vec<_> = backends
            .flat_map(|backends| {
                parts.iter().map(move |(partition, indices)| {
                    let names = indices.iter().map(|&index| misses.list[index].name.clone()).collect();
                    let results = backends.fetch(*partition, names);
                    let indices = indices.clone();
                    async move { FetchedPart { indices, results: results.await } }
                })
            })
            .collect();
        join_all(fetches)
    }

    /// Puts what was fetched where it belongs in `out`, and forgets the misses.
    pub(super) fn insert(
        &self,
        moment: Moment,
        retrieval: &Retrieval<'_>,
        misses: &mut Misses,
        parts: Vec<FetchedPart>,
        out: &mut Vec<u8>,
    ) {
        let fetched = self.in_order(misses.list.len(), parts);
        let Some(first) = misses.list.first().map(|miss| miss.at) else { return };
        let hits = out.split_off(first);
        let mut copied = 0;
        for (miss, value) in misses.list.drain(..).zip(fetched) {
            let until = miss.at - first;
            out.extend_from_slice(&hits[copied..until]);
            copied = until;
            if let Some(value) = value {
                self.fetched_value(moment, retrieval, &miss, &value, out);
            }
        }
        out.extend_from_slice(&hits[copied..]);
    }

    fn in_order(&self, misses: usize, parts: Vec<FetchedPart>) -> Fetched {
        let mut fetched: Fetched = vec![None; misses];
        self.counters.add(Count::Fetches, misses as u64);
        for FetchedPart { indices, results } in parts {
            let failed = results.iter().filter(|result| result.is_err()).count();
            let unanswered = indices.len().saturating_sub(results.len());
            self.counters.add(Count::FetchErrors, (failed + unanswered) as u64);
            for (index, result) in indices.into_iter().zip(results) {
                fetched[index] = result.ok().flatten();
            }
        }
        fetched
    }

    /// Appends a fetched value. Its unique number is that of the item it became; where it became none, or another was stored
    /// meanwhile, the item is what counts, since a number must not come with a value it does not belong to.
    fn fetched_value(
        &self,
        moment: Moment,
        retrieval: &Retrieval<'_>,
        miss: &Miss,
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        if retrieval.cas {
            let access = access(moment, miss.target);
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
        reply::value(out, &miss.key, 0, retrieval.cas.then_some(0), value);
    }
}

/// What one partition's backend answered.
pub(super) struct FetchedPart {
    /// Which misses were asked for.
    indices: Vec<usize>,
    results: Vec<Result<Option<Bytes>, String>>,
}

impl FetchedPart {
    /// The values there are.
    pub(super) fn values(&self) -> impl Iterator<Item = &Bytes> {
        self.results.iter().flatten().flatten()
    }
}
