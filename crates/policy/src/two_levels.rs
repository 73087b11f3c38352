//! A policy between tenants, and a policy within each of them.

use sherwood_model::{CachePlan, Instant, PartitionId, Plan};
use thiserror::Error;

use crate::tenants::{
    TenantControlError, TenantController, TenantObservation, TenantPolicy, TenantRound, TenantTerms,
};
use crate::{Controller, Decision, Needs, Observation, PartitionObservation, Policy};

mod merged;

/// The two levels that share one cache.
///
/// The level *between* tenants alone changes a tenant's sum of bytes, and its rates; the level
/// *within* a tenant alone changes how the sum is divided among the tenant's partitions. At any
/// moment the budgets of a tenant's partitions sum to at most the tenant's bytes, and those to at
/// most the total.
///
/// *Baselines.* A tenant's demand by bytes assumes that its partitions keep their parts of the sum.
/// A policy within that learns changes the parts for minutes, and for its own end: `robinhood`
/// takes from every partition that no slow request waits for. The rates that bind the tenant now
/// are then not those that bind it later, so that no exchange is sure to leave it its throughput.
/// While such a policy divides among several partitions, the tenant keeps its baseline: the level
/// between gives it no less of the cache, nor of any resource that its requests use.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`advance`](Self::advance) as [`TenantController::advance`]; [`decide`](Self::decide)
///   after every control interval, with an observation of each tenant ([`split`](Self::split)).
///   [`decide_all`](Self::decide_all) does it from one observation of all partitions.
/// - Output: [`plan`](Self::plan) after both.
#[derive(Clone)]
pub struct TwoLevels {
    between: TenantController,
    within: Vec<Within>,
    partitions: usize,
}

/// The level within one tenant.
#[derive(Clone)]
struct Within {
    controller: Controller,
    /// The tenant's partitions, in the order of its observations.
    partitions: Vec<PartitionId>,
    /// Pins of the partitions as last observed.
    pins: Vec<PartitionObservation>,
    /// Bytes of the tenant that its budgets were last fitted to.
    bytes: u64,
    /// True while a policy that learns divides the bytes among several partitions.
    divides: bool,
}

/// Reason why two levels cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TwoLevelsError {
    /// Every tenant needs a policy within it.
    #[error("cannot divide among {tenants} tenants by {policies} policies: give one policy for each tenant")]
    Policies {
        /// Number of tenants.
        tenants: usize,
        /// Number of policies within tenants.
        policies: usize,
    },
    /// The policy within a tenant shares one LRU, which all tenants would share.
    #[error(
        "cannot use {policy} within a tenant: its partitions would share one LRU with those of other tenants; choose \
         a policy that divides, such as robinhood, or non-partitioned between tenants"
    )]
    Shared {
        /// Name of the policy.
        policy: &'static str,
    },
}

impl TwoLevels {
    /// Returns the two levels. `within` holds a controller for each tenant and the tenant's
    /// partitions, in the order in which the controller observes them; each partition has one
    /// tenant. The controllers' budgets are fitted to what tenants have.
    ///
    /// # Errors
    /// Another number of controllers than of tenants; a policy within a tenant that shares one LRU.
    pub fn new(
        between: TenantController,
        within: Vec<(Controller, Vec<PartitionId>)>,
    ) -> Result<Self, TwoLevelsError> {
        let (tenants, policies) = (between.bytes().len(), within.len());
        if tenants != policies {
            return Err(TwoLevelsError::Policies { tenants, policies });
        }
        if let Some((controller, _)) = within.iter().find(|(controller, _)| controller.shares()) {
            return Err(TwoLevelsError::Shared { policy: controller.policy() });
        }
        let partitions = within.iter().map(|(_, partitions)| partitions.len()).sum();
        let within = within.into_iter().map(|(controller, partitions)| {
            let pins = Vec::new();
            Within { controller, partitions, pins, bytes: u64::MAX, divides: false }
        });
        let mut levels = Self { between, within: within.collect(), partitions };
        levels.expect_moves();
        levels.fit();
        Ok(levels)
    }

