//! Requests made of clients' batches.
//!
//! A batch is what a client asks for before it waits. One that the cache answers alone is sampled,
//! one in 64 rounds of a thread, and counts 64 times. One whose keys are fetched ends with the last
//! answer, and one with missed keys with their refills (see [`sherwood_model::batches`]); these all
//! count. A batch that writes through to a store is no request.
//!
//! | file | contents |
//! |---|---|
//! | `turn` | the keys that a client's turn has missed or written |
//! | `unfinished` | a batch that its connection has not answered yet |

mod turn;
mod unfinished;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sherwood_model::batches::{AnsweredBatch, Batches, FinishedBatch, MissCounts, MissedKey};
use sherwood_model::query_times::Sampling;
use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId, QueryEnd, SeededState};

pub(super) use turn::{Keys, TurnKeys};
pub(super) use unfinished::UnfinishedBatch;

/// The place where requests made of batches are counted.
pub trait BatchRequests: Send + Sync {
    /// Returns true if requests were told by other means within the window: then batches count only
    /// for listeners that always count them.
    fn come_by_other_means(&self) -> bool;

    /// Returns the backend of a partition and its timeout.
    fn backend(&self, partition: PartitionId) -> (BackendId, Duration);

    /// Counts `times` equal requests of `class`, if they have one, and of the tenant of
    /// `partition`, which ended at `at`.
    fn count(
        &self,
        at: Instant,
        partition: PartitionId,
        class: Option<u16>,
        request: FinishedRequest,
        times: u64,
    );

    /// Records that `keys` keys of `partition` were answered after `latency`, or refilled.
    fn record_queries(&self, partition: PartitionId, latency: Duration, keys: u64, end: KeyEnd);
}

/// The way in which a key of a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEnd {
    /// The cache had it.
    Hit,
    /// The node has asked the backend for it.
    Fetched,
    /// The application has written it after a miss, which took it that long.
    Refilled,
}

/// Numbers of keys by partition, in the order in which they were read; a partition appears again
/// after another one.
#[derive(Debug, Default)]
pub(super) struct KeyCounts(Vec<(PartitionId, u64)>);

impl KeyCounts {
    /// Adds keys of a partition.
    pub(super) fn add(&mut self, partition: PartitionId, keys: u64) {
        match self.0.last_mut() {
            Some((last, count)) if *last == partition => *count += keys,
            _ => self.0.push((partition, keys)),
        }
    }
}

/// The batches of all listeners of a process, of which requests are made.
pub struct ClientBatches {
    requests: Arc<dyn BatchRequests>,
    batches: Mutex<Batches>,
    waiting: WaitingKeys,
    hash: SeededState,
    /// Number of connections that have got a number.
    connections: AtomicU64,
}

/// The number of keys that wait for their refill, so that a write need not lock if there are none,
/// on cache lines of its own. It changes after the answer: a write by another thread in between
/// refills nothing.
#[repr(align(128))]
#[derive(Default)]
struct WaitingKeys(AtomicUsize);

/// Written keys that are looked up under one lock.
const LOCKED_MAX: usize = 64;

/// The counting of a listener's batches.
#[derive(Clone)]
pub struct BatchCounting {
    /// The batches of all listeners.
    pub batches: Arc<ClientBatches>,
    /// True if batches also count while requests are told by other means.
    pub always: bool,
    /// Number of the class of requests that the listener's batches belong to, if any.
    pub class: Option<u16>,
}

impl ClientBatches {
    /// Creates the batches of `partitions` partitions. Clients cannot predict hashes of keys if
    /// they cannot predict `seed`.
    #[must_use]
    pub fn new(partitions: usize, seed: u64, requests: Arc<dyn BatchRequests>) -> Self {
        Self {
            requests,
            batches: Mutex::new(Batches::new(partitions)),
            waiting: WaitingKeys::default(),
            hash: SeededState::new(seed),
            connections: AtomicU64::new(0),
        }
    }

