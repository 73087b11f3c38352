//! Failures of a backend's stores: counted, and logged at a bounded rate.
//!
//! A backend that is down fails thousands of calls a second, all for the same cause. The counter
//! has every one; the log has one line in a while, with the number of those that were left out, so
//! that neither the disk nor the reader drowns and nothing is hidden.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_model::Instant;
use sherwood_store::StoreError;

use crate::backend::Backend;

/// From one line of a backend and a cause to the next.
const QUIET: Duration = Duration::from_secs(10);

/// What is not a store's word but the lack of one.
const LATE: &str = "timeout";

/// The failures of one backend by cause; as many causes as there are labels.
#[derive(Debug, Default)]
pub(crate) struct Errors(Mutex<BTreeMap<&'static str, Seen>>);

#[derive(Debug, Default)]
struct Seen {
    count: u64,
    /// When the latest line was written.
    said: Option<Instant>,
    /// The number of failures not logged since.
    left_out: u64,
}

impl Errors {
    /// A store said what went wrong.
    pub(crate) fn failed(&self, backend: &Backend, error: &StoreError) {
        let cause = error.cause().label();
        if let Some(left_out) = self.note(backend.clock.now(), cause) {
            tracing::warn!(backend = backend.name, cause, left_out, "{error}");
        }
    }

    /// A store said nothing in time.
    pub(crate) fn late(&self, backend: &Backend) {
        if let Some(left_out) = self.note(backend.clock.now(), LATE) {
            let (name, timeout) = (&backend.name, backend.timeout);
            tracing::warn!(
                backend = name,
                cause = LATE,
                left_out,
                "a call was given up after {timeout:?}, the backend's time-out; see whether the server is overloaded or hangs, or \
                 raise the backend's `timeout`"
            );
        }
    }

    /// Returns the numbers of failures since the start, by cause.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        self.seen().iter().map(|(cause, seen)| (*cause, seen.count)).collect()
    }

    /// Counts one; if it is to be written, returns how many were not since the last that was.
    fn note(&self, now: Instant, cause: &'static str) -> Option<u64> {
        let mut all = self.seen();
        let seen = all.entry(cause).or_default();
        seen.count += 1;
        if seen.said.is_some_and(|said| now < said + QUIET) {
            seen.left_out += 1;
            return None;
        }
        seen.said = Some(now);
        Some(std::mem::take(&mut seen.left_out))
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<&'static str, Seen>> {
        self.0.lock().expect("no panics while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_counts_and_one_of_a_cause_in_ten_seconds_is_written() {
        let errors = Errors::default();
        let at = Instant::from_secs;
        assert_eq!(errors.note(at(0), "reset"), Some(0));
        assert_eq!(errors.note(at(9), "reset"), None);
        assert_eq!(errors.note(at(9), "busy"), Some(0), "another cause");
        assert_eq!(errors.note(at(9), "reset"), None);
        assert_eq!(errors.note(at(10), "reset"), Some(2));
        assert_eq!(errors.note(at(20), "reset"), Some(0));
        assert_eq!(errors.counts(), [("busy", 1), ("reset", 5)]);
    }
}