    /// The level between tenants.
    #[must_use]
    pub fn between(&self) -> &TenantController {
        &self.between
    }

    /// The level within the tenant at `index`; none if there is no such tenant.
    #[must_use]
    pub fn within(&self, index: usize) -> Option<&Controller> {
        self.within.get(index).map(|within| &within.controller)
    }

    /// Changes the level between tenants, except the number of tenants.
    ///
    /// # Errors
    /// If the number of terms is not that of the tenants, or [`TenantController::set_terms`] fails;
    /// nothing has changed then.
    pub fn set_terms(&mut self, terms: Vec<TenantTerms>) -> Result<(), TenantControlError> {
        self.check_terms(&terms)?;
        self.between.set_terms(terms)?;
        self.fit();
        Ok(())
    }

    fn check_terms(&self, terms: &[TenantTerms]) -> Result<(), TenantControlError> {
        if terms.len() != self.within.len() {
            return Err(TenantControlError::Fixed { given: terms.len(), tenants: self.within.len() });
        }
        Ok(())
    }

    /// Sets another total of the cache, and the terms of all tenants for it. What tenants have
    /// above the total is taken from all in proportion.
    ///
    /// # Errors
    /// As those of [`set_terms`](Self::set_terms).
    pub fn resize(&mut self, total_bytes: u64, terms: Vec<TenantTerms>) -> Result<(), TenantControlError> {
        self.check_terms(&terms)?;
        self.between.set_total_bytes(total_bytes);
        self.set_terms(terms)
    }

    /// Replaces the policy between tenants; see [`TenantController::set_policy`].
    pub fn set_between(&mut self, policy: Box<dyn TenantPolicy>) {
        self.between.set_policy(policy);
    }

    /// Checks that a policy can be used within a tenant.
    ///
    /// # Errors
    /// If the policy shares one LRU.
    pub fn check_within(policy: &dyn Policy) -> Result<(), TwoLevelsError> {
        if policy.starts_shared() { Err(TwoLevelsError::Shared { policy: policy.name() }) } else { Ok(()) }
    }

    /// Replaces the policy within every tenant from the next decision on.
    ///
    /// # Errors
    /// As those of [`check_within`](Self::check_within); nothing has changed then.
    pub fn set_within(&mut self, policy: &dyn Policy) -> Result<(), TwoLevelsError> {
        Self::check_within(policy)?;
        self.within.iter_mut().for_each(|within| within.controller.set_policy(policy.copy()));
        self.expect_moves();
        Ok(())
    }

