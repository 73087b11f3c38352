//! Rates at a fixed division of the cache: the least throughput first, then the next.

use sherwood_model::{Rates, TenantId};

use super::super::Tenants;

/// Returns the rates that raise the throughput of all tenants together until a resource is used
/// up; then the tenants that need it stay, and the others are raised further (leximin). Floors are
/// respected. With `conserving`, what is left is divided in proportion to need.
/// O(resources² × tenants).
pub(super) fn fill(tenants: &Tenants, split: &[u64], conserving: bool) -> Rates {
    let mut levels = Levels::new(tenants, split.to_vec());
    while levels.freeze_next() {}
    let Levels { needs, mut rates, .. } = levels;
    if conserving {
        divide_rest(tenants, &needs, &mut rates);
    }
    rates
}

/// Tenants whose throughput is raised together, and those that reached their levels (frozen ones).
pub(super) struct Levels<'a> {
    tenants: &'a Tenants,
    /// Bytes of each tenant.
    split: Vec<u64>,
    /// Units of each resource that each tenant needs for its throughput at the baseline.
    needs: Rates,
    /// Rates of frozen tenants.
    rates: Rates,
    frozen: Vec<bool>,
}

impl<'a> Levels<'a> {
    /// Returns levels of the tenants with demand at this division of the cache. The others are
    /// frozen at their floors.
    pub(super) fn new(tenants: &'a Tenants, split: Vec<u64>) -> Self {
        let resources = tenants.kinds().len();
        let rates = Rates::zero(tenants.len(), resources);
        let frozen = vec![false; tenants.len()];
        let mut levels = Self { tenants, split, needs: rates.clone(), rates, frozen };
        for (index, tenant) in tenants.seen().iter().enumerate() {
            levels.set_bytes(index, levels.split[index]);
            let id = TenantId::from_index(index);
            if levels.needs.row(id).iter().all(|&need| need <= 0.0) {
                levels.frozen[index] = true;
                levels.rates.row_mut(id).copy_from_slice(&tenant.floor.rates);
            }
        }
        levels
    }

    pub(super) fn set_bytes(&mut self, index: usize, bytes: u64) {
        self.split[index] = bytes;
        let throughput = self.tenants.base_throughput()[index];
        let row = self.needs.row_mut(TenantId::from_index(index));
        for (need, curve) in row.iter_mut().zip(&self.tenants.seen()[index].demand) {
            *need = throughput * curve.at(bytes);
        }
    }

    pub(super) fn split(&self) -> &[u64] {
        &self.split
    }

    /// The tenants that are not frozen.
    pub(super) fn open(&self) -> Vec<usize> {
        (0..self.frozen.len()).filter(|&index| !self.frozen[index]).collect()
    }

    /// Bytes and rates that frozen tenants leave to the others.
    pub(super) fn left(&self) -> (u64, Vec<f64>) {
        let total = self.tenants.total();
        let (mut bytes, mut rates) = (total.bytes, total.rates.clone());
        for index in (0..self.frozen.len()).filter(|&index| self.frozen[index]) {
            bytes -= self.split[index];
            let held = self.rates.row(TenantId::from_index(index));
            rates.iter_mut().zip(held).for_each(|(left, held)| *left = (*left - held).max(0.0));
        }
        (bytes, rates)
    }

    /// Smaller sizes of frozen tenants at which they need no more of any resource.
    pub(super) fn smaller(&self) -> Vec<(usize, u64)> {
        let smaller = |index: &usize| {
            let (tenant, bytes) = (&self.tenants.seen()[*index], self.split[*index]);
            let points = tenant.demand.iter().flat_map(|curve| curve.points().iter().map(|point| point.0));
            let sizes = points.chain([tenant.floor.bytes]).filter(|&size| size >= tenant.floor.bytes);
            let enough = |size: &u64| tenant.demand.iter().all(|curve| curve.at(*size) <= curve.at(bytes));
            Some((*index, sizes.filter(|&size| size < bytes).filter(enough).min()?))
        };
        (0..self.frozen.len())
            .filter(|&index| self.frozen[index])
            .filter_map(|index| smaller(&index))
            .collect()
    }

    /// Raises the tenants that are not frozen until a resource is used up, and freezes those that
    /// need it. False if all are frozen.
    pub(super) fn freeze_next(&mut self) -> bool {
        let next = self.next();
        if let Some((level, scarce)) = next {
            self.freeze(level, scarce);
        }
        next.is_some()
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
