//! Keeps the process's resident memory within its limit, by lowering the cache's ceiling.
//!
//! The cache accounts for its items, but the process takes more: when the sizes of items change,
//! memory that held many small ones is free only when the last of them is gone, and no allocator
//! that does not move items can avoid that. So the housekeeper checks the process periodically.
//!
//! The system is asked for the resident memory once a second, which takes some ten microseconds. In
//! between, the node adds what it has allocated since and subtracts what it has returned: it knows
//! that of the cache's blocks and of warm memory ([`Mapped`]), and of the cache's tables their
//! growth. The estimate differs from the truth by what has changed elsewhere in this second (memory
//! of stores and of the control loop), and by blocks that have memory only in part since they were
//! not written yet: a page of each size in each shard, and values in transfer. Tables that became
//! smaller are not subtracted, as an allocator may keep their memory.
//!
//! While the process exceeds its limit, the cache gets a lower ceiling, and every store evicts the
//! least recent items towards it; afterwards the ceiling rises again. With items of stable sizes
//! this never happens.
//!
//! Memory that evicted items have left behind warm ([`Mapped`]) goes first: it still counts as the
//! process's, and evicting more items would not free it sooner.
//!
//! Memory held for clients does not count as excess, since evicting items would not free it; it has
//! its own limits ([`crate::buffers`]). So an allowance is subtracted before the comparison: the
//! most memory that was held for clients and half as much again for their allocator, but at most
//! what the process has grown by outside of the cache. Memory that clients have freed stays in the
//! allowance until the allocator returns it to the system. The second bound keeps the allowance
//! from hiding memory of the cache if less is held for clients than an upper bound says, or than
//! before. The process takes at most the limit plus one and a half times the bounds of the memory
//! held for clients.
//!
//! Pages of files (the program's own code) are not counted: the system drops them when it needs
//! memory, and how many are resident depends on what else the machine reads.
//!
//! Eviction is left to stores, not done by the housekeeper, because an allocator reuses memory
//! soonest in the thread that freed it, and because memory grows only with stores: an idle node
//! evicts nothing, whatever the size of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_cache::Cache;
use sherwood_model::Instant;

use crate::buffers::Buffers;
use crate::mapped::{Counts, Mapped};

/// Intervals between checks of the process's memory, near its limit and otherwise. Chosen: stores
/// of 1 GB/s add less than a fifth of the minimum slack in that time.
const LOOK_NEAR: Duration = Duration::from_millis(10);
const LOOK_FAR: Duration = Duration::from_millis(50);
/// Interval between two questions to the system.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Divisor of the slack that gives the knee: an excess of that size lowers the ceiling by twice as
/// much, and a larger one by more than in proportion. A small excess needs a small correction, but
/// evicting half of the items of many pages frees no page.
const KNEE_DIVISOR: u64 = 16;
/// Divisor of the cache's total that gives the lowest ceiling.
const FLOOR_DIVISOR: u64 = 8;
/// Number of checks in which the ceiling rises from nothing to the total.
const RISE_LOOKS: u64 = 64;

/// Bytes of allowance for the bytes held for clients, as numerator and denominator. Chosen: an
/// allocator rounds sizes up by as much as an eighth, and a buffer that doubles leaves blocks
/// behind that fit no other; with transactions of megabytes, a third was measured.
const ALLOWANCE: (u64, u64) = (3, 2);

/// The limit of resident memory without the buffers of clients: the size of the process at its
/// start, the cache's total, and a slack.
#[derive(Debug)]
pub struct Limit {
    start_bytes: u64,
    total_bytes: AtomicU64,
    slack_bytes: AtomicU64,
    /// Allowance for clients' memory, which the last comparison with the limit left out, bytes.
    clients_bytes: AtomicU64,
}

impl Limit {
    /// Limits the process to its present size plus `total_bytes` of cache and `slack_bytes`. None
    /// where the system does not report the size of the process.
    pub fn start(total_bytes: u64, slack_bytes: u64) -> Option<Self> {
        Some(Self::new(resident_bytes()?, total_bytes, slack_bytes))
    }

