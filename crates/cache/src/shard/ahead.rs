//! What look-ups will read, asked for before they do: see [`Cache::prefetch`](crate::Cache::prefetch).

use super::Shard;
use crate::prefetch;

impl Shard {
    /// Asks for the index's lines where the searches for hashes begin, unless somebody has the lock.
    pub(crate) fn prefetch_index(&self, hashes: &[u64]) {
        if let Ok(store) = self.store.try_lock() {
            hashes.iter().for_each(|&hash| store.index.prefetch(hash));
        }
    }

    /// Asks for the records that hashes lead to, unless somebody has the lock.
    pub(crate) fn prefetch_records(&self, hashes: &[u64]) {
        if let Ok(store) = self.store.try_lock() {
            let found = hashes.iter().filter_map(|&hash| store.index.find(hash, |_| true));
            found.for_each(|at| prefetch::record(store.pages.bytes(at)));
        }
    }
}
