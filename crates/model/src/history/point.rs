//! A point of the history.

use std::cmp::Reverse;
use std::ops::AddAssign;
use std::time::Duration;

use super::reading::{DeadlineCounters, Percentiles, Reading};
use crate::{BackendId, Instant, SloStanding};

/// Backends, partitions and tenants that a point keeps by number; also its most SLOs and classes of
/// deadlines.
pub const SERIES_MAX: usize = 32;

/// State of a node at the end of a step, and the counts within the step.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// End of the step.
    pub at: Instant,
    /// Length of the step.
    pub span: Duration,
    /// Latency of requests.
    pub latency: Percentiles,
    /// Requests that ended in the step.
    pub requests: u64,
    /// Decisions of the control loop in the step.
    pub decisions: u64,
    /// The SLOs, in the order of the readings.
    pub slos: Vec<SloPoint>,
    /// The backends with most look-ups and blocked requests.
    pub backends: Largest<BackendPoint>,
    /// Bytes of the largest partitions.
    pub partitions: Largest<u64>,
    /// Deadlines met and missed in the step, by class.
    pub deadlines: Vec<DeadlineCounters>,
    /// Normalized throughput of the tenants that have least of it, by id.
    pub tenants: Vec<(u16, f64)>,
}

/// An SLO in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SloPoint {
    /// Latency at the SLO's percentile in the latest observation.
    pub current: Option<Duration>,
    /// Observations in the step.
    pub observations: u64,
    /// Observations above the bound.
    pub violations: u64,
}

/// A backend in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendPoint {
    /// Look-ups that ended in the cache in the step.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Requests of the band that the backend blocked.
    pub blocking: u64,
    /// P99 of the latency of queries at the end of the step; none without queries, and for the sum
    /// of several backends.
    pub query_p99: Option<Duration>,
}

impl AddAssign for BackendPoint {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.blocking += other.blocking;
    }
}

/// The most important of some values, with their ids, and the sum of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest<T> {
    /// At most [`SERIES_MAX`] values, in the order of their ids.
    pub kept: Vec<(u16, T)>,
    /// The sum of the other values; none if there are none.
    pub other: Option<T>,
}

impl<T: Copy + Default + AddAssign> Largest<T> {
    /// Keeps the values with the largest `weight`, of equal ones those with lower ids. O(n).
    fn of(values: impl Iterator<Item = T>, weight: impl Fn(&T) -> u64) -> Self {
        let mut kept: Vec<(u16, T)> = values.enumerate().map(|(id, value)| (id as u16, value)).collect();
        let mut other = None;
        if kept.len() > SERIES_MAX {
            kept.select_nth_unstable_by_key(SERIES_MAX, |(id, value)| (Reverse(weight(value)), *id));
            let mut sum = T::default();
            kept.drain(SERIES_MAX..).for_each(|(_, value)| sum += value);
            other = Some(sum);
            kept.sort_unstable_by_key(|(id, _)| *id);
        }
        kept.shrink_to_fit();
        Self { kept, other }
    }
}

impl<T> Largest<T> {
    /// Returns the value of an id; none if the point does not keep it.
    #[must_use]
    pub fn get(&self, id: u16) -> Option<&T> {
        let place = self.kept.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.kept[place].1)
    }
}

impl Point {
    /// Returns the point between two readings. Counters that went back, because they were reset,
    /// count from 0.
    pub(super) fn between(
        before: &Reading,
        now: &Reading,
        query_p99: impl Fn(BackendId) -> Option<Duration>,
    ) -> Self {
        let backends = now.backends.iter().enumerate().map(|(id, now)| {
            let before = before.backends.get(id).copied().unwrap_or_default();
            BackendPoint {
                hits: since(before.hits, now.hits),
                misses: since(before.misses, now.misses),
                blocking: now.blocking,
                query_p99: None,
            }
        });
        // A request that was blocked says more than a look-up.
        let mut backends = Largest::of(backends, |of| of.blocking * 1_000 + of.hits + of.misses);
        for (id, backend) in &mut backends.kept {
            backend.query_p99 = query_p99(BackendId(*id));
        }
        Self {
            at: now.at,
            span: now.at.since(before.at),
            latency: now.latency,
            requests: since(before.requests, now.requests),
            decisions: since(before.decisions, now.decisions),
            slos: slos(&before.slos, &now.slos),
            backends,
            partitions: Largest::of(now.partitions.iter().copied(), |&bytes| bytes),
            deadlines: deadlines(&before.deadlines, &now.deadlines),
            tenants: least(&now.tenants),
        }
    }
}

fn since(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn slos(before: &[SloStanding], now: &[SloStanding]) -> Vec<SloPoint> {
    let point = |(index, now): (usize, &SloStanding)| {
        let before = before.get(index).copied().unwrap_or_default();
        SloPoint {
            current: now.current,
            observations: since(before.observations, now.observations),
            violations: since(before.violations, now.violations),
        }
    };
    now.iter().take(SERIES_MAX).enumerate().map(point).collect()
}

fn deadlines(before: &[DeadlineCounters], now: &[DeadlineCounters]) -> Vec<DeadlineCounters> {
    let point = |(index, now): (usize, &DeadlineCounters)| {
        let before = before.get(index).copied().unwrap_or_default();
        DeadlineCounters { met: since(before.met, now.met), missed: since(before.missed, now.missed) }
    };
    now.iter().take(SERIES_MAX).enumerate().map(point).collect()
}

/// The tenants with least normalized throughput, in the order of their ids.
fn least(tenants: &[Option<f64>]) -> Vec<(u16, f64)> {
    let measured = tenants.iter().enumerate().filter_map(|(id, of)| of.map(|of| (id as u16, of)));
    let mut least: Vec<(u16, f64)> = measured.collect();
    if least.len() > SERIES_MAX {
        least.sort_by(|a, b| a.1.total_cmp(&b.1));
        least.truncate(SERIES_MAX);
        least.sort_by_key(|(id, _)| *id);
        least.shrink_to_fit();
    }
    least
}
