//! A cache without partitions for all tenants.

use sherwood_model::Rates;

use super::baseline::base_rates;
use super::{Division, TenantPolicy, Tenants};

/// The `non-partitioned` policy: tenants share one LRU, and the total of each resource. A division
/// judges it as if each had its baseline, since the model does not tell what a tenant gets of
/// shared ones.
#[derive(Clone, Debug)]
pub(super) struct NonPartitioned;

impl TenantPolicy for NonPartitioned {
    fn name(&self) -> &'static str {
        "non-partitioned"
    }

    fn divide(&mut self, tenants: &Tenants) -> Division {
        Division::new(tenants, tenants.base_bytes(), base_rates(tenants), None)
    }

    fn rates(&self, tenants: &Tenants, _: &[u64]) -> Rates {
        base_rates(tenants)
    }

    fn keeps_baselines(&self) -> bool {
        false
    }

    fn shares_all(&self) -> bool {
        true
    }
}
