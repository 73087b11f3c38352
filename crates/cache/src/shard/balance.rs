//! The share of a partition's bytes in small queues.
//!
//! The paper gives the small queue a tenth. The best share depends on the trace: if items return at
//! random, a hundredth hits half a percentage point more; if they return soon or never, a fifth
//! hits a point more. The value of a longer stay is estimated from dropped keys: if those dropped
//! from the small queue return at a higher rate than those dropped from the main queue, space is
//! worth more in the small one. Keys dropped from either queue are therefore recorded
//! ([`super::ghost`]), and the share moves towards the queue whose keys return at the higher rate.
//! ARC does so by the number of returns (N. Megiddo and D. S. Modha, "ARC: a self-tuning, low
//! overhead replacement cache", FAST 2003); here rates are used, because ten times as many keys
//! leave the small queue.
//!
//! A single queue set of a shard drops too few items to estimate a rate. It counts a batch by
//! itself and then adds it to the counts of its partition, which all shards share.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use sherwood_model::PartitionId;

/// Denominator of the share of a partition's bytes that its small queues may hold.
const WHOLE: u64 = 1 << 16;
/// Initial share of the small queues: the geometric mean of least and largest.
const START: u32 = (WHOLE / 20) as u32;
/// Least share of the small queues; a smaller one gains nothing even if items return at random.
/// Larger ones than `MOST` rarely gain.
const LEAST: f64 = WHOLE as f64 * 0.01;
const MOST: f64 = WHOLE as f64 * 0.3;
/// Relative change of the share per evaluation if only keys of one queue return. Simulated: 0.1
/// adapts too slowly after a cache was filled, 0.3 hits less on the small traces.
const STEP: f64 = 0.2;
/// An evaluation is due each time that an eighth of the partition's items have been dropped, half
/// of which were dropped before the last evaluation.
const LOOK_DIVISOR: u64 = 8;
/// Least number of dropped items for an evaluation.
const LOOK_MIN: u64 = 256;
/// Number of imaginary dropped items, returning at the rate of both queues together, that is added
/// to either queue: few are dropped from a main queue that is being filled.
const PRIOR: f64 = 30.0;
/// Drops and returns that a queue set (a partition's queues in one shard) counts before it reports
/// them.
const BATCH: u8 = 32;

/// Numbers of keys dropped from the queues and returned; the small queue first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    dropped: [u8; 2],
    returned: [u8; 2],
}

/// Shares of the small queues of all partitions, common to all shards.
#[derive(Debug)]
pub(crate) struct Balances {
    partitions: Box<[Balance]>,
    shards: u64,
}

#[derive(Debug)]
struct Balance {
    /// The small queues' part of the partition's bytes, in units of 1/[`WHOLE`]. Read for each
    /// victim.
    small: AtomicU32,
    /// Locked once per [`BATCH`] drops of a queue set, while its shard's lock is held; nothing is
    /// locked under it.
    seen: Mutex<ReturnCounts>,
}

/// Sums of the [`Counts`] of all shards; older ones weigh less.
#[derive(Clone, Copy, Debug, Default)]
struct ReturnCounts {
    dropped: [u64; 2],
    returned: [u64; 2],
}

impl Counts {
    pub(super) fn drop_from(&mut self, is_main: bool) {
        self.dropped[usize::from(is_main)] += 1;
    }

    pub(super) fn return_to_cache(&mut self, was_main: bool) {
        self.returned[usize::from(was_main)] += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.dropped.iter().chain(&self.returned).sum::<u8>() >= BATCH
    }
}

impl Balances {
    pub(crate) fn new(partitions: usize, shards: u16) -> Self {
        let balance = |_| Balance { small: AtomicU32::new(START), seen: Mutex::default() };
        Self { partitions: (0..partitions).map(balance).collect(), shards: u64::from(shards) }
    }

