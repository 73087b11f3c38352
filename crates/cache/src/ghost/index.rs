//! Slots of keys by hash, in many small tables.
//!
//! One table of all keys moves all of them when it grows, and again when the marks that removals
//! leave have used it up; with a million keys that takes tens of milliseconds. Here a part of the
//! hash chooses one of up to 4,096 tables, and each grows by itself: an insertion moves as many
//! keys as one of them holds at most, 840 in a cache's ghosts.

use hashbrown::HashTable;

#[derive(Clone, Debug)]
pub(super) struct Index {
    /// A power of two of them.
    tables: Box<[HashTable<u32>]>,
    /// Buckets that a table may have. Where marks of removed keys have used them up, its keys are
    /// put in again; by chance it may be full before the others are, and what it has no room for is
    /// left out.
    buckets_max: usize,
    len: usize,
    /// What the tables' buckets take.
    bytes: usize,
}

/// Buckets of a table where there are not too many tables.
const BUCKETS_BITS: u32 = 10;
/// Tables are at most 2^12, enough for what a cache may spend: their headers fit into a core's
/// second cache.
const TABLES_BITS_MAX: u32 = 12;
/// Where more buckets than these are allowed there is one table: it is a study, which has nobody
/// waiting, and one is a little faster.
const BITS_DIVIDED_MAX: u32 = 24;

impl Index {
    /// An empty one of at most 2^`bits` buckets.
    pub(super) fn new(bits: u32) -> Self {
        let tables = vec![HashTable::new(); 1 << tables_bits(bits)];
        let buckets_max = 1 << (bits - tables_bits(bits));
        Self { tables: tables.into(), buckets_max, len: 0, bytes: 0 }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The slot of a key. `hashes` are those of the keys, by slot.
    pub(super) fn find_mut(&mut self, hash: u64, hashes: &[u64]) -> Option<&mut u32> {
        self.table(hash).find_mut(spread(hash), |&slot| hashes[slot as usize] == hash)
    }

    /// Adds a key that is not there, if its table has room; says whether it did. `hashes` are those
    /// of the others.
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

    /// Notes that a key's slot is another.
    pub(super) fn renumber(&mut self, hash: u64, from: u32, to: u32) {
        if let Some(slot) = self.table(hash).find_mut(spread(hash), |&slot| slot == from) {
            *slot = to;
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.tables.len() * size_of::<HashTable<u32>>()
    }

    /// What one of at most 2^`bits` buckets may come to take: a number and a tag each, and a group
    /// of tags at each table's end.
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

    /// By other bits than those that choose the sample, or a bucket.
    fn table(&mut self, hash: u64) -> &mut HashTable<u32> {
        let table = hash as usize & (self.tables.len() - 1);
        &mut self.tables[table]
    }
}

/// Keys that so many buckets hold.
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

/// A table takes its bucket from the low bits and a tag from the high ones, which are all alike in
/// a sample.
fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use sherwood_model::SplitMix64;

    use super::*;

    #[test]
    fn it_finds_what_was_inserted_and_takes_no_more_than_it_says() {
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
    fn it_never_outgrows_its_tables_however_many_keys_come_and_go() {
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
