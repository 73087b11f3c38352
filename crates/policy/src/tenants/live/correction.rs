//! Correction of a partition's curve by the misses that were measured.
//!
//! A simulated cache evicts in the order of recency, the cache in its own, which usually misses
//! less; and curves are sampled. Measured over predicted misses tell the error at the present size.
//! The error at the baseline's size, which a tenant is judged by, may be another: it was measured
//! when the tenant had that size. Between the two sizes the factor changes in a line.

use std::time::Duration;

use sherwood_model::{DemandCurve, Instant};

use super::history::PartSample;

/// Misses that count as predicted exactly beside those of the window, so that a few say little.
const PRIOR: f64 = 50.0;
/// Largest factor, up or down.
const FACTOR_MAX: f64 = 4.0;
/// Part of its size by which a partition that is steady changes in the window.
const STEADY_PARTS: u64 = 32;
/// Time for which the factor at the baseline's size is used; the workload may change.
const MEMORY: Duration = Duration::from_secs(600);

/// The factor of a partition at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Anchor {
    bytes: u64,
    factor: f64,
    at: Instant,
}

/// The factor of a partition by its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    now: (u64, f64),
    base: Option<(u64, f64)>,
}

impl Anchor {
    /// Returns the factor of a partition that had `bytes` in the whole window.
    pub(super) fn new(
        at: Instant,
        bytes: u64,
        curve: &DemandCurve,
        window: &PartSample,
        used_bytes: u64,
    ) -> Self {
        Self { bytes, factor: factor(curve, window, used_bytes), at }
    }

    /// True if the factor is recent enough at `now` to be used.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        now.since(self.at) <= MEMORY
    }
}

impl Correction {
    /// Returns the correction of a partition that has `bytes`, of which its items use `used_bytes`;
    /// `anchor` is that of its size in the baseline.
    pub(super) fn new(
        bytes: u64,
        curve: &DemandCurve,
        window: &PartSample,
        used_bytes: u64,
        anchor: Option<&Anchor>,
    ) -> Self {
        let now = (bytes, factor(curve, window, used_bytes));
        Self { now, base: anchor.map(|anchor| (anchor.bytes, anchor.factor)) }
    }

    /// The factor at a size.
    pub(super) fn at(&self, bytes: u64) -> f64 {
        let Some(base) = self.base else { return self.now.1 };
        let (small, large) = if base.0 < self.now.0 { (base, self.now) } else { (self.now, base) };
        if bytes <= small.0 {
            // At equal sizes, the present factor is that of `small` and counts.
            return small.1;
        }
        if bytes >= large.0 {
            return large.1;
        }
        small.1 + (large.1 - small.1) * ((bytes - small.0) as f64 / (large.0 - small.0) as f64)
    }

    /// The sizes between which the factor changes.
    pub(super) fn sizes(&self) -> [u64; 2] {
        [self.now.0, self.base.map_or(self.now.0, |base| base.0)]
    }
}

/// Measured over predicted misses. The first curve predicts those of the window before it, if the
/// size was steady.
fn factor(curve: &DemandCurve, window: &PartSample, used_bytes: u64) -> f64 {
    let is_first = window.predicted <= 0.0 && window.compared == 0;
    let is_steady = window.used_bytes.abs_diff(used_bytes) <= used_bytes / STEADY_PARTS;
    let (measured, predicted) = if is_first && is_steady {
        (window.reads.misses, window.reads.reads() as f64 * curve.at(used_bytes))
    } else {
        (window.compared, window.predicted)
    };
    let factor = (measured as f64 + PRIOR) / (predicted.max(0.0) + PRIOR);
    factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::ReadCounts;

    fn factor_of(curve: &DemandCurve, window: PartSample) -> f64 {
        Correction::new(100, curve, &window, 100, None).at(7)
    }

    #[test]
    fn curve_is_corrected_by_measured_over_predicted_misses() {
        let curve = DemandCurve::new([(0, 1.0), (100, 0.5)]);
        let reads = ReadCounts { hits: 7_950, misses: 2_050, joined: 0 };
        let later = PartSample { reads, predicted: 1_950.0, compared: 950, used_bytes: 50 };
        assert_eq!(factor_of(&curve, later), 0.5);
        let first = PartSample { reads, used_bytes: 98, ..PartSample::default() };
        assert!((factor_of(&curve, first) - 2_100.0 / 5_050.0).abs() < 1e-12);
        assert_eq!(factor_of(&curve, PartSample { used_bytes: 50, ..first }), 1.0, "the size has changed");
        assert_eq!(factor_of(&curve, PartSample { predicted: 0.0, ..later }), 4.0);
    }

    #[test]
    fn factor_changes_in_a_line_from_the_present_size_to_that_of_the_baseline() {
        let base = Some((200, 1.0));
        let correction = Correction { now: (100, 2.0), base };
        assert_eq!([50, 100, 150, 200, 300].map(|bytes| correction.at(bytes)), [2.0, 2.0, 1.5, 1.0, 1.0]);
        let correction = Correction { now: (300, 2.0), base };
        assert_eq!([50, 200, 250, 300, 400].map(|bytes| correction.at(bytes)), [1.0, 1.0, 1.5, 2.0, 2.0]);
        assert_eq!(Correction { now: (200, 2.0), base }.at(200), 2.0, "the present factor is newer");
    }
}
