//! What look-ups will read, asked for before they do: see [`Cache::prefetch`](crate::Cache::prefetch).

use super::Shard;

impl Shard {
    /// Asks for the index's lines where the searches for hashes begin, unless somebody is changing the shard.
    pub(crate) fn prefetch_index(&self, hashes: &[u64]) {
        if let Some(store) = self.store.try_read() {
            hashes.iter().for_each(|&hash| store.index.prefetch(hash));
        }
    }

    /// Asks for the records that hashes lead to, unless somebody is changing the shard.
    pub(crate) fn prefetch_records(&self, hashes: &[u64]) {
        if let Some(store) = self.store.try_read() {
            let found = hashes.iter().filter_map(|&hash| store.index.find(hash).next());
            found.for_each(|at| store.pages.prefetch_all(at));
        }
    }
}
