//! A ghost (sampler of the miss ratio curve) per partition of a cache.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use sherwood_model::PartitionId;

use super::{Curve, Ghost, GhostOptions};

/// The ghosts (samplers of miss ratio curves) of all partitions, or none. Shared by threads: an
/// unsampled key reads one number that rarely changes; a sampled key takes its partition's lock,
/// under which nothing else is locked.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Sampling thresholds that the ghosts had last, apart from the frequently written locks.
    thresholds: Box<[AtomicU64]>,
    ghosts: Box<[Mutex<Ghost>]>,
}

/// Largest share of the total that all ghosts together use, as its reciprocal.
const MEMORY_RATIO: u64 = 32;
/// Least and largest limit of the ghosts' memory, whatever the total.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=256 << 20;
/// Depth of curves, in multiples of the total: the effect of twice the memory is of more interest
/// than that of ten times.
const DEPTH_FACTOR: u64 = 2;

impl Ghosts {
    /// Returns ghosts of `partitions` partitions that share `total_bytes`; none if `rate` is 0.
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

    /// Makes the curves reach to twice `total_bytes`, if they do not. The memory of the ghosts
    /// stays what it was.
    pub(crate) fn deepen(&self, total_bytes: u64) {
        for index in 0..self.ghosts.len() {
            let depth_bytes = total_bytes.saturating_mul(DEPTH_FACTOR);
            self.with(PartitionId::from_index(index), |ghost| ghost.deepen(depth_bytes));
        }
    }

    /// Returns a copy of the ghosts, for a copy of the cache.
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

    /// Counts a get; `gets` returns the number of all gets of the partition.
    pub(crate) fn get(&self, partition: PartitionId, hash: u64, gets: impl FnOnce() -> u64) {
        if self.samples(partition, hash) {
            self.with(partition, |ghost| ghost.get(hash, gets));
        }
    }

    /// Records a store or a touch of an item with this charge.
    pub(crate) fn store(&self, partition: PartitionId, hash: u64, charge: u64, gets: impl FnOnce() -> u64) {
        if self.samples(partition, hash) {
            self.with(partition, |ghost| ghost.store(hash, charge, gets));
        }
    }

    /// Records a deletion; evictions are ignored.
    pub(crate) fn remove(&self, partition: PartitionId, hash: u64) {
        if self.samples(partition, hash) {
            self.with(partition, |ghost| ghost.remove(hash));
        }
    }

    /// Records a flush of the partition.
    pub(crate) fn clear(&self, partition: PartitionId) {
        if partition.index() < self.ghosts.len() {
            self.with(partition, Ghost::clear);
        }
    }

    /// The curve of a partition after `gets` gets; none without ghosts.
    pub(crate) fn curve(&self, partition: PartitionId, gets: u64) -> Option<Curve> {
        let ghost = self.ghosts.get(partition.index())?;
        Some(ghost.lock().unwrap_or_else(PoisonError::into_inner).curve(gets))
    }

    /// Halves the counts of a partition's curve after `gets` gets.
    pub(crate) fn fade(&self, partition: PartitionId, gets: u64) {
        if partition.index() < self.ghosts.len() {
            self.with(partition, |ghost| ghost.fade(gets));
        }
    }

    /// Bytes used by all ghosts.
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

/// Memory limit of all ghosts of a cache of `total_bytes`.
fn memory_bytes(total_bytes: u64) -> u64 {
    (total_bytes / MEMORY_RATIO).clamp(*MEMORY_BYTES.start(), *MEMORY_BYTES.end())
}
