//! Times of queries that several threads record.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sherwood_model::query_times::{QueryKind, QueryTimes, Recorder, Sampling};

/// Records times of queries under a lock of its own, held for a tenth of a microsecond.
#[derive(Debug)]
pub(crate) struct SharedRecorder(Mutex<(Arc<Recorder>, Sampling)>);

impl SharedRecorder {
    /// Creates a recorder for `times`.
    pub(crate) fn new(times: &QueryTimes) -> Self {
        Self(Mutex::new((times.recorder(), Sampling::new(0))))
    }

    /// Counts each of `queries`, with its time and number.
    pub(crate) fn record(&self, queries: impl IntoIterator<Item = (QueryKind, Duration, u64)>) {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, time, count) in queries {
            held.0.record(kind, time, count);
        }
    }

    /// Returns true if the next batch of queries that the cache answers is timed.
    pub(crate) fn samples(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.choose()
    }
}
