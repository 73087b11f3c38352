//! Percentiles and blocking counts of a set of finished requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BackendId;
use crate::sketch::{edge, rank};

/// A range of percentiles of request latency, `[low, high)`, each 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct Band {
    /// Lower percentile of the band, inclusive.
    pub low: f64,
    /// Upper percentile of the band, exclusive.
    pub high: f64,
}

impl Band {
    /// RobinHood's band: the slow requests, without the slowest 0.5%, which are outliers under any
    /// division of the cache.
    pub const TAIL: Self = Self { low: 98.5, high: 99.5 };
}

impl From<(f64, f64)> for Band {
    fn from((low, high): (f64, f64)) -> Self {
        Self { low, high }
    }
}

impl From<Band> for (f64, f64) {
    fn from(band: Band) -> Self {
        (band.low, band.high)
    }
}

/// Finished requests in no particular order, to be converted into a [`RequestSnapshot`].
#[derive(Clone, Debug, Default)]
pub struct RequestSelection {
    pub(super) cells: Vec<Cell>,
    pub(super) reach: Duration,
}

impl RequestSelection {
    /// Number of requests in the selection.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cells.iter().map(|cell| cell.2).sum()
    }

    /// Time span of the selection, also where no request is that old.
    #[must_use]
    pub fn reach(&self) -> Duration {
        self.reach
    }
}

/// Requests of equal latency and backend: latency in microseconds, blocking backend, number of
/// requests.
pub(super) type Cell = (u32, Option<BackendId>, u64);

/// Finished requests in order of latency.
#[derive(Clone, Debug, Default)]
pub struct RequestSnapshot {
    cells: Vec<Cell>,
    count: u64,
}

/// Sorts the requests by latency and blocking backend: O(n log n).
impl From<RequestSelection> for RequestSnapshot {
    fn from(selection: RequestSelection) -> Self {
        let (count, mut cells) = (selection.count(), selection.cells);
        cells.sort_unstable();
        Self { cells, count }
    }
}

impl RequestSnapshot {
    /// Number of requests in the snapshot.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Shortest and longest latency; none if there is no request.
    #[must_use]
    pub fn range(&self) -> Option<(Duration, Duration)> {
        let micros = |cell: &Cell| Duration::from_micros(cell.0.into());
        Some((micros(self.cells.first()?), micros(self.cells.last()?)))
    }

    /// Latency at `quantile` (0 to 1): element floor(quantile x count) of the sorted latencies;
    /// none if there is no request.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = rank(quantile, self.count)?;
        let mut below = 0;
        self.cells.iter().find_map(|&(latency_us, _, count)| {
            below += count;
            (below > rank).then(|| Duration::from_micros(latency_us.into()))
        })
    }

    /// Request blocking counts: for each of `backends`, the number of requests of the band whose
    /// slowest query was to that backend.
    ///
    /// The band holds elements floor(low x N) to floor(high x N) - 1 of the sorted latencies
    /// (percentiles as fractions). Of requests with equal latency at an edge of the band, each
    /// backend contributes its proportional share, by largest remainder, ties to the lower id; so
    /// the counts do not depend on the order of arrival. Requests without a blocking backend take
    /// part in the ranks only.
    #[must_use]
    pub fn blocking_counts(&self, band: Band, backends: usize) -> Vec<u64> {
        let (from, to) = (edge(band.low / 100.0, self.count), edge(band.high / 100.0, self.count));
        let mut counts = vec![0; backends];
        let mut below = 0;
        for equals in self.cells.chunk_by(|a, b| a.0 == b.0) {
            let size: u64 = equals.iter().map(|cell| cell.2).sum();
            let taken = (below + size).min(to).saturating_sub(below.max(from));
            below += size;
            if taken > 0 {
                share(equals, size, taken, &mut counts);
            }
            if below >= to {
                break;
            }
        }
        counts
    }
}

/// Adds `taken` of the `size` requests in `equals` to `counts`, each backend in proportion.
fn share(equals: &[Cell], size: u64, taken: u64, counts: &mut [u64]) {
    let mut groups: Vec<(Option<BackendId>, u64)> = Vec::new();
    for &(_, backend, count) in equals {
        match groups.last_mut() {
            Some(group) if group.0 == backend => group.1 += count,
            _ => groups.push((backend, count)),
        }
    }
    let exact = |count: u64| u128::from(count) * u128::from(taken);
    let mut left = taken - groups.iter().map(|group| (exact(group.1) / u128::from(size)) as u64).sum::<u64>();
    let mut by_remainder: Vec<usize> = (0..groups.len()).collect();
    by_remainder.sort_by_key(|&i| std::cmp::Reverse(exact(groups[i].1) % u128::from(size)));
    for i in by_remainder {
        let (backend, count) = groups[i];
        let extra = u64::from(left > 0);
        left -= extra;
        if let Some(total) = backend.and_then(|b| counts.get_mut(b.index())) {
            *total += (exact(count) / u128::from(size)) as u64 + extra;
        }
    }
}
