//! The cheapest division of the cache at given prices of the resources.
//!
//! At fixed prices each tenant has one curve of cost by bytes. On the lower convex hulls of these
//! curves, the cheapest division takes the steepest segments first, until the bytes are used up.
//! Hulls lie below their curves, so its cost is a lower bound for every division.

use super::grid::Grid;

/// The cheapest division at some prices.
#[derive(Clone, Debug)]
pub(super) struct Priced {
    /// Bytes of each tenant.
    pub(super) split: Vec<u64>,
    /// Costs on the hulls, summed over tenants, one for each resource. They are costs of a mixture
    /// of two divisions, which differ in one tenant.
    pub(super) costs: Vec<f64>,
}

/// A segment of a tenant's hull that lowers its cost.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Cost saved per byte, positive.
    slope: f64,
    bytes: u64,
    tenant: u32,
    /// Points of the tenant at the segment's ends.
    from: u32,
    to: u32,
}

/// Buffers that are used again by the next call.
#[derive(Debug, Default)]
pub(super) struct Pricer {
    hull: Vec<(u32, f64)>,
    segments: Vec<Segment>,
}

impl Pricer {
    /// Returns the cheapest division at `prices`, one for each resource, at least 0. O(points ×
    /// resources).
    pub(super) fn price(&mut self, grid: &Grid, prices: &[f64]) -> Priced {
        self.segments.clear();
        let mut spare = grid.total_bytes;
        for tenant in 0..grid.tenants() {
            spare -= grid.sizes(tenant)[0];
            self.hull(grid, tenant, prices);
        }
        let (taken, partly) = take(&mut self.segments, spare);
        let mut reached = vec![0_u32; grid.tenants()];
        for segment in &self.segments[..taken] {
            let reached = &mut reached[segment.tenant as usize];
            *reached = (*reached).max(segment.to);
        }
        let mut split: Vec<u64> =
            reached.iter().enumerate().map(|(t, &point)| grid.sizes(t)[point as usize]).collect();
        let mut costs = vec![0.0; grid.resources];
        for (tenant, &point) in reached.iter().enumerate() {
            add_point(grid, tenant, point, 1.0, &mut costs);
        }
        if let Some(bytes) = partly {
            let Segment { tenant, from, to, bytes: length, .. } = self.segments[taken];
            let way = bytes as f64 / length as f64;
            split[tenant as usize] += bytes;
            add_point(grid, tenant as usize, to, way, &mut costs);
            add_point(grid, tenant as usize, from, -way, &mut costs);
        }
        Priced { split, costs }
    }

    /// Adds the falling segments of the lower hull of a tenant's curve.
    fn hull(&mut self, grid: &Grid, tenant: usize, prices: &[f64]) {
        let sizes = grid.sizes(tenant);
        self.hull.clear();
        for (point, costs) in grid.costs(tenant).chunks_exact(grid.resources).enumerate() {
            let cost: f64 = costs.iter().zip(prices).map(|(cost, price)| cost * price).sum();
            if self.hull.last().is_some_and(|&(_, last)| cost >= last) {
                // A size that costs no less than a smaller one is not on the falling part.
                continue;
            }
            while let [.., a, b] = self.hull[..] {
                let saved =
                    |x: (u32, f64), y: (u32, f64)| (x.1 - y.1, sizes[y.0 as usize] - sizes[x.0 as usize]);
                let ((first, first_bytes), (both, both_bytes)) =
                    (saved(a, b), saved(a, (point as u32, cost)));
                if first * both_bytes as f64 > both * first_bytes as f64 {
                    break;
                }
                self.hull.pop();
            }
            self.hull.push((point as u32, cost));
        }
        let mut least = f64::INFINITY;
        for pair in self.hull.windows(2) {
            let ((from, cost), (to, less)) = (pair[0], pair[1]);
            let bytes = sizes[to as usize] - sizes[from as usize];
            // On a straight line, rounding must not have a segment taken before the one below it.
            let slope = ((cost - less) / bytes as f64).min(least);
            least = slope;
            self.segments.push(Segment { slope, bytes, tenant: tenant as u32, from, to });
        }
    }
}

