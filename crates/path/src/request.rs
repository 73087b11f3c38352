//! The state machine of one request.

use std::mem;
use std::time::Duration;

use sherwood_cache::{Access, AccessFlags, Cache, Item, ItemKind};
use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, FinishedRequest, Instant, PartitionId, QueryEnd, RequestEnd};

use crate::answer::{End, Stale};
use crate::freshness::stale_since;
use crate::query::classify;
use crate::{Answer, LatencyGroup, Query, QueryFetch, Slot, Staleness};

/// A request: its queries, and the state of each of their keys.
///
/// # Life of a key
/// ```text
///   arrived ──look_up──▶ fresh in the cache ────────────▶ Hit, NotFound
///                 │
///                 ├────▶ stale, accepted at once ───────▶ Stale (and revalidated)
///                 │
///                 └────▶ fetched once per query ──result▶ Miss, NotFound, Rejected, Timeout, Error
///                          │   (repetitions wait for the same result)
///                          └─stale, accepted, failed or late▶ Stale
/// ```
/// A query ends with its last key, the request with its last query. A query without keys sends
/// nothing and never blocks the request; a request without keys has finished when it starts.
///
/// # Inputs, outputs, wake-ups
/// 1. [`start`](Self::start) when it arrives;
/// 2. [`look_up`](Self::look_up) once, and hand each [`QueryFetch`] to its backend's dispatcher;
/// 3. [`handle_result`](Self::handle_result) for every key fetched, in any order; results of keys
///    that have ended are ignored;
/// 4. [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout), which only
///    the look-up changes: it answers with stale values where the backend is late. A dispatcher
///    ends each key by the backend's timeout in any case;
/// 5. the [`answers`](Self::answers), once [`finished`](Self::finished) returns a result.
///
/// If results come from several threads, the driver keeps the request behind a lock.
///
/// # How it counts
/// The blocking backend is the backend of the query that took longest from the *request's* arrival
/// to its last key; of equal queries, the first to end. A query with a failed key counts as at
/// least the backend's timeout, unless it is best effort.
///
/// # Complexity and memory
/// One look-up per key, and a sort of each query's misses to find repetitions. Hits are ended a
/// query at a time. Holds its keys and answers, and the stale values of keys in flight where the
/// query accepts stale values. With values of up to 4 bytes, that is 16 bytes for each key beside
/// the key.
#[derive(Clone, Debug)]
pub struct Request<K, V> {
    started: Instant,
    queries: Vec<QueryState<K>>,
    /// The keys of all queries, in their order; empty before the look-up.
    keys: Vec<KeyState<V>>,
    /// Stale values to answer with if their fetch fails or is late, by slot.
    kept: Vec<KeptValue<V>>,
    /// Time of the look-up, at which the hits ended.
    looked_up: Option<Instant>,
    /// Number of keys without an answer.
    open_keys: usize,
    end: RequestEnd,
    finished: Option<FinishedRequest>,
}

#[derive(Clone, Debug)]
struct QueryState<K> {
    query: Query<K>,
    /// Position of the query's first key among the keys of all queries.
    first_key: usize,
    open_keys: usize,
    hits: usize,
    failed: bool,
    /// Time at which the query's fetch counts as late; none once that has no effect.
    late_at: Option<Instant>,
}

/// The stale value of a key whose fetch is in flight.
#[derive(Clone, Debug)]
struct KeptValue<V> {
    slot: u32,
    value: V,
    since: Instant,
}

/// The keys of a query that its look-up left to be fetched, by their positions within the query,
/// ascending.
#[derive(Debug, Default)]
struct Left {
    misses: Vec<Missed>,
    /// Keys that were answered with stale values, to be revalidated.
    stale: Vec<Missed>,
}

#[derive(Clone, Debug)]
enum KeyState<V> {
    Asked {
        query: u32,
        /// The next repetition of the same key, which waits for the same result; [`NO_MORE`] at the
        /// last.
        again: u32,
    },
    Ended(End<V>),
}

/// Value of `again` at the last repetition of a key in a query.
const NO_MORE: u32 = u32::MAX;

/// A key that the cache did not have.
#[derive(Clone, Copy, Debug)]
struct Missed {
    /// The key's first bytes, which order most keys without a look at the others.
    begins: u64,
    /// The key's position within its query.
    position: u32,
}

