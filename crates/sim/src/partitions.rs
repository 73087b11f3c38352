//! Partitions of the simulated caches.

use sherwood_model::{BackendId, PartitionId, TenantId};

/// Partitions of each server's cache: one per pair of a tenant and a backend, ordered by tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partitions {
    tenants: u16,
    backends: u16,
}

impl Partitions {
    /// Partitions for at least one tenant.
    ///
    /// # Panics
    /// If there are more than 65,535 pairs; setups are rejected long before.
    pub(crate) fn new(tenants: u16, backends: usize) -> Self {
        let pairs = usize::from(tenants) * backends;
        assert!(pairs <= usize::from(u16::MAX), "{pairs} partitions, which ids cannot name");
        Self { tenants, backends: backends as u16 }
    }

    pub(crate) fn tenants(self) -> u16 {
        self.tenants
    }

    pub(crate) fn backends(self) -> usize {
        self.backends.into()
    }

    /// The number of partitions.
    pub(crate) fn len(self) -> usize {
        usize::from(self.tenants) * self.backends()
    }

    /// Returns the partition of a tenant's values of a backend.
    pub(crate) fn of(self, tenant: TenantId, backend: BackendId) -> PartitionId {
        PartitionId(tenant.0 * self.backends + backend.0)
    }

    /// The tenant and the backend of a partition.
    pub(crate) fn pair(self, partition: PartitionId) -> (TenantId, BackendId) {
        (TenantId(partition.0 / self.backends), BackendId(partition.0 % self.backends))
    }

    /// All partitions, in the order of their ids.
    pub(crate) fn all(self) -> impl ExactSizeIterator<Item = PartitionId> {
        (0..self.len()).map(PartitionId::from_index)
    }

    /// Every tenant's partition of a backend.
    pub(crate) fn of_backend(self, backend: BackendId) -> impl Iterator<Item = PartitionId> {
        (0..self.tenants).map(move |tenant| self.of(TenantId(tenant), backend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_and_backend_have_a_partition_of_their_own() {
        let partitions = Partitions::new(2, 3);
        let pairs: Vec<_> = partitions.all().map(|partition| partitions.pair(partition)).collect();
        let places = pairs.iter().map(|&(tenant, backend)| partitions.of(tenant, backend));
        assert!(places.eq(partitions.all()));
        assert_eq!(pairs.len(), 6);
        let of_backend: Vec<_> = partitions.of_backend(BackendId(1)).collect();
        assert_eq!(of_backend, [PartitionId(1), PartitionId(4)]);
    }

    #[test]
    fn only_tenant_has_partition_n_for_backend_n() {
        let partitions = Partitions::new(1, 20);
        assert!((0..20).all(|n| partitions.of(TenantId(0), BackendId(n)) == PartitionId(n)));
    }
}
