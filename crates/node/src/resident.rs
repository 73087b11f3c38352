//! Resident memory, kept within its bound whatever the allocator makes of it.
//!
//! The cache counts what its items take. What the process takes is more: when the sizes of items
//! change, memory that held many small ones is free only when the last of them is gone, and no
//! allocator that leaves items where they are can do better. So the housekeeper looks at the
//! process from time to time. While that is over its bound, the cache gets a lower ceiling, towards
//! which every store evicts the least recent; when it is within, the ceiling rises again. A cache
//! whose items stay alike never comes to that.
//!
//! Buffers of clients are no excess of the cache's: a thousand clients that each send or wait for a
//! large value take a lot that evicting would not bring back. They are bounded by themselves
//! ([`crate::buffers`]), and what they hold is left out of the comparison.
//!
//! It is the stores that evict and not the housekeeper, because an allocator hands memory on
//! soonest in the thread that freed it, and because memory grows only where something is stored: an
//! idle node drops nothing, however large others have made the process.

use std::time::Duration;

use sherwood_cache::Cache;
use sherwood_model::Instant;

use crate::buffers::Buffers;

/// From one look at the process to the next while it is near its bound, and while it is not.
/// Chosen: 1 GB/s of stores adds less than a fifth of the least slack meanwhile.
const LOOK_NEAR: Duration = Duration::from_millis(10);
const LOOK_FAR: Duration = Duration::from_millis(50);
/// An excess of this part of the slack is answered by twice as much, and a larger one by more than
/// in proportion: a little too much is best corrected a little, but evicting half of many pages
/// frees nothing.
const KNEE_DIVISOR: u64 = 16;
/// The ceiling is never lower than the total divided by this.
const FLOOR_DIVISOR: u64 = 8;
/// In how many looks the ceiling rises from nothing to the total.
const RISE_LOOKS: u64 = 64;
/// In how many looks the grant to buffers that hold nothing any more falls to about a third.
const BUFFERS_LOOKS: u64 = 32;

/// Compares the process with its bound, and sets the cache's ceiling by that.
#[derive(Debug)]
pub(crate) struct Watch {
    total_bytes: u64,
    /// Resident bytes above which the ceiling falls.
    bytes_max: u64,
    /// Resident bytes above which a look is worth it more often.
    bytes_near: u64,
    /// The excess that is answered by twice as much.
    knee_bytes: u64,
    /// What is granted to the buffers of clients: what they hold, and for a while what they held.
    buffers_bytes: u64,
    next_look: Instant,
}

impl Watch {
    /// Holds the process to `slack_bytes` beside what it takes now and `total_bytes` of cache. None
    /// where the system does not say what the process takes.
    pub(crate) fn start(total_bytes: u64, slack_bytes: u64) -> Option<Self> {
        Some(Self::new(resident_bytes()?, total_bytes, slack_bytes))
    }

    fn new(start_bytes: u64, total_bytes: u64, slack_bytes: u64) -> Self {
        let bytes_max = start_bytes.saturating_add(total_bytes).saturating_add(slack_bytes);
        let knee_bytes = (slack_bytes / KNEE_DIVISOR).max(1);
        let bytes_near = bytes_max.saturating_sub(slack_bytes);
        Self { total_bytes, bytes_max, bytes_near, knee_bytes, buffers_bytes: 0, next_look: Instant::ZERO }
    }

    /// Looks, if it is time, and returns how long it is until the next look.
    pub(crate) fn look(&mut self, cache: &Cache, buffers: &Buffers, now: Instant) -> Duration {
        if now >= self.next_look {
            self.grant(buffers.bytes());
            let resident = resident_bytes().unwrap_or_default().saturating_sub(self.buffers_bytes);
            cache.set_ceiling(self.ceiling(resident, cache.used_bytes(), cache.ceiling()));
            self.next_look = now + if resident > self.bytes_near { LOOK_NEAR } else { LOOK_FAR };
        }
        self.next_look - now
    }

    /// Grants the buffers the `held` bytes beside everything else. Less than before is believed
    /// only bit by bit, because an allocator keeps what is freed for a moment.
    fn grant(&mut self, held: u64) {
        let fades = self.buffers_bytes - self.buffers_bytes.div_ceil(BUFFERS_LOOKS);
        self.buffers_bytes = held.max(fades);
    }

    /// The ceiling that follows the present one, when the process takes `resident` bytes without
    /// the buffers of clients.
    fn ceiling(&self, resident: u64, used: u64, ceiling: u64) -> u64 {
        let excess = resident.saturating_sub(self.bytes_max);
        if excess == 0 {
            return ceiling.saturating_add(self.total_bytes / RISE_LOOKS).min(self.total_bytes);
        }
        if used > ceiling {
            // The stores have not got there yet; who knows what it will have brought.
            return ceiling;
        }
        let less = excess.saturating_add(excess.saturating_mul(excess) / self.knee_bytes);
        used.saturating_sub(less).max(self.total_bytes / FLOOR_DIVISOR)
    }
}

/// Returns the resident memory of the process, bytes.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    Some(kib.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A process of 10 MiB at the start, with a cache of 64 MiB and 16 MiB of slack.
    fn watch() -> Watch {
        Watch::new(10 * MIB, 64 * MIB, 16 * MIB)
    }

    #[test]
    fn within_the_bound_the_ceiling_is_the_total_or_rises_to_it() {
        assert_eq!(watch().ceiling(90 * MIB, 64 * MIB, 64 * MIB), 64 * MIB);
        assert_eq!(watch().ceiling(90 * MIB, 10 * MIB, 10 * MIB), 11 * MIB);
        let rise = |ceiling, _| watch().ceiling(0, 0, ceiling);
        assert_eq!((0..RISE_LOOKS).fold(0, rise), 64 * MIB);
    }

    #[test]
    fn over_the_bound_the_ceiling_falls_below_what_is_used_and_waits_for_the_stores() {
        let lowered = watch().ceiling(91 * MIB, 60 * MIB, 64 * MIB);
        assert_eq!(lowered, 58 * MIB, "twice the excess at the knee");
        assert_eq!(watch().ceiling(91 * MIB, 60 * MIB, lowered), lowered);
        assert_eq!(
            watch().ceiling(94 * MIB, 58 * MIB, lowered),
            38 * MIB,
            "five times at four times the knee"
        );
        assert_eq!(watch().ceiling(u64::MAX, 58 * MIB, lowered), 8 * MIB);
    }

    #[test]
    fn what_buffers_hold_is_granted_at_once_and_taken_back_slowly() {
        let mut watch = watch();
        watch.grant(320);
        assert_eq!(watch.buffers_bytes, 320);
        watch.grant(0);
        assert_eq!(watch.buffers_bytes, 310);
        watch.grant(400);
        assert_eq!(watch.buffers_bytes, 400);
        (0..2_000).for_each(|_| watch.grant(7));
        assert_eq!(watch.buffers_bytes, 7);
    }

    #[test]
    fn the_system_says_what_the_process_takes() {
        assert_eq!(resident_bytes().is_some_and(|bytes| bytes > MIB), cfg!(target_os = "linux"));
    }
}
