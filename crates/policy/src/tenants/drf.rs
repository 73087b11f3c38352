//! Dominant resource fairness with the cache at its baselines.

use sherwood_model::Rates;

use super::proportional::Holdings;
use super::{Division, TenantPolicy, Tenants};

/// The `drf` policy: rates that tenants cannot use are divided in proportion to need; the cache
/// stays as it is. After Ghodsi et al., NSDI 2011, in the form that HARE's authors compare with.
#[derive(Clone, Debug)]
pub(super) struct Drf {
    /// False leaves in the pool what does not raise every tenant.
    pub(super) conserving: bool,
}

impl TenantPolicy for Drf {
    fn name(&self) -> &'static str {
        "drf"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        let bytes = tenants.base_bytes();
        let rates = Holdings::needed(tenants, &bytes).redistribute(self.conserving);
        Division::new(tenants, bytes, rates, None)
    }

    fn rates(&self, tenants: &Tenants, bytes: &[u64]) -> Rates {
        Holdings::compensated(tenants, bytes).redistribute(self.conserving)
    }
}
