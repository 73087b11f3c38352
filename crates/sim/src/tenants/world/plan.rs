//! The plan: decided and put in force.

use sherwood_model::{DemandKind, PartitionId, Plan, ResourceId, ResourceKind, TenantId};

use super::{Event, Machine, World};
use crate::server::SizedCache;
use crate::tenants::control::Round;
use crate::tenants::part::Asked;
use crate::tenants::within::DECIDE_EVERY;

impl World {
    pub(super) fn decide_between(&mut self) {
        let waiting: Vec<u32> = (0..self.scenario.tenants.len()).map(|index| self.waiting(index)).collect();
        let asked = self.asked();
        let round = self.control.advance(self.now, &self.cache, &asked, &waiting);
        if round != Round::Same {
            self.apply();
        }
        if round == Round::Refill {
            self.warm.fill(&self.cache, self.now);
        }
        self.control.due().into_iter().for_each(|due| self.events.schedule(due, Event::Between));
    }

    pub(super) fn decide_within(&mut self) {
        let asked = self.asked();
        self.control.decide_within(self.now, &self.cache, &asked);
        self.apply();
        self.events.schedule(self.now + DECIDE_EVERY, Event::Within);
    }

    /// Returns what each tenant asked of its partitions since the start.
    pub(super) fn asked(&self) -> Vec<Vec<Asked>> {
        let mut asked = vec![Vec::new(); self.scenario.tenants.len()];
        for (index, part) in self.parts.iter().enumerate() {
            let (partition, machine) = (PartitionId::from_index(index), &self.backends[part.backend.index()]);
            let counts = machine.backend.demand(&SizedCache(&self.cache), part.tenant, partition);
            let used = machine.backend.used(part.tenant).map(|used| used.reads).unwrap_or_default();
            asked[part.tenant.index()].push(Asked {
                partition,
                backend: part.backend,
                counts: counts.unwrap_or_default(),
                read_units: used.own_units + used.lent_units,
            });
        }
        asked
    }

    /// Operations of a tenant that wait for units.
    fn waiting(&self, index: usize) -> u32 {
        let tenant = TenantId::from_index(index);
        let of_backend = |machine: &Machine| {
            machine.backend.used(tenant).map_or(0, |used| used.reads.waiting + used.writes.waiting)
        };
        self.backends.iter().map(of_backend).sum::<u32>() + self.network.waiting(tenant)
    }

    /// Puts the plan in force: rates first, so that a tenant that gives cache has its units.
    ///
    /// # Panics
    /// If the plan exceeds a total, which is a bug.
    pub(super) fn apply(&mut self) {
        let Plan { cache, rates, .. } = self.control.plan();
        let rates = rates.expect("plans of several tenants have rates");
        for (index, kind) in self.control.kinds().into_iter().enumerate() {
            let id = ResourceId::from_index(index);
            let each = (0..rates.tenants()).map(|tenant| rates.get(TenantId::from_index(tenant), id));
            let each: Vec<f64> = each.collect();
            let (sum, total) = (each.iter().sum::<f64>(), self.total(index));
            assert!(sum <= total * (1.0 + ROUNDING), "rates of {sum} of resource {index}, which has {total}");
            self.set_rates(kind, total, if rates.are_common() { &[] } else { &each });
        }
        self.cache.apply(&cache).expect("plans are within the total");
        while self.cache.step(self.now, STEP_ITEMS) {}
    }

    /// Units per second of a resource, of all tenants.
    pub(super) fn total(&self, index: usize) -> f64 {
        let name = &self.scenario.resources[index].name;
        self.scenario.tenants.iter().map(|tenant| tenant.rates[name]).sum()
    }

    fn set_rates(&mut self, kind: ResourceKind, total: f64, each: &[f64]) {
        let (id, kind) = match kind {
            ResourceKind::Network => {
                self.network.set_rates(self.now, total, each);
                return self.admit();
            }
            ResourceKind::Reads(id) => (id, DemandKind::Read),
            ResourceKind::Writes(id) => (id, DemandKind::Write),
        };
        let machine = &mut self.backends[id.index()].backend;
        machine.set_rates(self.now, &SizedCache(&self.cache), kind, total, each);
        self.drive(id);
    }
}

/// Items processed per background step; steps are repeated until nothing is left.
const STEP_ITEMS: usize = 4_096;
/// Relative difference of sums of rates that counts as rounding.
const ROUNDING: f64 = 1e-9;
