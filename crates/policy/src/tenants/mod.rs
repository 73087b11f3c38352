//! Decisions between tenants: a division of the cache and of the rates of several resources.
//!
//! A [`Policy`](crate::Policy) divides one cache among partitions. A [`TenantPolicy`] divides the
//! cache and the resources behind it (read and write units of backends, network) among tenants,
//! each of which has a baseline: the share that it would have on its own. Cache replaces units: a
//! tenant with more cache takes fewer read units per request, so it can give units for cache, and
//! another tenant cache for units.
//!
//! ```text
//!   driver ──▶ Tenants ──▶ TenantPolicy ──▶ Division { bytes, rates, gain, trades } ──▶ driver
//! ```
//!
//! The model: a request of tenant *t* takes `D_ti(c)` units of resource *i* with *c* bytes of cache
//! ([`DemandCurve`](sherwood_model::DemandCurve)), so with the rates `r_ti` its throughput is
//! `min_i r_ti / D_ti(c)`. The *normalized* throughput is that divided by the throughput at the
//! baseline, and policies are judged by its minimum over the tenants, which is 1 if all keep their
//! baselines.
//!
//! After "Cache-Centric Multi-Resource Allocation for Storage Services" (Ye, Zhong,
//! Arpaci-Dusseau, Arpaci-Dusseau, FAST 2026). `hare-published` is its algorithm, `hare` solves the
//! same problem without its faults, and the others are those that the paper compares with.
//!
//! [`TenantController`] is the level between tenants of a running system: it makes [`Tenants`] from
//! counters and curves, has a policy decide, and moves to the division in small steps.

use sherwood_model::Rates;

mod baseline;
mod checked;
mod copy;
mod described;
mod division;
mod drf;
mod hare;
mod live;
mod memshare;
mod names;
mod non_partitioned;
mod proportional;
mod published;
mod seen;
mod terms;
mod words;

pub use checked::{DivisionFault, check_rates};
pub use copy::CopyTenantPolicy;
pub use described::{DescribedCurveError, described_curve, described_demand};
pub use division::{Division, Trade};
pub use live::{
    MissCurve, ReadCounts, TenantControlError, TenantControlOptions, TenantController, TenantCounts,
    TenantDecision, TenantKept, TenantObservation, TenantPartition, TenantResource, TenantRound,
    TenantStanding, UnitCounts,
};
pub use names::{TenantOptions, TenantPolicyError, available, by_name, dividing};
pub use seen::{Share, TenantSeen, Tenants};
pub use terms::{TenantTerms, base_shares, baselines};
pub use words::trade_sentence;

/// An algorithm that divides the cache and the rates of all resources among tenants.
///
/// It may keep small state between decisions and has no clock. It must return a division within the
/// totals for any [`Tenants`]; a [`TenantController`] refuses an invalid one, and the tenants keep
/// their bytes and rates.
pub trait TenantPolicy: CopyTenantPolicy + Send {
    /// Name by which the policy is chosen, such as `hare`.
    fn name(&self) -> &'static str;

    /// Divides the totals among the tenants.
    fn divide(&mut self, tenants: &Tenants) -> Division;

    /// Returns the rates that the policy gives where the cache is divided into `bytes`: on the way
    /// to a division, while tenants have not filled what they got.
    fn rates(&self, tenants: &Tenants, bytes: &[u64]) -> Rates;

    /// True if by the model no tenant is below its baseline. Divisions of other policies are
    /// applied whatever their gain.
    fn keeps_baselines(&self) -> bool {
        true
    }

    /// True if all tenants use one cache without partitions, and the total of each resource pays
    /// for the work of all. The bytes and rates of a division have no effect then.
    fn shares_all(&self) -> bool {
        false
    }
}
