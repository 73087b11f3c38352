//! Rates at a fixed division of the cache: the least throughput first, then the next.

use sherwood_model::{Rates, TenantId};

use super::super::Tenants;

/// Returns the rates that raise the throughput of all tenants together until a resource is used
/// up; then the tenants that need it stay, and the others are raised further (leximin). Floors are
/// respected. With `conserving`, what is left is divided in proportion to need.
/// O(resources² × tenants).
pub(super) fn fill(tenants: &Tenants, split: &[u64], conserving: bool) -> Rates {
    let mut levels = Levels::new(tenants, split);
    // Each round freezes every tenant that needs one more of the resources.
    while let Some((level, scarce)) = levels.next() {
        levels.freeze(level, scarce);
    }
    let mut rates = levels.rates;
    if conserving {
        divide_rest(tenants, &levels.needs, &mut rates);
    }
    rates
}

struct Levels<'a> {
    tenants: &'a Tenants,
    /// Units of each resource that each tenant needs for its throughput at the baseline.
    needs: Rates,
    /// Rates of frozen tenants.
    rates: Rates,
    frozen: Vec<bool>,
}

impl<'a> Levels<'a> {
    fn new(tenants: &'a Tenants, split: &[u64]) -> Self {
        let resources = tenants.kinds().len();
        let mut needs = Rates::zero(tenants.len(), resources);
        let mut rates = Rates::zero(tenants.len(), resources);
        let mut frozen = Vec::with_capacity(tenants.len());
        for (index, (tenant, &bytes)) in tenants.seen().iter().zip(split).enumerate() {
            let throughput = tenants.base_throughput()[index];
            let row = needs.row_mut(TenantId::from_index(index));
            for (need, curve) in row.iter_mut().zip(&tenant.demand) {
                *need = throughput * curve.at(bytes);
            }
            let idle = row.iter().all(|&need| need <= 0.0);
            if idle {
                rates.row_mut(TenantId::from_index(index)).copy_from_slice(&tenant.floor.rates);
            }
            frozen.push(idle);
        }
        Self { tenants, needs, rates, frozen }
    }

    /// The level that the tenants that are not frozen can reach together, and the resource that is
    /// used up then; none if all are frozen.
    fn next(&self) -> Option<(f64, usize)> {
        let levels = (0..self.tenants.kinds().len()).filter_map(|i| Some((self.level(i)?, i)));
        levels.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The level at which the resource is used up; none if no tenant that is not frozen needs it.
    fn level(&self, resource: usize) -> Option<f64> {
        let total = self.tenants.total().rates[resource];
        let (mut left, mut needs) = (total, Vec::new());
        for index in 0..self.tenants.len() {
            let id = TenantId::from_index(index);
            let floor = self.tenants.seen()[index].floor.rates[resource];
            let need = self.needs.row(id)[resource];
            if self.frozen[index] {
                left -= self.rates.row(id)[resource];
            } else if need > 0.0 {
                needs.push((need, floor));
            } else {
                left -= floor;
            }
        }
        (!needs.is_empty()).then(|| level(needs, left.max(0.0)))
    }

    fn freeze(&mut self, level: f64, scarce: usize) {
        for (index, frozen) in self.frozen.iter_mut().enumerate() {
            let id = TenantId::from_index(index);
            if *frozen || self.needs.row(id)[scarce] <= 0.0 {
                continue;
            }
            *frozen = true;
            let floors = &self.tenants.seen()[index].floor.rates;
            let needs = self.needs.row(id).iter().zip(floors);
            let rates = self.rates.row_mut(id).iter_mut().zip(needs);
            rates.for_each(|(rate, (need, floor))| *rate = (level * need).max(*floor));
        }
    }
}

/// The largest level at which the larger of level × need and floor, summed over (need, floor), is
/// at most `total`; 0 if the floors exceed it.
fn level(mut needs: Vec<(f64, f64)>, total: f64) -> f64 {
    // Tenants leave their floors in this order as the level rises.
    needs.sort_unstable_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let mut floors: f64 = needs.iter().map(|(_, floor)| floor).sum();
    let (mut above, mut level) = (0.0, 0.0);
    for (need, floor) in needs {
        if above * (floor / need) + floors > total {
            break;
        }
        above += need;
        floors -= floor;
        level = (total - floors).max(0.0) / above;
    }
    level
}

/// Divides what is left of each resource in proportion to need, or to the baselines where no tenant
/// needs it.
fn divide_rest(tenants: &Tenants, needs: &Rates, rates: &mut Rates) {
    let ids = || (0..tenants.len()).map(TenantId::from_index);
    for (i, &total) in tenants.total().rates.iter().enumerate() {
        let given: f64 = ids().map(|id| rates.row(id)[i]).sum();
        let needed: f64 = ids().map(|id| needs.row(id)[i]).sum();
        let base: f64 = tenants.seen().iter().map(|tenant| tenant.base.rates[i]).sum();
        let rest = total - given;
        for (id, tenant) in ids().zip(tenants.seen()) {
            let part = if needed > 0.0 {
                needs.row(id)[i] / needed
            } else if base > 0.0 {
                tenant.base.rates[i] / base
            } else {
                1.0 / tenants.len() as f64
            };
            rates.row_mut(id)[i] += rest.max(0.0) * part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_of_needs_uses_up_the_total_and_respects_floors() {
        assert_eq!(level(vec![(1.0, 0.0), (3.0, 0.0)], 8.0), 2.0);
        assert_eq!(level(vec![(1.0, 5.0), (3.0, 0.0)], 8.0), 1.0, "the first stays at its floor");
        assert_eq!(level(vec![(1.0, 5.0), (3.0, 0.0)], 40.0), 10.0);
        assert_eq!(level(vec![(1.0, 5.0), (3.0, 5.0)], 8.0), 0.0, "the floors exceed the total");
    }
}
