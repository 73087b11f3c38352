//! Resources that tenants share beside the cache, and their rates.

use std::num::NonZero;

use serde::Deserialize;

use crate::{BackendId, ResourceId, TenantId};

/// Kind of a resource that refills every second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Read units of a backend. Hits of the cache use none.
    Reads(BackendId),
    /// Write units of a backend. The cache saves none.
    Writes(BackendId),
    /// Bytes of network. A hit saves those between the node and the backend.
    Network,
}

/// Kind of a resource without its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceClass {
    /// Reads of a backend.
    Reads,
    /// Writes of a backend.
    Writes,
    /// Bytes of network.
    Network,
}

impl ResourceClass {
    /// Returns this kind of resource at `backend`; for the network, the backend has no effect.
    #[must_use]
    pub const fn at(self, backend: BackendId) -> ResourceKind {
        match self {
            Self::Reads => ResourceKind::Reads(backend),
            Self::Writes => ResourceKind::Writes(backend),
            Self::Network => ResourceKind::Network,
        }
    }

    /// Returns the default unit: DynamoDB's units for reads and writes, a byte for the network.
    #[must_use]
    pub const fn default_unit(self) -> Unit {
        match self {
            Self::Reads => Unit::DYNAMODB_READ,
            Self::Writes => Unit::DYNAMODB_WRITE,
            Self::Network => Unit::Bytes(NonZero::<u32>::MIN),
        }
    }
}

/// The measure of a read or a write of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Each counts one, whatever its size.
    #[default]
    Count,
    /// Each counts one for every so many bytes of key and value that it has begun, at least one.
    Bytes(NonZero<u32>),
}

impl Unit {
    /// A read of DynamoDB: 4,096 bytes.
    pub const DYNAMODB_READ: Self = Self::Bytes(NonZero::new(4_096).unwrap());
    /// A write of DynamoDB: 1,024 bytes.
    pub const DYNAMODB_WRITE: Self = Self::Bytes(NonZero::new(1_024).unwrap());

    /// Returns the units of a key and its value of so many bytes together.
    ///
    /// ```
    /// use sherwood_model::Unit;
    /// let units = |bytes| Unit::DYNAMODB_READ.of(bytes);
    /// assert_eq!([0, 4_096, 4_097].map(units), [1, 1, 2]);
    /// assert_eq!(Unit::Count.of(1 << 40), 1);
    /// ```
    #[must_use]
    pub const fn of(self, bytes: u64) -> u64 {
        match self {
            Self::Count => 1,
            Self::Bytes(each) => {
                let units = bytes.div_ceil(each.get() as u64);
                if units == 0 { 1 } else { units }
            }
        }
    }
}

/// The legs of the network whose bytes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Legs {
    /// The legs to clients and to stores.
    #[default]
    Both,
    /// The leg to clients.
    Client,
}

impl Legs {
    /// Number of times that the bytes of a miss or a write are counted.
    #[must_use]
    pub const fn count(self) -> u64 {
        match self {
            Self::Both => 2,
            Self::Client => 1,
        }
    }
}

/// Units per second of each resource for each tenant: a row per tenant, each with a rate per
/// resource. An infinite rate is no limit.
///
/// *Common* rates are enforced together: the total of each resource pays for the work of all
/// tenants, in the order of its arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    resources: usize,
    per_s: Vec<f64>,
    are_common: bool,
}

impl Rates {
    /// Returns rates of 0 for `tenants` tenants and `resources` resources; 8 bytes for each pair.
    #[must_use]
    pub fn zero(tenants: usize, resources: usize) -> Self {
        Self { resources, per_s: vec![0.0; tenants * resources], are_common: false }
    }

    /// Returns these rates, to be enforced together.
    #[must_use]
    pub fn into_common(self) -> Self {
        Self { are_common: true, ..self }
    }

    /// True if the total of each resource pays for the work of all tenants.
    #[must_use]
    pub fn are_common(&self) -> bool {
        self.are_common
    }

    /// The tenant's rate of the resource, in units per second.
    ///
    /// # Panics
    /// If either id is unknown.
    #[must_use]
    pub fn get(&self, tenant: TenantId, resource: ResourceId) -> f64 {
        self.row(tenant)[resource.index()]
    }

    /// True if the table has exactly this number of tenants and of resources.
    #[must_use]
    pub fn is_of(&self, tenants: usize, resources: usize) -> bool {
        self.resources == resources && self.per_s.len() == tenants * resources
    }

    /// Number of tenants.
    #[must_use]
    pub fn tenants(&self) -> usize {
        self.per_s.len().checked_div(self.resources).unwrap_or(0)
    }

    /// The tenant's rates, in the order of the resources' ids.
    ///
    /// # Panics
    /// If the tenant is unknown.
    #[must_use]
    pub fn row(&self, tenant: TenantId) -> &[f64] {
        let start = tenant.index() * self.resources;
        &self.per_s[start..start + self.resources]
    }

    /// The tenant's rates, to be changed.
    ///
    /// # Panics
    /// If the tenant is unknown.
    pub fn row_mut(&mut self, tenant: TenantId) -> &mut [f64] {
        let start = tenant.index() * self.resources;
        &mut self.per_s[start..start + self.resources]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_that_is_set_in_a_tenants_row_is_the_rate_of_that_pair() {
        let mut rates = Rates::zero(2, 3);
        rates.row_mut(TenantId(1))[2] = 5.0;
        assert_eq!(rates.get(TenantId(1), ResourceId(2)), 5.0);
        assert_eq!(rates.row(TenantId(0)), [0.0; 3]);
        assert!(rates.is_of(2, 3) && !rates.is_of(3, 2) && !rates.is_of(1, 3));
        assert!(!rates.are_common() && rates.into_common().are_common());
    }
}
