//! Acts: the actions that the control loop asks its driver to carry out.

use sherwood_model::Plan;
use sherwood_policy::Decision;
use sherwood_policy::tenants::TenantDecision;

use crate::{BetaChoice, CopiesDecision, Refused, StoreSaid};

/// An action that the control loop asks its driver to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Apply the whole plan, or nothing of it. A driver that cannot apply it calls
    /// [`ControlLoop::handle_refusal`](crate::ControlLoop::handle_refusal).
    Apply(Plan),
    /// Halve the counts of all miss ratio curves, so that they cover about the same window of time
    /// as the counters.
    FadeCurves,
    /// Report this decision. It concerns plans that were handed out before.
    Say(Said),
}

/// A decision to be reported.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The choice of β of a backend.
    Beta(BetaChoice),
    /// The choice of the copies of each request in the tiers of an application.
    Copies(CopiesDecision),
    /// A choice for a replicated store, or its measured effect.
    Store(StoreSaid),
    /// The division of the cache among partitions. If the guard rolled back, [`Decision::harm`] is
    /// set.
    Division(Decision),
    /// The division of cache and rates among tenants.
    Tenants(TenantDecision),
    /// A proposed plan that was refused.
    Refused(Refused),
}
