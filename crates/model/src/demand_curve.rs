//! Units of a resource that a request takes, as a function of the tenant's cache.

/// Largest number of points of a curve; later ones are dropped, and the curve is constant from
/// there on.
const POINTS_MAX: usize = 4_096;
/// Least and largest number of units above 0: smaller ones count as none, and larger ones as this
/// many, so that sums and quotients of demands stay finite.
const UNITS_MIN: f64 = 1e-12;
const UNITS_MAX: f64 = 1e15;

/// Units of a resource that one average request takes, by the bytes of cache that its tenant holds:
/// linear between two points, constant before the first and after the last.
///
/// Unlike a miss ratio curve, it may rise: measured curves are noisy, and a decision must be
/// checked against the demand as measured.
///
/// ```
/// use sherwood_model::DemandCurve;
/// let misses = DemandCurve::new([(0, 1.0), (100, 0.25)]);
/// // Of 1,000 bytes that a miss takes, a hit saves half.
/// let network = DemandCurve::of_misses(1_000.0, 0.5, &misses);
/// assert_eq!((misses.at(50), network.at(0), network.at(100)), (0.625, 1_000.0, 625.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DemandCurve {
    /// At least one, with ascending bytes.
    points: Vec<(u64, f64)>,
}

impl DemandCurve {
    /// Returns the curve through `points`, each (bytes, units) with more bytes than the one before.
    /// Invalid input is repaired: points that are NaN, infinite or out of order are dropped, and
    /// negative ones count as 0. Without valid points the demand is 0.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u64, f64)>) -> Self {
        let mut curve: Vec<(u64, f64)> = Vec::new();
        for (bytes, units) in points.into_iter().filter(|(_, units)| units.is_finite()) {
            if curve.len() < POINTS_MAX && curve.last().is_none_or(|&(last, _)| bytes > last) {
                curve.push((bytes, valid(units)));
            }
        }
        if curve.is_empty() {
            curve.push((0, 0.0));
        }
        Self { points: curve }
    }

    /// Returns the demand that no cache changes, such as a write's.
    #[must_use]
    pub fn constant(units: f64) -> Self {
        Self::new([(0, units)])
    }

    /// Returns the demand for a resource of which a request takes `if_miss` units when it misses,
    /// and when it hits the share `saved_ratio` (0 to 1) less: `if_miss · (1 - saved_ratio · (1 -
    /// miss ratio))`. `miss_ratio` are misses per request by bytes.
    #[must_use]
    pub fn of_misses(if_miss: f64, saved_ratio: f64, miss_ratio: &Self) -> Self {
        let saved = if saved_ratio.is_nan() { 0.0 } else { saved_ratio.clamp(0.0, 1.0) };
        if saved == 0.0 {
            return Self::constant(if_miss);
        }
        let units = |misses: f64| if_miss * (1.0 - saved + saved * misses);
        Self::new(miss_ratio.points.iter().map(|&(bytes, misses)| (bytes, units(misses))))
    }

    /// The demand at a size, in units. O(log points).
    #[must_use]
    pub fn at(&self, bytes: u64) -> f64 {
        let after = self.points.partition_point(|&(size, _)| size <= bytes);
        let Some(&(size, units)) = after.checked_sub(1).and_then(|before| self.points.get(before)) else {
            return self.points[0].1;
        };
        let Some(&(next_size, next_units)) = self.points.get(after) else { return units };
        units + (next_units - units) * ((bytes - size) as f64 / (next_size - size) as f64)
    }

    /// The points of the curve: (bytes, units), with ascending bytes.
    #[must_use]
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }
}

fn valid(units: f64) -> f64 {
    if units < UNITS_MIN { 0.0 } else { units.min(UNITS_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_points_of_a_demand_curve_are_dropped_or_repaired() {
        let points = [(5, f64::NAN), (10, 0.5), (10, 0.1), (20, f64::INFINITY), (30, -1.0), (40, 1e300)];
        assert_eq!(DemandCurve::new(points).points(), [(10, 0.5), (30, 0.0), (40, UNITS_MAX)]);
        assert_eq!(DemandCurve::new([]).at(7), 0.0);
        assert_eq!(DemandCurve::constant(f64::NAN).at(7), 0.0);
    }

    #[test]
    fn demand_curve_is_constant_beyond_its_points_and_may_rise_between_them() {
        let curve = DemandCurve::new([(10, 0.5), (20, 1.5)]);
        assert_eq!((curve.at(0), curve.at(15), curve.at(u64::MAX)), (0.5, 1.0, 1.5));
    }

    #[test]
    fn resource_of_which_hits_save_nothing_has_a_constant_demand() {
        let misses = DemandCurve::new([(0, 1.0), (100, 0.0)]);
        assert_eq!(DemandCurve::of_misses(3.0, 0.0, &misses), DemandCurve::constant(3.0));
        assert_eq!(DemandCurve::of_misses(3.0, f64::NAN, &misses), DemandCurve::constant(3.0));
        assert_eq!(DemandCurve::of_misses(3.0, 2.0, &misses).at(100), 0.0);
    }
}
