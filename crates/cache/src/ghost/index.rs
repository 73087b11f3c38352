//! Index from hashes to slots in many small tables.
//!
//! A single table moves all keys when it grows or when tombstones of removed keys have used it up;
//! with a million keys that takes tens of milliseconds. Here a part of the hash selects one of up
//! to 4,096 tables, and each grows by itself: an insertion moves at most the keys of one table, 840
//! in a cache's ghosts.

use hashbrown::HashTable;

#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Tables whose number is a power of two.
    tables: Box<[HashTable<u32>]>,
    /// Largest number of buckets of a table. When tombstones have used them up, the table's keys
    /// are inserted again; a table may by chance be full before the others are, and then drops new
    /// keys.
    buckets_max: usize,
    len: usize,
    /// Bytes of the tables' buckets.
    bytes: usize,
}

/// Buckets of a table (log2), as long as there are not too many tables.
const BUCKETS_BITS: u32 = 10;
/// At most 2^12 tables, enough for the memory of a cache's ghosts: their headers fit into a core's
/// second-level cache.
const TABLES_BITS_MAX: u32 = 12;
/// Above this number of buckets (log2) a single table is used: such an index serves an offline
/// study, where pauses are harmless and one table is slightly faster.
const BITS_DIVIDED_MAX: u32 = 24;

impl Index {
    /// Returns an empty index of at most 2^`bits` buckets.
    pub(super) fn new(bits: u32) -> Self {
        let tables = vec![HashTable::new(); 1 << tables_bits(bits)];
        let buckets_max = 1 << (bits - tables_bits(bits));
        Self { tables: tables.into(), buckets_max, len: 0, bytes: 0 }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot of a key. `hashes` are the hashes of all keys, by slot.
    pub(super) fn find_mut(&mut self, hash: u64, hashes: &[u64]) -> Option<&mut u32> {
        self.table(hash).find_mut(spread(hash), |&slot| hashes[slot as usize] == hash)
    }

    /// Inserts a key that is not present; false if its table is full. `hashes` are those of the
    /// other keys.
    pub(super) fn insert(&mut self, hash: u64, slot: u32, hashes: &[u64]) -> bool {
        let (buckets_max, spread_of) = (self.buckets_max, |&slot: &u32| spread(hashes[slot as usize]));
        let table = self.table(hash);
        let before = table.allocation_size();
        if table.len() == table.capacity() {
            if table.num_buckets() < buckets_max {
                table.reserve(1, spread_of);
            } else if table.len() < keys_max(buckets_max) / 16 * 15 {
                let slots: Vec<u32> = table.drain().collect();
                for slot in slots {
                    table.insert_unique(spread_of(&slot), slot, spread_of);
                }
            } else {
                return false;
            }
        }
        table.insert_unique(spread(hash), slot, spread_of);
        let more = table.allocation_size() - before;
        self.len += 1;
        self.bytes += more;
        true
    }

    pub(super) fn remove(&mut self, hash: u64, hashes: &[u64]) -> Option<u32> {
        self.take(hash, |slot| hashes[slot as usize] == hash)
    }

    /// Removes the key of a slot.
    pub(super) fn remove_slot(&mut self, hash: u64, slot: u32) {
        self.take(hash, |held| held == slot);
    }

    /// Changes the slot of a key.
    pub(super) fn renumber(&mut self, hash: u64, from: u32, to: u32) {
        if let Some(slot) = self.table(hash).find_mut(spread(hash), |&slot| slot == from) {
            *slot = to;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.tables.len() * size_of::<HashTable<u32>>()
    }

    /// Largest memory of an index of at most 2^`bits` buckets: a number and a tag per bucket, and a
    /// group of tags per table.
    pub(super) const fn bytes_at_most(bits: u32) -> usize {
        let tables = 1 << tables_bits(bits);
        (1 << bits) * (size_of::<u32>() + 1) + tables * (size_of::<HashTable<u32>>() + 16)
    }

    fn take(&mut self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.table(hash).find_entry(spread(hash), |&slot| is_it(slot)).ok()?;
        let (slot, _) = found.remove();
        self.len -= 1;
        Some(slot)
    }

    /// The table of a hash, selected by other bits than the sample and the bucket.
    fn table(&mut self, hash: u64) -> &mut HashTable<u32> {
        let table = hash as usize & (self.tables.len() - 1);
        &mut self.tables[table]
    }
}

/// Number of keys that `buckets` can hold.
pub(super) const fn keys_max(buckets: usize) -> usize {
    buckets / 8 * 7
}

const fn tables_bits(bits: u32) -> u32 {
    match bits.saturating_sub(BUCKETS_BITS) {
        _ if bits > BITS_DIVIDED_MAX => 0,
        tables if tables > TABLES_BITS_MAX => TABLES_BITS_MAX,
        tables => tables,
    }
}

/// A table takes its bucket from the low bits and its tag from the high ones, which are all equal
/// in a sample.
fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use sherwood_model::SplitMix64;

    use super::*;

    #[test]
    fn inserted_keys_are_found_and_index_memory_is_bounded() {
        const BITS: u32 = 12;
        let mut draw = SplitMix64::new(1);
        let hashes: Vec<u64> = (0..1 << BITS).map(|_| draw.next_u64()).collect();
        let mut index = Index::new(BITS);
        let mut inserted = Vec::new();
        for (slot, &hash) in (0..).zip(&hashes) {
            if index.insert(hash, slot, &hashes) {
                inserted.push((hash, slot));
            }
        }
        assert_eq!(index.len(), inserted.len());
        assert!(inserted.len() > keys_max(1 << BITS) / 10 * 9 && inserted.len() <= keys_max(1 << BITS));
        assert!(index.memory_bytes() <= Index::bytes_at_most(BITS));
        for &(hash, slot) in &inserted {
            assert_eq!(index.find_mut(hash, &hashes), Some(&mut { slot }));
        }
        for &(hash, slot) in &inserted {
            assert_eq!(index.remove(hash, &hashes), Some(slot));
        }
        assert_eq!((index.len(), index.remove(hashes[0], &hashes)), (0, None));
    }

    #[test]
    fn index_tables_stay_bounded_under_insertions_and_removals() {
        const BITS: u32 = 11;
        let kept = keys_max(1 << BITS) / 16 * 13;
        let (mut index, mut draw) = (Index::new(BITS), SplitMix64::new(2));
        let mut hashes: Vec<u64> = (0..kept).map(|_| draw.next_u64()).collect();
        let mut refused = 0;
        for round in 0..100 * kept {
            let slot = round % kept;
            if round >= kept {
                index.remove(hashes[slot], &hashes);
                hashes[slot] = draw.next_u64();
            }
            refused += usize::from(!index.insert(hashes[slot], slot as u32, &hashes));
        }
        assert!(refused == 0, "{refused} of {} had no room", 100 * kept);
        assert!(index.memory_bytes() <= Index::bytes_at_most(BITS));
    }
}
