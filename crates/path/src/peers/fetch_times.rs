//! Times at which the fetches of cached values began.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use sherwood_model::{Instant, PartitionId, SeededState};

/// Upper bound of the keys that are remembered; with tables some 4 MiB.
const KEYS_MAX: usize = 65_536;

/// The keys of one backend that were fetched within a time before now, and when their fetches
/// began. If there are too many, the oldest are forgotten.
///
/// Keys are told apart by a seeded hash of 64 bits. A constant number of hash operations a call.
#[derive(Debug)]
pub(super) struct FetchTimes {
    kept: Duration,
    hash: SeededState,
    began: HashMap<u64, Instant, SeededState>,
    /// Keys in the order in which they were noted.
    order: VecDeque<(u64, Instant)>,
}

impl FetchTimes {
    /// Creates an empty record of fetches that began less than `kept` ago.
    pub(super) fn new(kept: Duration, hash: SeededState) -> Self {
        Self { kept, hash, began: HashMap::with_hasher(hash), order: VecDeque::new() }
    }

    /// Notes that the cached value of a key is of a fetch that `began` then.
    pub(super) fn note(&mut self, now: Instant, partition: PartitionId, key: &[u8], began: Instant) {
        while let Some(&(id, at)) = self.order.front()
            && (self.order.len() >= KEYS_MAX || at + self.kept <= now)
        {
            self.order.pop_front();
            // The key may have been fetched again.
            if self.began.get(&id) == Some(&at) {
                self.began.remove(&id);
            }
        }
        let id = self.id(partition, key);
        self.began.insert(id, began);
        self.order.push_back((id, began));
    }

    /// Returns the time at which the fetch of a key's value began, if it is remembered.
    pub(super) fn began(&self, partition: PartitionId, key: &[u8]) -> Option<Instant> {
        self.began.get(&self.id(partition, key)).copied()
    }

    fn id(&self, partition: PartitionId, key: &[u8]) -> u64 {
        self.hash.hash_bytes(key) ^ (u64::from(partition.0) << 48)
    }
}
