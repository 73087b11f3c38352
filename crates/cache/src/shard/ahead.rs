//! What look-ups will read, asked for before they do: see
//! [`Cache::prefetch`](crate::Cache::prefetch).

use super::{Handle, Locked, Lookup, NO_HANDLE, Shard};

impl Shard {
    /// Asks for the index's lines where the searches for hashes begin, unless somebody is changing
    /// the shard.
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

impl Locked<'_> {
    /// Asks for the memory that searches for these hashes will read. Notes in `ahead`, which is as
    /// long at least and holds no handle, the first of each hash, if there is one: what
    /// [`Self::find_ahead`] begins with.
    #[inline]
    pub(crate) fn look_ahead(&self, hashes: &[u64], ahead: &mut [Handle]) {
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
            self.look_aside(&ahead[..hashes.len()]);
        }
    }

    /// Asks for what changes beside items that are found under strict LRU: the neighbours that each
    /// leaves behind when it becomes the newest. Nobody waits for what is only written, but the
    /// lock's release does.
    #[inline]
    fn look_aside(&self, ahead: &[Handle]) {
        for &at in ahead.iter().filter(|&&at| at != NO_HANDLE) {
            let record = self.record(at);
            for neighbour in [record.newer(), record.older()] {
                if neighbour != NO_HANDLE {
                    self.store.pages.prefetch_header(neighbour);
                }
            }
        }
    }

    /// The record of a key, dead or alive, where the index is as it was when `ahead` was the first
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
