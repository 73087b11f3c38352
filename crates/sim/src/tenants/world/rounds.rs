//! Rounds of the control loop, and the plans that they result in.

use std::time::Duration;

use sherwood_control::{Act, Said, Seen};
use sherwood_model::{CachePlan, Instant, PartitionId, Plan, TenantId};
use sherwood_policy::tenants::Division;
use sherwood_workload::tenants::{Control, Decide};

use super::{Event, NODE, Tenants, World};
use crate::tenants::control::once_window;
use crate::tenants::within::DECIDE_EVERY;

impl Tenants {
    /// Returns the time of the first round that divides resources between tenants.
    pub(super) fn first_round(&self) -> Instant {
        let Control { decide, .. } = self.scenario.control;
        match decide {
            Decide::Live => Instant::ZERO,
            Decide::Once => Instant::ZERO + self.scenario.warm_up.0 / 2 - once_window(&self.scenario),
        }
    }
}

impl World {
    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.family.once.clone().unwrap_or_else(|| self.nodes[NODE].control.levels().plan())
    }

    /// Bytes of cache of all partitions of a tenant.
    pub(super) fn bytes(&self, tenant: TenantId) -> u64 {
        match self.plan().cache {
            CachePlan::Budgets(budgets) => {
                let own = self.family.parts.iter().zip(budgets).filter(|(part, _)| part.tenant == tenant);
                own.map(|(_, bytes)| bytes).sum()
            }
            CachePlan::Shared => self.nodes[NODE].between().bytes()[tenant.index()],
        }
    }

    /// Returns the least gain that the last decision predicts for a tenant, and the upper bound of
    /// that gain.
    pub(super) fn predicted(&self) -> (f64, Option<f64>) {
        let latest = self.nodes[NODE].between().latest();
        latest.map_or((1.0, None), |decision| (decision.division.gain, decision.division.bound))
    }

    /// Makes the controller between tenants observe, decide and take a step.
    pub(super) fn decide_between(&mut self) {
        let node = &self.nodes[NODE];
        let seen = node.tenants_seen(self.now >= node.between().decides_at());
        let acts = self.decide(NODE, Seen { tenants: Some(seen), ..Seen::default() });
        let decided = acts.iter().find_map(|act| match act {
            Act::Say(Said::Tenants(decision)) => Some(decision.clone()),
            _ => None,
        });
        if let Some(decision) = decided {
            let is_applied = decision.kept.is_none();
            self.family.decisions += 1;
            self.family.applied += u64::from(is_applied);
            if self.family.decide == Decide::Once {
                return if is_applied {
                    self.divide_once(&decision.division)
                };
            }
        }
        self.carry_out(NODE, acts);
        // A controller that is late asks for the present again; time has to pass.
        let due = self.nodes[NODE].between().next_timeout().max(self.now + STEP_MIN);
        self.schedule(due, Event::Between);
    }

    /// Makes the policy within each tenant divide the tenant's cache. After a single decision, its
    /// division stays in force.
    pub(super) fn decide_within(&mut self) {
        let (Some(statistics), None) = (&self.family.statistics, &self.family.once) else { return };
        let node = &self.nodes[NODE];
        let seen = statistics.observe(self.now, &node.control.levels().needs(), node);
        let acts = self.decide(NODE, Seen { cache: Some(seen), ..Seen::default() });
        self.carry_out(NODE, acts);
        self.schedule(self.now + DECIDE_EVERY, Event::Within);
    }

    /// Puts a division of the resources among tenants in force at once, and fills the caches as
    /// they would be after a long time. The partitions of a tenant keep their shares of the
    /// tenant's cache.
    fn divide_once(&mut self, division: &Division) {
        let mut budgets = Vec::new();
        let budget = |partition| u128::from(self.nodes[NODE].cache.usage(partition).budget_bytes);
        for (index, &bytes) in division.bytes.iter().enumerate() {
            let own = self.family.parts.iter().enumerate().filter(|(_, part)| part.tenant.index() == index);
            let now = own.map(|(index, _)| budget(PartitionId::from_index(index)));
            let sum: u128 = now.clone().sum();
            budgets.extend(now.map(|budget| (budget * u128::from(bytes) / sum.max(1)) as u64));
        }
        let plan = Plan { rates: Some(division.rates.clone()), ..CachePlan::Budgets(budgets).into() };
        self.family.once = Some(plan.clone());
        self.apply(NODE, plan);
        self.fill();
    }
}

/// Least time between two observations.
const STEP_MIN: Duration = Duration::from_millis(1);