    /// The observations that the policies within tenants require.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.within.first().map(|within| within.controller.needs()).unwrap_or_default()
    }

    /// The plan in force: a budget for each partition and the rates of each tenant, or the shared
    /// cache and common rates.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let rates = self.between.rates().clone();
        if self.between.policy().shares_all() {
            return Plan { rates: Some(rates.into_common()), ..CachePlan::Shared.into() };
        }
        Plan { rates: Some(rates), ..CachePlan::Budgets(self.budgets()).into() }
    }

    /// Bytes of each partition, in the order of their ids.
    #[must_use]
    pub fn budgets(&self) -> Vec<u64> {
        let mut budgets = vec![0; self.partitions];
        for within in &self.within {
            for (partition, &bytes) in within.partitions.iter().zip(within.controller.budgets()) {
                budgets[partition.index()] = bytes;
            }
        }
        budgets
    }

    /// Takes in an observation of each tenant, and moves bytes and rates between tenants; see
    /// [`TenantController::advance`]. A tenant's partitions keep their parts of its sum, within
    /// their pins, until the level within decides.
    pub fn advance(&mut self, now: Instant, seen: &[TenantObservation]) -> TenantRound {
        let round = self.between.advance(now, seen);
        if round.changed {
            self.fit();
        }
        round
    }

    /// Takes back the latest call of [`advance`](Self::advance), because its plan was not applied.
    pub fn restore(&mut self) {
        self.between.restore();
    }

    /// Takes back the latest decision, because its plan was not applied: these budgets of all
    /// partitions are in force.
    pub fn keep_budgets(&mut self, budgets: &[u64]) {
        for (within, &bytes) in self.within.iter_mut().zip(self.between.bytes()) {
            let own = within.partitions.iter().map(|id| budgets.get(id.index()).copied().unwrap_or(0));
            let own: Vec<u64> = own.collect();
            let is_fitted = crate::bounds::sum(&own) == u128::from(bytes);
            within.controller.keep_budgets(own, false);
            within.bytes = bytes;
            if !is_fitted {
                within.controller.resize(bytes, &within.pins);
            }
        }
    }

    /// Returns an observation for each tenant: its own partitions, and the requests of all. A
    /// driver with requests by tenant replaces those ([`Observation::see_requests`]).
    #[must_use]
    pub fn split(&self, seen: &Observation) -> Vec<Observation> {
        let of = |within: &Within| {
            let partitions =
                within.partitions.iter().filter_map(|id| seen.partitions.get(id.index()).cloned());
            Observation { partitions: partitions.collect(), ..seen.without_partitions() }
        };
        self.within.iter().map(of).collect()
    }

    /// Has each tenant's policy divide the tenant's bytes. `seen` holds an observation for each
    /// tenant, of its partitions in their order; its total is ignored. Returns the decision of each
    /// tenant, whose moves have the ids of all partitions and whose plan divides the tenant's bytes
    /// alone.
    pub fn decide(&mut self, now: Instant, seen: Vec<Observation>) -> Vec<Decision> {
        let held = |seen: &Observation| {
            let held = seen.partitions.iter().map(PartitionObservation::held_bytes);
            held.fold(0, u64::saturating_add)
        };
        self.between.set_pins(seen.iter().map(held).collect());
        let tenants = self.within.iter_mut().zip(seen);
        let decisions = tenants.map(|(within, seen)| within.decide(now, seen)).collect();
        self.between.set_keeps_base(self.within.iter().map(|within| within.divides));
        decisions
    }

    /// Has each tenant's policy divide the tenant's bytes, from one observation of all partitions
    /// and an observation of the finished requests of each tenant, empty if no policy
    /// [needs](Self::needs) them. Returns the decisions as one, whose plan is that of both levels.
    pub fn decide_all(&mut self, now: Instant, seen: &Observation, requests: &[Observation]) -> Decision {
        let mut seen = self.split(seen);
        for (seen, requests) in seen.iter_mut().zip(requests) {
            seen.take_requests(requests);
        }
        let decisions = self.decide(now, seen);
        let names = self.between.terms().iter().map(|terms| terms.name.as_str());
        merged::merged(names.zip(decisions), self.plan())
    }

    /// Has tenants whose policy learns keep their baselines until its next decision.
    fn expect_moves(&mut self) {
        for within in &mut self.within {
            within.divides = within.partitions.len() > 1 && within.controller.learns();
        }
        self.between.set_keeps_base(self.within.iter().map(|within| within.divides));
    }

    /// Fits the budgets within each tenant to its bytes.
    fn fit(&mut self) {
        for (within, &bytes) in self.within.iter_mut().zip(self.between.bytes()) {
            if within.bytes != bytes {
                within.bytes = bytes;
                within.controller.resize(bytes, &within.pins);
            }
        }
    }
}

impl Within {
    fn decide(&mut self, now: Instant, mut seen: Observation) -> Decision {
        seen.total_bytes = self.bytes;
        self.pins = seen.partitions.iter().map(PartitionObservation::pins_only).collect();
        let mut decision = self.controller.decide(now, &seen);
        let asked = seen.partitions.iter().filter(|seen| seen.queries > 0).count();
        let learnt = decision.kept.is_none_or(|kept| !kept.is_idle());
        self.divides = asked > 1 && learnt && self.controller.learns();
        for step in &mut decision.moves {
            step.partition = self.partitions.get(step.partition.index()).copied().unwrap_or(step.partition);
        }
        decision
    }
}

#[cfg(test)]
mod tests;
