//! The state shared by a run and its observers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Stops a run of load early and counts its operations; shared by reference between threads.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    abandon: AtomicBool,
    done: AtomicU64,
}

impl Control {
    /// Ends the run: nothing more is sent, operations in flight may still be answered, and the
    /// report is marked as incomplete.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the run like [`stop`](Self::stop); requests to a gateway that are in flight are dropped
    /// and not counted.
    pub fn abandon(&self) {
        self.abandon.store(true, Ordering::Relaxed);
        self.stop();
    }

    pub(crate) fn abandoned(&self) -> bool {
        self.abandon.load(Ordering::Relaxed)
    }

    /// True once [`stop`](Self::stop) was called.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Operations (or requests) that have ended so far.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn add_done(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }
}
