//! Costs of every tenant at the points of its curves.

use super::super::{TenantSeen, Tenants};

/// Costs by tenant and size: the share of each resource's total that a tenant needs for its
/// throughput at the baseline. With the costs summed over tenants, everyone's throughput can be
/// multiplied by the inverse of the largest sum.
///
/// Between two points costs are linear, beyond the last constant. The first point of a tenant is
/// its floor.
#[derive(Debug)]
pub(super) struct Grid {
    /// Number of resources.
    pub(super) resources: usize,
    /// Bytes to divide, floors included.
    pub(super) total_bytes: u64,
    /// Index of each tenant's first point, and the number of points.
    starts: Vec<usize>,
    /// Bytes of each point.
    bytes: Vec<u64>,
    /// Costs of each point, one for each resource.
    costs: Vec<f64>,
}

impl Grid {
    /// Returns the costs of `members`, indices of tenants that divide `total_bytes` and `totals`
    /// among them; the floors fit into `total_bytes`. O(points × resources); 8 bytes for each of
    /// them.
    pub(super) fn new(tenants: &Tenants, members: &[usize], total_bytes: u64, totals: &[f64]) -> Self {
        let floors: u64 = members.iter().map(|&member| tenants.seen()[member].floor.bytes).sum();
        let spare = total_bytes - floors;
        let resources = tenants.kinds().len();
        let mut grid = Self { resources, total_bytes, starts: vec![0], bytes: Vec::new(), costs: Vec::new() };
        let mut sizes = Vec::new();
        for &member in members {
            let (tenant, throughput) = (&tenants.seen()[member], tenants.base_throughput()[member]);
            let floor = tenant.floor.bytes;
            if throughput > 0.0 {
                sizes_between(tenant, floor, floor + spare, &mut sizes);
            } else {
                sizes.clear();
                sizes.push(floor);
            }
            grid.push(tenant, throughput, totals, &sizes);
        }
        grid
    }

    fn push(&mut self, tenant: &TenantSeen, throughput: f64, totals: &[f64], sizes: &[u64]) {
        let first = self.costs.len();
        self.bytes.extend_from_slice(sizes);
        self.costs.resize(first + sizes.len() * self.resources, 0.0);
        self.starts.push(self.bytes.len());
        for (i, (curve, &total)) in tenant.demand.iter().zip(totals).enumerate() {
            let scale = if total > 0.0 { throughput / total } else { 0.0 };
            let costs = &mut self.costs[first + i..];
            walk(curve.points(), sizes, |position, units| costs[position * self.resources] = scale * units);
        }
    }

