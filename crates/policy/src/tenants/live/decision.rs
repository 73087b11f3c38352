//! Output of the level between tenants.

use std::fmt;
use std::time::Duration;

use crate::tenants::{Division, DivisionFault, Share};

/// Result of [`TenantController::advance`](super::TenantController::advance).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantRound {
    /// True if a tenant's bytes or rates changed.
    pub changed: bool,
    /// The decision, if the call made one.
    pub decision: Option<TenantDecision>,
    /// The reason for which the policy's rates during the move to its division were refused, which
    /// stops the move. Only set for the first of several refused steps in a row.
    pub refused: Option<DivisionFault>,
    /// True if the driver is to halve the counts of all curves now, so that they cover about the
    /// same window of time as the counters.
    pub fades_curves: bool,
}

/// A decision between tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantDecision {
    /// Name of the policy that decided.
    pub policy: &'static str,
    /// The division that the policy found, whether or not it is applied; the present goal if the
    /// policy's division was [refused](TenantKept::Refused).
    pub division: Division,
    /// Least normalized throughput by the present curves if the plan before stayed.
    pub gain_before: f64,
    /// Reason why the division is not applied; none if it is.
    pub kept: Option<TenantKept>,
    /// A sentence for each exchange that the division makes; empty if it is not applied.
    pub trades: Vec<String>,
    /// The decision as one line of text.
    pub line: String,
}

/// Reason why a division is not applied.
#[derive(Clone, Debug, PartialEq)]
pub enum TenantKept {
    /// It gains less than [`apply_over`](super::TenantControlOptions::apply_over) over the plan
    /// before.
    LittleGain {
        /// Number of tenants that give no cache and nothing that their requests use.
        keeping: usize,
    },
    /// No tenant used any resource in the window.
    NoDemand,
    /// The policy's division is not valid: its parts do not match the tenants, or exceed the
    /// totals.
    Refused(DivisionFault),
    /// A tenant was below its baseline, so that all have theirs.
    Frozen {
        /// The tenant's name.
        tenant: String,
        /// Measured throughput as a part of that of its baseline.
        normalized: f64,
        /// Time from now to the next division.
        left: Duration,
    },
}

impl fmt::Display for TenantKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LittleGain { keeping } => {
                f.write_str("another division would gain too little")?;
                match keeping {
                    0 => Ok(()),
                    1 => f.write_str(
                        "; 1 tenant keeps its baseline while a policy divides its cache among backends",
                    ),
                    _ => write!(
                        f,
                        "; {keeping} tenants keep their baselines while policies divide their cache among backends"
                    ),
                }
            }
            Self::NoDemand => f.write_str("no tenant used a resource in the window"),
            Self::Refused(fault) => write!(f, "the policy's division was refused: {fault}"),
            Self::Frozen { tenant, normalized, left } => write!(
                f,
                "all tenants have their baselines for {:.0} s more: {tenant} served {normalized:.2} times what its \
                 baseline allows",
                left.as_secs_f64()
            ),
        }
    }
}

/// State of one tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantStanding {
    /// Name of the tenant.
    pub name: String,
    /// The share that it may count on.
    pub base: Share,
    /// Bytes and rates that it has now.
    pub holdings: Share,
    /// Bytes and rates of the plan that is being reached.
    pub goal: Share,
    /// Bytes charged for its items.
    pub used_bytes: u64,
    /// Units per second of each resource that it used in the window.
    pub used_per_s: Vec<f64>,
    /// Reads and writes per second in the last period.
    pub requests_per_s: f64,
    /// Part of the reads in the window that hit, 0 to 1; none without reads.
    pub hit_ratio: Option<f64>,
    /// Reads and writes that wait for units.
    pub waiting: u32,
    /// Measured throughput in the last period divided by that of the baseline, as the curves
    /// predict it; none if the tenant asked for less or the baseline is not known.
    pub normalized: Option<f64>,
    /// The same by the model, with the holdings of now; none if all its keys fit, so that no
    /// resource limits the tenant.
    pub predicted: Option<f64>,
    /// Misses per read that its curve says for the bytes of now; none without one.
    pub miss_ratio: Option<f64>,
    /// Time for which the tenant was below its baseline while it asked for it.
    pub below_time: Duration,
}
