//! Contents of the caches, for comparisons.

use sherwood_cache::Usage;

use super::World;

impl World {
    /// Usage of each partition of a server's cache since the start; empty if there is no such
    /// server.
    #[must_use]
    pub fn usage(&self, server: usize) -> Vec<Usage> {
        let Some(server) = self.servers.get(server) else { return Vec::new() };
        self.partitions.all().map(|partition| server.cache.usage(partition)).collect()
    }
}
