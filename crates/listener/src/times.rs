//! Times of the queries of a listener's clients, kept per thread.
//!
//! A hit takes a fraction of a microsecond, so the clock is not read for each. One round of the
//! event loop in 64 is timed: the commands executed in it are noted, and get the time from the
//! start of the round to the end of their client's turn, when their answers have been sent. Keys
//! that a backend is asked for are all timed, with the moments that the event loop reads anyway.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sherwood_cache::Refused;
use sherwood_model::PartitionId;
use sherwood_model::query_times::{Operation, QueryKind, QueryOutcome, QueryTime, Recorder};

use super::backends::{FetchFailure, FetchResult, StoreFailure};
use super::requests::KeyCounts;

/// Most runs of equal commands that are noted in a client's turn; further commands are not timed.
const RUNS_MAX: usize = 1024;

/// The times of the queries that one thread has executed, on cache lines of their own.
#[repr(align(128))]
pub(super) struct ThreadTimes {
    /// True while a round is timed. Written by the thread alone.
    timing: AtomicBool,
    /// The queries that have ended in the current turn, each with its number of repetitions.
    ended: Mutex<Vec<(QueryKind, u64)>>,
    recorder: Arc<Recorder>,
}

impl ThreadTimes {
    /// Creates the times of a thread, which `recorder` records.
    pub(super) fn new(recorder: Arc<Recorder>) -> Self {
        Self { timing: AtomicBool::new(false), ended: Mutex::default(), recorder }
    }

    /// Starts or ends a round that is timed.
    pub(super) fn time(&self, timing: bool) {
        self.ended().clear();
        self.timing.store(timing, Relaxed);
    }

    /// Returns true while a round is timed.
    #[inline]
    pub(super) fn is_timing(&self) -> bool {
        self.timing.load(Relaxed)
    }

    /// Notes the end of a query, if the round is timed.
    #[inline]
    pub(super) fn note(&self, partition: PartitionId, operation: Operation, outcome: QueryOutcome) {
        if self.is_timing() {
            self.note_timed(QueryKind::ended(partition, operation, outcome));
        }
    }

    #[cold]
    fn note_timed(&self, kind: QueryKind) {
        let mut ended = self.ended();
        if let Some((_, times)) = ended.last_mut().filter(|(last, _)| *last == kind) {
            *times += 1;
        } else if ended.len() < RUNS_MAX {
            ended.push((kind, 1));
        }
    }

    /// Takes the queries that a client's turn has noted, to be recorded when it has ended.
    pub(super) fn take_noted(&self) -> Noted {
        Noted(std::mem::take(&mut *self.ended()))
    }

    /// Records queries noted in a client's turn, which has ended after `latency`. Returns the
    /// number of keys that it has read from the cache.
    pub(super) fn end_turn(&self, noted: Noted, latency: Duration) -> KeyCounts {
        let mut hits = KeyCounts::default();
        for (kind, times) in noted.0 {
            self.recorder.record(kind, latency, times);
            let is_hit = kind.operation == Operation::Get && kind.time == QueryTime::Ended(QueryOutcome::Hit);
            if let Some(partition) = kind.partition.filter(|_| is_hit) {
                hits.add(partition, times);
            }
        }
        hits
    }

    /// Records the queries `asked`, whose `results` have come after `latency`.
    pub(super) fn fetched(&self, asked: &Asked, results: &[FetchResult], latency: Duration) {
        for (query, result) in asked.iter().zip(results) {
            self.record(*query, of_fetch(result), latency);
        }
    }

    /// Records the writes `asked`, which have ended after `latency`.
    pub(super) fn stored(&self, asked: &Asked, result: &Result<(), StoreFailure>, latency: Duration) {
        for query in asked {
            self.record(*query, of_write(result), latency);
        }
    }

    fn record(
        &self,
        (partition, operation): (PartitionId, Operation),
        outcome: QueryOutcome,
        latency: Duration,
    ) {
        self.recorder.record(QueryKind::ended(partition, operation, outcome), latency, 1);
    }

    fn ended(&self) -> MutexGuard<'_, Vec<(QueryKind, u64)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Record of a timed turn for when its answers have been sent.
#[derive(Debug)]
pub(super) struct TimedTurn {
    pub(super) noted: Noted,
    /// True if the turn is a whole request, which the cache has answered alone.
    pub(super) is_request: bool,
}

/// The queries that a turn has ended, each with its number of repetitions.
#[derive(Debug, Default)]
pub(super) struct Noted(Vec<(QueryKind, u64)>);

/// The queries that a connection waits for backends with, in the order of their results.
pub(super) type Asked = Vec<(PartitionId, Operation)>;

fn of_fetch(result: &FetchResult) -> QueryOutcome {
    match result {
        Ok(Some(_)) => QueryOutcome::Fetched,
        Ok(None) => QueryOutcome::NotFound,
        Err(FetchFailure::Rejected { .. } | FetchFailure::Refused(_) | FetchFailure::Overloaded(_)) => {
            QueryOutcome::Rejected
        }
        Err(FetchFailure::TimedOut(_)) => QueryOutcome::Timeout,
        Err(FetchFailure::Failed(_)) => QueryOutcome::Error,
    }
}

fn of_write(result: &Result<(), StoreFailure>) -> QueryOutcome {
    match result {
        Ok(()) => QueryOutcome::Written,
        Err(StoreFailure::Refused(_)) => QueryOutcome::Rejected,
        Err(StoreFailure::TimedOut(_)) => QueryOutcome::Timeout,
        Err(StoreFailure::Failed(_)) => QueryOutcome::Error,
    }
}

/// Returns the outcome of a command that stores a value in the cache, with true if it has stored
/// it.
pub(super) fn of_set(stored: Result<bool, Refused>) -> QueryOutcome {
    match stored {
        Ok(true) => QueryOutcome::Stored,
        Ok(false) => QueryOutcome::NotStored,
        Err(_) => QueryOutcome::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::query_times::{LatencyHistogram, QueryTimes};

    use super::*;

    #[test]
    fn only_queries_of_a_timed_round_are_recorded() {
        let all = QueryTimes::default();
        let times = ThreadTimes::new(all.recorder());
        let hit = |partition| times.note(PartitionId(partition), Operation::Get, QueryOutcome::Hit);
        hit(0);
        times.time(true);
        [1, 1, 2].into_iter().for_each(hit);
        times.end_turn(times.take_noted(), Duration::from_millis(1));
        hit(3);
        times.time(false);
        hit(4);
        times.end_turn(times.take_noted(), Duration::from_millis(1));
        let read = all.read();
        let counts: Vec<_> = read.iter().map(|(kind, of)| (kind.partition.unwrap().0, of.count())).collect();
        assert_eq!(counts, [(1, 2), (2, 1)]);
    }

    #[test]
    fn queries_noted_in_a_turn_are_bounded() {
        let all = QueryTimes::default();
        let times = ThreadTimes::new(all.recorder());
        times.time(true);
        for round in 0..3 * RUNS_MAX {
            times.note(PartitionId(round as u16), Operation::Get, QueryOutcome::Hit);
        }
        times.end_turn(times.take_noted(), Duration::ZERO);
        assert_eq!(all.read().values().map(LatencyHistogram::count).sum::<u64>(), RUNS_MAX as u64);
    }
}
