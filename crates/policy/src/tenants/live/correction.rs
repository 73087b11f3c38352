//! Correction of a partition's curve by the misses that were measured, and how far both may err.
//!
//! A simulated cache evicts in the order of recency, the cache in its own, which usually misses
//! less. Measured over predicted misses tell the error at the present size. The error at the
//! baseline's size, which a tenant is judged by, may be another: it was measured when the tenant
//! had that size and had filled it. Between the two sizes the factor changes in a line.
//!
//! *Sampling.* A curve counts the misses of sampled keys, n of them at the smaller of two sizes. Of
//! these, the part p misses at the larger size, too, so the ratio of the two miss ratios has the
//! relative variance (1 - p) / (p n) of a binomial proportion: nothing at the present size, and
//! much where few sampled misses are left. A miss ratio that was measured at the baseline's size is
//! preferred, since it has no error of the model; it has a variance of its own, and what the curve
//! says of the change since then has that of two counts.

use std::time::Duration;

use sherwood_model::Instant;

use super::MissCurve;
use super::history::PartSample;

/// Misses that count as predicted exactly beside those of the window, so that a few say little.
/// Chosen because 50 misses vary by 14% by chance, even without an error of the curve.
const PRIOR: f64 = 50.0;
/// Largest factor of a correction, up or down. Chosen because a curve that errs by more describes
/// another workload.
const FACTOR_MAX: f64 = 4.0;
/// A partition is steady if its size changes within the window by at most the size divided by this.
/// Chosen as two steps of a move.
pub(super) const STEADY_PARTS: u64 = 32;
/// Time for which the miss ratio at the baseline's size is used; the workload may change. Chosen as
/// the duration of a freeze, in which the miss ratio is measured anew.
pub(super) const MEMORY: Duration = Duration::from_secs(600);

/// The miss ratio of a partition that had one size for a whole window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Anchor {
    bytes: u64,
    /// Misses per read as measured, and as the curve said.
    misses: f64,
    curve: f64,
    /// Relative variance of the measured ones, and of the curve's.
    variance: f64,
    curve_variance: f64,
    at: Instant,
}

/// The factor of a partition by its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    now: (u64, f64),
    base: Option<(u64, f64)>,
    /// Relative variance of the corrected miss ratio at the baseline's size, if that was measured,
    /// else of the misses of the window.
    variance: f64,
}

impl Anchor {
    /// Returns the miss ratio of a partition that had `bytes`, filled, in the whole window;
    /// `variance` is the relative variance of its measured misses per read.
    pub(super) fn new(
        at: Instant,
        bytes: u64,
        curve: &MissCurve,
        window: &PartSample,
        variance: f64,
    ) -> Self {
        Self {
            bytes,
            misses: window.reads.misses as f64 / window.reads.reads().max(1) as f64,
            curve: curve.at(bytes),
            variance,
            curve_variance: curve.count_variance(bytes),
            at,
        }
    }

    /// True if the miss ratio is recent enough at `now` to be used.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        now.since(self.at) <= MEMORY
    }

    /// The factor of `curve` at the anchor's size, and the relative variance of the miss ratio that
    /// follows; none if the curve has no misses there. A change of the curve since then counts as
    /// far as it exceeds what sampling explains (the shrinkage of James and Stein).
    fn factor(&self, curve: &MissCurve) -> Option<(f64, f64)> {
        let now = curve.at(self.bytes);
        if now <= 0.0 || self.curve <= 0.0 {
            return None;
        }
        let change = now / self.curve - 1.0;
        let noise = self.curve_variance + curve.count_variance(self.bytes);
        let real = if change == 0.0 { 0.0 } else { (1.0 - noise / (change * change)).max(0.0) };
        Some((self.misses * (1.0 + change * real) / now, self.variance + noise))
    }
}

