//! Losses of cached items that the control loop did not cause: flushes, invalidations of most of a
//! backend. The misses that follow are not caused by the latest allocation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_control::LossesSeen;
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

    pub(super) fn seen(&self) -> LossesSeen {
        let due = Instant::from_nanos(self.due_nanos.load(Relaxed));
        LossesSeen { orders: self.orders.load(Relaxed), due }
    }
}
