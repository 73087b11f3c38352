//! The counters of a listener, kept per thread.
//!
//! A counter shared by all threads would be a cache line that moves between them with every
//! command. So each thread has its own counters, which are summed when read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter of a listener, named as in memcached's `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Keys requested by the commands `get`, `gets`, `gat` and `gats`.
    CmdGet,
    /// Storage commands whose value arrived whole.
    CmdSet,
    /// `flush_all` commands.
    CmdFlush,
    /// Keys given to `touch`, `gat` and `gats`.
    CmdTouch,
    /// Meta commands except `mn`.
    CmdMeta,
    /// Keys requested by clients and found in the cache.
    GetHits,
    /// Keys requested by clients and not found in the cache, whether fetched afterwards or not.
    GetMisses,
    /// `delete` commands that removed an item.
    DeleteHits,
    /// `delete` commands of missing keys.
    DeleteMisses,
    /// `incr` commands that found an item.
    IncrHits,
    /// `incr` commands of missing keys.
    IncrMisses,
    /// `decr` commands that found an item.
    DecrHits,
    /// `decr` commands of missing keys.
    DecrMisses,
    /// `cas` commands that stored their value.
    CasHits,
    /// `cas` commands of missing keys.
    CasMisses,
    /// `cas` commands refused because the item had changed meanwhile.
    CasBadval,
    /// Keys whose expiry `touch`, `gat` or `gats` changed.
    TouchHits,
    /// Missing keys given to `touch`, `gat` or `gats`.
    TouchMisses,
    /// Values refused because they are over the limit on their length.
    StoreTooLarge,
    /// Values refused because they do not fit into their partition.
    StoreNoMemory,
    /// Values stored by clients.
    TotalItems,
    /// Malformed or truncated commands of clients.
    ProtocolErrors,
    /// Keys that a listener fetched from their backend after a miss.
    Fetches,
    /// Keys whose fetch from a backend failed, answered as misses.
    FetchErrors,
    /// Login attempts of clients.
    AuthCmds,
    /// Login attempts of clients with a wrong password.
    AuthErrors,
    /// Connections closed because the client sent nothing for too long.
    IdleKicks,
    /// Connections closed because the client read nothing for too long.
    SlowKicks,
    /// Bytes received from clients.
    BytesRead,
    /// Bytes sent to clients.
    BytesWritten,
}

impl Count {
    /// All counters with their names, in the order of `stats`.
    pub const ALL: [(Self, &'static str); COUNTS] = [
        (Self::CmdGet, "cmd_get"),
        (Self::CmdSet, "cmd_set"),
        (Self::CmdFlush, "cmd_flush"),
        (Self::CmdTouch, "cmd_touch"),
        (Self::CmdMeta, "cmd_meta"),
        (Self::GetHits, "get_hits"),
        (Self::GetMisses, "get_misses"),
        (Self::DeleteHits, "delete_hits"),
        (Self::DeleteMisses, "delete_misses"),
        (Self::IncrHits, "incr_hits"),
        (Self::IncrMisses, "incr_misses"),
        (Self::DecrHits, "decr_hits"),
        (Self::DecrMisses, "decr_misses"),
        (Self::CasHits, "cas_hits"),
        (Self::CasMisses, "cas_misses"),
        (Self::CasBadval, "cas_badval"),
        (Self::TouchHits, "touch_hits"),
        (Self::TouchMisses, "touch_misses"),
        (Self::StoreTooLarge, "store_too_large"),
        (Self::StoreNoMemory, "store_no_memory"),
        (Self::TotalItems, "total_items"),
        (Self::ProtocolErrors, "protocol_errors"),
        (Self::Fetches, "fetches"),
        (Self::FetchErrors, "fetch_errors"),
        (Self::AuthCmds, "auth_cmds"),
        (Self::AuthErrors, "auth_errors"),
        (Self::IdleKicks, "idle_kicks"),
        (Self::SlowKicks, "slow_kicks"),
        (Self::BytesRead, "bytes_read"),
        (Self::BytesWritten, "bytes_written"),
    ];
}

const COUNTS: usize = Count::BytesWritten as usize + 1;

/// The counters of one thread for the clients of one tenant, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters([AtomicU64; COUNTS]);

impl Counters {
    /// Adds `n` to a counter. Called only by the thread that owns the counters, so no atomic
    /// read-modify-write is needed.
    pub(super) fn add(&self, count: Count, n: u64) {
        let counter = &self.0[count as usize];
        counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Returns the bytes that were read and written.
    pub(super) fn exchanged(&self) -> u64 {
        let of = |count: Count| self.0[count as usize].load(Relaxed);
        of(Count::BytesRead).wrapping_add(of(Count::BytesWritten))
    }

    /// Adds 1 to a counter; see [`add`](Self::add).
    pub(super) fn increment(&self, count: Count) {
        self.add(count, 1);
    }
}

/// The values of all counters of a listener at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; COUNTS]);

impl Counts {
    /// Returns the sums over the counters of threads.
    pub(super) fn sum<'a>(threads: impl IntoIterator<Item = &'a Counters>) -> Self {
        let mut sum = Self::default();
        for thread in threads {
            for (total, counter) in sum.0.iter_mut().zip(&thread.0) {
                *total = total.wrapping_add(counter.load(Relaxed));
            }
        }
        sum
    }

    /// Returns the value of one counter.
    #[must_use]
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Returns the differences to `earlier` values of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].wrapping_sub(earlier.0[at])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_one_name_and_is_summed_over_the_threads() {
        let threads = [Counters::default(), Counters::default()];
        for (at, (count, _)) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at);
            threads[0].add(count, 5);
            threads[1].increment(count);
        }
        let counts = Counts::sum(&threads);
        assert!(Count::ALL.into_iter().all(|(count, _)| counts.get(count) == 6));
        assert_eq!(counts.since(&counts), Counts::default());
    }
}
