//! Points of one step, in the order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::point::{Largest, Point, SERIES_MAX};
use super::reading::Reading;
use crate::{BackendId, Instant};

/// Points of one step; the oldest makes room for the newest.
#[derive(Clone, Debug)]
pub struct Timeline {
    step: Duration,
    points_max: usize,
    last: Option<Reading>,
    points: VecDeque<Point>,
}

impl Timeline {
    pub(super) fn new(step: Duration, points_max: usize) -> Self {
        Self { step, points_max, last: None, points: VecDeque::new() }
    }

    /// Time between two points, unless readings were late.
    #[must_use]
    pub fn step(&self) -> Duration {
        self.step
    }

    /// Most points that are kept.
    #[must_use]
    pub fn points_max(&self) -> usize {
        self.points_max
    }

    /// Time at which the next point is due.
    pub(super) fn due(&self) -> Instant {
        self.last.as_ref().map_or(Instant::ZERO, |last| last.at + self.step)
    }

    /// Adds a point if one is due. The first reading only starts the series.
    pub(super) fn record(&mut self, reading: &Reading, query_p99: impl Fn(BackendId) -> Option<Duration>) {
        if let Some(last) = &self.last {
            if reading.at < last.at + self.step {
                return;
            }
            if self.points.len() == self.points_max {
                self.points.pop_front();
            }
            self.points.push_back(Point::between(last, reading, query_p99));
        }
        self.last = Some(reading.clone());
    }

    /// Returns the points that ended after `after`, oldest first. O(log n), and O(1) a point.
    pub fn after(&self, after: Instant) -> impl Iterator<Item = &Point> {
        self.points.range(self.points.partition_point(|point| point.at <= after)..)
    }
}

/// The values of one id over some points; none where a point does not keep it.
pub type Series<T> = (u16, Vec<Option<T>>);

/// Returns the series of the [`SERIES_MAX`] ids that have the largest sum of `weight` over some
/// points, in the order of ids, and the series of the sum of all others; none if there are none.
pub fn chosen<'a, T: Copy + std::ops::AddAssign + 'a>(
    points: impl Iterator<Item = &'a Largest<T>> + Clone,
    weight: impl Fn(&T) -> u64,
) -> (Vec<Series<T>>, Option<Vec<Option<T>>>) {
    let mut weights: BTreeMap<u16, u64> = BTreeMap::new();
    for (id, value) in points.clone().flat_map(|point| &point.kept) {
        *weights.entry(*id).or_default() += weight(value);
    }
    let mut ids: Vec<(u16, u64)> = weights.into_iter().collect();
    ids.sort_by_key(|&(id, weight)| (Reverse(weight), id));
    ids.truncate(SERIES_MAX);
    let mut ids: Vec<u16> = ids.into_iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    let others: Vec<Option<T>> = points
        .clone()
        .map(|point| {
            let rest = point.kept.iter().filter(|(id, _)| ids.binary_search(id).is_err());
            rest.map(|(_, value)| *value).chain(point.other).reduce(|mut sum, value| {
                sum += value;
                sum
            })
        })
        .collect();
    let series = |id: &u16| (*id, points.clone().map(|point| point.get(*id).copied()).collect());
    let has_others = others.iter().any(Option::is_some);
    (ids.iter().map(series).collect(), has_others.then_some(others))
}
