//! Acts that the loop has its driver carry out.

use sherwood_model::Plan;
use sherwood_policy::Decision;
use sherwood_policy::tenants::TenantDecision;

use crate::{BetaChoice, Refused};

/// An act of the loop, for the driver to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Apply the whole plan, or nothing of it. A driver that cannot says so
    /// ([`ControlLoop::handle_refusal`](crate::ControlLoop::handle_refusal)).
    Apply(Plan),
    /// Halve the counts of all miss ratio curves, so that they cover about the same window of time
    /// as the counters.
    FadeCurves,
    /// Report this. It concerns plans that were handed out before.
    Say(Said),
}

/// A decision to be reported.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The choice of β of a backend.
    Beta(BetaChoice),
    /// The division among partitions. If the guard rolled back, it says so
    /// ([`Decision::harm`]).
    Division(Decision),
    /// The division among tenants.
    Tenants(TenantDecision),
    /// A proposal that was refused.
    Refused(Refused),
}
