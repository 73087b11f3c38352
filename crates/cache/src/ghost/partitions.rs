//! A ghost for each partition of a cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use sherwood_model::PartitionId;

use super::{Curve, Ghost, GhostOptions};

/// The ghosts of all partitions, or none of them. May be shared by threads: what is not sampled
/// reads one number that hardly ever changes, what is takes its partition's lock, under which
/// nothing else is locked.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// What the ghosts' thresholds were when last looked at. Apart from the locks, which are
    /// written to all the time.
    thresholds: Box<[AtomicU64]>,
    ghosts: Box<[Mutex<Ghost>]>,
}

/// All ghosts of a cache together take at most this share of its total, ...
const MEMORY_RATIO: u64 = 32;
/// ... but may take these many bytes of the smallest and no more than those of the largest.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;
/// Curves reach up to so many times the total: what twice the memory would bring is asked more
/// often than what ten times would.
const DEPTH_FACTOR: u64 = 2;

impl Ghosts {
    /// Ghosts of `partitions` partitions that share `total_bytes`; none when `rate` is 0.
    pub(crate) fn new(rate: f64, total_bytes: u64, partitions: usize) -> Self {
        let kept = if rate > 0.0 { partitions } else { 0 };
        let options = GhostOptions {
            rate,
            depth_bytes: total_bytes.saturating_mul(DEPTH_FACTOR),
            memory_bytes: (memory_bytes(total_bytes) / partitions as u64) as usize,
            fades: true,
        };
        let ghosts: Box<[_]> = (0..kept).map(|_| Ghost::new(options)).collect();
        Self {
            thresholds: ghosts.iter().map(|ghost| AtomicU64::new(ghost.threshold())).collect(),
            ghosts: ghosts.into_iter().map(Mutex::new).collect(),
        }
    }

    /// The same, of a copy of the cache.
    pub(crate) fn copy(&mut self) -> Self {
        let ghost = |ghost: &mut Mutex<Ghost>| {
            Mutex::new(ghost.get_mut().unwrap_or_else(PoisonError::into_inner).clone())
        };
        let threshold = |threshold: &mut AtomicU64| AtomicU64::new(*threshold.get_mut());
        Self {
            thresholds: self.thresholds.iter_mut().map(threshold).collect(),
            ghosts: self.ghosts.iter_mut().map(ghost).collect(),
        }
    }

    /// Notes a get; `gets` is the number of all of the partition's.
    pub(crate) fn get(&self, partition: PartitionId, hash: u64, gets: impl FnOnce() -> u64) {
        if self.samples(partition, hash) {
            self.with(partition, |ghost| ghost.get(hash, gets));
        }
    }

    /// Notes a store, or a touch, of an item charged `charge`.
    pub(crate) fn store(&self, partition: PartitionId, hash: u64, charge: u64, gets: impl FnOnce() -> u64) {
        if self.samples(partition, hash) {
            self.with(partition, |ghost| ghost.store(hash, charge, gets));
        }
    }

    /// Notes a deletion; an eviction is none.
    pub(crate) fn remove(&self, partition: PartitionId, hash: u64) {
        if self.samples(partition, hash) {
            self.with(partition, |ghost| ghost.remove(hash));
        }
    }

    /// Notes that a partition was flushed.
    pub(crate) fn clear(&self, partition: PartitionId) {
        if partition.index() < self.ghosts.len() {
            self.with(partition, Ghost::clear);
        }
    }

    /// The curve of a partition with so many gets, if there are ghosts.
    pub(crate) fn curve(&self, partition: PartitionId, gets: u64) -> Option<Curve> {
        let ghost = self.ghosts.get(partition.index())?;
        Some(ghost.lock().unwrap_or_else(PoisonError::into_inner).curve(gets))
    }

    /// Bytes that all ghosts take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let bytes =
            |ghost: &Mutex<Ghost>| ghost.lock().unwrap_or_else(PoisonError::into_inner).memory_bytes() as u64;
        self.ghosts.iter().map(bytes).sum()
    }

    fn samples(&self, partition: PartitionId, hash: u64) -> bool {
        self.thresholds.get(partition.index()).is_some_and(|threshold| hash >> 32 < threshold.load(Relaxed))
    }

    #[cold]
    fn with(&self, partition: PartitionId, change: impl FnOnce(&mut Ghost)) {
        let mut ghost = self.ghosts[partition.index()].lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut ghost);
        let threshold = &self.thresholds[partition.index()];
        if threshold.load(Relaxed) != ghost.threshold() {
            threshold.store(ghost.threshold(), Relaxed);
        }
    }
}

/// What all ghosts of a cache of `total_bytes` may take.
fn memory_bytes(total_bytes: u64) -> u64 {
    (total_bytes / MEMORY_RATIO).clamp(*MEMORY_BYTES.start(), *MEMORY_BYTES.end())
}
