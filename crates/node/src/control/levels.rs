//! The levels that divide the cache: among all partitions, or among tenants first.

use sherwood_model::Instant;
use sherwood_policy::{
    Controller, Decision, GuardOptions, GuardStanding, Needs, Observation, Policy, TwoLevels, TwoLevelsError,
};

use super::tenants::TenantLevels;
use crate::observe::telemetry::Telemetry;

/// The controllers of the cache.
pub(crate) enum Levels {
    /// Division among all partitions by one policy.
    One(Box<Controller>),
    /// Division among tenants by one policy, and within each of them by another.
    Two(Box<TenantLevels>),
}

/// The reason an option of one level is refused where there are two.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` cannot be switched on with [[tenant]]: a tenant below its baseline brings all back to theirs instead; leave it out"
)]
pub(crate) struct OneLevelOnly(&'static str);

impl Levels {
    /// Name of the policy that divides among partitions.
    pub(super) fn policy(&self) -> &'static str {
        match self {
            Self::One(controller) => controller.policy(),
            Self::Two(tenants) => tenants.policy_within(),
        }
    }

    /// The observations that the policies require.
    pub(super) fn needs(&self) -> Needs {
        match self {
            Self::One(controller) => controller.needs(),
            Self::Two(tenants) => tenants.levels().needs(),
        }
    }

    /// Budgets of the last plan that has any, in the order of the partitions' ids.
    pub(super) fn budgets(&self) -> Vec<u64> {
        match self {
            Self::One(controller) => controller.budgets().to_vec(),
            Self::Two(tenants) => tenants.levels().budgets(),
        }
    }

    /// The level between tenants; none without tenants.
    pub(crate) fn tenants(&self) -> Option<&TenantLevels> {
        match self {
            Self::One(_) => None,
            Self::Two(tenants) => Some(tenants),
        }
    }

    pub(super) fn tenants_mut(&mut self) -> Option<&mut TenantLevels> {
        match self {
            Self::One(_) => None,
            Self::Two(tenants) => Some(tenants),
        }
    }

    pub(super) fn dry_run(&self) -> bool {
        match self {
            Self::One(controller) => controller.dry_run(),
            Self::Two(_) => false,
        }
    }

    pub(super) fn guard(&self) -> Option<GuardStanding> {
        match self {
            Self::One(controller) => controller.guard(),
            Self::Two(_) => None,
        }
    }

    /// Checks that decisions can be only reported, if they are to be.
    pub(super) fn check_dry_run(&self, dry_run: bool) -> Result<(), OneLevelOnly> {
        if dry_run && self.tenants().is_some() { Err(OneLevelOnly("dry_run")) } else { Ok(()) }
    }

    /// Switches between applying decisions and only reporting them. The change was checked.
    pub(super) fn set_dry_run(&mut self, dry_run: bool) {
        if let Self::One(controller) = self {
            controller.set_dry_run(dry_run);
        }
    }

    /// Checks that there can be a guard, if there is to be one.
    pub(super) fn check_guard(&self, is_on: bool) -> Result<(), OneLevelOnly> {
        if is_on && self.tenants().is_some() { Err(OneLevelOnly("guard")) } else { Ok(()) }
    }

    /// Switches the guard on, in its initial state, or off. The change was checked.
    pub(super) fn set_guard(&mut self, guard: Option<GuardOptions>) {
        if let Self::One(controller) = self {
            controller.set_guard(guard);
        }
    }

    /// Restarts the guard: a change was the operator's.
    pub(super) fn restart_guard(&mut self) {
        if let Self::One(controller) = self {
            controller.restart_guard();
        }
    }

    /// Makes the guard discard earlier allocations: items were lost for another reason.
    pub(super) fn note_loss(&mut self) {
        if let Self::One(controller) = self {
            controller.note_loss();
        }
    }

    /// Adopts budgets that were set by hand, or those in force where a plan could not be applied.
    pub(super) fn set_budgets(&mut self, budgets: Vec<u64>) {
        if let Self::One(controller) = self {
            controller.set_budgets(budgets);
        }
    }

    /// Checks that a policy can divide among partitions.
    pub(super) fn check_policy(&self, policy: &dyn Policy) -> Result<(), TwoLevelsError> {
        if self.tenants().is_some() { TwoLevels::check_within(policy) } else { Ok(()) }
    }

    /// Replaces the policy among partitions by one that was checked.
    pub(super) fn set_policy(&mut self, policy: Box<dyn Policy>) {
        match self {
            Self::One(controller) => controller.set_policy(policy),
            Self::Two(tenants) => tenants.set_within(&*policy),
        }
    }

    /// Has the policies among partitions decide, from the finished requests of `telemetry` if they
    /// need them; `backends` is the number of backends.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        mut seen: Observation,
        telemetry: &Telemetry,
        backends: usize,
    ) -> Decision {
        let needs = self.needs();
        match self {
            Self::One(controller) => {
                if needs.requests {
                    seen.see_requests(&telemetry.snapshot(now), &needs, backends);
                }
                controller.decide(now, &seen)
            }
            Self::Two(tenants) => {
                let count = if needs.requests { tenants.setup().tenants.len() } else { 0 };
                tenants.decide_within(now, &seen, &telemetry.snapshots(now, count))
            }
        }
    }
}
