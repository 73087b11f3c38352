//! The operator's limits for the size of a partition.

/// Least and most bytes of a partition, set by the configuration and the admin API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Least bytes of the partition; 0 for no minimum.
    pub min_bytes: u64,
    /// Most bytes of the partition; none for no limit.
    pub max_bytes: Option<u64>,
    /// True if the partition keeps its budget and decisions about it are only reported.
    pub dry_run: bool,
}
