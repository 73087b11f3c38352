//! Observations of what tenants ask of the cache and of the backends.

use std::sync::Arc;

use sherwood_cache::Cache;
use sherwood_config::TenancySetup;
use sherwood_dispatch::TenantUse;
use sherwood_model::{BackendId, DemandCounts, Legs, PartitionId, ResourceKind, TenantId};
use sherwood_path::BackendUse;
use sherwood_policy::tenants::{MissCurve, ReadCounts, TenantObservation, TenantPartition, TenantResource};

use super::TenantNetwork;
use crate::backend::BackendDriver;
use crate::names::Names;

/// The counters of all tenants.
pub(crate) struct TenantCounters {
    cache: Arc<Cache>,
    backends: Vec<Option<Arc<BackendDriver>>>,
    network: Option<Arc<TenantNetwork>>,
    resources: Vec<TenantResource>,
    /// The legs of the network that count.
    legs: Legs,
    /// The tenant, partition and backend of each partition, ordered by backend.
    parts: Vec<Part>,
    tenants: usize,
}

#[derive(Clone, Copy)]
struct Part {
    tenant: TenantId,
    partition: PartitionId,
    backend: BackendId,
}

impl TenantCounters {
    /// Returns the counters of a node's tenants, which have a partition of every backend.
    pub(crate) fn new(
        cache: Arc<Cache>,
        names: &Names,
        (backends, network): (&[Option<Arc<BackendDriver>>], Option<Arc<TenantNetwork>>),
        setup: &TenancySetup,
    ) -> Self {
        let part = |(index, name): (usize, &crate::names::PartitionName)| Part {
            tenant: name.tenant,
            partition: PartitionId::from_index(index),
            backend: name.backend,
        };
        let mut parts: Vec<Part> = names.partitions().iter().enumerate().map(part).collect();
        parts.sort_by_key(|part| (part.backend, part.tenant));
        let (resources, legs) = (setup.described_resources(), setup.legs());
        let tenants = names.tenants().len();
        Self { cache, backends: backends.to_vec(), network, resources, legs, parts, tenants }
    }

    /// Returns the partitions of each tenant, in the order in which they are observed.
    pub(crate) fn partitions(&self) -> Vec<Vec<PartitionId>> {
        let mut partitions = vec![Vec::new(); self.tenants];
        self.parts.iter().for_each(|part| partitions[part.tenant.index()].push(part.partition));
        partitions
    }

    /// Returns an observation of each tenant, with the miss ratio curves of its partitions or
    /// without. O(partitions), without curves.
    pub(crate) fn observe(&self, with_curves: bool) -> Vec<TenantObservation> {
        let mut seen = vec![TenantObservation::default(); self.tenants];
        self.each(&self.parts, |part, demand, used| {
            let usage = self.cache.usage(part.partition);
            let curve = || {
                let curve = self.cache.miss_ratio_curve(part.partition)?;
                Some(MissCurve { misses_per_read: curve.misses(), sampled_reads: curve.sampled_gets })
            };
            let partition = TenantPartition {
                backend: part.backend,
                budget_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                reads: ReadCounts::from(demand),
                curve: if with_curves { curve() } else { None },
            };
            let seen = &mut seen[part.tenant.index()];
            seen.add_demand(&self.resources, part.backend, demand, used.reads.units(), self.legs);
            seen.waiting = seen.waiting.saturating_add(used.waiting());
            seen.refused += used.refused();
            seen.partitions.push(partition);
        });
        if let Some(network) = &self.network {
            for (index, seen) in seen.iter_mut().enumerate() {
                let used = network.used(TenantId::from_index(index));
                seen.add_network(&self.resources, used.units());
                seen.waiting = seen.waiting.saturating_add(used.waiting);
                seen.refused += used.refused;
            }
        }
        seen
    }

    /// Returns the use of each resource by each tenant, in the order of their ids.
    pub(crate) fn uses(&self) -> Vec<Vec<TenantUse>> {
        let mut uses = vec![vec![TenantUse::default(); self.resources.len()]; self.tenants];
        self.each(&self.parts, |part, _, used| self.set_use(&mut uses[part.tenant.index()], part, used));
        for (index, uses) in uses.iter_mut().enumerate() {
            self.set_network(uses, TenantId::from_index(index));
        }
        uses
    }

    /// Returns the use of each resource by one tenant.
    pub(crate) fn uses_of(&self, tenant: TenantId) -> Vec<TenantUse> {
        let own: Vec<Part> = self.parts.iter().filter(|part| part.tenant == tenant).copied().collect();
        let mut uses = vec![TenantUse::default(); self.resources.len()];
        self.each(&own, |part, _, used| self.set_use(&mut uses, part, used));
        self.set_network(&mut uses, tenant);
        uses
    }

    fn set_use(&self, uses: &mut [TenantUse], part: &Part, used: &BackendUse) {
        for (of_resource, resource) in uses.iter_mut().zip(&self.resources) {
            match resource.kind {
                ResourceKind::Reads(backend) if backend == part.backend => *of_resource = used.reads,
                ResourceKind::Writes(backend) if backend == part.backend => *of_resource = used.writes,
                ResourceKind::Reads(_) | ResourceKind::Writes(_) | ResourceKind::Network => {}
            }
        }
    }

    fn set_network(&self, uses: &mut [TenantUse], tenant: TenantId) {
        let Some(network) = &self.network else { return };
        for (of_resource, resource) in uses.iter_mut().zip(&self.resources) {
            if resource.kind == ResourceKind::Network {
                *of_resource = network.used(tenant);
            }
        }
    }

    /// Calls `with` for each of these parts with its tenant's counters at the backend. A backend's
    /// counters are of one moment.
    fn each(&self, parts: &[Part], mut with: impl FnMut(&Part, &DemandCounts, &BackendUse)) {
        for parts in parts.chunk_by(|a, b| a.backend == b.backend) {
            let asked: Vec<_> = parts.iter().map(|part| (part.tenant, part.partition)).collect();
            let counts = match &self.backends[parts[0].backend.index()] {
                Some(backend) => backend.tenants(&asked),
                None => asked.iter().map(|&(_, partition)| self.looked_up(partition)).collect(),
            };
            for (part, (demand, used)) in parts.iter().zip(&counts) {
                with(part, demand, used);
            }
        }
    }

    /// The counters of a tenant at a backend without a store, whose misses the node does not fetch.
    fn looked_up(&self, partition: PartitionId) -> (DemandCounts, BackendUse) {
        let usage = self.cache.usage(partition);
        let misses = DemandCounts { misses: usage.misses, ..DemandCounts::default() };
        (misses.with_hits(usage.hits, usage.hit_units, usage.hit_bytes), BackendUse::default())
    }
}
