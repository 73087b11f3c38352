//! Names of the configuration and their ids.

use std::collections::HashMap;

use sherwood_config::{DEFAULT_TENANT, SloScope, partition_name};
use sherwood_model::{BackendId, PartitionId, TenantId};

/// Name, tenant and backend of a partition.
#[derive(Clone, Debug)]
pub(crate) struct PartitionName {
    /// `backend` for the default tenant, else `tenant:backend`.
    pub(crate) name: String,
    /// The tenant that owns the partition.
    pub(crate) tenant: TenantId,
    /// The backend whose values the partition holds.
    pub(crate) backend: BackendId,
}

/// Lookup of names by id and of ids by name.
#[derive(Debug)]
pub(crate) struct Names {
    backends: Vec<String>,
    tenants: Vec<String>,
    tenant_ids: HashMap<String, TenantId>,
    partitions: Vec<PartitionName>,
    backend_ids: HashMap<String, BackendId>,
    partition_ids: HashMap<(TenantId, BackendId), PartitionId>,
}

impl Names {
    /// Builds the lookup from names in the order of their ids; `partitions` has the tenant and the
    /// backend of each partition.
    #[must_use]
    pub(crate) fn new(
        backends: Vec<String>,
        tenants: Vec<String>,
        partitions: &[(TenantId, BackendId)],
    ) -> Self {
        let backend_ids =
            backends.iter().enumerate().map(|(i, name)| (name.clone(), BackendId::from_index(i))).collect();
        let tenant_ids =
            tenants.iter().enumerate().map(|(i, name)| (name.clone(), TenantId::from_index(i))).collect();
        let partition_ids =
            partitions.iter().enumerate().map(|(i, &pair)| (pair, PartitionId::from_index(i))).collect();
        let partitions = partitions
            .iter()
            .map(|&(tenant, backend)| {
                let (of, name) = (&tenants[tenant.index()], &backends[backend.index()]);
                PartitionName { name: partition_name(of, name), tenant, backend }
            })
            .collect();
        Self { backends, tenants, tenant_ids, partitions, backend_ids, partition_ids }
    }

    /// Returns the backend called `name`.
    #[must_use]
    pub(crate) fn backend_id(&self, name: &str) -> Option<BackendId> {
        self.backend_ids.get(name).copied()
    }

    /// Returns the name of `backend`.
    #[must_use]
    pub(crate) fn backend(&self, backend: BackendId) -> &str {
        &self.backends[backend.index()]
    }

    /// All backends, in the order of their ids.
    #[must_use]
    pub(crate) fn backends(&self) -> &[String] {
        &self.backends
    }

    /// Returns the tenant called `name`.
    #[must_use]
    pub(crate) fn tenant_id(&self, name: &str) -> Option<TenantId> {
        self.tenant_ids.get(name).copied()
    }

    /// Returns the tenant of clients that name none, if there is one.
    #[must_use]
    pub(crate) fn default_tenant(&self) -> Option<TenantId> {
        self.tenant_id(DEFAULT_TENANT)
    }

    /// Returns the tenant called `name`, or that of clients that name none; none if there is no
    /// such tenant.
    #[must_use]
    pub(crate) fn tenant_or_default(&self, name: Option<&str>) -> Option<TenantId> {
        name.map_or_else(|| self.default_tenant(), |name| self.tenant_id(name))
    }

    /// Returns an id that no tenant has, of clients that belong to none.
    #[must_use]
    pub(crate) fn nobody(&self) -> TenantId {
        TenantId::from_index(self.tenants.len())
    }

    /// Returns the name of `tenant`.
    #[must_use]
    pub(crate) fn tenant(&self, tenant: TenantId) -> &str {
        &self.tenants[tenant.index()]
    }

    /// All tenants, in the order of their ids.
    #[must_use]
    pub(crate) fn tenants(&self) -> &[String] {
        &self.tenants
    }

    /// Returns the name of the class or tenant of an SLO.
    #[must_use]
    pub(crate) fn slo_scope<'a>(&'a self, to: &'a SloScope) -> &'a str {
        match to {
            SloScope::Class(class) => class,
            SloScope::Tenant(tenant) => self.tenant(*tenant),
        }
    }

    /// Returns the partition of `tenant` and `backend`.
    #[must_use]
    pub(crate) fn partition_id(&self, tenant: TenantId, backend: BackendId) -> Option<PartitionId> {
        self.partition_ids.get(&(tenant, backend)).copied()
    }

    /// Returns the partition called `name`.
    #[must_use]
    pub(crate) fn partition_named(&self, name: &str) -> Option<PartitionId> {
        self.partitions.iter().position(|partition| partition.name == name).map(PartitionId::from_index)
    }

    /// The partitions, in the order of their ids.
    #[must_use]
    pub(crate) fn partitions(&self) -> &[PartitionName] {
        &self.partitions
    }
}
