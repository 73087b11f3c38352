//! Nodes of a cluster, and names that a node knows.

use std::collections::BTreeMap;

use sherwood_model::{BackendId, CollectedRequests, FinishedRequest, TenantId};

use super::messages::NodeStatistics;

/// The nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Name of this node, which is one of `nodes`.
    pub own: String,
    /// Names of all nodes.
    pub nodes: Vec<String>,
    /// Names of the nodes that merge the statistics of all, in the order in which they are
    /// followed; empty if every node merges them for itself.
    pub statistics: Vec<String>,
}

/// Names of a node's configuration, in the order of their ids. Nodes may differ in them; what a
/// message says of others is left out.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    backends: Vec<String>,
    tenants: Vec<String>,
    partitions: Vec<String>,
    backend_ids: BTreeMap<String, BackendId>,
    tenant_ids: BTreeMap<String, TenantId>,
}

impl Members {
    /// Returns true if this node merges the statistics of all.
    #[must_use]
    pub fn merges(&self) -> bool {
        self.statistics.is_empty() || self.statistics.contains(&self.own)
    }

    /// Returns true if this node publishes snapshots.
    #[must_use]
    pub fn publishes_snapshots(&self) -> bool {
        self.statistics.contains(&self.own)
    }
}

impl KnownNames {
    /// Returns the names of backends, tenants and partitions, each in the order of their ids.
    #[must_use]
    pub fn new(backends: Vec<String>, tenants: Vec<String>, partitions: Vec<String>) -> Self {
        let ids = backends.iter().enumerate().map(|(id, name)| (name.clone(), BackendId::from_index(id)));
        let backend_ids = ids.collect();
        let ids = tenants.iter().enumerate().map(|(id, name)| (name.clone(), TenantId::from_index(id)));
        let tenant_ids = ids.collect();
        Self { backends, tenants, partitions, backend_ids, tenant_ids }
    }

    /// Names of the backends, in the order of their ids.
    #[must_use]
    pub fn backends(&self) -> &[String] {
        &self.backends
    }

    /// Names of the tenants, in the order of their ids.
    #[must_use]
    pub fn tenants(&self) -> &[String] {
        &self.tenants
    }

    /// Names of the partitions, in the order of their ids.
    #[must_use]
    pub fn partitions(&self) -> &[String] {
        &self.partitions
    }

    /// Returns the counts of these backends, 0 for others, in the order of ids.
    pub(super) fn by_backend(&self, counts: &BTreeMap<String, u64>) -> Vec<u64> {
        self.backends.iter().map(|name| counts.get(name).copied().unwrap_or(0)).collect()
    }

    /// Returns the counts above 0, each in the order of ids, by the names of their backends.
    pub(super) fn of_backends(&self, counts: &[u64]) -> BTreeMap<String, u64> {
        let above = self.backends.iter().zip(counts).filter(|(_, count)| **count > 0);
        above.map(|(name, &count)| (name.clone(), count)).collect()
    }

    /// Returns requests with this node's ids as those of a message, which has the names of the ids
    /// that occur.
    pub(super) fn named(&self, requests: CollectedRequests) -> NodeStatistics {
        let (mut backends, mut tenants) = (Renaming::of(&self.backends), Renaming::of(&self.tenants));
        let requests = requests.map(|request| {
            let blocking = request.blocking().and_then(|backend| backends.id(backend.index()));
            let tenant = tenants.id(request.tenant.index()).map_or(TenantId(u16::MAX), TenantId);
            request.with(tenant, blocking.map(BackendId))
        });
        NodeStatistics {
            backends: backends.used,
            tenants: tenants.used,
            requests,
            ..NodeStatistics::default()
        }
    }

    /// Returns the conversion of a message's requests into ones with this node's ids. A request of
    /// an unknown tenant has an id that no tenant has, and an unknown backend blocks none.
    pub(super) fn renaming<'a>(
        &'a self,
        message: &NodeStatistics,
    ) -> impl Fn(FinishedRequest) -> FinishedRequest + use<'a> {
        let backends: Vec<_> =
            message.backends.iter().map(|name| self.backend_ids.get(name).copied()).collect();
        let tenants: Vec<_> = message.tenants.iter().map(|name| self.tenant_ids.get(name).copied()).collect();
        let nobody = TenantId::from_index(self.tenants.len());
        move |request| {
            let blocking = request.blocking().and_then(|id| backends.get(id.index()).copied().flatten());
            let tenant = tenants.get(request.tenant.index()).copied().flatten();
            request.with(tenant.unwrap_or(nobody), blocking)
        }
    }
}

/// Ids of a message, given out in the order in which names occur.
struct Renaming<'a> {
    known: &'a [String],
    ids: Vec<Option<u16>>,
    used: Vec<String>,
}

impl<'a> Renaming<'a> {
    fn of(known: &'a [String]) -> Self {
        Self { known, ids: vec![None; known.len()], used: Vec::new() }
    }

    /// Returns the id in the message of this node's `id`; none if it has no name.
    fn id(&mut self, id: usize) -> Option<u16> {
        let given = self.ids.get_mut(id)?;
        if given.is_none() {
            *given = u16::try_from(self.used.len()).ok();
            self.used.push(self.known[id].clone());
        }
        *given
    }
}
