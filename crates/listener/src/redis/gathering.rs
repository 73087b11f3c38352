//! Fetches of several rounds before a command is executed, as transactions of a read-through
//! listener need.

use std::collections::HashMap;

use super::multi::{ANSWER_BYTES_MAX, Transaction};
use crate::FETCH_KEYS_MAX;
use crate::backends::FetchResult;
use crate::conversation::{Fetched, Wanted};
use bytes::Bytes;
use sherwood_model::PartitionId;

/// Keys to fetch before a command is executed.
#[derive(Debug)]
pub(super) struct Gathering {
    wanted: Vec<Wanted>,
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
    Watch(Vec<(PartitionId, Bytes)>),
}

impl Gathering {
    /// Fetches `wanted`, of which each key is given once.
    pub(super) fn new(wanted: Vec<Wanted>, then: Then) -> Self {
        Self { wanted, begun: 0, fetched: HashMap::new(), bytes: 0, then, muted: false }
    }

    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Returns the keys of the next round; none after the last one, and when the values fetched so
    /// far are more than can be answered.
    pub(super) fn next(&mut self) -> Option<Vec<Wanted>> {
        let left = &self.wanted[self.begun..];
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
        for (wanted, result) in self.wanted[first..self.begun].iter().zip(results) {
            self.bytes +=
                result.as_ref().map_or(0, |found| found.as_ref().map_or(0, |found| found.value.len()));
            self.fetched.insert((wanted.partition, wanted.key.clone()), result);
        }
    }
}