impl Correction {
    /// Returns the correction of a partition whose items use `used_bytes`; `variance` is the
    /// relative one of its misses per read in the window, if that is known, and `anchor` that of
    /// its size in the baseline.
    pub(super) fn new(
        curve: &MissCurve,
        window: &PartSample,
        used_bytes: u64,
        variance: Option<f64>,
        anchor: Option<&Anchor>,
    ) -> Self {
        let now = (used_bytes, factor(curve, window, used_bytes));
        let measured = anchor.and_then(|anchor| Some((anchor.bytes, anchor.factor(curve)?)));
        let base = measured.map(|(bytes, (factor, _))| (bytes, limited(factor)));
        let variance = variance.unwrap_or(f64::INFINITY);
        Self { now, base, variance: measured.map_or(variance, |(_, (_, variance))| variance) }
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

    /// Returns the variance of the corrected miss ratio `misses` at `bytes`, the baseline's size; 1
    /// if nothing is known.
    ///
    /// If the curve changes between the present size and `bytes` by at most one sampled miss, the
    /// standard error is one miss in all sampled reads. So the watch also judges a tenant whose
    /// keys nearly all fit.
    pub(super) fn variance(&self, curve: &MissCurve, bytes: u64, misses: f64) -> f64 {
        let relative = match self.base {
            Some(_) => Some(0.0),
            None => scatter(curve, self.now.0, bytes),
        };
        let one = curve.one_miss();
        let scattered = relative.map_or(one * one, |scatter| misses * misses * scatter);
        // Nothing is known of a variance without a bound.
        if self.variance.is_finite() { misses * misses * self.variance + scattered } else { 1.0 }
    }

    /// The sizes between which the factor changes.
    pub(super) fn sizes(&self) -> [u64; 2] {
        [self.now.0, self.base.map_or(self.now.0, |base| base.0)]
    }
}

impl MissCurve {
    /// Misses per read at a size.
    pub(super) fn at(&self, bytes: u64) -> f64 {
        self.misses_per_read.at(bytes)
    }

    /// Sampled misses at a size.
    fn sampled(&self, bytes: u64) -> f64 {
        // Not a number counts as none.
        self.sampled_reads.max(0.0) * self.at(bytes)
    }

    /// Misses per read of a single sampled miss, 0 to 1.
    fn one_miss(&self) -> f64 {
        // Not a number counts as no sampled read.
        1.0 / self.sampled_reads.max(1.0)
    }

    /// Relative variance of the number of sampled misses at a size.
    fn count_variance(&self, bytes: u64) -> f64 {
        1.0 / self.sampled(bytes).max(f64::MIN_POSITIVE)
    }
}

/// Relative variance of the ratio of a curve's miss ratios at two sizes; none if at most one
/// sampled miss tells it.
fn scatter(curve: &MissCurve, one: u64, other: u64) -> Option<f64> {
    let (a, b) = (curve.at(one), curve.at(other));
    if a == b {
        return Some(0.0);
    }
    let many = curve.sampled(if a > b { one } else { other });
    // Where no sampled miss is left, there may be one.
    let part = (a.min(b) / a.max(b)).max(1.0 / many);
    (many > 1.0).then(|| (1.0 - part) / (part * many))
}

/// Measured over predicted misses. The first curve predicts those of the window before it, if the
/// size was steady.
fn factor(curve: &MissCurve, window: &PartSample, used_bytes: u64) -> f64 {
    let is_first = window.predicted <= 0.0 && window.compared == 0;
    let is_steady = window.used_bytes.abs_diff(used_bytes) <= used_bytes / STEADY_PARTS;
    let (measured, predicted) = if is_first && is_steady {
        (window.reads.misses, window.reads.reads() as f64 * curve.at(used_bytes))
    } else {
        (window.compared, window.predicted)
    };
    limited((measured as f64 + PRIOR) / (predicted.max(0.0) + PRIOR))
}

fn limited(factor: f64) -> f64 {
    factor.clamp(1.0 / FACTOR_MAX, FACTOR_MAX)
}

#[cfg(test)]
mod tests {
    use sherwood_model::DemandCurve;

    use super::*;
    use crate::tenants::ReadCounts;

    const NOW: Instant = Instant::from_secs(1_000);

