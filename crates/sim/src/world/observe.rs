//! Observations of a node's cache and tenants, from which its control loop decides.

use std::hash::Hash;

use sherwood_cache::Cache;
use sherwood_control::{CacheReport, CacheSeen, PartitionSeen};
use sherwood_model::{DemandCounts, Instant, Legs, PartitionId, TenantId};
use sherwood_policy::MissRatioCurve;
use sherwood_policy::tenants::{MissCurve, ReadCounts, TenantController, TenantObservation, TenantPartition};

use super::node::{Machine, Node, SizedCache};

impl<K: AsRef<[u8]> + Clone + Eq + Hash> Node<K> {
    /// Returns the cache's counters of each partition at `now`. The caller adds statistics of
    /// requests.
    pub(crate) fn cache_seen(&self, now: Instant) -> CacheSeen {
        let partition = |(index, &(tenant, backend))| {
            let usage = self.cache.usage(PartitionId::from_index(index));
            PartitionSeen {
                allocated_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                hits: usage.hits,
                misses: usage.misses,
                ..PartitionSeen::new(tenant, backend)
            }
        };
        CacheSeen {
            at: now,
            total_bytes: self.cache.total_bytes(),
            partitions: self.owners.iter().enumerate().map(partition).collect(),
            ..CacheSeen::default()
        }
    }

    /// Returns a partition's counters and curve, to be merged with those of other nodes.
    pub(crate) fn report(&self, partition: PartitionId) -> CacheReport {
        let usage = self.cache.usage(partition);
        let curve = self.cache.miss_ratio_curve(partition).and_then(|curve| {
            MissRatioCurve::sampled(curve.sampled_gets, curve.bytes.into_iter().zip(curve.miss_ratio))
        });
        CacheReport { budget_bytes: usage.budget_bytes, hits: usage.hits, misses: usage.misses, curve }
    }

    /// Returns the counts of reads and writes of a partition since the start, and the units that
    /// its tenant was charged for reads of its backend.
    pub(crate) fn asked(&self, partition: PartitionId) -> (DemandCounts, f64) {
        let (tenant, backend) = self.owners[partition.index()];
        let machine = &self.machines[backend.index()];
        let used = machine.used(tenant).map(|used| used.reads).unwrap_or_default();
        let counts = machine.demand(&SizedCache(&self.cache), tenant, partition).unwrap_or_default();
        (counts, used.own_units + used.lent_units)
    }

    /// Returns each tenant's demand, and with `curves` the miss ratio curves of its partitions.
    pub(crate) fn tenants_seen(&self, curves: bool) -> Vec<TenantObservation> {
        let between = self.between();
        let mut seen: Vec<_> = (0..between.terms().len()).map(|index| self.nothing_of(index)).collect();
        let legs = self.network.as_ref().map_or(Legs::Both, |network| network.legs);
        for (index, &(tenant, backend)) in self.owners.iter().enumerate() {
            let partition = PartitionId::from_index(index);
            let (counts, read_units) = self.asked(partition);
            let usage = self.cache.usage(partition);
            let seen = &mut seen[tenant.index()];
            seen.add_demand(between.resources(), backend, &counts, read_units, legs);
            seen.partitions.push(TenantPartition {
                backend,
                budget_bytes: usage.budget_bytes,
                used_bytes: usage.used_bytes,
                reads: ReadCounts::from(&counts),
                curve: if curves { curve(&self.cache, partition) } else { None },
            });
        }
        seen
    }

    /// Returns the controller that divides resources between tenants.
    ///
    /// # Panics
    /// If the node has no tenants.
    pub(crate) fn between(&self) -> &TenantController {
        self.control.levels().tenants().expect("the node has tenants").between()
    }

    /// Returns an observation of a tenant in which only its waiting work is filled in.
    fn nothing_of(&self, index: usize) -> TenantObservation {
        let tenant = TenantId::from_index(index);
        let of_backend = |machine: &Machine<K>| machine.used(tenant).map_or(0, |used| used.waiting());
        let at_gate = self.network.as_ref().map_or(0, |network| network.waiting(tenant));
        TenantObservation {
            waiting: self.machines.iter().map(of_backend).sum::<u32>() + at_gate,
            ..TenantObservation::default()
        }
    }
}

/// Returns the miss ratio curve of a partition, if it has one.
pub(crate) fn curve(cache: &Cache, partition: PartitionId) -> Option<MissCurve> {
    let curve = cache.miss_ratio_curve(partition)?;
    Some(MissCurve { misses_per_read: curve.misses(), sampled_reads: curve.sampled_gets })
}