    /// Number of tenants.
    pub(super) fn tenants(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes of the tenant's points, ascending.
    pub(super) fn sizes(&self, tenant: usize) -> &[u64] {
        &self.bytes[self.starts[tenant]..self.starts[tenant + 1]]
    }

    /// Costs of the tenant's points, one after the other.
    pub(super) fn costs(&self, tenant: usize) -> &[f64] {
        &self.costs[self.starts[tenant] * self.resources..self.starts[tenant + 1] * self.resources]
    }

    /// Adds `sign` times the tenant's costs at `bytes` to `sums`.
    pub(super) fn add_at(&self, tenant: usize, bytes: u64, sign: f64, sums: &mut [f64]) {
        let (sizes, costs) = (self.sizes(tenant), self.costs(tenant));
        let after = sizes.partition_point(|&size| size <= bytes);
        let before = after.saturating_sub(1);
        let at = |point: usize| &costs[point * self.resources..(point + 1) * self.resources];
        if after == sizes.len() || after == 0 {
            sums.iter_mut().zip(at(before)).for_each(|(sum, cost)| *sum += sign * cost);
            return;
        }
        let way = (bytes - sizes[before]) as f64 / (sizes[after] - sizes[before]) as f64;
        for ((sum, from), to) in sums.iter_mut().zip(at(before)).zip(at(after)) {
            *sum += sign * (from + (to - from) * way);
        }
    }

    /// The costs of a division of the cache, summed over tenants, one for each resource.
    pub(super) fn sums(&self, split: &[u64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.resources];
        split.iter().enumerate().for_each(|(tenant, &bytes)| self.add_at(tenant, bytes, 1.0, &mut sums));
        sums
    }
}

/// The largest of the costs, by which all throughput is divided.
pub(super) fn largest(sums: &[f64]) -> f64 {
    sums.iter().copied().fold(0.0, f64::max)
}

/// Collects the sizes at which any of the tenant's curves has a point, within `from` to `to`, and
/// `from`, and `to` if the curves go on beyond it.
fn sizes_between(tenant: &TenantSeen, from: u64, to: u64, sizes: &mut Vec<u64>) {
    sizes.clear();
    sizes.push(from);
    let mut last: &[(u64, f64)] = &[];
    for curve in &tenant.demand {
        let points = curve.points();
        let known = points.len() == last.len() && points.iter().zip(last).all(|(a, b)| a.0 == b.0);
        // A curve of one point is constant.
        if points.len() > 1 && !known {
            let first = points.partition_point(|point| point.0 <= from);
            let end = points.partition_point(|point| point.0 < to).max(first);
            sizes.extend(points[first..end].iter().map(|point| point.0));
            if end < points.len() && to > from {
                sizes.push(to);
            }
            last = points;
        }
    }
    if !sizes.is_sorted_by(|a, b| a < b) {
        sizes.sort_unstable();
        sizes.dedup();
    }
}

/// Calls `found` with the position of each of the ascending `sizes` and the curve's units there.
fn walk(points: &[(u64, f64)], sizes: &[u64], mut found: impl FnMut(usize, f64)) {
    let mut after = 0;
    for (position, &bytes) in sizes.iter().enumerate() {
        while after < points.len() && points[after].0 <= bytes {
            after += 1;
        }
        let (before, units) = points[after.saturating_sub(1)];
        // Most sizes are points of the curve, for which nothing is divided.
        let between = after > 0 && after < points.len() && before != bytes;
        found(
            position,
            if between {
                let (next, next_units) = points[after];
                units + (next_units - units) * ((bytes - before) as f64 / (next - before) as f64)
            } else {
                units
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::{BackendId, DemandCurve, ResourceKind};

    use super::super::super::Share;
    use super::*;

    #[test]
    fn costs_between_floor_and_total_equal_the_demand_at_the_baselines_throughput() {
        let misses = DemandCurve::new([(0, 1.0), (10, 0.5), (30, 0.3), (200, 0.1)]);
        let writes = DemandCurve::new([(5, 1.0), (15, 2.0)]);
        let tenant = TenantSeen {
            base: Share { bytes: 40, rates: vec![10.0, 1e9] },
            floor: Share { bytes: 4, rates: vec![] },
            miss_ratio: misses.clone(),
            demand: vec![misses.clone(), writes.clone()],
        };
        let kinds = vec![ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0))];
        let total = Share { bytes: 100, rates: vec![20.0, 2e9] };
        let tenants = Tenants::new(kinds, total, vec![tenant.clone(), tenant]);
        let grid = Grid::new(&tenants, &[0, 1], 100, &tenants.total().rates);
        assert_eq!(grid.sizes(1), [4, 5, 10, 15, 30, 96]);
        let throughput = tenants.base_throughput()[0];
        for bytes in [4, 7, 15, 29, 60, 96, 1_000] {
            let sums = grid.sums(&[bytes, bytes]);
            let expected = |curve: &DemandCurve, total| 2.0 * throughput * curve.at(bytes.min(96)) / total;
            assert!((sums[0] - expected(&misses, 20.0)).abs() < 1e-12, "{bytes}");
            assert!((sums[1] - expected(&writes, 2e9)).abs() < 1e-12, "{bytes}");
        }
    }
}
