//! Bounded waits for events at unknown times.

use std::time::{Duration, Instant};

/// Longest wait; reached only when a test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Polls until `is_so` returns true; panics with `what` after the timeout.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what} never came true");
        std::thread::yield_now();
    }
}
