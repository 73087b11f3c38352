//! The missed keys, each with the batches that wait for its refill.

use std::collections::BTreeMap;

use super::batch::MissedKey;

/// Most batches that wait for one key: of a crowd that misses a key at once, these many tell the
/// cost.
const KEY_MAX: usize = 16;

/// The missed keys, each with the numbers of the batches that wait for its refill.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Numbers of batches by key, ascending.
    batches: BTreeMap<MissedKey, Vec<u64>>,
    /// Number of waits for keys of each partition.
    of_partition: Vec<usize>,
    each_max: usize,
    len: usize,
}

/// The outcome of adding a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The batch waits for the key.
    Waits,
    /// Too many batches wait for the key.
    KeyFull,
    /// Too many keys of the partition are waited for.
    PartitionFull,
}

impl Waiting {
    pub(super) fn new(partitions: usize, each_max: usize) -> Self {
        Self { batches: BTreeMap::new(), of_partition: vec![0; partitions.max(1)], each_max, len: 0 }
    }

    /// Adds the wait of a batch, whose number is at least that of all before.
    pub(super) fn add(&mut self, key: MissedKey, batch: u64) -> Added {
        let place = key.partition.index();
        if self.of_partition.get(place).is_none_or(|&waits| waits >= self.each_max) {
            return Added::PartitionFull;
        }
        let batches = self.batches.entry(key).or_default();
        if batches.len() >= KEY_MAX {
            return Added::KeyFull;
        }
        batches.push(batch);
        self.of_partition[place] += 1;
        self.len += 1;
        Added::Waits
    }

    /// Returns the numbers of the batches that wait for `key`, ascending.
    pub(super) fn of(&self, key: MissedKey) -> &[u64] {
        self.batches.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Ends the wait of a batch. Returns false if it did not wait for the key.
    pub(super) fn remove(&mut self, key: MissedKey, batch: u64) -> bool {
        let Some(batches) = self.batches.get_mut(&key) else { return false };
        let Some(place) = batches.iter().position(|&number| number == batch) else { return false };
        batches.remove(place);
        if batches.is_empty() {
            self.batches.remove(&key);
        }
        self.of_partition[key.partition.index()] -= 1;
        self.len -= 1;
        true
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
