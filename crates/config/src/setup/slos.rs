//! SLOs per class and per tenant.

use sherwood_model::{Slo, TenantId};

/// The requests that an SLO covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SloScope {
    /// Requests that name this class.
    Class(String),
    /// Requests of this tenant.
    Tenant(TenantId),
}

/// Configuration of an SLO of a class or tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct SloSetup {
    /// The requests that the SLO covers.
    pub to: SloScope,
    /// The percentile, its bound and the window.
    pub slo: Slo,
}