    /// Ends the batches whose missed keys were not refilled in time. To be called every second or
    /// so.
    pub fn expire(&self, now: Instant) {
        let mut batches = self.lock();
        let finished: Vec<_> = std::iter::from_fn(|| batches.next_expired(now)).collect();
        self.unlock(batches);
        finished.into_iter().for_each(|finished| self.count_finished(finished));
    }

    /// Returns the numbers of missed keys since the start.
    #[must_use]
    pub fn counts(&self) -> MissCounts {
        self.lock().counts()
    }

    fn key(&self, partition: PartitionId, name: &[u8]) -> MissedKey {
        MissedKey { partition, hash: self.hash.hash_bytes(name) }
    }

    /// Notes the keys that a client's turn has written at `now`.
    pub(super) fn note_writes(&self, now: Instant, client: u64, keys: &Keys) {
        keys.written.chunks(LOCKED_MAX).for_each(|keys| self.refilled(now, client, keys));
    }

    fn refilled(&self, now: Instant, client: u64, keys: &[MissedKey]) {
        let mut batches = self.lock();
        let refills: Vec<_> = keys
            .iter()
            .filter_map(|&key| Some((key.partition, batches.refilled(now, client, key)?)))
            .collect();
        self.unlock(batches);
        for (partition, refill) in refills {
            self.requests.record_queries(partition, refill.cost, 1, KeyEnd::Refilled);
            refill.finished.into_iter().for_each(|finished| self.count_finished(finished));
        }
    }

    /// Adds a batch that waits for the refill of missed keys.
    fn answered(&self, batch: AnsweredBatch, missed: &[MissedKey], unwatched: u64) {
        let mut batches = self.lock();
        let expired = batches.next_expired(batch.answered);
        match unwatched {
            0 => batches.answered(batch, missed),
            more => batches.note_unwatched(missed.len() as u64 + more),
        }
        self.unlock(batches);
        expired.into_iter().for_each(|finished| self.count_finished(finished));
    }

    fn count_finished(&self, FinishedBatch { blocking, latency, at, class }: FinishedBatch) {
        let request = FinishedRequest::new(latency, Some(self.requests.backend(blocking).0));
        self.requests.count(at, blocking, class, request, 1);
    }

    fn lock(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlock(&self, batches: MutexGuard<'_, Batches>) {
        // Under the lock: otherwise an older number could replace a newer one.
        let waiting = batches.waiting();
        if self.waiting.0.load(Relaxed) != waiting {
            self.waiting.0.store(waiting, Relaxed);
        }
        drop(batches);
    }

    /// Returns a number for a connection that no other has.
    pub(super) fn connection_number(&self) -> u64 {
        1 + self.connections.fetch_add(1, Relaxed)
    }
}

impl BatchCounting {
    fn counts(&self) -> bool {
        self.always || !self.batches.requests.come_by_other_means()
    }

    /// Records the keys, by partition, that the cache has answered in a sampled turn.
    pub(super) fn record_hits(&self, keys: &KeyCounts, latency: Duration) {
        for &(partition, keys) in &keys.0 {
            self.batches.requests.record_queries(partition, latency, keys * Sampling::EVERY, KeyEnd::Hit);
        }
    }

    /// Counts a sampled batch whose `keys` the cache has answered alone; the last one blocks it.
    pub(super) fn count_hits(&self, now: Instant, keys: &KeyCounts, latency: Duration) {
        let Some(&(last, _)) = keys.0.last() else { return };
        if !self.counts() {
            return;
        }
        let requests = &self.batches.requests;
        let request = FinishedRequest::new(latency, Some(requests.backend(last).0));
        requests.count(now, last, self.class, request, Sampling::EVERY);
    }

    fn record_fetched(&self, keys: &KeyCounts, took: Duration) {
        for &(partition, keys) in &keys.0 {
            self.batches.requests.record_queries(partition, took, keys, KeyEnd::Fetched);
        }
    }

    /// Returns the end of a query to the backend of `partition`, `latency` after its batch began.
    fn query_end(&self, partition: PartitionId, latency: Duration, has_failed: bool) -> QueryEnd {
        let (backend, timeout) = self.batches.requests.backend(partition);
        QueryEnd { backend, latency, failed: has_failed.then_some(timeout) }
    }
}
