//! The histograms of all queries, and those that one thread writes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::histogram::Cells;
use super::kinds::{Kinds, PLACES};
use super::{LatencyHistogram, QueryKind};

/// The times of queries since the start, of all recorders together.
#[derive(Debug, Default)]
pub struct QueryTimes {
    kinds: Arc<Kinds>,
    recorders: Mutex<Vec<Arc<Recorder>>>,
}

impl QueryTimes {
    /// Returns a recorder, which may have been one of a thread that has ended: what that has
    /// recorded stays.
    #[must_use]
    pub fn recorder(&self) -> Arc<Recorder> {
        let mut recorders = self.recorders();
        // Nobody else can clone an unused one while the list is locked.
        if let Some(unused) = recorders.iter().find(|recorder| Arc::strong_count(recorder) == 1) {
            return Arc::clone(unused);
        }
        let recorder = Arc::new(Recorder::new(Arc::clone(&self.kinds)));
        recorders.push(Arc::clone(&recorder));
        recorder
    }

    /// Returns the times by kind, without some of those that are recorded meanwhile. O(recorders x
    /// kinds).
    #[must_use]
    pub fn read(&self) -> BTreeMap<QueryKind, LatencyHistogram> {
        let mut all: BTreeMap<QueryKind, LatencyHistogram> = BTreeMap::new();
        let recorders = self.recorders().clone();
        for (place, kind) in self.kinds.each() {
            for cells in recorders.iter().filter_map(|recorder| recorder.histograms[place].get()) {
                cells.add_to(all.entry(kind).or_default());
            }
        }
        all
    }

    fn recorders(&self) -> MutexGuard<'_, Vec<Arc<Recorder>>> {
        self.recorders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Histograms of queries' times. One thread at a time records, while others read.
///
/// Memory: 8 KiB, and 2 KiB for each kind of query that has occurred.
#[derive(Debug)]
pub struct Recorder {
    kinds: Arc<Kinds>,
    /// The histogram of each kind, at its place in `kinds`.
    histograms: Box<[OnceLock<Box<Cells>>]>,
}

impl Recorder {
    fn new(kinds: Arc<Kinds>) -> Self {
        Self { kinds, histograms: (0..PLACES).map(|_| OnceLock::new()).collect() }
    }

    /// Counts `time` `times` times. Calls at the same time lose counts, but do no other harm. Costs
    /// two look-ups, O(log cells).
    pub fn record(&self, kind: QueryKind, time: Duration, times: u64) {
        self.histograms[self.kinds.place(kind)].get_or_init(|| Box::new(Cells::new())).add(time, times);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KINDS_MAX, Operation, QueryOutcome};
    use super::*;
    use crate::PartitionId;

    fn hit(partition: u16) -> QueryKind {
        QueryKind::ended(PartitionId(partition), Operation::Get, QueryOutcome::Hit)
    }

    #[test]
    fn times_of_threads_are_summed_by_kind() {
        let all = QueryTimes::default();
        let threads = [(); 2].map(|()| all.recorder());
        threads[0].record(hit(0), Duration::from_millis(1), 2);
        threads[1].record(hit(0), Duration::from_millis(2), 1);
        threads[1].record(hit(1), Duration::from_millis(3), 1);
        let seen: Vec<_> = all.read().into_iter().map(|(kind, of)| (kind, of.count(), of.sum_s())).collect();
        assert_eq!(seen, [(hit(0), 3, 0.004), (hit(1), 1, 0.003)]);
    }

    #[test]
    fn recorder_that_is_no_longer_used_is_given_out_again_with_its_times() {
        let all = QueryTimes::default();
        let (first, second) = (all.recorder(), all.recorder());
        first.record(hit(0), Duration::from_millis(1), 1);
        let old = Arc::as_ptr(&first);
        drop(first);
        let third = all.recorder();
        assert!(std::ptr::eq(old, Arc::as_ptr(&third)) && !Arc::ptr_eq(&second, &third));
        third.record(hit(0), Duration::from_millis(1), 1);
        assert_eq!(all.read()[&hit(0)].count(), 2);
    }

    #[test]
    fn every_query_is_counted_when_there_are_too_many_partitions() {
        let all = QueryTimes::default();
        let times = all.recorder();
        (0..1000).for_each(|partition| times.record(hit(partition), Duration::from_millis(1), 1));
        let all = all.read();
        assert!(all.len() <= KINDS_MAX);
        assert_eq!(all.values().map(LatencyHistogram::count).sum::<u64>(), 1000);
        assert!(all[&QueryKind { partition: None, ..hit(0) }].count() > 800);
    }
}