    fn new(start_bytes: u64, total_bytes: u64, slack_bytes: u64) -> Self {
        let (total_bytes, slack_bytes) = (AtomicU64::new(total_bytes), AtomicU64::new(slack_bytes));
        Self { start_bytes, total_bytes, slack_bytes, clients_bytes: AtomicU64::new(0) }
    }

    /// Returns the part of `resident` bytes that is compared with the limit while `held` bytes are
    /// held for clients.
    pub fn without_clients(&self, resident: u64, held: u64) -> u64 {
        resident.saturating_sub(self.clients_bytes.load(Relaxed).max(held))
    }

    /// Changes the limit for another total and its slack.
    pub fn set(&self, total_bytes: u64, slack_bytes: u64) {
        self.total_bytes.store(total_bytes, Relaxed);
        self.slack_bytes.store(slack_bytes, Relaxed);
    }

    /// Returns the resident bytes, without the buffers of clients, above which the ceiling falls.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_near().saturating_add(self.slack_bytes.load(Relaxed))
    }

    /// Returns the resident bytes above which checks are more frequent.
    fn bytes_near(&self) -> u64 {
        self.start_bytes.saturating_add(self.total_bytes())
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Relaxed)
    }

    /// Returns the excess in bytes that lowers the ceiling by twice its size.
    fn knee_bytes(&self) -> u64 {
        (self.slack_bytes.load(Relaxed) / KNEE_DIVISOR).max(1)
    }
}

/// Time within which resident memory follows a lowered limit. Chosen: twice what a cache of 1 GiB
/// of small items takes to empty its pages.
const SETTLE: Duration = Duration::from_secs(10);

/// Compares the process with its limit, and sets the cache's ceiling accordingly.
#[derive(Debug)]
pub struct Watch {
    limit: Arc<Limit>,
    /// The limit at the last check.
    last_bytes_max: u64,
    /// The time at which the limit was lowered last, and by how many bytes.
    lowered: (Instant, u64),
    /// Allowance for memory held for clients, bytes.
    clients_bytes: u64,
    reading: Reading,
    next_read: Instant,
    next_look: Instant,
}

/// Resident memory at the time at which the system was asked.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// Resident bytes of the process without the buffers of clients.
    resident: u64,
    counted: Counted,
}

/// Bytes of memory that the node counts itself.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Bytes of blocks in use and of warm memory.
    blocks: u64,
    /// Bytes of the cache's tables.
    tables: u64,
}

impl Counted {
    fn of(cache: &Cache, memory: &Mapped) -> Self {
        let Counts { used, backed } = memory.counts();
        // Other threads allocate meanwhile, so the difference may be wrong by some blocks.
        Self { blocks: backed as u64, tables: cache.held_bytes().saturating_sub(used as u64) }
    }
}

impl Reading {
    /// Estimates the resident bytes of the process without the buffers of clients, when `counted`
    /// are the node's own counts.
    fn estimate(&self, counted: Counted) -> u64 {
        let grown = counted.tables.saturating_sub(self.counted.tables);
        (self.resident + counted.blocks + grown).saturating_sub(self.counted.blocks)
    }
}

impl Watch {
    /// Keeps the process within the limit.
    pub fn new(limit: Arc<Limit>) -> Self {
        Self {
            last_bytes_max: limit.bytes_max(),
            limit,
            lowered: (Instant::ZERO, 0),
            clients_bytes: 0,
            reading: Reading::default(),
            next_read: Instant::ZERO,
            next_look: Instant::ZERO,
        }
    }

    /// Checks the process's memory if a check is due, and returns the time until the next one.
    pub fn look(&mut self, cache: &Cache, buffers: &Buffers, memory: &Mapped, now: Instant) -> Duration {
        if now >= self.next_look {
            self.follow(now);
            let read = self.is_read_due(now).then(resident_bytes).flatten();
            // Afterwards, so that the allowance has all of clients' memory that was read.
            self.grant(buffers.most_bytes());
            let resident = self.resident(Counted::of(cache, memory), read);
            let resident = self.without_excess(resident, now, |excess| memory.return_excess(excess));
            cache.set_ceiling(self.ceiling(resident, (cache.used_bytes(), cache.ceiling()), now));
            self.next_look = now + if resident > self.limit.bytes_near() { LOOK_NEAR } else { LOOK_FAR };
        }
        self.next_look - now
    }

