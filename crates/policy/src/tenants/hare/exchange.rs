//! Improvement of a division by exchanges between two tenants.
//!
//! Each step makes the best exchange of any size that ends at a point of the donor's or the
//! receiver's curve, so it crosses plateaus of any width. Most pairs need no look: an exchange
//! lowers the cost of the scarcest resource only if the receiver saves more per byte somewhere than
//! the donor loses somewhere.

use super::grid::{Grid, largest};

/// Least part of the largest cost that an exchange must save.
const GAIN_MIN: f64 = 1e-7;

/// A division while it is improved.
struct Improved<'a> {
    grid: &'a Grid,
    split: Vec<u64>,
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

/// Improves `split` until its largest cost is at most `enough`, no exchange saves a ten-millionth
/// of it, or `exchanges_max` were made. Returns the division and its largest cost.
pub(super) fn improve(grid: &Grid, split: Vec<u64>, enough: f64, exchanges_max: usize) -> (Vec<u64>, f64) {
    let sums = grid.sums(&split);
    let free = grid.total_bytes - split.iter().sum::<u64>();
    let mut improved = Improved { grid, split, sums, free };
    let mut cost = largest(&improved.sums);
    for _ in 0..exchanges_max {
        if cost <= enough {
            break;
        }
        let Some(exchange) = improved.best(cost) else { break };
        improved.make(&exchange);
        cost = exchange.cost;
    }
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
            if let Some(loss) = loss {
                donors.push((loss, Some(tenant)));
            }
        }
        if self.free > 0 {
            donors.push((0.0, None));
        }
        receivers.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut best = Exchange { donor: None, receiver: 0, bytes: 0, cost: cost * (1.0 - GAIN_MIN) };
        let mut sums = vec![0.0; self.sums.len()];
        for &(loss, donor) in &donors {
            for &(_, receiver) in receivers.iter().take_while(|(gain, _)| *gain > loss) {
                if donor != Some(receiver) {
                    self.try_sizes(donor, receiver, &mut sums, &mut best);
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
        let now = self.cost_at(tenant, scarce);
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

    fn cost_at(&self, tenant: usize, resource: usize) -> f64 {
        let mut sums = vec![0.0; self.sums.len()];
        self.grid.add_at(tenant, self.split[tenant], 1.0, &mut sums);
        sums[resource]
    }

    /// Tries the sizes that end at a point of one of the two.
    fn try_sizes(&self, donor: Option<usize>, receiver: usize, sums: &mut [f64], best: &mut Exchange) {
        let to = self.split[receiver];
        let above = self.grid.sizes(receiver);
        let room = above[above.len() - 1].saturating_sub(to);
        let (from, floor) =
            donor.map_or((self.free, 0), |donor| (self.split[donor], self.grid.sizes(donor)[0]));
        let most = room.min(from - floor);
        let below = donor.map_or(&[][..], |donor| self.grid.sizes(donor));
        let ends = above.iter().filter(|&&size| size > to).map(|size| size - to);
        let ends = ends.chain(below.iter().filter(|&&size| size < from).map(|size| from - size));
        for bytes in ends.chain([most]).filter(|&bytes| bytes > 0 && bytes <= most) {
            sums.copy_from_slice(&self.sums);
            if let Some(donor) = donor {
                self.grid.add_at(donor, from, -1.0, sums);
                self.grid.add_at(donor, from - bytes, 1.0, sums);
            }
            self.grid.add_at(receiver, to, -1.0, sums);
            self.grid.add_at(receiver, to + bytes, 1.0, sums);
            let cost = largest(sums);
            if cost < best.cost {
                *best = Exchange { donor, receiver, bytes, cost };
            }
        }
    }

    fn make(&mut self, exchange: &Exchange) {
        match exchange.donor {
            Some(donor) => self.split[donor] -= exchange.bytes,
            None => self.free -= exchange.bytes,
        }
        self.split[exchange.receiver] += exchange.bytes;
        // Summed anew, so that rounding errors do not add up.
        self.sums = self.grid.sums(&self.split);
    }
}
