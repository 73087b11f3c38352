//! A partition's miss ratio as a function of its size.

use serde::{Deserialize, Serialize};

use crate::{SLOPE_STEP_RATIO, hit_ratio_slope};

/// Largest number of points of a curve; later ones are dropped, and the curve is constant from
/// there on.
const POINTS_MAX: usize = 4_096;
/// Least number of sampled look-ups for which a curve is estimated.
const SAMPLED_MIN: f64 = 200.0;
/// Sizes that differ by less than this fraction of themselves count as one in a mean; a sampled
/// curve has no finer resolution.
const MEAN_STEP: u64 = 32;
/// Smallest error of a curve with fewer points; that of a sample of 200 look-ups is a hundred times
/// as large.
const ERROR_MIN: f64 = 1.0 / 8_192.0;

/// Miss ratios by size: 1 at 0 bytes, linear between two points, non-increasing, constant after the
/// last.
///
/// ```
/// let curve = sherwood_policy::MissRatioCurve::new([(0, 1.0), (100, 0.5), (300, 0.1)]);
/// assert_eq!((curve.at(50), curve.at(1_000)), (0.75, 0.1));
/// assert_eq!(curve.bytes_for(0.5), Some(100));
/// assert_eq!(curve.bytes_for(0.05), None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, f64)>", into = "Vec<(u64, f64)>")]
pub struct MissRatioCurve {
    points: Vec<(u64, f64)>,
}

impl From<Vec<(u64, f64)>> for MissRatioCurve {
    /// Returns the curve through the points; see [`MissRatioCurve::new`].
    fn from(points: Vec<(u64, f64)>) -> Self {
        Self::new(points)
    }
}

impl From<MissRatioCurve> for Vec<(u64, f64)> {
    fn from(curve: MissRatioCurve) -> Self {
        curve.points
    }
}

