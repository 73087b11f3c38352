//! Prefetching of the memory that look-ups will read, see
//! [`Cache::prefetch`](crate::Cache::prefetch).

use super::{Handle, Locked, Lookup, NO_HANDLE, Shard};

impl Shard {
    /// Prefetches the index lines at which the searches for hashes begin, unless the shard is
    /// locked for writing.
    pub(crate) fn prefetch_index(&self, hashes: &[u64]) {
        if let Some(store) = self.store.try_read() {
            hashes.iter().for_each(|&hash| store.index.prefetch(hash));
        }
    }

    /// Prefetches the records of hashes, unless the shard is locked for writing.
    pub(crate) fn prefetch_records(&self, hashes: &[u64]) {
        if let Some(store) = self.store.try_read() {
            let found = hashes.iter().filter_map(|&hash| store.index.find(hash).next());
            found.for_each(|at| store.pages.prefetch_all(at));
        }
    }
}

impl Locked<'_> {
    /// Prefetches the memory that searches for these hashes will read. Stores the first handle of
    /// each hash, if any, in `ahead`, which must be at least as long and contain no handle;
    /// [`Self::find_ahead`] uses it.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, hashes: &[u64], ahead: &mut [Handle]) {
        if hashes.len() > 1 {
            hashes.iter().for_each(|&hash| self.store.index.prefetch(hash));
        }
        for (ahead, &hash) in ahead.iter_mut().zip(hashes) {
            if let Some(at) = self.store.index.find(hash).next() {
                *ahead = at;
                self.store.pages.prefetch(at);
            }
        }
        if hashes.len() > 1 {
            self.prefetch_neighbours(&ahead[..hashes.len()]);
        }
    }

    /// Prefetches what a hit changes beside the item under strict LRU: the neighbours that it
    /// leaves when it becomes the newest. Writes do not stall by themselves, but the release of the
    /// lock waits for them.
    #[inline]
    fn prefetch_neighbours(&self, ahead: &[Handle]) {
        for &at in ahead.iter().filter(|&&at| at != NO_HANDLE) {
            let record = self.record(at);
            for neighbour in [record.newer(), record.older()] {
                if neighbour != NO_HANDLE {
                    self.store.pages.prefetch_header(neighbour);
                }
            }
        }
    }

    /// The record of a key, dead or alive, if the index is unchanged since `ahead` was the first
    /// handle of the key's hash.
    #[inline]
    pub(crate) fn find_ahead(&self, lookup: &Lookup<'_>, ahead: Handle) -> Option<Handle> {
        match ahead {
            NO_HANDLE => None,
            at if self.record(at).is_of(lookup) => Some(at),
            // Another key with the same few bits.
            _ => self.find(lookup),
        }
    }
}
