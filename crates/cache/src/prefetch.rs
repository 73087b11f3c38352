//! Prefetching for look-ups of several keys.
//!
//! In a large cache a look-up waits for memory twice: for the index line of its hash, and for the
//! record found there. The processor cannot overlap these waits between look-ups by itself, since
//! each look-up ends with releasing a lock. A caller with several keys, from a pipeline or a
//! multi-get, can prefetch all their lines before the first look-up; the waits then overlap, and
//! together take as long as one.

use sherwood_model::PartitionId;

use crate::engine::Cache;
use crate::shard::Lookup;

/// Largest number of keys prefetched at once: about a hundred lines, half of the smallest
/// first-level cache.
pub const PREFETCH_KEYS_MAX: usize = 32;

impl Cache {
    /// Prefetches the memory that look-ups of these keys will read, without waiting for it. Takes
    /// the first [`PREFETCH_KEYS_MAX`] keys and leaves the others in the iterator.
    ///
    /// Only timing is affected: nothing is returned or counted. It saves time if two or more keys
    /// are looked up soon and the cache is larger than the processor's; otherwise it costs some
    /// tens of nanoseconds per key. A single key is not prefetched, and shards locked by other
    /// threads are skipped.
    pub fn prefetch<'k>(&self, keys: impl IntoIterator<Item = (PartitionId, &'k [u8])>) {
        let mut hashes = [0; PREFETCH_KEYS_MAX];
        let mut len = 0;
        for (hash, (partition, key)) in hashes.iter_mut().zip(keys) {
            *hash = Lookup::new(&self.hash, partition, key).hash;
            len += 1;
        }
        if len < 2 {
            return;
        }
        self.prefetch_hashes(&mut hashes[..len]);
    }

    /// Prefetches the memory that look-ups of these hashes will read, like [`Self::prefetch`];
    /// sorts them.
    pub(crate) fn prefetch_hashes(&self, hashes: &mut [u64]) {
        // Sorted by shard, so that each shard is locked once for all of its keys.
        hashes.sort_unstable_by_key(|&hash| self.shard_of(hash));
        let alike = || hashes.chunk_by(|&a, &b| self.shard_of(a) == self.shard_of(b));
        alike().for_each(|hashes| self.shards[self.shard_of(hashes[0])].prefetch_index(hashes));
        alike().for_each(|hashes| self.shards[self.shard_of(hashes[0])].prefetch_records(hashes));
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::{BackendId, Instant, SeededState, TenantId};

    use super::*;
    use crate::{Access, NewItem, Options, Partition};

    #[test]
    fn prefetch_changes_no_result_and_no_counter() {
        let partition = Partition::new(TenantId(0), BackendId(0), 1 << 20);
        let options = Options { total_bytes: 1 << 20, ..Options::default() };
        let cache = Cache::new(options, &[partition], SeededState::new(7)).unwrap();
        let partition = PartitionId(0);
        let names: Vec<String> = (0..2 * PREFETCH_KEYS_MAX).map(|number| format!("k{number}")).collect();
        let access = Access::at(Instant::from_secs(1));
        // Items of a few bytes, of a slot larger than the prefetched part, and with a run.
        for (name, bytes) in names.iter().zip([5, 1_000, 50_000].into_iter().cycle()).step_by(2) {
            cache.set(partition, name.as_bytes(), NewItem::bytes(&vec![1; bytes]), &access).unwrap();
        }
        let before = cache.usage(partition);
        let keys: Vec<_> = names.iter().map(|name| (partition, name.as_bytes())).collect();
        for len in [0, 1, PREFETCH_KEYS_MAX, keys.len()] {
            let mut keys = keys[..len].iter().copied();
            cache.prefetch(&mut keys);
            assert_eq!(keys.len(), len.saturating_sub(PREFETCH_KEYS_MAX), "the others are left");
        }
        assert_eq!(cache.usage(partition), before);
        let found = |name: &String| cache.peek(partition, name.as_bytes(), &access, |_| ()).is_some();
        assert!(names.iter().step_by(2).all(found) && !names.iter().skip(1).step_by(2).any(found));
    }
}
