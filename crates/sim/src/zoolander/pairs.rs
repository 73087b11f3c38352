//! Service times of accesses at two duplicates, beside each other.

use std::time::Duration;

use sherwood_policy::slo::{Correlation, ServiceTimes};

use crate::record::ms;

/// Number of accesses whose percentiles are kept.
const KEPT: usize = 500;

/// The service times of each access at two duplicates, which are those of two runs with the same
/// accesses at different nodes.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    times: ServiceTimes,
    pub(super) correlation: Correlation,
    /// Number of accesses by quartile at the first duplicate and at the second.
    pub(super) quartiles: [[u64; 4]; 4],
    /// Percentiles of the first accesses at both duplicates, 0 to 1.
    pub(super) percentiles: Vec<[f64; 2]>,
}

impl Pairs {
    /// Returns no pairs of times that have this distribution.
    pub(super) fn new(times: ServiceTimes) -> Self {
        Self {
            times,
            correlation: Correlation::default(),
            quartiles: [[0; 4]; 4],
            percentiles: Vec::with_capacity(KEPT),
        }
    }

    /// The distribution of the times.
    pub(super) fn times(&self) -> &ServiceTimes {
        &self.times
    }

    /// Records the service times of an access.
    pub(super) fn record(&mut self, times: [Duration; 2]) {
        let [first_ms, second_ms] = times.map(ms);
        self.correlation.record(first_ms, second_ms);
        let percentiles = [first_ms, second_ms].map(|ms| self.times.share_within(ms));
        let [first, second] = percentiles.map(|percentile| ((percentile * 4.0) as usize).min(3));
        self.quartiles[first][second] += 1;
        if self.percentiles.len() < KEPT {
            self.percentiles.push(percentiles);
        }
    }
}