    fn curve(points: &[(u64, f64)], sampled_reads: f64) -> MissCurve {
        MissCurve { misses_per_read: DemandCurve::new(points.iter().copied()), sampled_reads }
    }

    fn factor_of(curve: &MissCurve, window: PartSample) -> f64 {
        Correction::new(curve, &window, 100, Some(0.0), None).at(7)
    }

    #[test]
    fn curve_is_corrected_by_measured_over_predicted_misses() {
        let curve = curve(&[(0, 1.0), (100, 0.5)], 1e6);
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
        let correction = Correction { now: (100, 2.0), base, variance: 0.0 };
        assert_eq!([50, 100, 150, 200, 300].map(|bytes| correction.at(bytes)), [2.0, 2.0, 1.5, 1.0, 1.0]);
        let correction = Correction { now: (300, 2.0), ..correction };
        assert_eq!([50, 200, 250, 300, 400].map(|bytes| correction.at(bytes)), [1.0, 1.0, 1.5, 2.0, 2.0]);
        let correction = Correction { now: (200, 2.0), ..correction };
        assert_eq!(correction.at(200), 2.0, "the present factor is newer");
    }

    /// The factor at 400 bytes, and the relative variance of the miss ratio there, of a partition
    /// that uses 100 bytes now and missed a fifth of its reads with 400, where the curve said a
    /// tenth.
    fn at_base(now: &MissCurve, variance: f64) -> (f64, f64) {
        let reads = ReadCounts { hits: 8_000, misses: 2_000, joined: 0 };
        let window = PartSample { reads, ..PartSample::default() };
        let then = curve(&[(0, 1.0), (100, 0.8), (400, 0.1)], 10_000.0);
        let anchor = Anchor::new(NOW, 400, &then, &window, variance);
        let correction = Correction::new(now, &PartSample::default(), 100, None, Some(&anchor));
        (correction.at(400), correction.variance(now, 400, 1.0))
    }

    #[test]
    fn miss_ratio_measured_at_the_baseline_is_kept_while_the_curve_changes_by_chance() {
        let now = curve(&[(0, 1.0), (100, 0.8), (400, 0.103)], 10_000.0);
        let (factor, variance) = at_base(&now, 0.001);
        assert!((factor * 0.103 - 0.2).abs() < 1e-12, "{factor}");
        assert!((variance - (0.001 + 1.0 / 1_000.0 + 1.0 / 1_030.0)).abs() < 1e-12, "{variance}");
        let changed = curve(&[(0, 1.0), (100, 0.9), (400, 0.2)], 10_000.0);
        let misses = at_base(&changed, 0.001).0 * 0.2;
        assert!((0.39..0.4).contains(&misses), "twice as many misses: {misses}");
    }

    #[test]
    fn curve_alone_tells_the_baseline_that_was_not_measured() {
        let now = curve(&[(0, 1.0), (100, 0.8), (400, 0.1)], 10_000.0);
        let correction = Correction::new(&now, &PartSample::default(), 100, Some(0.0), None);
        assert_eq!(correction.at(400), 1.0);
        assert!((correction.variance(&now, 400, 1.0) - 0.875 / (0.125 * 8_000.0)).abs() < 1e-12);
        assert_eq!(correction.variance(&now, 100, 1.0), 0.0, "it is measured at the present size");
    }

    #[test]
    fn ratio_of_two_sizes_scatters_as_a_part_of_the_sampled_misses() {
        let sampled = curve(&[(0, 1.0), (100, 0.5), (200, 0.25), (300, 0.0)], 1_000.0);
        assert_eq!(scatter(&sampled, 100, 100), Some(0.0));
        let between = [scatter(&sampled, 100, 200), scatter(&sampled, 200, 100)];
        assert_eq!(between, [Some(1.0 / 500.0); 2]);
        let emptied = scatter(&sampled, 100, 300).expect("misses were sampled");
        assert!((0.99..1.0).contains(&emptied), "no sampled miss is left");
        let nothing = curve(&[(0, 1.0), (100, 0.5)], f64::NAN);
        assert_eq!(scatter(&nothing, 0, 100), None);
    }
}
