//! Partitions and resources of tenants, as a node knows them.

use sherwood_model::{BackendId, ResourceKind, TenantId};
use sherwood_workload::tenants::{Resource, Scenario};

/// A partition: the keys of a tenant's load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) tenant: TenantId,
    pub(super) backend: BackendId,
    /// Size of every value beside its key.
    pub(super) value_bytes: u32,
}

/// Returns the kind of a resource, as the policies know it.
pub(super) fn kind(resource: &Resource, scenario: &Scenario) -> ResourceKind {
    let named = resource.backend.as_deref().and_then(|name| scenario.backend(name));
    resource.kind.at(BackendId::from_index(named.unwrap_or(0)))
}
