//! Input of the level between tenants.

use sherwood_model::{BackendId, DemandCounts, DemandCurve, Legs, ResourceKind};

use super::TenantResource;

/// Observation of one tenant at one time.
///
/// Figures are not trusted: a counter that shrinks starts a new window of the tenant, except that
/// of used units, which then counts as unchanged. NaN or negative units count as none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantObservation {
    /// Counters since the start.
    pub counts: TenantCounts,
    /// Reads and writes that wait at this moment for units of a resource.
    pub waiting: u32,
    /// Reads and writes since the start that were refused because of a rate.
    pub refused: u64,
    /// The tenant's partitions, in an order that does not change.
    pub partitions: Vec<TenantPartition>,
}

/// Counters of a tenant since its start, which only grow.
///
/// A request is a read or a write of one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantCounts {
    /// Reads and writes that ended.
    pub requests: u64,
    /// Units of each resource, in the order of their ids; missing elements count as 0.
    pub units: Vec<UnitCounts>,
}

/// Units of one resource that the requests of a tenant took, and that they would have taken
/// otherwise. The three are equal for writes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UnitCounts {
    /// Units if every read had hit: no read units, and of network the bytes to the client.
    pub if_hit: f64,
    /// Units if every read had missed.
    pub if_miss: f64,
    /// Units that were charged, less those that were given back. A read that joined the fetch of
    /// another takes none of the backend.
    pub used: f64,
}

/// Observation of one partition of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantPartition {
    /// Backend whose answers the partition caches.
    pub backend: BackendId,
    /// Bytes of the partition in the plan.
    pub budget_bytes: u64,
    /// Bytes charged for the partition's items.
    pub used_bytes: u64,
    /// Reads since the start.
    pub reads: ReadCounts,
    /// The curve that a simulated cache measures; none if not measured. Read only by a call that
    /// decides ([`TenantController::decides_at`]).
    ///
    /// [`TenantController::decides_at`]: super::TenantController::decides_at
    pub curve: Option<MissCurve>,
}

/// Miss ratio curve of a partition, from the reads of a sample of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct MissCurve {
    /// Misses per read by the partition's bytes.
    pub misses_per_read: DemandCurve,
    /// Number of sampled reads that the curve counts, infinite for a curve without an error. With
    /// fewer of them a tenant counts as below its baseline later.
    pub sampled_reads: f64,
}

/// Reads of a partition since the start, which only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Reads that found a value.
    pub hits: u64,
    /// Reads that were fetched from the backend.
    pub misses: u64,
    /// Reads that found no value and joined a fetch in flight, which took no units for them.
    pub joined: u64,
}

impl MissCurve {
    /// Returns a curve without an error.
    #[must_use]
    pub fn exact(misses_per_read: DemandCurve) -> Self {
        Self { misses_per_read, sampled_reads: f64::INFINITY }
    }
}

impl TenantObservation {
    /// Adds what the tenant asked of a backend since the start, of which `read_units` were charged
    /// for reads. To be called for each backend of a new observation; `legs` are those whose bytes
    /// count for network.
    pub fn add_demand(
        &mut self,
        resources: &[TenantResource],
        backend: BackendId,
        asked: &DemandCounts,
        read_units: f64,
        legs: Legs,
    ) {
        self.counts.requests += asked.requests();
        self.counts.units.resize(resources.len(), UnitCounts::default());
        for (resource, units) in resources.iter().zip(&mut self.counts.units) {
            match resource.kind {
                ResourceKind::Reads(of) if of == backend => {
                    units.add_read(0.0, asked.read_units_if_miss as f64, read_units);
                }
                ResourceKind::Writes(of) if of == backend => units.add_write(asked.write_units as f64),
                ResourceKind::Network => {
                    let [if_hit, if_miss, used] =
                        [asked.network_if_hit(legs), asked.network_if_miss(legs), asked.network(legs)];
                    units.add_read(if_hit as f64, if_miss as f64, used as f64);
                }
                ResourceKind::Reads(_) | ResourceKind::Writes(_) => {}
            }
        }
    }

    /// Replaces the network bytes of keys and values by those that were charged, which include a
    /// protocol's own: what is charged beyond them is taken by hits and misses alike. To be called
    /// after [`add_demand`](Self::add_demand) for all backends. Ignored if fewer bytes were
    /// charged, as where a tenant's clients are not known as such.
    pub fn add_network(&mut self, resources: &[TenantResource], charged: f64) {
        for (resource, units) in resources.iter().zip(&mut self.counts.units) {
            let beyond = charged - units.used;
            if resource.kind == ResourceKind::Network && beyond > 0.0 {
                units.add_read(beyond, beyond, beyond);
            }
        }
    }
}

impl From<&DemandCounts> for ReadCounts {
    fn from(&DemandCounts { hits, misses, joined, .. }: &DemandCounts) -> Self {
        Self { hits, misses, joined }
    }
}

impl ReadCounts {
    /// Number of reads.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.hits + self.misses + self.joined
    }
}

impl UnitCounts {
    /// Counts a read that takes `if_hit` or `if_miss` units, and took `used`.
    pub fn add_read(&mut self, if_hit: f64, if_miss: f64, used: f64) {
        self.if_hit += if_hit;
        self.if_miss += if_miss;
        self.used += used;
    }

    /// Counts a write of so many units.
    pub fn add_write(&mut self, units: f64) {
        self.add_read(units, units, units);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use sherwood_model::Unit;

    use super::*;

    #[test]
    fn demand_of_backends_is_counted_for_their_resources() {
        let of = |kind| TenantResource { name: String::new(), kind, total_per_s: 1.0 };
        let resources = [
            of(ResourceKind::Reads(BackendId(0))),
            of(ResourceKind::Reads(BackendId(1))),
            of(ResourceKind::Writes(BackendId(1))),
            of(ResourceKind::Network),
        ];
        let unit = Unit::Bytes(NonZero::new(1_000).unwrap());
        let mut asked = DemandCounts::default().with_hits(3, 6, 4_500);
        asked.count_fetched(unit, 1_500, 2);
        asked.count_write(Unit::Count, 500);
        let mut seen = TenantObservation::default();
        seen.add_demand(&resources, BackendId(1), &asked, 2.0, Legs::Both);
        seen.add_demand(&resources, BackendId(0), &DemandCounts::default(), 0.0, Legs::Both);
        let counts = |if_hit, if_miss, used| UnitCounts { if_hit, if_miss, used };
        assert_eq!(seen.counts.requests, 6);
        assert_eq!(
            seen.counts.units,
            [
                counts(0.0, 0.0, 0.0),
                counts(0.0, 10.0, 2.0),
                counts(1.0, 1.0, 1.0),
                counts(7_500.0 + 1_000.0, 16_000.0, 8_500.0 + 1_500.0),
            ]
        );
        assert_eq!(ReadCounts::from(&asked), ReadCounts { hits: 3, misses: 1, joined: 1 });
        seen.add_network(&resources, 9_000.0);
        assert_eq!(seen.counts.units[3].used, 10_000.0, "the charges of others");
        seen.add_network(&resources, 10_600.0);
        assert_eq!(seen.counts.units[3], counts(9_100.0, 16_600.0, 10_600.0));
    }
}
