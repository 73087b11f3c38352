//! Latencies of the queries of the last minute or so, by partition and by backend.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::{BackendId, Instant, LatencySketch, LatencyWindow, PartitionId};

/// Partitions up to which each has a window of its own, which takes 210 KB once it is used.
const PARTITIONS_MAX: usize = 64;

/// The latencies of recent queries: by partition on a node of up to 64 partitions, else by backend.
/// Threads may share it; each window has a lock of its own.
#[derive(Debug)]
pub struct QueryWindows {
    windows: Vec<Mutex<LatencyWindow>>,
    /// The backend of each partition.
    backends: Vec<BackendId>,
    has_partitions: bool,
}

impl QueryWindows {
    /// Creates empty windows of `span` for partitions of these backends, whose ids are below
    /// `backends`.
    #[must_use]
    pub fn new(backends: usize, of_partitions: Vec<BackendId>, span: Duration) -> Self {
        let has_partitions = of_partitions.len() <= PARTITIONS_MAX;
        let windows = if has_partitions { of_partitions.len() } else { backends };
        let windows = (0..windows).map(|_| Mutex::new(LatencyWindow::new(span))).collect();
        Self { windows, backends: of_partitions, has_partitions }
    }

    /// Records that `keys` keys of a partition were answered after `latency`.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn record(&self, now: Instant, partition: PartitionId, latency: Duration, keys: u64) {
        let index = match self.has_partitions {
            true => partition.index(),
            false => self.backends[partition.index()].index(),
        };
        let mut window = self.windows[index].lock().unwrap_or_else(PoisonError::into_inner);
        window.record_times(now, latency, keys);
    }

    /// Returns the latencies of a partition; none on a node of more than 64 partitions.
    /// O(buckets of a sketch).
    ///
    /// # Panics
    /// If there is no such partition.
    #[must_use]
    pub fn of_partition(&self, now: Instant, partition: PartitionId) -> Option<LatencySketch> {
        self.has_partitions.then(|| self.sketch(now, partition.index()))
    }

    /// Returns the latencies of a backend, in all its partitions. O(partitions of the backend ×
    /// buckets of a sketch).
    ///
    /// # Panics
    /// If there is no such backend on a node of more than 64 partitions.
    #[must_use]
    pub fn of_backend(&self, now: Instant, backend: BackendId) -> LatencySketch {
        if !self.has_partitions {
            return self.sketch(now, backend.index());
        }
        let mut sketches = (0..self.windows.len())
            .filter(|&partition| self.backends[partition] == backend)
            .map(|partition| self.sketch(now, partition));
        let mut sum = sketches.next().unwrap_or_default();
        sketches.for_each(|sketch| sum.merge(&sketch));
        sum
    }

    fn sketch(&self, now: Instant, index: usize) -> LatencySketch {
        self.windows[index].lock().unwrap_or_else(PoisonError::into_inner).sketch(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(100);

    /// Returns windows of `partitions` partitions of two backends in turn, with a query of each
    /// partition that took as many milliseconds as its number.
    fn windows(partitions: u16) -> QueryWindows {
        let backends = (0..partitions).map(|partition| BackendId(partition % 2)).collect();
        let windows = QueryWindows::new(2, backends, Duration::from_secs(60));
        for partition in 0..partitions {
            windows.record(NOW, PartitionId(partition), Duration::from_millis(partition.into()), 1);
        }
        windows
    }

    #[test]
    fn latencies_are_kept_by_partition_and_summed_by_backend() {
        let windows = windows(4);
        let [own, even] =
            [windows.of_partition(NOW, PartitionId(2)).unwrap(), windows.of_backend(NOW, BackendId(0))];
        assert_eq!([own.count(), even.count()], [1, 2]);
        assert_eq!(even.quantile(1.0).map(|of| of.as_millis()), own.quantile(1.0).map(|of| of.as_millis()));
        assert_eq!(windows.of_partition(NOW + Duration::from_secs(70), PartitionId(2)).unwrap().count(), 0);
    }

    #[test]
    fn node_of_many_partitions_keeps_latencies_by_backend_alone() {
        let windows = windows(65);
        assert!(windows.of_partition(NOW, PartitionId(2)).is_none());
        let counts = [0, 1].map(|backend| windows.of_backend(NOW, BackendId(backend)).count());
        assert_eq!(counts, [33, 32]);
    }
}