impl<K: AsRef<[u8]> + Clone, V: Clone> Request<K, V> {
    /// Starts a request that arrived at `now`. Two of its queries may have the same backend.
    ///
    /// # Panics
    /// With 2^32 keys or queries, which listeners refuse.
    #[must_use]
    pub fn start(now: Instant, queries: Vec<Query<K>>) -> Self {
        let mut open_keys = 0;
        let state = |query: Query<K>| {
            let first_key = open_keys;
            open_keys += query.keys.len();
            QueryState {
                open_keys: query.keys.len(),
                first_key,
                hits: 0,
                failed: false,
                late_at: None,
                query,
            }
        };
        let queries: Vec<_> = queries.into_iter().map(state).collect();
        assert!(u32::try_from(open_keys.max(queries.len())).is_ok(), "a request has fewer than 2^32 keys");
        let end = RequestEnd::default();
        Self {
            started: now,
            queries,
            keys: Vec::with_capacity(open_keys),
            kept: Vec::new(),
            looked_up: None,
            open_keys,
            finished: (open_keys == 0).then(|| end.finish(Duration::ZERO)),
            end,
        }
    }

    /// Looks up every key at `access.now` and returns the keys to fetch: for each query at most one
    /// fetch that it waits for, and at most one revalidation that it does not wait for. `read`
    /// receives the partition, the key and the item of each hit, and of each stale item that may
    /// become an answer. It copies the value, under the lock of the cache's shard. A second call
    /// does nothing.
    pub fn look_up(
        &mut self,
        cache: &Cache,
        access: &Access,
        mut read: impl FnMut(PartitionId, &K, Item<'_>) -> V,
    ) -> Vec<QueryFetch<K>> {
        if self.looked_up.is_some() {
            return Vec::new();
        }
        self.looked_up = Some(access.now);
        let mut fetches = Vec::new();
        for query in 0..self.queries.len() {
            let Query { demand, partition, .. } = &mut self.queries[query].query;
            classify(demand, cache, *partition, self.started);
            let kept_before = self.kept.len();
            let Left { misses, stale } = self.look_up_query(query, cache, access, &mut read);
            if !misses.is_empty() {
                fetches.push(self.fetch(query, misses, true));
            }
            if self.kept.len() > kept_before {
                let Staleness { when_late, late_after, .. } = self.queries[query].query.staleness;
                self.queries[query].late_at = (!when_late.is_zero()).then(|| access.now + late_after);
            }
            if !stale.is_empty() {
                fetches.push(self.fetch(query, stale, false));
            }
        }
        fetches
    }

    /// Ends a fetched key with its result. Ignored if the key has ended or was not fetched.
    pub fn handle_result(&mut self, now: Instant, slot: Slot, result: Result<Option<V>, FetchError>) {
        let Some(&KeyState::Asked { query, .. }) = self.keys.get(slot.0 as usize) else { return };
        let stale = match result {
            Ok(_) => None,
            Err(_) => self.kept(now, slot.0, |taken, age| taken.serves_failed(age), query),
        };
        let end = stale.unwrap_or_else(|| {
            self.queries[query as usize].failed |= result.is_err();
            End::fetched(result, now)
        });
        self.end_key(now, slot.0, end);
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout); none while a call would
    /// have no effect.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.queries.iter().filter(|state| state.open_keys > 0).filter_map(|state| state.late_at).min()
    }

    /// Ends the keys with stale values whose fetch is late by `now`, where their query accepts
    /// them. The fetch goes on and fills the cache; the request ignores its result.
    pub fn handle_timeout(&mut self, now: Instant) {
        for index in 0..self.queries.len() {
            if self.queries[index].late_at.take_if(|at| *at <= now).is_none() {
                continue;
            }
            let QueryState { first_key, query: Query { keys, .. }, .. } = &self.queries[index];
            let end = first_key + keys.len();
            let mut next = self.kept.partition_point(|kept| (kept.slot as usize) < *first_key);
            while let Some(slot) =
                self.kept.get(next).map(|kept| kept.slot).filter(|&slot| (slot as usize) < end)
            {
                let stale = self.kept(now, slot, |taken, age| taken.serves_late(age), index as u32);
                if let Some(stale) = stale {
                    self.end_key(now, slot, stale);
                }
                next += 1;
            }
        }
    }

    /// Fails every key still in flight with a timeout, since the client has given up. Stale values
    /// are not used: the client has waited too long for them as well.
    pub fn abandon(&mut self, now: Instant) {
        self.kept.clear();
        let timeout = now - self.started;
        for slot in 0..self.keys.len() as u32 {
            self.handle_result(now, Slot(slot), Err(FetchError::Timeout { timeout }));
        }
    }

    /// Returns the request's latency, its tenant, which is that of its queries, and its blocking
    /// backend, that of its slowest query, once every key has ended.
    #[must_use]
    pub fn finished(&self) -> Option<FinishedRequest> {
        self.finished
    }

    /// Returns the backend and the number of keys of each query that has keys.
    pub fn keys_by_query(&self) -> impl Iterator<Item = (BackendId, usize)> {
        let asked = self.queries.iter().map(|state| (state.query.backend, state.query.keys.len()));
        asked.filter(|&(_, keys)| keys > 0)
    }

