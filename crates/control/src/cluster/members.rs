//! Nodes of a cluster, and names that a node knows.

/// The nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Name of this node, which is one of `nodes`.
    pub own: String,
    /// Names of all nodes.
    pub nodes: Vec<String>,
    /// Names of the nodes that merge the statistics of all, in the order in which they are followed;
    /// empty if every node merges them for itself.
    pub statistics: Vec<String>,
}

/// Names of a node's configuration, in the order of their ids. Nodes may differ in them; what a
/// message says of others is left out.
#[derive(Clone, Debug, Default)]
pub struct KnownNames {
    backends: Vec<String>,
    tenants: Vec<String>,
    partitions: Vec<String>,
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
        Self { backends, tenants, partitions }
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
}
