//! Failures of a backend's stores: counted, and logged at a bounded rate.
//!
//! A backend that is down fails thousands of calls a second, all for the same cause. The counter
//! includes every one; the log has at most one line per interval, with the number of failures left
//! out, so that it does not grow with the failure rate.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_model::Instant;
use sherwood_store::StoreError;

use crate::backend::BackendDriver;

/// Interval between two log lines of a backend and a cause.
const QUIET: Duration = Duration::from_secs(10);

/// Name of the cause of a call without an answer in time.
const LATE: &str = "timeout";

/// Failures of one backend by cause; bounded by the number of causes.
#[derive(Debug, Default)]
pub(crate) struct Errors(Mutex<BTreeMap<&'static str, CauseCounts>>);

#[derive(Debug, Default)]
struct CauseCounts {
    count: u64,
    /// Time of the latest log line about this cause.
    last_logged: Option<Instant>,
    /// The number of failures since then that were not logged.
    left_out: u64,
}

impl Errors {
    /// Records an error that a store returned.
    pub(crate) fn failed(&self, backend: &BackendDriver, error: &StoreError) {
        let cause = error.cause().label();
        if let Some(left_out) = self.note(backend.clock.now(), cause) {
            tracing::warn!(backend = backend.name, cause, left_out, "{error}");
        }
    }

    /// Records a call that timed out.
    pub(crate) fn late(&self, backend: &BackendDriver) {
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
        self.counts_by_cause().iter().map(|(cause, counts)| (*cause, counts.count)).collect()
    }

    /// Counts a failure; if it is due for a log line, returns the number of failures left out since
    /// the last.
    fn note(&self, now: Instant, cause: &'static str) -> Option<u64> {
        let mut all = self.counts_by_cause();
        let counts = all.entry(cause).or_default();
        counts.count += 1;
        if counts.last_logged.is_some_and(|last_logged| now < last_logged + QUIET) {
            counts.left_out += 1;
            return None;
        }
        counts.last_logged = Some(now);
        Some(std::mem::take(&mut counts.left_out))
    }

    fn counts_by_cause(&self) -> MutexGuard<'_, BTreeMap<&'static str, CauseCounts>> {
        self.0.lock().expect("no panics while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_failure_is_counted_and_one_per_cause_and_interval_is_logged() {
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
