//! The lever over the cache and the rates of tenants. It has one level (all partitions) or two
//! (tenants, and partitions within each tenant).

use sherwood_model::{CachePlan, Instant, Plan};
use sherwood_policy::tenants::{TenantObservation, TenantRound};
use sherwood_policy::{
    Controller, Decision, GuardOptions, GuardStanding, Needs, Observation, Policy, TwoLevels, TwoLevelsError,
};

/// The levels that divide the cache.
#[derive(Clone)]
pub enum Levels {
    /// A single policy divides the cache among all partitions.
    One(Box<Controller>),
    /// A policy divides among declared tenants, and another one within each tenant.
    Two(Box<TwoLevels>),
}

/// The division among partitions that is in force.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    budgets: Vec<u64>,
    /// True if the partitions share one LRU; the budgets are then unused.
    is_shared: bool,
}

/// The error of an option that exists only without tenants.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` cannot be switched on with [[tenant]]: a tenant below its baseline brings all back to theirs instead; leave it out"
)]
pub struct OneLevelOnly(&'static str);

impl Levels {
    /// Returns the name of the policy that divides among partitions.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        match self {
            Self::One(controller) => controller.policy(),
            Self::Two(levels) => levels.within(0).map_or("", Controller::policy),
        }
    }

    /// Returns the observations that decisions among partitions require.
    #[must_use]
    pub fn needs(&self) -> Needs {
        match self {
            Self::One(controller) => controller.needs(),
            Self::Two(levels) => levels.needs(),
        }
    }

    /// Returns the budgets of the plan in force, in bytes, in the order of the partitions.
    #[must_use]
    pub fn budgets(&self) -> Vec<u64> {
        match self {
            Self::One(controller) => controller.budgets().to_vec(),
            Self::Two(levels) => levels.budgets(),
        }
    }

    /// Returns the plan in force.
    #[must_use]
    pub fn plan(&self) -> Plan {
        match self {
            Self::One(controller) => controller.plan(),
            Self::Two(levels) => levels.plan(),
        }
    }

    /// Returns both levels; none without tenants.
    #[must_use]
    pub fn tenants(&self) -> Option<&TwoLevels> {
        match self {
            Self::One(_) => None,
            Self::Two(levels) => Some(levels),
        }
    }

    pub(crate) fn tenants_mut(&mut self) -> Option<&mut TwoLevels> {
        match self {
            Self::One(_) => None,
            Self::Two(levels) => Some(levels),
        }
    }

    /// Returns true in a dry run: decisions are reported and not applied.
    #[must_use]
    pub fn dry_run(&self) -> bool {
        matches!(self, Self::One(controller) if controller.dry_run())
    }

    /// The state of the guard; none if there is no guard.
    #[must_use]
    pub fn guard(&self) -> Option<GuardStanding> {
        match self {
            Self::One(controller) => controller.guard(),
            Self::Two(_) => None,
        }
    }

    /// Checks that a dry run of the whole loop can be switched on.
    ///
    /// # Errors
    /// With tenants.
    pub fn check_dry_run(&self, dry_run: bool) -> Result<(), OneLevelOnly> {
        if dry_run && self.tenants().is_some() { Err(OneLevelOnly("dry_run")) } else { Ok(()) }
    }

    /// Checks that the guard can be switched on.
    ///
    /// # Errors
    /// With tenants.
    pub fn check_guard(&self, is_on: bool) -> Result<(), OneLevelOnly> {
        if is_on && self.tenants().is_some() { Err(OneLevelOnly("guard")) } else { Ok(()) }
    }

    /// Checks that a policy can divide among partitions.
    ///
    /// # Errors
    /// If there are tenants, and their partitions would share one LRU.
    pub fn check_policy(&self, policy: &dyn Policy) -> Result<(), TwoLevelsError> {
        if self.tenants().is_some() { TwoLevels::check_within(policy) } else { Ok(()) }
    }

    /// Changes the controller if there is only one level; no effect with tenants.
    pub(crate) fn change_one(&mut self, change: impl FnOnce(&mut Controller)) {
        if let Self::One(controller) = self {
            change(controller);
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        let is_shared = matches!(self, Self::One(_)) && self.plan().cache == CachePlan::Shared;
        Standing { budgets: self.budgets(), is_shared }
    }

    /// Takes back the latest decision, because its plan was not applied. The next decision starts
    /// from the driver's budgets `in_force` if they are known, otherwise from those `before` the
    /// decision.
    pub(crate) fn keep(&mut self, in_force: Option<Vec<u64>>, before: Standing) {
        let Standing { budgets, is_shared } = before;
        let budgets = in_force.filter(|known| known.len() == budgets.len()).unwrap_or(budgets);
        match self {
            Self::One(controller) => controller.keep_budgets(budgets, is_shared),
            Self::Two(levels) => levels.keep_budgets(&budgets),
        }
    }

    /// Takes back the latest step among tenants, and then the budgets as `keep` does.
    pub(crate) fn restore(&mut self, in_force: Option<Vec<u64>>, before: Standing) {
        if let Self::Two(levels) = self {
            levels.restore();
        }
        self.keep(in_force, before);
    }

    pub(crate) fn set_guard(&mut self, guard: Option<GuardOptions>) {
        self.change_one(|controller| controller.set_guard(guard));
    }

    /// Replaces the policy among partitions by one that `check_policy` accepted.
    pub(crate) fn set_policy(&mut self, policy: Box<dyn Policy>) {
        match self {
            Self::One(controller) => controller.set_policy(policy),
            Self::Two(levels) => levels.set_within(&*policy).expect("the policy was checked"),
        }
    }

    /// Decides among partitions. `requests` are observations of the finished requests: a single one
    /// for all, or one for each tenant.
    pub(crate) fn decide(
        &mut self,
        now: Instant,
        mut seen: Observation,
        requests: &[Observation],
    ) -> Decision {
        match self {
            Self::One(controller) => {
                if let Some(requests) = requests.first() {
                    seen.take_requests(requests);
                }
                controller.decide(now, &seen)
            }
            Self::Two(levels) => levels.decide_all(now, &seen, requests),
        }
    }

    /// Makes a step of the division among tenants; returns none without tenants.
    pub(crate) fn advance(&mut self, now: Instant, seen: &[TenantObservation]) -> Option<TenantRound> {
        Some(self.tenants_mut()?.advance(now, seen))
    }
}
