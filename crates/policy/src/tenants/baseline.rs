//! Every tenant keeps its baseline.

use sherwood_model::{Rates, TenantId};

use super::{Division, TenantPolicy, Tenants};

/// The `baseline` policy: no sharing. The other policies are judged against it.
#[derive(Clone, Debug)]
pub(super) struct Baseline;

impl TenantPolicy for Baseline {
    fn name(&self) -> &'static str {
        "baseline"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        Division::new(tenants, tenants.base_bytes(), base_rates(tenants), None)
    }

    fn rates(&self, tenants: &Tenants, _: &[u64]) -> Rates {
        base_rates(tenants)
    }
}

/// The rates of all baselines.
pub(super) fn base_rates(tenants: &Tenants) -> Rates {
    let mut rates = Rates::zero(tenants.len(), tenants.kinds().len());
    for (index, tenant) in tenants.seen().iter().enumerate() {
        rates.row_mut(TenantId::from_index(index)).copy_from_slice(&tenant.base.rates);
    }
    rates
}
