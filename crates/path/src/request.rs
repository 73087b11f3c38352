//! The state machine of one request.

use std::mem;
use std::time::Duration;

use sherwood_cache::{Access, Cache, Item};
use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId, QueryEnd, RequestEnd};

use crate::{Answer, Fetch, Query, Slot};

/// One request: its queries, and what became of each of their keys.
///
/// # Life of a key
/// ```text
///   arrived ──look_up──▶ in the cache ───────────────────▶ Hit
///                 │
///                 └────▶ asked for, once per query ─result─▶ Miss, NotFound, Rejected, Timeout, Error
///                          (its repetitions wait for the same result)
/// ```
/// A query ends with its last key, the request with its last query. A query without keys asks nothing of anybody, so it
/// blames nobody; a request without keys has finished when it starts.
///
/// # Inputs, outputs, wake-ups
/// 1. [`start`](Self::start) when it arrives;
/// 2. [`look_up`](Self::look_up) once, and hand each [`Fetch`] to its backend's dispatcher;
/// 3. [`handle_result`](Self::handle_result) for every key fetched, in any order; results nobody waits for are ignored;
/// 4. when [`finished`](Self::finished) says so, the [`answers`](Self::answers).
///
/// There are no wake-ups: a dispatcher ends each key by the backend's time-out, whatever happens. Where results come
/// from several threads, the driver keeps the request behind a lock of its own.
///
/// # How it counts
/// The blocking backend is that of the query that took longest from the *request's* arrival to its last key; of equals
/// the first to end. A query with a failed key counts at least as the backend's time-out, unless it is best effort.
///
/// # Complexity and memory
/// One look-up per key, and a sort of each query's misses to find repetitions. Holds its keys and answers and nothing
/// else.
#[derive(Clone, Debug)]
pub struct Request<K, V> {
    started: Instant,
    queries: Vec<QueryState<K>>,
    /// The keys of all queries, in their order.
    keys: Vec<KeyState<V>>,
    looked_up: bool,
    /// Keys without an answer.
    open_keys: usize,
    end: RequestEnd,
    finished: Option<FinishedRequest>,
}

#[derive(Clone, Debug)]
struct QueryState<K> {
    query: Query<K>,
    /// Position of its first key among the keys of all queries.
    first_key: usize,
    open_keys: usize,
    failed: bool,
}

#[derive(Clone, Debug)]
enum KeyState<V> {
    Arrived,
    Asked {
        query: u32,
        /// The next repetition of the same key, which waits for the same result.
        again: Option<u32>,
    },
    Ended(Answer<V>),
}

impl<K: AsRef<[u8]> + Clone, V: Clone> Request<K, V> {
    /// A request with these queries, two of which may ask the same backend, that arrived at `now`.
    ///
    /// # Panics
    /// When there are 2^32 keys or queries; listeners refuse such bodies long before.
    #[must_use]
    pub fn start(now: Instant, queries: Vec<Query<K>>) -> Self {
        let mut open_keys = 0;
        let state = |query: Query<K>| {
            let first_key = open_keys;
            open_keys += query.keys.len();
            QueryState { open_keys: query.keys.len(), first_key, failed: false, query }
        };
        let queries: Vec<_> = queries.into_iter().map(state).collect();
        assert!(u32::try_from(open_keys.max(queries.len())).is_ok(), "a request has fewer than 2^32 keys");
        let end = RequestEnd::default();
        Self {
            started: now,
            queries,
            keys: (0..open_keys).map(|_| KeyState::Arrived).collect(),
            looked_up: false,
            open_keys,
            finished: (open_keys == 0).then(|| end.finish(Duration::ZERO)),
            end,
        }
    }