    /// Returns true once a second, when the system is to be asked.
    fn is_read_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_read;
        if is_due {
            self.next_read = now + READ_INTERVAL;
        }
        is_due
    }

    /// Returns the resident bytes without the buffers of clients: those just read if the system was
    /// asked, and else an estimate.
    fn resident(&mut self, counted: Counted, read: Option<u64>) -> u64 {
        if let Some(bytes) = read {
            self.confine(bytes, counted);
            self.reading = Reading { resident: bytes.saturating_sub(self.clients_bytes), counted };
        }
        self.reading.estimate(counted)
    }

    /// Asks `return_excess` for the bytes above the limit, which says how many of them are warm
    /// memory and so will be returned, and returns the resident bytes that will be left.
    fn without_excess(&self, resident: u64, now: Instant, return_excess: impl FnOnce(usize) -> usize) -> u64 {
        let excess = resident.saturating_sub(self.bytes_max(now));
        resident.saturating_sub(return_excess(excess as usize) as u64)
    }

    /// Raises the allowance to that of `most`, the peak of bytes held for clients since the last
    /// call.
    fn grant(&mut self, most: u64) {
        self.clients_bytes = self.clients_bytes.max(most.saturating_mul(ALLOWANCE.0) / ALLOWANCE.1);
    }

    /// Lowers the allowance to the growth of the process outside of the cache since its start. The
    /// process has `resident` bytes in all.
    fn confine(&mut self, resident: u64, Counted { blocks, tables }: Counted) {
        let others = resident.saturating_sub(blocks.saturating_add(tables));
        self.clients_bytes = self.clients_bytes.min(others.saturating_sub(self.limit.start_bytes));
        self.limit.clients_bytes.store(self.clients_bytes, Relaxed);
    }

    /// Notes at `now` if the limit was lowered.
    fn follow(&mut self, now: Instant) {
        let bytes_max = self.limit.bytes_max();
        let before = std::mem::replace(&mut self.last_bytes_max, bytes_max);
        if bytes_max < before {
            self.lowered = (now, before - bytes_max);
        }
    }

    /// Returns the limit, which falls gradually after it was lowered: the pages of evicted items
    /// are emptied step by step, and more evictions would not hasten that.
    fn bytes_max(&self, now: Instant) -> u64 {
        let (at, by) = self.lowered;
        let left = 1.0 - now.since(at).as_secs_f64() / SETTLE.as_secs_f64();
        self.limit.bytes_max() + (by as f64 * left.max(0.0)) as u64
    }

    /// Returns the cache's next ceiling when the process takes `resident` bytes without the buffers
    /// of clients.
    fn ceiling(&self, resident: u64, (used, ceiling): (u64, u64), now: Instant) -> u64 {
        let excess = resident.saturating_sub(self.bytes_max(now));
        let total_bytes = self.limit.total_bytes();
        if excess == 0 {
            return ceiling.saturating_add(total_bytes / RISE_LOOKS).min(total_bytes);
        }
        if used > ceiling {
            // Eviction to the present ceiling is incomplete, so its effect is not known yet.
            return ceiling;
        }
        let less = excess.saturating_add(excess.saturating_mul(excess) / self.limit.knee_bytes());
        used.saturating_sub(less).max(total_bytes / FLOOR_DIVISOR)
    }
}

