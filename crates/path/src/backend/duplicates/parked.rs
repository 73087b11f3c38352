//! Reads that wait for a duplicate.

use std::collections::VecDeque;

use sherwood_model::{Demand, Instant};

use crate::backend::key::FetchKey;

/// A read that waits until a duplicate has applied a change.
#[derive(Clone, Debug)]
pub(super) struct ParkedRead<K, W> {
    pub(super) partition: usize,
    pub(super) key: FetchKey<K>,
    pub(super) waiter: W,
    pub(super) demand: Demand,
    pub(super) asked_at: Instant,
    pub(super) expires_at: Instant,
}

/// Reads that wait until a duplicate has applied a change, in the order of their expiries.
#[derive(Clone, Debug)]
pub(in crate::backend) struct ParkedReads<K, W>(pub(super) VecDeque<ParkedRead<K, W>>);

impl<K, W> Default for ParkedReads<K, W> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K, W> ParkedReads<K, W> {
    /// The time at which the first of them expires.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.front().map(|first| first.expires_at)
    }

    /// Number of reads that wait.
    pub(in crate::backend) fn len(&self) -> usize {
        self.0.len()
    }
}