fn add_point(grid: &Grid, tenant: usize, point: u32, factor: f64, sums: &mut [f64]) {
    let start = point as usize * grid.resources;
    let costs = &grid.costs(tenant)[start..start + grid.resources];
    sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += factor * cost);
}

/// Moves the steepest segments that fit into `spare` bytes to the front; ties go to the lower
/// tenant and point. Returns their number, and how many bytes of the segment after them fit if
/// there is one. O(segments), by quickselect.
fn take(segments: &mut [Segment], spare: u64) -> (usize, Option<u64>) {
    let (mut low, mut left) = (0, spare);
    let mut high = segments.len();
    // Segments before `low` are taken, and those from `high` on are not.
    while low < high {
        let middle = low + (high - low) / 2;
        segments[low..high].select_nth_unstable_by(middle - low, |a, b| {
            b.slope.total_cmp(&a.slope).then((a.tenant, a.from).cmp(&(b.tenant, b.from)))
        });
        let bytes: u128 = segments[low..=middle].iter().map(|segment| u128::from(segment.bytes)).sum();
        if bytes <= u128::from(left) {
            left -= u64::try_from(bytes).expect("at most what is left");
            low = middle + 1;
        } else if middle == low {
            break;
        } else {
            // The middle one stays among the candidates.
            let rest: u128 = bytes - u128::from(segments[middle].bytes);
            if rest <= u128::from(left) {
                left -= u64::try_from(rest).expect("at most what is left");
                low = middle;
                break;
            }
            high = middle;
        }
    }
    (low, (low < segments.len()).then_some(left))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sherwood_model::{BackendId, DemandCurve, ResourceKind};

    use super::super::super::{Share, TenantSeen, Tenants};
    use super::*;

    #[test]
    fn segments_of_a_straight_line_are_taken_in_order() {
        // On a line, but the second segment is steeper by rounding.
        let line: &[(u64, f64)] =
            &[(92, 0.2613333333333333), (255, 0.10423913043478263), (302, 0.05894202898550726)];
        let seen = [(line, 92), (&[(0, 1.0), (100, 0.0)], 0)].map(|(points, floor)| {
            let misses = DemandCurve::new(points.iter().copied());
            let demand = vec![misses.clone(), DemandCurve::constant(1.0)];
            let base = Share { bytes: 151, rates: vec![0.5; 2] };
            TenantSeen { base, floor: Share { bytes: floor, rates: vec![] }, miss_ratio: misses, demand }
        });
        let kinds = vec![ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0))];
        let total = Share { bytes: 302, rates: vec![1.0; 2] };
        let tenants = Tenants::new(kinds, total, seen.to_vec());
        let grid = Grid::new(&tenants, &[0, 1], 302, &tenants.total().rates);
        assert_eq!(Pricer::default().price(&grid, &[1.0, 0.0]).split, [202, 100]);
    }

    proptest! {
        #[test]
        fn taken_segments_are_the_steepest_that_fit(
            drawn in prop::collection::vec((1..9_u8, 1..100_u64), 0..40), spare in 0..2_000_u64,
        ) {
            let segment = |(tenant, &(slope, bytes)): (usize, &(u8, u64))| {
                Segment { slope: slope.into(), bytes, tenant: tenant as u32, from: 0, to: 1 }
            };
            let mut segments: Vec<Segment> = drawn.iter().enumerate().map(segment).collect();
            let (taken, partly) = take(&mut segments, spare);
            let used: u64 = segments[..taken].iter().map(|segment| segment.bytes).sum();
            prop_assert!(used <= spare);
            match partly {
                None => prop_assert_eq!(taken, segments.len()),
                Some(bytes) => {
                    prop_assert_eq!(used + bytes, spare);
                    prop_assert!(bytes < segments[taken].bytes);
                    let next = segments[taken];
                    prop_assert!(segments[..taken].iter().all(|other| other.slope >= next.slope));
                    prop_assert!(segments[taken..].iter().all(|other| other.slope <= next.slope));
                }
            }
        }
    }
}
