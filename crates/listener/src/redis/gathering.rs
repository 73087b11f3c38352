//! Fetches of several rounds before a command is executed, as transactions of a read-through
//! listener need.
//!
//! Until the command is executed, all keys and values of all rounds are held. So the memory of the
//! keys, and of the bookkeeping for each value, is taken from the budget of [kept
//! memory](crate::kept) before the first fetch; the values are in the budget of fetched values.

use std::collections::HashMap;

use super::failure::Failure;
use super::multi::{ANSWER_BYTES_MAX, Transaction, WatchedKeys};
use crate::FETCH_KEYS_MAX;
use crate::backends::FetchResult;
use crate::conversation::{Fetched, Wanted};
use crate::kept::allocated;
use bytes::Bytes;
use sherwood_model::PartitionId;

/// Maximum memory of the keys that are fetched for one command, bytes.
const GATHERED_BYTES_MAX: usize = 8 << 20;
const TOO_MANY: Failure = Failure::text(
    "ERR a transaction fetches at most 8 MiB of keys, of which each takes a quarter of a KiB and its length; read \
     fewer keys in one",
);
/// Memory for one fetched key besides its name, bytes: its entry in the list, its result in a hash
/// table that may be half empty, and the allocations that own the value.
const KEY_BYTES: usize = size_of::<Wanted>() + 2 * size_of::<((PartitionId, Bytes), FetchResult)>() + 64;

/// Keys to be fetched for a command, each once.
#[derive(Debug, Default)]
pub(super) struct GatheredKeys {
    list: Vec<Wanted>,
    /// Memory of the keys and of what is kept for their values, bytes.
    memory: usize,
}

impl GatheredKeys {
    /// Adds a key.
    ///
    /// # Errors
    /// If the keys would take more memory than is allowed for one command.
    pub(super) fn push(&mut self, wanted: Wanted) -> Result<(), Failure> {
        self.memory += KEY_BYTES + allocated(wanted.key.len());
        if self.memory > GATHERED_BYTES_MAX {
            return Err(TOO_MANY);
        }
        self.list.push(wanted);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the memory of the keys and of what is kept for their values, bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }
}

/// Keys to fetch before a command is executed.
#[derive(Debug)]
pub(super) struct Gathering {
    wanted: GatheredKeys,
    /// The number of keys whose fetch has begun.
    begun: usize,
    pub(super) fetched: HashMap<(PartitionId, Bytes), FetchResult>,
    /// Bytes of the fetched values.
    bytes: usize,
    pub(super) then: Then,
    pub(super) muted: bool,
}

/// The command that is executed when the values are there.
#[derive(Debug)]
pub(super) enum Then {
    /// `EXEC` of a transaction.
    Execute(Box<Transaction>),
    /// `WATCH` of keys.
    Watch(Vec<(PartitionId, Box<[u8]>)>),
}

impl Then {
    /// Returns the memory that the command takes while it waits, bytes.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Execute(transaction) => transaction.memory(),
            Self::Watch(keys) => {
                // Their names are moved to the keys that are watched then.
                let watched = WatchedKeys::memory_of(keys.iter().map(|(_, name)| &name[..]));
                keys.capacity() * size_of::<(PartitionId, Box<[u8]>)>() + watched
            }
        }
    }
}

impl Gathering {
    /// Fetches `wanted`, of which each key is given once.
    pub(super) fn new(wanted: GatheredKeys, then: Then) -> Self {
        Self { wanted, begun: 0, fetched: HashMap::new(), bytes: 0, then, muted: false }
    }

    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Returns the memory of the keys, of the waiting command, and of the bookkeeping for values,
    /// bytes.
    pub(super) fn memory(&self) -> usize {
        self.wanted.memory() + self.then.memory()
    }

    /// Returns the keys of the next round; none after the last one, and when the values fetched so
    /// far are more than can be answered.
    pub(super) fn next(&mut self) -> Option<Vec<Wanted>> {
        let left = &self.wanted.list[self.begun..];
        if left.is_empty() || self.bytes >= ANSWER_BYTES_MAX {
            return None;
        }
        let round = &left[..left.len().min(FETCH_KEYS_MAX)];
        self.begun += round.len();
        Some(round.to_vec())
    }

    /// Takes the results of the last round.
    pub(super) fn take(&mut self, results: Fetched) {
        let first = self.begun - results.len().min(self.begun);
        for (wanted, result) in self.wanted.list[first..self.begun].iter().zip(results) {
            self.bytes +=
                result.as_ref().map_or(0, |found| found.as_ref().map_or(0, |found| found.value.len()));
            self.fetched.insert((wanted.partition, wanted.key.clone()), result);
        }
    }
}
