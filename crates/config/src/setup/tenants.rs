//! Tenants and resources of a node that is not started yet.

use std::time::Duration;

use sherwood_dispatch::{OverRate, TenantOptions};
use sherwood_model::{BackendId, Legs, ResourceKind, TenantId, Unit};
use sherwood_path::Units;
use sherwood_policy::tenants::{Share, TenantControlOptions, TenantResource, TenantTerms, base_shares};

/// Name of the tenant of clients that name none.
pub const DEFAULT_TENANT: &str = "default";

/// Returns the name of a tenant's partition of a backend.
pub fn partition_name(tenant: &str, backend: &str) -> String {
    if tenant == DEFAULT_TENANT { backend.to_owned() } else { format!("{tenant}:{backend}") }
}

/// Tenants among which cache and resources are divided, `[tenants]` in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct TenancySetup {
    /// Options of the division.
    pub options: TenancyOptions,
    /// The tenants, in the order of their ids; at least one and at most 1,024.
    pub tenants: Vec<TenantSetup>,
    /// The resources, in the order of their ids; at most 16.
    pub resources: Vec<ResourceSetup>,
}

/// Options of the division among tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct TenancyOptions {
    /// Name of the policy between tenants.
    pub policy: String,
    /// Time from one division to the next, 1 s to 1 h.
    pub period: Duration,
    /// Time over which demand and curves are observed, from the period to 1 h.
    pub window: Duration,
    /// Constant added to every miss ratio, 0 to 0.5.
    pub salt: f64,
    /// Least gain over the division in force with which a new one is applied, 0 to 1.
    pub apply_over: f64,
    /// True if idle units are lent to tenants that wait.
    pub lend: bool,
    /// True if units that do not raise the least throughput are divided, too.
    pub conserving: bool,
    /// Treatment of requests beyond a tenant's rate.
    pub over: OverRate,
}

/// A tenant, `[[tenant]]` in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantSetup {
    /// Unique name of the tenant.
    pub name: String,
    /// Names in password files whose clients belong to the tenant.
    pub users: Vec<String>,
    /// Prefix of the tenant's keys on listeners whose clients have no tenant of their own.
    pub prefix: Option<String>,
    /// Weight of the tenant where it has no share of its own in the baseline, 0.001 to 1,000.
    pub weight: f64,
    /// Least bytes of cache of the tenant, at most its baseline.
    pub bytes_min: u64,
    /// The shares that the tenant states of its baseline, 0 to 1: of the cache, and of each
    /// resource in the order of their ids; none by weight.
    pub stated: Vec<Option<f64>>,
    /// The tenant's baseline of the cache, bytes. Those of all tenants sum to at most the total.
    pub base_bytes: u64,
    /// The tenant's baseline of each resource, as shares of the resource's total, in the order of
    /// the resources' ids.
    pub base_shares: Vec<f64>,
}

/// A resource that refills every second, `[[resource]]` in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSetup {
    /// Unique name of the resource.
    pub name: String,
    /// Kind of the resource, with its backend.
    pub kind: ResourceKind,
    /// The measure of a read or a write; bytes for network.
    pub unit: Unit,
    /// The legs that are counted, for network.
    pub legs: Legs,
    /// Units per second of all tenants together.
    pub total_per_s: f64,
}

/// The reason that terms of tenants cannot be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TermsError {
    /// Every share of the tenant is stated.
    #[error(
        "the weight of `{tenant}` has no effect: its `base` states a share of everything; leave a share out of it, in the \
         configuration, and restart"
    )]
    Stated {
        /// Name of the tenant.
        tenant: String,
    },
    /// A minimum exceeds the tenant's share.
    #[error(
        "a minimum of {min_bytes} bytes for `{tenant}` is above its baseline, {base_bytes} bytes; lower it, or raise the weight"
    )]
    MinOverBase {
        /// Name of the tenant.
        tenant: String,
        /// The minimum, bytes.
        min_bytes: u64,
        /// The tenant's baseline of the cache, bytes.
        base_bytes: u64,
    },
}

impl TenancyOptions {
    /// Returns the options of the controller between tenants.
    pub fn control(&self) -> TenantControlOptions {
        let Self { period, window, salt, apply_over, .. } = *self;
        TenantControlOptions { period, window, salt, apply_over, ..TenantControlOptions::default() }
    }
}

