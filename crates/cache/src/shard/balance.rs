//! How much of a partition waits in small queues.
//!
//! The paper gives the small queue a tenth. That suits no trace: where items come back at random a
//! hundredth keeps half a point more, where they come back soon or never a fifth keeps a point
//! more. What an item gains from a longer stay can be seen from those that had to go: if more of
//! the ones dropped from the small queue come back than of the ones dropped from the main queue,
//! space is worth more in the small one. So keys that left either are remembered
//! ([`super::ghost`]), and the balance between the queues moves towards the one whose keys return
//! more often, as ARC's does (N. Megiddo and D. S. Modha, "ARC: a self-tuning, low overhead
//! replacement cache", FAST 2003), but by the rate of returns and not by their number: ten times as
//! many leave the small queue.
//!
//! A lane of a shard drops too few items to tell a rate. It counts some of them for itself and then
//! adds them to what all shards know of its partition.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use sherwood_model::PartitionId;

/// Parts of the whole that a share is told in.
const WHOLE: u64 = 1 << 16;
/// To start with: as far, in factors, from the least as from the most.
const START: u32 = (WHOLE / 20) as u32;
/// Less is worth nothing even where items come back at random, more hardly ever.
const LEAST: f64 = WHOLE as f64 * 0.01;
const MOST: f64 = WHOLE as f64 * 0.3;
/// By how much one look changes the share, if only keys of one queue return. Simulated: 0.1 is late
/// in a cache that was just filled, 0.3 keeps less of the small traces.
const STEP: f64 = 0.2;
/// A look is taken each time that an eighth of the partition's items have been dropped, half of
/// them before the last look.
const LOOK_DIVISOR: u64 = 8;
/// Dropped items that are enough for a look, at least.
const LOOK_MIN: u64 = 256;
/// Dropped items by which either rate is drawn towards that of both: while a main queue is filled
/// few are dropped from it.
const PRIOR: f64 = 30.0;
/// Drops and returns that a lane counts before it tells them.
const BATCH: u8 = 32;

/// What was dropped from the queues, and what came back; of the small queue first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    dropped: [u8; 2],
    returned: [u8; 2],
}

/// The shares of all partitions, for all shards.
#[derive(Debug)]
pub(crate) struct Balances {
    partitions: Box<[Balance]>,
    shards: u64,
}

#[derive(Debug)]
struct Balance {
    /// The small queues' part of the partition's bytes, of [`WHOLE`]. Read for each victim.
    small: AtomicU32,
    /// Entered once in [`BATCH`] drops of a lane, with its shard's lock held; nothing is locked
    /// under it.
    seen: Mutex<Seen>,
}

/// Sums of [`Counts`], faded.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
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

    /// The same, of a copy of the cache.
    pub(super) fn copy(&self) -> Self {
        let balance = |balance: &Balance| Balance {
            small: AtomicU32::new(balance.small.load(Relaxed)),
            seen: Mutex::new(*balance.seen.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        Self { partitions: self.partitions.iter().map(balance).collect(), shards: self.shards }
    }

    /// What the small queues may hold of `bytes` bytes of a partition.
    #[inline]
    pub(super) fn small(&self, partition: PartitionId, bytes: u64) -> u64 {
        bytes * u64::from(self.partitions[partition.index()].small.load(Relaxed)) / WHOLE
    }

    /// Learns what a lane of a partition has counted, in a shard that holds `items` of it.
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

impl Seen {
    fn add(&mut self, Counts { dropped, returned }: Counts) {
        for queue in 0..2 {
            self.dropped[queue] += u64::from(dropped[queue]);
            self.returned[queue] += u64::from(returned[queue]);
        }
    }

    fn fade(&mut self) {
        self.dropped.iter_mut().chain(&mut self.returned).for_each(|count| *count /= 2);
    }

    /// The share `small`, one look on.
    fn moved(&self, small: f64) -> f64 {
        let [of_small, of_main] = self.rates();
        if of_small + of_main == 0.0 {
            return small;
        }
        let by = STEP * (of_small - of_main) / (of_small + of_main);
        let moved = if by > 0.0 { small * (1.0 + by) } else { small / (1.0 - by) };
        moved.clamp(LEAST, MOST)
    }

    /// Which part of the dropped items came back, of each queue.
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
    /// of which so many return.
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
    fn it_moves_to_the_queue_whose_items_come_back_more_often() {
        assert!((share(0, 6, 0) - 0.05).abs() < 1e-4);
        // A quarter of either: three times as many of the small queue's.
        assert!((share(1000, 3, 1) - 0.05).abs() < 1e-3);
        assert!(share(200, 6, 1) > 0.06);
        assert!(share(200, 3, 2) < 0.04);
        assert!((share(10_000, 6, 0) - 0.3).abs() < 1e-4);
        assert!((share(10_000, 0, 3) - 0.01).abs() < 1e-4);
    }

    #[test]
    fn nothing_returned_says_nothing() {
        assert!((share(1000, 0, 0) - 0.05).abs() < 1e-4);
    }

    #[test]
    fn a_lane_tells_what_it_counted_before_it_overflows() {
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
