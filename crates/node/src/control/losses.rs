//! Losses of cached items that the control loop did not cause: flushes, invalidations of most of a
//! backend, restarted instances. The misses that follow do not speak against the latest allocation,
//! so the guard discards its record of earlier allocations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_model::Instant;

/// Losses of cached items that an operator or client ordered; recorded by the code that carries
/// them out, read by the control loop without a lock.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    orders: AtomicU64,
    /// The latest time at which an ordered loss takes effect, in nanoseconds: a flush may be
    /// scheduled.
    due_nanos: AtomicU64,
}

impl Losses {
    /// Records that most items of some partition are removed at the time `at`, now or later. Of
    /// several scheduled losses, the last one counts.
    pub(crate) fn note(&self, at: Instant) {
        self.due_nanos.fetch_max(at.as_nanos(), Relaxed);
        self.orders.fetch_add(1, Relaxed);
    }
}

/// The losses of cached items that the control loop has seen.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    at: Instant,
    orders: u64,
    restarts: u64,
}

impl Noticed {
    /// Returns whether something was lost since the last call.
    pub(super) fn advance(&mut self, now: Instant, losses: &Losses, restarts: u64) -> bool {
        let due = Instant::from_nanos(losses.due_nanos.load(Relaxed));
        let next = Self { at: now, orders: losses.orders.load(Relaxed), restarts };
        let last = std::mem::replace(self, next);
        last.orders != self.orders || last.restarts != restarts || (last.at < due && due <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_is_noticed_when_ordered_and_when_due_and_a_restart_once() {
        let (losses, mut noticed) = (Losses::default(), Noticed::default());
        let at = Instant::from_secs;
        assert!(!noticed.advance(at(5), &losses, 0));
        losses.note(at(7));
        assert!(noticed.advance(at(10), &losses, 0));
        assert!(!noticed.advance(at(15), &losses, 0));
        losses.note(at(30));
        let later: Vec<bool> =
            [20, 25, 30, 35].map(|second| noticed.advance(at(second), &losses, 0)).to_vec();
        assert_eq!(later, [true, false, true, false]);
        assert!(noticed.advance(at(40), &losses, 1) && !noticed.advance(at(45), &losses, 1));
    }
}