impl MissRatioCurve {
    /// Returns the curve through `points`, each a (bytes, miss ratio) with more bytes than the one
    /// before. Invalid input is repaired: ratios are clamped to 0 to 1 and to the ratio before; NaN
    /// ratios and sizes out of order are dropped.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u64, f64)>) -> Self {
        let mut curve = vec![(0, 1.0)];
        for (bytes, ratio) in points.into_iter().filter(|(_, ratio)| !ratio.is_nan()) {
            let (last_bytes, last_ratio) = curve[curve.len() - 1];
            if bytes > last_bytes && curve.len() < POINTS_MAX {
                curve.push((bytes, ratio.clamp(0.0, last_ratio)));
            }
        }
        Self { points: curve }
    }

    /// Returns the curve estimated from `look_ups` sampled look-ups; none if these are fewer than
    /// 200.
    #[must_use]
    pub fn sampled(look_ups: f64, points: impl IntoIterator<Item = (u64, f64)>) -> Option<Self> {
        (look_ups >= SAMPLED_MIN).then(|| Self::new(points))
    }

    /// The combined miss ratio of several caches of equal size: the mean of their curves weighted
    /// by look-ups. None without look-ups; a single curve is returned unchanged. The mean has the
    /// points of all curves, but of several points within a 32nd of their size only the first and
    /// the last. O(n log n) for n points in total.
    ///
    /// ```
    /// use sherwood_policy::MissRatioCurve;
    /// let (steep, flat) = (MissRatioCurve::new([(100, 0.0)]), MissRatioCurve::new([(200, 1.0)]));
    /// let mean = MissRatioCurve::mean(&[(300, &steep), (100, &flat)]).expect("there are look-ups");
    /// assert_eq!((mean.at(50), mean.at(100)), (0.625, 0.25));
    /// ```
    #[must_use]
    pub fn mean(curves: &[(u64, &Self)]) -> Option<Self> {
        let look_ups: f64 = curves.iter().map(|(look_ups, _)| *look_ups as f64).sum();
        if look_ups <= 0.0 {
            return None;
        }
        if let [(_, only)] = curves {
            // No points are merged, so that one simulated server sees the same curve as a node.
            return Some((*only).clone());
        }
        let mut sizes: Vec<u64> = curves.iter().flat_map(|(_, curve)| curve.sizes()).collect();
        sizes.sort();
        sizes.dedup();
        let sizes = thinned(&sizes);
        let misses =
            |size| curves.iter().map(|(look_ups, curve)| *look_ups as f64 * curve.at(size)).sum::<f64>();
        Some(Self::new(sizes.into_iter().map(|size| (size, misses(size) / look_ups))))
    }

    /// Returns the curve with at most `points_max` of its points, or two if that is less: so many
    /// that the ratio at any size differs by at most a given error, the smallest of 2^-13, 2^-12
    /// and so on to 1 that suffices. Up to 14 passes over the points.
    ///
    /// ```
    /// use sherwood_policy::MissRatioCurve;
    /// let bends_once = MissRatioCurve::new([(100, 0.5), (200, 0.45), (300, 0.4)]);
    /// assert_eq!(bends_once.simplified(3), MissRatioCurve::new([(100, 0.5), (300, 0.4)]));
    /// ```
    #[must_use]
    pub fn simplified(&self, points_max: usize) -> Self {
        let (mut points, mut error) = (self.points.clone(), ERROR_MIN);
        while points.len() > points_max.max(2) && error <= 1.0 {
            points = within(&self.points, error);
            error *= 2.0;
        }
        Self { points }
    }

    /// The points, each (bytes, miss ratio), in the order of sizes; the first is (0, 1).
    #[must_use]
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    fn sizes(&self) -> impl Iterator<Item = u64> {
        self.points.iter().map(|&(size, _)| size)
    }

    /// The miss ratio at a size, 0 to 1. O(log points).
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let after = self.points.partition_point(|&(size, _)| size <= bytes);
        let (size, ratio) = self.points[after - 1];
        let Some(&(next_size, next_ratio)) = self.points.get(after) else { return ratio };
        let way = (bytes - size) as f64 / (next_size - size) as f64;
        ratio + (next_ratio - ratio) * way
    }

    /// The least size at which at most `miss_ratio` of the look-ups miss; none if no size does.
    /// O(log points).
    #[must_use]
    pub fn bytes_for(&self, miss_ratio: f64) -> Option<u64> {
        let first = self.points.partition_point(|&(_, ratio)| ratio > miss_ratio);
        let &(bytes, ratio) = self.points.get(first)?;
        let Some(&(before_bytes, before_ratio)) = first.checked_sub(1).and_then(|i| self.points.get(i))
        else {
            return Some(bytes);
        };
        let way = (before_ratio - miss_ratio) / (before_ratio - ratio);
        let more = ((bytes - before_bytes) as f64 * way).ceil() as u64;
        Some(before_bytes.saturating_add(more).min(bytes))
    }

    /// The least miss ratio of any size.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.points[self.points.len() - 1].1
    }

    /// The [`hit_ratio_slope`] (hit ratio gained per byte) from `bytes` to [`SLOPE_STEP_RATIO`] of
    /// `total_bytes` more.
    ///
    /// ```
    /// let curve = sherwood_policy::MissRatioCurve::new([(100, 0.5), (200, 0.1)]);
    /// assert!((curve.hit_ratio_slope(150, 1_000) - 0.004).abs() < 1e-12);
    /// assert_eq!(curve.hit_ratio_slope(200, 1_000), 0.0);
    /// ```
    #[must_use]
    pub fn hit_ratio_slope(&self, bytes: u64, total_bytes: u64) -> f64 {
        let larger = bytes.saturating_add((total_bytes as f64 * SLOPE_STEP_RATIO) as u64);
        hit_ratio_slope((bytes, 1.0 - self.at(bytes)), (larger, 1.0 - self.at(larger)))
    }

    /// Number of `look_ups` that would hit with `more_bytes` above `bytes` but miss without them:
    /// the hits of a shadow queue of that size behind the partition.
    #[must_use]
    pub fn shadow_hits(&self, bytes: u64, more_bytes: u64, look_ups: u64) -> u64 {
        let gain = self.at(bytes) - self.at(bytes.saturating_add(more_bytes));
        (look_ups as f64 * gain).round() as u64
    }
}

/// The first and the last of each group of ascending sizes that lie close together.
fn thinned(sizes: &[u64]) -> Vec<u64> {
    let far = |from: u64, to: u64| to - from > from / MEAN_STEP;
    let mut kept = Vec::new();
    for (index, &size) in sizes.iter().enumerate() {
        let first = kept.last().is_none_or(|&last| far(last, size));
        let last = sizes.get(index + 1).is_none_or(|&next| far(size, next));
        if first || last {
            kept.push(size);
        }
    }
    kept
}

