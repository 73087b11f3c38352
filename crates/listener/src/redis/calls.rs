//! Counts of the calls of each command, for `INFO commandstats`.
//!
//! Each thread has its own counts, which are summed when they are read. The counts include the
//! calls of all tenants, so a listener with several tenants does not report them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Maximum number of commands in the command table.
pub(super) const COMMANDS_MAX: usize = 96;

/// Counts, indexed by the position of the command in the command table.
type Sums = [u64; COMMANDS_MAX];

/// The counts of one thread, on cache lines that no other thread writes.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct ThreadCalls([AtomicU64; COMMANDS_MAX]);

impl ThreadCalls {
    /// Counts a call of the command at this position. Called only by the thread that owns the
    /// counts.
    pub(super) fn count(&self, command: usize) {
        let calls = &self.0[command];
        calls.store(calls.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

/// The counts of all threads of a listener.
#[derive(Debug)]
pub(super) struct Calls {
    threads: OnceLock<Box<[ThreadCalls]>>,
    /// The sums at the last `CONFIG RESETSTAT`.
    baseline: Mutex<Sums>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { threads: OnceLock::new(), baseline: Mutex::new([0; COMMANDS_MAX]) }
    }
}

impl Calls {
    /// Returns the counts of thread number `thread` of a listener with `threads` threads.
    pub(super) fn of(&self, thread: usize, threads: usize) -> &ThreadCalls {
        let none = |_| ThreadCalls([const { AtomicU64::new(0) }; COMMANDS_MAX]);
        &self.threads.get_or_init(|| (0..threads).map(none).collect())[thread]
    }

    /// Returns the positions of the commands called since the last reset, each with its number of
    /// calls.
    pub(super) fn since_reset(&self) -> impl Iterator<Item = (usize, u64)> {
        let sums = self.sums();
        let baseline = *self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = (0..COMMANDS_MAX).map(move |at| (at, sums[at].wrapping_sub(baseline[at])));
        calls.filter(|(_, calls)| *calls > 0)
    }

    /// Resets all counts to zero.
    pub(super) fn reset(&self) {
        let sums = self.sums();
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = sums;
    }

    fn sums(&self) -> Sums {
        let mut sums = [0_u64; COMMANDS_MAX];
        for thread in self.threads.get().into_iter().flatten() {
            for (sum, calls) in sums.iter_mut().zip(&thread.0) {
                *sum = sum.wrapping_add(calls.load(Relaxed));
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_calls_of_all_threads_are_summed_since_the_last_reset() {
        let calls = Calls::default();
        calls.of(0, 2).count(0);
        calls.of(1, 2).count(0);
        calls.of(1, 2).count(1);
        let told = |calls: &Calls| calls.since_reset().collect::<Vec<_>>();
        assert_eq!(told(&calls), [(0, 2), (1, 1)]);
        calls.reset();
        calls.of(0, 2).count(1);
        assert_eq!(told(&calls), [(1, 1)]);
    }
}