    /// Returns true if the keys were looked up.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.looked_up.is_some()
    }

    /// Returns the time at which the request arrived.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the keys that have ended, in the order of the queries; all of them once the request
    /// has finished.
    pub fn answers(&self) -> impl Iterator<Item = (BackendId, &K, Answer<'_, V>)> {
        self.queries().flat_map(|(query, answers)| answers.map(|(key, answer)| (query.backend, key, answer)))
    }

    /// Returns each query with its keys that have ended.
    pub fn queries(&self) -> impl Iterator<Item = (&Query<K>, impl Iterator<Item = (&K, Answer<'_, V>)>)> {
        let hits_at = self.hits_at();
        self.queries.iter().map(move |state| {
            let keys = state.query.keys.iter().zip(self.states(state));
            let ended = keys.filter_map(move |(key, state_of_key)| match state_of_key {
                KeyState::Ended(end) => Some((key, end.answer(self.started, hits_at, &state.query.demand))),
                KeyState::Asked { .. } => None,
            });
            (&state.query, ended)
        })
    }

    /// Calls `see` with counts of the keys that have ended, by latency: once for the hits of a
    /// query, then once for each run of consecutive other keys with the same latency. A cheaper
    /// form of [`answers`](Self::answers) for statistics: the hits of a query cost the same however
    /// many there are.
    pub fn each_latency_group(&self, mut see: impl FnMut(LatencyGroup)) {
        let hits_at = self.hits_at();
        for state in &self.queries {
            let QueryState { query: Query { backend, keys, .. }, hits, .. } = state;
            let group = |at: Instant| LatencyGroup {
                backend: *backend,
                latency: at - self.started,
                hits: 0,
                keys: 0,
            };
            if *hits > 0 {
                see(LatencyGroup { hits: *hits as u64, keys: *hits as u64, ..group(hits_at) });
            }
            if *hits == keys.len() {
                continue;
            }
            let mut same = group(self.started);
            for state_of_key in self.states(state) {
                let KeyState::Ended(end) = state_of_key else { continue };
                if end.is_hit() {
                    continue;
                }
                let latency = end.at(hits_at) - self.started;
                if latency != same.latency && same.keys > 0 {
                    see(mem::replace(&mut same, group(self.started)));
                }
                same = LatencyGroup { latency, keys: same.keys + 1, ..same };
            }
            if same.keys > 0 {
                see(same);
            }
        }
    }

    /// Returns the states of a query's keys; empty before the look-up.
    fn states(&self, state: &QueryState<K>) -> &[KeyState<V>] {
        self.keys.get(state.first_key..state.first_key + state.query.keys.len()).unwrap_or_default()
    }

    /// Returns the time at which the keys found in the cache ended; the arrival before the look-up.
    fn hits_at(&self) -> Instant {
        self.looked_up.unwrap_or(self.started)
    }

    /// Returns an end with the stale value kept for a slot, if there is one and its query accepts
    /// it at `now`.
    fn kept(
        &self,
        now: Instant,
        slot: u32,
        takes: impl Fn(&Staleness, Duration) -> bool,
        query: u32,
    ) -> Option<End<V>> {
        let at = self.kept.binary_search_by_key(&slot, |kept| kept.slot).ok()?;
        let KeptValue { value, since, .. } = &self.kept[at];
        let stale = || End::Stale(Box::new(Stale { value: value.clone(), since: *since, at: now }));
        takes(&self.queries[query as usize].query.staleness, now - *since).then(stale)
    }

    /// Ends the hits of one query, and the keys that a stale value answers at once. Returns the
    /// keys to fetch.
    fn look_up_query(
        &mut self,
        index: usize,
        cache: &Cache,
        access: &Access,
        read: &mut impl FnMut(PartitionId, &K, Item<'_>) -> V,
    ) -> Left {
        let Self { queries, keys: states, kept, .. } = self;
        let QueryState { query, first_key, .. } = &queries[index];
        let (now, access) = (access.now, &seeing(access, query));
        let Query { partition, keys, staleness, shared, .. } = query;
        let doubted = shared.as_ref().and_then(|shared| shared.doubted(now));
        let mut left = Left::default();
        cache.get_each(*partition, keys, access, |position, item| {
            let key = &keys[position];
            let missed = || Missed { begins: beginning(key.as_ref()), position: position as u32 };
            let asked = KeyState::Asked { query: index as u32, again: NO_MORE };
            let doubt = doubted.filter(|_| item.is_some());
            let doubt = doubt.and_then(|shared| shared.stale_since(now, *partition, key.as_ref()));
            let since = |item: &Item<'_>| stale_since(item, now).into_iter().chain(doubt).min();
            states.push(match item.map(|item| (item, since(&item))) {
                Some((Item { kind: ItemKind::Absent, .. }, _)) if doubt.is_none() => {
                    KeyState::Ended(End::Absent)
                }
                Some((item, None)) => KeyState::Ended(End::Hit(read(*partition, key, item))),
                Some((item, Some(since))) if staleness.takes_any() && item.kind != ItemKind::Absent => {
                    let value = read(*partition, key, item);
                    if staleness.serves_at_once(now - since) {
                        left.stale.push(missed());
                        KeyState::Ended(End::Stale(Box::new(Stale { value, since, at: now })))
                    } else {
                        kept.push(KeptValue { slot: (first_key + position) as u32, value, since });
                        left.misses.push(missed());
                        asked
                    }
                }
                None | Some(_) => {
                    if left.misses.is_empty() {
                        left.misses.reserve_exact(keys.len() - position);
                    }
                    left.misses.push(missed());
                    asked
                }
            });
        });
        let ended = keys.len() - left.misses.len();
        queries[index].hits = ended - left.stale.len();
        self.end_keys(now, index, ended);
        left
    }

    /// Builds the fetch of one query, with each key once. If it is awaited, the repetitions of a
    /// key are chained to the first one.
    fn fetch(&mut self, index: usize, mut misses: Vec<Missed>, awaited: bool) -> QueryFetch<K> {
        let QueryState { query, first_key, .. } = &self.queries[index];
        let first_slot = *first_key as u32;
        let key = |missed: &Missed| &query.keys[missed.position as usize];
        let slot = |missed: &Missed| first_slot + missed.position;
        // A comparison of numbers without branches. Only keys with equal first bytes are compared
        // in full, by a sort that keeps the order of repetitions.
        misses.sort_unstable_by_key(|missed| u128::from(missed.begins) << 32 | u128::from(missed.position));
        for alike in misses.chunk_by_mut(|a, b| a.begins == b.begins).filter(|alike| alike.len() > 1) {
            alike.sort_by(|a, b| key(a).as_ref().cmp(key(b).as_ref()));
        }
        let same = |a: &Missed, b: &Missed| a.begins == b.begins && key(a).as_ref() == key(b).as_ref();
        for pair in misses.windows(2).filter(|pair| awaited && same(&pair[0], &pair[1])) {
            let again = slot(&pair[1]);
            self.keys[slot(&pair[0]) as usize] = KeyState::Asked { query: index as u32, again };
        }
        misses.dedup_by(|next, kept| same(next, kept));
        // Keep this shape: with pairs like `([u8; 1], u32)` another one made the tests' simulated
        // world hang at `opt-level = 1`, which is likely a miscompilation, rust-lang/rust#149294.
        let keys = misses.iter().map(|missed| (key(missed).clone(), Slot(slot(missed)))).collect();
        let demand =
            if awaited { query.demand } else { Demand { deadline: None, best_effort: true, ..query.demand } };
        let (backend, partition) = (query.backend, query.partition);
        QueryFetch { query: index, backend, partition, keys, demand, awaited }
    }

    /// Ends a key in flight and the repetitions chained to it.
    fn end_key(&mut self, now: Instant, slot: u32, end: End<V>) {
        let Some(&KeyState::Asked { query, mut again }) = self.keys.get(slot as usize) else { return };
        let mut ended = 1;
        while let Some(&KeyState::Asked { again: next, .. }) = self.keys.get(again as usize) {
            self.keys[again as usize] = KeyState::Ended(end.clone());
            again = next;
            ended += 1;
        }
        self.keys[slot as usize] = KeyState::Ended(end);
        self.end_keys(now, query as usize, ended);
    }

    /// Counts `ended` more keys of a query as ended. The last key ends the query, and the last
    /// query the request.
    fn end_keys(&mut self, now: Instant, query: usize, ended: usize) {
        let state = &mut self.queries[query];
        state.open_keys -= ended;
        self.open_keys -= ended;
        if ended == 0 || state.open_keys > 0 {
            return;
        }
        let elapsed = now - self.started;
        let Query { backend, demand, timeout, .. } = state.query;
        let failed = (state.failed && !demand.best_effort).then_some(timeout);
        self.end.add(QueryEnd { backend, latency: elapsed, failed });
        if self.open_keys == 0 {
            self.finished = Some(self.end.finish(elapsed).of(demand.tenant));
        }
    }
}

/// Returns the access for a query's look-up, in the class of its deadline: it sees absent values,
/// and stale ones if the query accepts them.
fn seeing<K>(access: &Access, Query { staleness, demand, .. }: &Query<K>) -> Access {
    let stale = if staleness.takes_any() { AccessFlags::SEE_STALE } else { AccessFlags::NONE };
    let flags = access.flags.with(AccessFlags::SEE_ABSENT).with(stale);
    Access { flags, class: demand.deadline_class(), ..*access }
}

/// Returns the first eight bytes of a key as a number, padded with zeros. If the numbers of two
/// keys differ, they order the keys.
fn beginning(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod stale_tests;
