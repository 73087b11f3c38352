//! Looking up several keys at the price of one.
//!
//! In a large cache a look-up waits for memory twice: for the line of the index that its hash leads to, and for the record
//! that is found there. Neither can be asked for earlier by the processor itself, since each look-up ends with the lock it
//! began with. But whoever has several keys in hand, a pipeline of commands or a request of many, can have all their lines
//! on the way before the first is looked up; then they wait together, and the wait is that for one.

use sherwood_model::PartitionId;

use crate::engine::Cache;

/// Most keys that are asked for ahead at once: some hundred lines, which the smallest first-level cache holds twice.
pub const PREFETCH_KEYS_MAX: usize = 32;

/// Most bytes of a record that are asked for; what lies behind is read in order, and the processor sees that by itself.
const RECORD_BYTES_MAX: usize = 256;
/// Bytes of memory that come together.
const LINE_BYTES: usize = 64;

impl Cache {
    /// Asks for the memory that look-ups of these keys will read, and does not wait for it. Keys from the
    /// [`PREFETCH_KEYS_MAX`]th on are ignored.
    ///
    /// Nothing is read for a caller and nothing counted, so it makes no difference but in time: less where two keys or more
    /// are looked up soon and the cache is larger than the processor's, some tens of nanoseconds a key more elsewhere.
    /// A shard that somebody else has locked is left alone: a hint is not worth waiting for.
    pub fn prefetch(&self, keys: &[(PartitionId, &[u8])]) {
        let keys = &keys[..keys.len().min(PREFETCH_KEYS_MAX)];
        let mut hashes = [0; PREFETCH_KEYS_MAX];
        for (hash, &(partition, key)) in hashes.iter_mut().zip(keys) {
            *hash = self.lookup(partition, key).hash;
            self.shards[self.shard_of(*hash)].prefetch_index(*hash);
        }
        for &hash in &hashes[..keys.len()] {
            self.shards[self.shard_of(hash)].prefetch_record(hash);
        }
    }
}

/// Has the line brought near in which this element lies, if there is one.
#[inline]
pub(crate) fn element<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        line(std::ptr::from_ref(element).cast());
    }
}

/// Has the lines of a record brought near: its header, its key and what fits of its value.
#[inline]
pub(crate) fn record(place: &[u8]) {
    let bytes = place.len().min(RECORD_BYTES_MAX);
    for at in (0..bytes).step_by(LINE_BYTES) {
        element(place, at);
    }
    // A place begins amid a line, so its end may lie one further.
    element(place, bytes.saturating_sub(1));
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn line(at: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is part of every processor of this architecture. It is a hint: it reads nothing into the program,
    // changes nothing in it and faults for no address, so no address can be wrong.
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
        let partition = Partition { tenant: TenantId(0), backend: BackendId(0), budget_bytes: 1 << 20 };
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
            cache.prefetch(&keys[..len]);
        }
        assert_eq!(cache.usage(partition), before);
        let found = |name: &String| cache.peek(partition, name.as_bytes(), &access, |_| ()).is_some();
        assert!(names.iter().step_by(2).all(found) && !names.iter().skip(1).step_by(2).any(found));
    }

    #[test]
    fn what_is_not_there_is_not_asked_for() {
        element::<u64>(&[], 0);
        element(&[1, 2], 2);
        record(&[]);
    }
}
