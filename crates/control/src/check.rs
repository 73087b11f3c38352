//! Checks of a plan between the levers that propose it and the driver that applies it.

use sherwood_model::{BackendId, CachePlan, Plan};
use sherwood_policy::tenants::{DivisionFault, check_rates};
use thiserror::Error;

use crate::Levels;

/// A proposed plan that was refused before it reached the driver; the last plan stays in force.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("what {lever} proposed was refused, and the last plan stays in force: {fault}")]
pub struct Refused {
    /// Name of the policy that proposed the plan.
    pub lever: &'static str,
    /// The reason for the refusal.
    pub fault: PlanFault,
}

/// The reason for which a plan is refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanFault {
    /// The number of observed partitions differs from the number of existing ones.
    #[error("it was shown {given} partitions, and there are {partitions}")]
    Observed {
        /// Number of partitions observed.
        given: usize,
        /// Number of partitions.
        partitions: usize,
    },
    /// The number of budgets in the plan differs from the number of partitions.
    #[error("it has {given} budgets for {partitions} partitions")]
    Partitions {
        /// Number of budgets in the plan.
        given: usize,
        /// Number of partitions.
        partitions: usize,
    },
    /// The budgets exceed the total.
    #[error("its budgets sum to {sum} bytes, more than the total of {total}")]
    OverTotal {
        /// Sum of the budgets in bytes.
        sum: u128,
        /// Total of the cache in bytes.
        total: u64,
    },
    /// The plan has rates although no tenants are declared, or has none although there are tenants.
    #[error("it has rates without tenants, or tenants without rates")]
    Rates,
    /// The rates are not a valid division of the totals among the tenants.
    #[error("{0}")]
    Tenants(DivisionFault),
    /// The lever plans for a backend that it does not control.
    #[error("it plans for backend {}, which is not this lever's", .0.0)]
    Backend(BackendId),
}

/// Checks a plan of the levels that divide the cache: it must have budgets for exactly `partitions`
/// partitions within the total, rates of the tenants within the totals of the resources, and no
/// changes that belong to other levers.
pub(crate) fn check_levels(
    plan: &Plan,
    levels: &Levels,
    partitions: usize,
    total_bytes: u64,
) -> Result<(), PlanFault> {
    if let CachePlan::Budgets(budgets) = &plan.cache {
        let given = budgets.len();
        if given != partitions {
            return Err(PlanFault::Partitions { given, partitions });
        }
        let sum = budgets.iter().map(|&bytes| u128::from(bytes)).sum();
        if sum > u128::from(total_bytes) {
            return Err(PlanFault::OverTotal { sum, total: total_bytes });
        }
    }
    if let Some(plan) = plan.backends.first() {
        return Err(PlanFault::Backend(plan.backend));
    }
    match (levels.tenants(), &plan.rates) {
        (None, None) => Ok(()),
        (Some(levels), Some(rates)) => {
            let between = levels.between();
            check_rates(rates, between.terms().len(), &between.total().rates).map_err(PlanFault::Tenants)
        }
        _ => Err(PlanFault::Rates),
    }
}