impl TenancySetup {
    /// Returns the units of a backend's reads and writes.
    pub fn units(&self, backend: BackendId) -> Units {
        let of = |kind| self.resource(kind).map_or(Unit::default(), |resource| resource.unit);
        Units { reads: of(ResourceKind::Reads(backend)), writes: of(ResourceKind::Writes(backend)) }
    }

    /// Returns the resource of a kind; none if there is none.
    pub fn resource(&self, kind: ResourceKind) -> Option<&ResourceSetup> {
        self.resources.iter().find(|resource| resource.kind == kind)
    }

    /// Returns the treatment of tenants by the dispatcher of a backend.
    pub fn dispatched(&self) -> TenantOptions {
        let TenancyOptions { lend, over, .. } = self.options;
        let tenants = u16::try_from(self.tenants.len()).expect("at most 1,024");
        TenantOptions { tenants, burst_units: TenantOptions::BURST_UNITS, lends: lend, over }
    }

    /// Returns the legs of the network that count.
    pub fn legs(&self) -> Legs {
        self.resource(ResourceKind::Network).map_or(Legs::default(), |network| network.legs)
    }

    /// Returns the resources as policies see them.
    pub fn described_resources(&self) -> Vec<TenantResource> {
        let described = |resource: &ResourceSetup| {
            let ResourceSetup { ref name, kind, total_per_s, .. } = *resource;
            TenantResource { name: name.clone(), kind, total_per_s }
        };
        self.resources.iter().map(described).collect()
    }

    /// Returns the terms of the tenants at the start, for a cache of so many bytes.
    pub fn terms(&self, total_bytes: u64) -> Vec<TenantTerms> {
        let term = |tenant: &TenantSetup| TenantTerms {
            name: tenant.name.clone(),
            weight: tenant.weight,
            base: None,
            min: Share { bytes: tenant.bytes_min, rates: Vec::new() },
        };
        self.with_bases(total_bytes, self.tenants.iter().map(term).collect())
    }

    /// Returns the terms with the baselines that follow from their weights and from the stated
    /// shares. Tenants beyond those of the setup, `added`, state none.
    ///
    /// # Errors
    /// If a minimum would exceed its tenant's baseline.
    pub fn rebased(
        &self,
        total_bytes: u64,
        mut terms: Vec<TenantTerms>,
        added: &[TenantTerms],
    ) -> Result<Vec<TenantTerms>, TermsError> {
        terms.extend_from_slice(added);
        let terms = self.with_bases(total_bytes, terms);
        for TenantTerms { name, base, min, .. } in &terms {
            let base_bytes = base.as_ref().map_or(0, |base| base.bytes);
            if min.bytes > base_bytes {
                let (tenant, min_bytes) = (name.clone(), min.bytes);
                return Err(TermsError::MinOverBase { tenant, min_bytes, base_bytes });
            }
        }
        Ok(terms)
    }

    /// Checks that a tenant's weight has an effect.
    ///
    /// # Errors
    /// If the tenant states every share.
    pub fn check_weighted(&self, tenant: TenantId) -> Result<(), TermsError> {
        let TenantSetup { name, stated, .. } = &self.tenants[tenant.index()];
        if stated.len() > self.resources.len() && stated.iter().all(Option::is_some) {
            return Err(TermsError::Stated { tenant: name.clone() });
        }
        Ok(())
    }

    fn with_bases(&self, total_bytes: u64, mut terms: Vec<TenantTerms>) -> Vec<TenantTerms> {
        let weights: Vec<f64> = terms.iter().map(|terms| terms.weight).collect();
        // The cache is the first of the stated shares.
        let shares = |what: usize| {
            let stated = |index: usize| *self.tenants.get(index)?.stated.get(what)?;
            base_shares(&(0..terms.len()).map(stated).collect::<Vec<_>>(), &weights)
        };
        let cache = shares(0);
        let rates: Vec<Vec<f64>> = (1..=self.resources.len()).map(shares).collect();
        for (index, terms) in terms.iter_mut().enumerate() {
            let rate = |(resource, shares): (&ResourceSetup, &Vec<f64>)| resource.total_per_s * shares[index];
            terms.base = Some(Share {
                bytes: (total_bytes as f64 * cache[index]) as u64,
                rates: self.resources.iter().zip(&rates).map(rate).collect(),
            });
        }
        terms
    }
}