/// Some of the `points` of a curve, of which there is one: the lines between them pass all others
/// at a distance of at most `error`.
fn within(points: &[(u64, f64)], error: f64) -> Vec<(u64, f64)> {
    let mut kept = vec![points[0]];
    // Slopes of lines from the last kept point that pass all later ones closely enough.
    let (mut least, mut most) = (f64::NEG_INFINITY, f64::INFINITY);
    for two in points.windows(2) {
        let (before, (bytes, ratio)) = (two[0], two[1]);
        let slope = |from: (u64, f64), ratio: f64| (ratio - from.1) / (bytes - from.0) as f64;
        let mut from = kept[kept.len() - 1];
        if !(least..=most).contains(&slope(from, ratio)) {
            kept.push(before);
            (from, least, most) = (before, f64::NEG_INFINITY, f64::INFINITY);
        }
        (least, most) = (least.max(slope(from, ratio - error)), most.min(slope(from, ratio + error)));
    }
    kept.extend(points.get(1..).and_then(<[_]>::last));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mean_of_one_miss_ratio_curve_is_that_curve() {
        let close = MissRatioCurve::new((1_000..1_100).map(|size| (size, 1.0 / size as f64)));
        assert_eq!(MissRatioCurve::mean(&[(7, &close)]), Some(close));
    }

    #[test]
    fn invalid_points_of_a_curve_are_repaired_or_dropped() {
        let curve =
            MissRatioCurve::new([(5, f64::NAN), (10, 0.5), (10, 0.1), (20, 0.9), (30, -1.0), (40, 2.0)]);
        assert_eq!((curve.at(10), curve.at(20), curve.at(30), curve.at(u64::MAX)), (0.5, 0.5, 0.0, 0.0));
        assert_eq!(MissRatioCurve::new([]).at(7), 1.0);
        assert_eq!(MissRatioCurve::new([]).bytes_for(0.99), None);
    }

    #[test]
    fn shadow_hits_are_hits_gained_by_more_bytes() {
        let curve = MissRatioCurve::new([(100, 0.5), (200, 0.25)]);
        assert_eq!(curve.shadow_hits(100, 50, 1_000), 125);
        assert_eq!(curve.shadow_hits(300, 50, 1_000), 0);
        assert_eq!(curve.shadow_hits(u64::MAX, u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn too_few_sampled_look_ups_give_no_curve() {
        assert_eq!(MissRatioCurve::sampled(199.0, [(1, 0.5)]), None);
        assert_eq!(MissRatioCurve::sampled(200.0, [(1, 0.5)]), Some(MissRatioCurve::new([(1, 0.5)])));
        assert_eq!(MissRatioCurve::mean(&[(0, &MissRatioCurve::new([]))]), None);
    }

    proptest! {
        #[test]
        fn mean_of_miss_ratio_curves_lies_between_them(
            ones in prop::collection::vec((0..1_000_u64, 0.0..1.0_f64), 0..20), looked_up in 1..100_u64,
            others in prop::collection::vec((0..1_000_u64, 0.0..1.0_f64), 0..20), size in 0..1_100_u64,
        ) {
            let (one, other) = (MissRatioCurve::new(ones), MissRatioCurve::new(others));
            let mean = MissRatioCurve::mean(&[(looked_up, &one), (7, &other)]).expect("there are look-ups");
            // Points may be left out, so the mean is compared at sizes a 15th away.
            let [before, after] = [size - size / 15, size + size / 15 + 1];
            prop_assert!(mean.at(size) <= one.at(before).max(other.at(before)) + 1e-9);
            prop_assert!(mean.at(size) >= one.at(after).min(other.at(after)) - 1e-9);
        }

        #[test]
        fn simplified_curve_has_few_points_and_stays_within_its_error(
            points in prop::collection::vec((0..100_000_u64, 0.0..1.0_f64), 0..60), points_max in 0..40_usize,
        ) {
            let mut points = points;
            points.sort_by_key(|&(bytes, _)| bytes);
            let curve = MissRatioCurve::new(points);
            let few = curve.simplified(points_max);
            prop_assert!(few.points.len() <= points_max.max(2));
            prop_assert!(few.points.iter().all(|point| curve.points.contains(point)));
            for error in (0..=13).map(|power| 1.0 / f64::from(1 << power)) {
                let close = MissRatioCurve { points: within(&curve.points, error) };
                let off = |&(size, ratio): &(u64, f64)| (close.at(size) - ratio).abs() <= error + 1e-9;
                prop_assert!(curve.points.iter().all(off));
            }
        }

        #[test]
        fn bytes_for_a_miss_ratio_are_the_least_sufficient_size(
            points in prop::collection::vec((0..1_000_u64, any::<f64>()), 0..20), ratio in 0.0..1.0_f64,
        ) {
            let curve = MissRatioCurve::new(points);
            match curve.bytes_for(ratio) {
                None => prop_assert!(curve.least() > ratio),
                Some(bytes) => {
                    prop_assert!(curve.at(bytes) <= ratio + 1e-9);
                    prop_assert!(bytes == 0 || curve.at(bytes - 1) > ratio - 1e-9);
                }
            }
        }
    }
}