    /// Looks every key up at `access.now` and returns what has to be fetched, at most one fetch per query. `read`
    /// is given the partition, the key and the item of each hit, and copies what is needed, under the lock of the cache's
    /// shard. The second time it does nothing.
    pub fn look_up(
        &mut self,
        cache: &Cache,
        access: &Access,
        mut read: impl FnMut(PartitionId, &K, Item<'_>) -> V,
    ) -> Vec<Fetch<K>> {
        if mem::replace(&mut self.looked_up, true) {
            return Vec::new();
        }
        let mut fetches = Vec::new();
        for query in 0..self.queries.len() {
            let misses = self.look_up_query(query, cache, access, &mut read);
            if !misses.is_empty() {
                fetches.push(self.fetch(query, misses));
            }
        }
        fetches
    }

    /// How a fetched key ended. Ignored when the key has its answer already or was not asked for.
    pub fn handle_result(&mut self, now: Instant, slot: Slot, result: Result<Option<V>, FetchError>) {
        let Some(&KeyState::Asked { query, mut again }) = self.keys.get(slot.0 as usize) else { return };
        let latency = now - self.started;
        while let Some(key) = again
            && let KeyState::Asked { again: next, .. } = self.keys[key as usize]
        {
            again = next;
            self.end_key(now, query as usize, key as usize, Answer::fetched(result.clone(), latency));
        }
        self.end_key(now, query as usize, slot.0 as usize, Answer::fetched(result, latency));
    }

    /// What is to be remembered of the request, once every key has its answer.
    #[must_use]
    pub fn finished(&self) -> Option<FinishedRequest> {
        self.finished
    }

    /// When it arrived.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The keys that have ended, all of them once it has finished, in the order they were asked.
    pub fn answers(&self) -> impl Iterator<Item = (BackendId, &K, &Answer<V>)> {
        self.queries.iter().flat_map(move |state| {
            let states = &self.keys[state.first_key..];
            state.query.keys.iter().zip(states).filter_map(|(key, state_of_key)| match state_of_key {
                KeyState::Ended(answer) => Some((state.query.backend, key, answer)),
                KeyState::Arrived | KeyState::Asked { .. } => None,
            })
        })
    }

    /// Ends the hits of one query; returns its misses as positions within the query.
    fn look_up_query(
        &mut self,
        query: usize,
        cache: &Cache,
        access: &Access,
        read: &mut impl FnMut(PartitionId, &K, Item<'_>) -> V,
    ) -> Vec<u32> {
        let latency = access.now - self.started;
        let mut misses = Vec::new();
        let state = &mut self.queries[query];
        let (partition, first_key) = (state.query.partition, state.first_key);
        // Lent out for as long as they are looked up.
        let keys = mem::take(&mut state.query.keys);
        cache.get_each(partition, &keys, access, |position, item| match item {
            Some(item) => {
                let value = read(partition, &keys[position], item);
                self.end_key(access.now, query, first_key + position, Answer::hit(value, latency));
            }
            None => misses.push(position as u32),
        });
        self.queries[query].query.keys = keys;
        misses
    }

    /// Marks the misses of one query as asked for, each key once, its repetitions chained to it.
    fn fetch(&mut self, index: usize, mut misses: Vec<u32>) -> Fetch<K> {
        let QueryState { query, first_key, .. } = &self.queries[index];
        let bytes = |position: &u32| query.keys[*position as usize].as_ref();
        misses.sort_by(|a, b| bytes(a).cmp(bytes(b)));
        let mut keys = Vec::with_capacity(misses.len());
        for same in misses.chunk_by(|a, b| bytes(a) == bytes(b)) {
            let slots = same.iter().map(|position| *first_key as u32 + position);
            let again = slots.clone().skip(1).map(Some).chain([None]);
            for (slot, again) in slots.zip(again) {
                self.keys[slot as usize] = KeyState::Asked { query: index as u32, again };
            }
            keys.push((query.keys[same[0] as usize].clone(), Slot(*first_key as u32 + same[0])));
        }
        Fetch { query: index, backend: query.backend, partition: query.partition, keys }
    }

    /// A key that has no answer yet gets one; with the last of them its query ends, with the last query the request.
    fn end_key(&mut self, now: Instant, query: usize, key: usize, answer: Answer<V>) {
        let elapsed = now - self.started;
        let state = &mut self.queries[query];
        state.failed |= answer.status.is_failure();
        state.open_keys -= 1;
        self.open_keys -= 1;
        self.keys[key] = KeyState::Ended(answer);
        if state.open_keys == 0 {
            let Query { backend, best_effort, timeout, .. } = state.query;
            let failed = (state.failed && !best_effort).then_some(timeout);
            self.end.add(QueryEnd { backend, latency: elapsed, failed });
        }
        if self.open_keys == 0 {
            self.finished = Some(self.end.finish(elapsed));
        }
    }
}

#[cfg(test)]
mod tests;
