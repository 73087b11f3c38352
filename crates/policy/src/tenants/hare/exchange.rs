//! Improvement of a division by exchanges between two tenants.
//!
//! Each step makes the best exchange of any size that ends at a point of the donor's or the
//! receiver's curve, so it crosses plateaus of any width. Most pairs need no look: an exchange
//! lowers the cost of the scarcest resource only if the receiver saves more per byte somewhere than
//! the donor loses somewhere.

use super::grid::{Grid, largest};

/// Least part of the largest cost that an exchange must save.
const GAIN_MIN: f64 = 1e-6;

/// A division while it is improved.
struct Improved<'a> {
    grid: &'a Grid,
    split: Vec<u64>,
    /// Costs of each tenant at its size, one for each resource.
    costs: Vec<f64>,
    /// Their sums over tenants.
    sums: Vec<f64>,
    /// Bytes that no tenant has.
    free: u64,
}

/// An exchange and the largest cost after it. Without a donor the bytes are free ones.
#[derive(Clone, Copy)]
struct Exchange {
    donor: Option<usize>,
    receiver: usize,
    bytes: u64,
    cost: f64,
}

/// Improves `split` until its largest cost is at most `enough`, no exchange saves a millionth of
/// it, or `exchanges_max` were made. Returns the division and its largest cost.
pub(super) fn improve(grid: &Grid, split: Vec<u64>, enough: f64, exchanges_max: usize) -> (Vec<u64>, f64) {
    let free = grid.total_bytes - split.iter().sum::<u64>();
    let mut costs = vec![0.0; grid.tenants() * grid.resources];
    for (tenant, costs) in costs.chunks_mut(grid.resources).enumerate() {
        grid.add_at(tenant, split[tenant], 1.0, costs);
    }
    let sums = grid.sums(&split);
    let mut improved = Improved { grid, split, costs, sums, free };
    for _ in 0..exchanges_max {
        let cost = largest(&improved.sums);
        if cost <= enough {
            break;
        }
        let Some(exchange) = improved.best(cost) else { break };
        improved.make(&exchange);
    }
    let cost = largest(&improved.sums);
    (improved.split, cost)
}

impl Improved<'_> {
    /// The exchange that lowers the largest cost, now `cost`, most.
    fn best(&self, cost: f64) -> Option<Exchange> {
        let scarce = (0..self.sums.len()).find(|&i| self.sums[i] >= cost)?;
        let mut receivers = Vec::new();
        let mut donors = Vec::new();
        for tenant in 0..self.grid.tenants() {
            let (gain, loss) = self.slopes(tenant, scarce);
            if gain > 0.0 {
                receivers.push((gain, tenant));
            }
            donors.extend(loss.map(|loss| (loss, Some(tenant))));
        }
        if self.free > 0 {
            donors.push((0.0, None));
        }
        receivers.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut best = Exchange { donor: None, receiver: 0, bytes: 0, cost: cost * (1.0 - GAIN_MIN) };
        for &(loss, donor) in &donors {
            for &(_, receiver) in receivers.iter().take_while(|(gain, _)| *gain > loss) {
                if donor != Some(receiver) {
                    self.try_sizes(donor, receiver, scarce, &mut best);
                }
            }
        }
        (best.bytes > 0).then_some(best)
    }

    /// The most of `scarce` that the tenant saves per byte on the way to any larger size, and the
    /// least that it loses per byte on the way to any smaller one, none at its floor.
    fn slopes(&self, tenant: usize, scarce: usize) -> (f64, Option<f64>) {
        let (sizes, costs) = (self.grid.sizes(tenant), self.grid.costs(tenant));
        let bytes = self.split[tenant];
        let now = self.costs[tenant * self.grid.resources + scarce];
        let (mut gain, mut loss): (f64, Option<f64>) = (0.0, None);
        for (&size, cost) in sizes.iter().zip(costs.iter().skip(scarce).step_by(self.grid.resources)) {
            if size > bytes {
                gain = gain.max((now - cost) / (size - bytes) as f64);
            } else if size < bytes {
                let slope = (cost - now) / (bytes - size) as f64;
                loss = Some(loss.map_or(slope, |least| least.min(slope)));
            }
        }
        (gain, loss)
    }

    /// Tries the sizes that end at a point of one of the two, in ascending order.
    fn try_sizes(&self, donor: Option<usize>, receiver: usize, scarce: usize, best: &mut Exchange) {
        let to = self.split[receiver];
        let from = donor.map_or(self.free, |donor| self.split[donor]);
        let above = self.grid.sizes(receiver);
        // Free bytes are a curve of two points without cost.
        let below = donor.map_or(&[0][..], |donor| self.grid.sizes(donor));
        let mut up = above.partition_point(|&size| size <= to);
        let mut down = below.partition_point(|&size| size < from);
        while up < above.len() && down > 0 {
            let (more, less) = (above[up] - to, from - below[down - 1]);
            let bytes = more.min(less);
            let after = |i: usize| {
                let given = donor.map_or(0.0, |donor| {
                    self.between(donor, down - 1, from - bytes, i)
                        - self.costs[donor * self.grid.resources + i]
                });
                let gained = self.between(receiver, up - 1, to + bytes, i)
                    - self.costs[receiver * self.grid.resources + i];
                self.sums[i] + given + gained
            };
            if after(scarce) < best.cost {
                let cost = (0..self.sums.len()).map(after).fold(0.0, f64::max);
                if cost < best.cost {
                    *best = Exchange { donor, receiver, bytes, cost };
                }
            }
            up += usize::from(more == bytes);
            down -= usize::from(less == bytes);
        }
    }

    /// The tenant's cost at `bytes`, which lie between the points `before` and the next.
    fn between(&self, tenant: usize, before: usize, bytes: u64, resource: usize) -> f64 {
        let (sizes, costs) = (self.grid.sizes(tenant), self.grid.costs(tenant));
        let from = costs[before * self.grid.resources + resource];
        let (Some(&next), Some(to)) =
            (sizes.get(before + 1), costs.get((before + 1) * self.grid.resources + resource))
        else {
            return from;
        };
        from + (to - from) * ((bytes - sizes[before]) as f64 / (next - sizes[before]) as f64)
    }

    fn make(&mut self, exchange: &Exchange) {
        match exchange.donor {
            Some(donor) => self.split[donor] -= exchange.bytes,
            None => self.free -= exchange.bytes,
        }
        self.split[exchange.receiver] += exchange.bytes;
        let resources = self.grid.resources;
        for tenant in exchange.donor.into_iter().chain([exchange.receiver]) {
            let costs = &mut self.costs[tenant * resources..(tenant + 1) * resources];
            costs.fill(0.0);
            self.grid.add_at(tenant, self.split[tenant], 1.0, costs);
        }
        // Summed anew, so that rounding errors do not add up.
        self.sums.fill(0.0);
        for costs in self.costs.chunks_exact(resources) {
            self.sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
        }
    }
}
