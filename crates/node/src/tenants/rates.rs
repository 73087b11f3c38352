//! The rates at which tenants may read from and write to backends.

use sherwood_dispatch::{OverRate, TenantOptions};
use sherwood_model::{BackendId, DemandKind, ResourceKind};
use sherwood_path::Units;

use super::{Over, ResourceSetup, TenancySetup};

/// The tenants of a backend, and their rates at the start: their baselines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackendRates {
    /// The tenants, and what happens to work beyond a rate.
    pub(crate) tenants: TenantOptions,
    /// The units that the backend's store charges.
    pub(crate) units: Units,
    /// Rates of reads and of writes; those without a resource have no limit.
    pub(crate) rates: Vec<KindRates>,
}

/// Units per second of a backend's reads, or writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KindRates {
    /// The kind of access that the rates are of.
    pub(crate) kind: DemandKind,
    /// Rate of all tenants together.
    pub(crate) total_per_s: f64,
    /// Rate of each tenant, in the order of their ids.
    pub(crate) per_s: Vec<f64>,
}

impl TenancySetup {
    /// Returns the tenants of a backend with their baselines of its reads and writes.
    pub(crate) fn rates_of(&self, backend: BackendId) -> BackendRates {
        let mut of_backend = BackendRates {
            tenants: TenantOptions {
                // A configuration has at most 1,024 tenants.
                tenants: self.tenants.len() as u16,
                lends: self.options.lend,
                over: match self.options.over {
                    Over::Wait => OverRate::Wait,
                    Over::Refuse => OverRate::Refuse,
                },
            },
            units: Units::default(),
            rates: Vec::new(),
        };
        for (index, resource) in self.resources.iter().enumerate() {
            let ResourceSetup { kind, unit, total_per_s, .. } = *resource;
            let kind = match kind {
                ResourceKind::Reads(of) if of == backend => {
                    of_backend.units.reads = unit;
                    DemandKind::Read
                }
                ResourceKind::Writes(of) if of == backend => {
                    of_backend.units.writes = unit;
                    DemandKind::Write
                }
                ResourceKind::Reads(_) | ResourceKind::Writes(_) | ResourceKind::Network => continue,
            };
            let per_s = self.tenants.iter().map(|tenant| tenant.base_shares[index] * total_per_s);
            of_backend.rates.push(KindRates { kind, total_per_s, per_s: per_s.collect() });
        }
        of_backend
    }
}