/// Returns the resident memory of the process, bytes, without pages of files where the system tells
/// them apart; none where it does not report it.
pub fn resident_bytes() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Reads [`resident_bytes`] in the text of `/proc/<pid>/status`.
fn resident_in(status: &str) -> Option<u64> {
    let bytes = |name: &str| {
        let kib = status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?;
        Some(kib.parse::<u64>().ok()? << 10)
    };
    // Kernels before 4.5, and some containers' views of /proc, have the sum alone.
    bytes("RssAnon:")
        .zip(bytes("RssShmem:"))
        .map_or_else(|| bytes("VmRSS:"), |(own, shared)| Some(own + shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LATER: Instant = Instant::from_secs(60);

    /// A process of 10 MiB at the start, with a cache of 64 MiB and 16 MiB of slack.
    fn watch() -> Watch {
        Watch::new(Arc::new(Limit::new(10 * MIB, 64 * MIB, 16 * MIB)))
    }

    #[test]
    fn cache_ceiling_rises_to_the_total_while_memory_is_within_the_limit() {
        assert_eq!(watch().ceiling(90 * MIB, (64 * MIB, 64 * MIB), LATER), 64 * MIB);
        assert_eq!(watch().ceiling(90 * MIB, (10 * MIB, 10 * MIB), LATER), 11 * MIB);
        let rise = |ceiling, _| watch().ceiling(0, (0, ceiling), LATER);
        assert_eq!((0..RISE_LOOKS).fold(0, rise), 64 * MIB);
    }

    #[test]
    fn cache_ceiling_falls_below_used_bytes_while_memory_is_over_the_limit_and_waits_for_eviction() {
        let lowered = watch().ceiling(91 * MIB, (60 * MIB, 64 * MIB), LATER);
        assert_eq!(lowered, 58 * MIB, "twice the excess at the knee");
        assert_eq!(watch().ceiling(91 * MIB, (60 * MIB, lowered), LATER), lowered);
        assert_eq!(
            watch().ceiling(94 * MIB, (58 * MIB, lowered), LATER),
            38 * MIB,
            "five times at four times the knee"
        );
        assert_eq!(watch().ceiling(u64::MAX, (58 * MIB, lowered), LATER), 8 * MIB);
    }

    #[test]
    fn limit_follows_the_total() {
        let watch = watch();
        watch.limit.set(32 * MIB, 8 * MIB);
        assert_eq!(watch.limit.bytes_max(), 50 * MIB);
        assert_eq!(watch.ceiling(50 * MIB, (10 * MIB, 32 * MIB), LATER), 32 * MIB);
        assert_eq!(watch.ceiling(u64::MAX, (30 * MIB, 32 * MIB), LATER), 4 * MIB);
    }

    #[test]
    fn lowered_limit_is_followed_gradually() {
        let mut watch = watch();
        let lowered_at = LATER;
        watch.limit.set(32 * MIB, 16 * MIB);
        watch.follow(lowered_at);
        let limit_after =
            |watch: &Watch, seconds| watch.bytes_max(lowered_at + Duration::from_secs(seconds)) / MIB;
        assert_eq!([0, 5, 10, 60].map(|seconds| limit_after(&watch, seconds)), [90, 74, 58, 58]);
        watch.limit.set(64 * MIB, 16 * MIB);
        watch.follow(lowered_at + Duration::from_secs(60));
        assert_eq!(limit_after(&watch, 60), 90, "a raised limit holds at once");
    }

    #[test]
    fn warm_memory_goes_before_items_are_evicted() {
        let watch = watch();
        let within = watch.without_excess(90 * MIB, LATER, |excess| {
            assert_eq!(excess, 0, "ends what an earlier check asked for");
            0
        });
        assert_eq!(within, 90 * MIB);
        let left = watch.without_excess(96 * MIB, LATER, |excess| {
            assert_eq!(excess as u64, 6 * MIB);
            excess
        });
        assert_eq!(watch.ceiling(left, (60 * MIB, 64 * MIB), LATER), 64 * MIB, "nothing is evicted");
        let left = watch.without_excess(96 * MIB, LATER, |excess| excess - MIB as usize);
        assert_eq!(
            watch.ceiling(left, (60 * MIB, 64 * MIB), LATER),
            58 * MIB,
            "twice the megabyte that is left"
        );
    }

    #[test]
    fn resident_memory_is_read_once_a_second_and_estimated_in_between() {
        let mut watch = watch();
        let due = [0, 1, 999, 1_000, 1_999, 2_000]
            .map(|millis| watch.is_read_due(Instant::from_secs(5) + Duration::from_millis(millis)));
        assert_eq!(due, [true, false, false, true, false, true]);
        let counted = |blocks, tables| Counted { blocks: blocks * MIB, tables: tables * MIB };
        assert_eq!(watch.resident(counted(40, 4), Some(70 * MIB)), 70 * MIB);
        assert_eq!(watch.resident(counted(47, 5), None), 78 * MIB, "both have grown");
        assert_eq!(watch.resident(counted(30, 5), None), 61 * MIB, "blocks were returned");
        assert_eq!(watch.resident(counted(40, 1), None), 70 * MIB, "tables may still be there");
        assert_eq!(watch.resident(counted(40, 1), Some(67 * MIB)), 67 * MIB);
        assert_eq!(watch.resident(counted(40, 2), None), 68 * MIB);
    }

    #[test]
    fn memory_of_clients_at_the_time_of_the_read_is_not_part_of_the_estimate() {
        let mut watch = watch();
        let counted = Counted { blocks: 40 * MIB, tables: 0 };
        watch.grant(6 * MIB);
        assert_eq!(watch.resident(counted, Some(70 * MIB)), 61 * MIB);
        watch.grant(20 * MIB);
        assert_eq!(watch.resident(counted, None), 61 * MIB);
    }

    #[test]
    fn node_whose_resident_memory_cannot_be_read_relies_on_its_own_counts() {
        let counted = Counted { blocks: 40 * MIB, tables: 2 * MIB };
        assert_eq!(watch().resident(counted, None), 42 * MIB);
    }

    #[test]
    fn memory_that_clients_held_is_theirs_until_the_process_has_returned_it() {
        let mut watch = watch();
        let counted = Counted { blocks: 40 * MIB, tables: 0 };
        let read = |watch: &mut Watch, most, resident| {
            watch.grant(most);
            watch.resident(counted, Some(resident))
        };
        assert_eq!(read(&mut watch, 200 * MIB, 250 * MIB), 50 * MIB);
        assert_eq!(read(&mut watch, 0, 250 * MIB), 50 * MIB, "the allocator keeps it");
        assert_eq!(watch.limit.without_clients(250 * MIB, MIB), 50 * MIB);
        assert_eq!(read(&mut watch, 0, 100 * MIB), 50 * MIB, "it has returned most of it");
        assert_eq!(read(&mut watch, 0, 250 * MIB), 200 * MIB, "others have grown since");
        assert_eq!(watch.limit.without_clients(250 * MIB, 70 * MIB), 180 * MIB);
    }

    #[test]
    fn oversized_allowance_for_clients_hides_no_memory_of_the_cache() {
        let mut watch = watch();
        watch.grant(1 << 40);
        let counted = Counted { blocks: 95 * MIB, tables: 5 * MIB };
        let resident = watch.resident(counted, Some(180 * MIB));
        assert_eq!(resident, 110 * MIB, "as at the start, and the cache");
        assert!(watch.ceiling(resident, (60 * MIB, 64 * MIB), LATER) < 60 * MIB);
    }

    #[test]
    fn resident_memory_is_read_without_pages_of_files() {
        let status = "VmRSS:\t  42 kB\nRssAnon:\t  10 kB\nRssFile:\t  30 kB\nRssShmem:\t  2 kB\n";
        assert_eq!(resident_in(status), Some(12 << 10));
        assert_eq!(resident_in("VmRSS:\t  42 kB\n"), Some(42 << 10), "where only the sum is reported");
        assert_eq!(resident_in("Name:\tx\n"), None);
    }

    #[test]
    fn allowance_covers_what_the_allocator_takes_for_clients_in_addition() {
        let mut watch = watch();
        let counted = Counted { blocks: 40 * MIB, tables: 0 };
        watch.grant(100 * MIB);
        let resident = watch.resident(counted, Some(190 * MIB));
        assert_eq!(resident, 50 * MIB, "a third more than clients hold");
        watch.grant(100 * MIB);
        let resident = watch.resident(counted, Some(210 * MIB));
        assert_eq!(resident, 60 * MIB, "at most half as much again");
    }

    #[test]
    fn resident_bytes_of_the_process_are_reported() {
        let filled = std::hint::black_box(vec![1_u8; 2 * MIB as usize]);
        let is_reported = resident_bytes().is_some_and(|bytes| bytes > filled.len() as u64);
        assert_eq!(is_reported, cfg!(target_os = "linux"));
    }
}
