//! Looking up several keys at the price of one.
//!
//! In a large cache a look-up waits for memory twice: for the line of the index that its hash leads
//! to, and for the record that is found there. Neither can be asked for earlier by the processor
//! itself, since each look-up ends with the lock it began with. But whoever has several keys in
//! hand, a pipeline of commands or a request of many, can have all their lines on the way before
//! the first is looked up; then they wait together, and the wait is that for one.

use sherwood_model::PartitionId;

use crate::engine::Cache;
use crate::shard::Lookup;

/// Most keys that are asked for ahead at once: some hundred lines, which the smallest first-level
/// cache holds twice.
pub const PREFETCH_KEYS_MAX: usize = 32;

/// Bytes of memory that come together.
const LINE_BYTES: usize = 64;

impl Cache {
    /// Asks for the memory that look-ups of these keys will read, and does not wait for it. It
    /// takes the first [`PREFETCH_KEYS_MAX`] keys and leaves the others in the iterator.
    ///
    /// Nothing is read for a caller and nothing counted, so it makes no difference but in time:
    /// less where two keys or more are looked up soon and the cache is larger than the processor's,
    /// some tens of nanoseconds a key more elsewhere. A single key is not worth it, and a shard
    /// that somebody else has locked is left alone.
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

    /// As [`Self::prefetch`], by hashes, in whatever order.
    pub(crate) fn prefetch_hashes(&self, hashes: &mut [u64]) {
        // By their shards, so that each is locked once for all of its keys.
        hashes.sort_unstable_by_key(|&hash| self.shard_of(hash));
        let alike = || hashes.chunk_by(|&a, &b| self.shard_of(a) == self.shard_of(b));
        alike().for_each(|hashes| self.shards[self.shard_of(hashes[0])].prefetch_index(hashes));
        alike().for_each(|hashes| self.shards[self.shard_of(hashes[0])].prefetch_records(hashes));
    }
}

/// Has the line brought near in which this element lies, if there is one.
#[inline]
pub(crate) fn element<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        line(std::ptr::from_ref(element).cast());
    }
}

/// Has the line brought near in which a value begins.
#[inline]
pub(crate) fn start<T>(value: &T) {
    line(std::ptr::from_ref(value).cast());
}

/// Has the lines brought near of the first bytes of what somebody will read in order.
#[inline]
pub(crate) fn bytes(bytes: &[u8], max: usize) {
    let max = bytes.len().min(max);
    for at in (0..max).step_by(LINE_BYTES) {
        element(bytes, at);
    }
    // They begin amid a line, so their end may lie one further.
    element(bytes, max.saturating_sub(1));
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn line(at: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is part of every processor of this architecture. It is a hint: it
    // reads nothing into the program, changes nothing in it and faults for no address, so no
    // address can be wrong.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
}

/// Elsewhere there is no stable way to say it, and look-ups wait for their lines as they come.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn line(_at: *const i8) {}

#[cfg(test)]
mod tests {
    use sherwood_model::{BackendId, Instant, SeededState, TenantId};

    use super::*;
    use crate::{Access, NewItem, Options, Partition};

    #[test]
    fn it_changes_nothing_whatever_the_keys() {
        let partition = Partition::new(TenantId(0), BackendId(0), 1 << 20);
        let options = Options { total_bytes: 1 << 20, ..Options::default() };
        let cache = Cache::new(options, &[partition], SeededState::new(7)).unwrap();
        let partition = PartitionId(0);
        let names: Vec<String> = (0..2 * PREFETCH_KEYS_MAX).map(|number| format!("k{number}")).collect();
        let access = Access::at(Instant::from_secs(1));
        // Of a few bytes, of a place larger than what is asked for, and with a run.
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

    #[test]
    fn what_is_not_there_is_not_asked_for() {
        element::<u64>(&[], 0);
        element(&[1, 2], 2);
        bytes(&[], 100);
    }
}
