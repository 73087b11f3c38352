//! What a run and those who watch it share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stops a run early and tells how far it is; shared by reference between threads.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Control {
    /// Asks the run to end: nothing more is sent, what is under way may still be answered, the
    /// report says incomplete.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Operations (or requests) that have ended so far.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }
}
