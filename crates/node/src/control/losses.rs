//! What takes items out of caches and is not the loop's doing: flushes, invalidations of most of a
//! backend, instances that were started anew. The misses that follow are nobody's fault, least of
//! all that of the last moves, so the guard forgets the allocations before.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_model::Instant;

/// What was taken out by order, noted by whoever carries it out; read by the loop without a lock.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    orders: AtomicU64,
    /// The latest time, in nanoseconds, at which one of them is carried out: a flush may be ordered
    /// for later.
    due_nanos: AtomicU64,
}

impl Losses {
    /// Most of what some partition holds goes at the time `at`, now or later. Of several that are
    /// to come, the last one counts.
    pub(crate) fn note(&self, at: Instant) {
        self.due_nanos.fetch_max(at.as_nanos(), Relaxed);
        self.orders.fetch_add(1, Relaxed);
    }
}

/// What the loop has seen of it.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    at: Instant,
    orders: u64,
    restarts: u64,
}

impl Noticed {
    /// Whether something was lost since the last time this was asked.
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
    fn a_flush_is_noticed_when_it_is_ordered_and_when_it_comes_and_a_new_start_once() {
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