    /// Returns a copy of the shares, for a copy of the cache.
    pub(super) fn copy(&self) -> Self {
        let balance = |balance: &Balance| Balance {
            small: AtomicU32::new(balance.small.load(Relaxed)),
            seen: Mutex::new(*balance.seen.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        Self { partitions: self.partitions.iter().map(balance).collect(), shards: self.shards }
    }

    /// Bytes that the small queues may hold of `bytes` bytes of a partition.
    #[inline]
    pub(super) fn small(&self, partition: PartitionId, bytes: u64) -> u64 {
        bytes * u64::from(self.partitions[partition.index()].small.load(Relaxed)) / WHOLE
    }

    /// Adds the dropped and returned keys of one of the partition's pairs of S3-FIFO queues, in a
    /// shard that holds `items` items of the partition. Adjusts the share of the small queue once
    /// enough items have been dropped.
    pub(super) fn learn(&self, partition: PartitionId, counts: Counts, items: u64) {
        let balance = &self.partitions[partition.index()];
        let mut seen = balance.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(counts);
        if seen.dropped.iter().sum::<u64>() < LOOK_MIN.max(items * self.shards / LOOK_DIVISOR) {
            return;
        }
        let small = f64::from(balance.small.load(Relaxed));
        balance.small.store((seen.moved(small) + 0.5) as u32, Relaxed);
        seen.fade();
    }
}

impl ReturnCounts {
    fn add(&mut self, Counts { dropped, returned }: Counts) {
        for queue in 0..2 {
            self.dropped[queue] += u64::from(dropped[queue]);
            self.returned[queue] += u64::from(returned[queue]);
        }
    }

    fn fade(&mut self) {
        self.dropped.iter_mut().chain(&mut self.returned).for_each(|count| *count /= 2);
    }

    /// The small queues' share after one evaluation, from `small` before it.
    fn moved(&self, small: f64) -> f64 {
        let [of_small, of_main] = self.rates();
        if of_small + of_main == 0.0 {
            return small;
        }
        let by = STEP * (of_small - of_main) / (of_small + of_main);
        let moved = if by > 0.0 { small * (1.0 + by) } else { small / (1.0 - by) };
        moved.clamp(LEAST, MOST)
    }

    /// Share of the dropped keys that returned, for each queue.
    fn rates(&self) -> [f64; 2] {
        let all = |counts: [u64; 2]| (counts[0] + counts[1]) as f64;
        let mean = all(self.returned) / all(self.dropped).max(1.0);
        [0, 1]
            .map(|queue| (self.returned[queue] as f64 + PRIOR * mean) / (self.dropped[queue] as f64 + PRIOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(0);

    /// The share after batches of 12 items dropped from the small queue and 4 from the main queue,
    /// with this many returns of each.
    fn share(batches: usize, small_returns: u8, main_returns: u8) -> f64 {
        let balances = Balances::new(1, 4);
        for _ in 0..batches {
            let mut counts = Counts::default();
            (0..16).for_each(|number| counts.drop_from(number % 4 == 0));
            (0..small_returns).for_each(|_| counts.return_to_cache(false));
            (0..main_returns).for_each(|_| counts.return_to_cache(true));
            balances.learn(P, counts, 250);
        }
        balances.small(P, 1 << 20) as f64 / (1 << 20) as f64
    }

    #[test]
    fn share_moves_to_the_queue_whose_dropped_keys_return_more_often() {
        assert!((share(0, 6, 0) - 0.05).abs() < 1e-4);
        // A quarter of either queue's keys return: three times as many of the small queue's.
        assert!((share(1000, 3, 1) - 0.05).abs() < 1e-3);
        assert!(share(200, 6, 1) > 0.06);
        assert!(share(200, 3, 2) < 0.04);
        assert!((share(10_000, 6, 0) - 0.3).abs() < 1e-4);
        assert!((share(10_000, 0, 3) - 0.01).abs() < 1e-4);
    }

    #[test]
    fn small_queue_share_is_unchanged_if_no_dropped_key_returns() {
        assert!((share(1000, 0, 0) - 0.05).abs() < 1e-4);
    }

    #[test]
    fn queue_set_reports_counts_of_dropped_keys_before_they_overflow() {
        let mut counts = Counts::default();
        let mut told = 0;
        for number in 0..1000 {
            counts.drop_from(number % 2 == 0);
            counts.return_to_cache(false);
            if counts.is_full() {
                told += usize::from(counts.returned[0]);
                counts = Counts::default();
            }
        }
        assert_eq!(told + usize::from(counts.returned[0]), 1000);
    }
}
