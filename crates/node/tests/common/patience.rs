//! Waiting with a bound, for the tests that cannot know when something happens.

use std::time::{Duration, Instant};

/// Longest wait for anything; reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} never came true");
        std::thread::yield_now();
    }
}
