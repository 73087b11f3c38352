//! Contents of the caches, for comparisons.

use sherwood_cache::Usage;
use sherwood_model::PartitionId;

use super::World;

impl World {
    /// What each backend's partition of a server's cache holds and what happened in it since the
    /// start; empty where there is no such server.
    #[must_use]
    pub fn usage(&self, server: usize) -> Vec<Usage> {
        let Some(server) = self.servers.get(server) else { return Vec::new() };
        (0..self.backends.len()).map(|index| server.cache.usage(PartitionId::from_index(index))).collect()
    }
}
