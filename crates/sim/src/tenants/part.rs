//! Partitions of tenants.

use sherwood_model::{BackendId, DemandCounts, PartitionId, TenantId};

/// A partition: the keys of a tenant's load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) tenant: TenantId,
    pub(super) backend: BackendId,
    /// Size of every value beside its key.
    pub(super) value_bytes: u32,
}

/// Reads and writes that a tenant asked of one of its partitions since the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) partition: PartitionId,
    pub(super) backend: BackendId,
    pub(super) counts: DemandCounts,
    /// Units of reads that were charged.
    pub(super) read_units: f64,
}
