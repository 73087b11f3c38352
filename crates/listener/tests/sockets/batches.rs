//! Requests made of the simulated clients' batches, and what has to hold for them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sherwood_listener::{BatchCounting, BatchRequests, ClientBatches, Clock, KeyEnd, ManualClock};
use sherwood_model::batches::REFILL_TIMEOUT;
use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId};

use crate::Seen;
use crate::backends::START;

/// The requests of a simulation.
pub(crate) struct CountedRequests {
    clock: Arc<ManualClock>,
    /// Number of requests, those that were sampled only once.
    requests: AtomicU64,
    costs: Mutex<Vec<Duration>>,
}

impl CountedRequests {
    /// Returns the requests, and the counting of batches that makes them.
    pub(crate) fn counting(clock: &Arc<ManualClock>) -> (Arc<Self>, BatchCounting) {
        let (requests, costs) = (AtomicU64::new(0), Mutex::default());
        let requests = Arc::new(Self { clock: Arc::clone(clock), requests, costs });
        let batches = ClientBatches::new(1, 7, Arc::clone(&requests) as Arc<dyn BatchRequests>);
        (requests, BatchCounting { batches: Arc::new(batches), always: true, class: None })
    }

    /// Checks the counts at the end of a simulation.
    pub(crate) fn check(&self, counting: &BatchCounting, read_through: bool, seen: &mut Seen) {
        // By now no key is expected to be refilled.
        self.clock.set(self.clock.now() + 2 * REFILL_TIMEOUT);
        counting.batches.expire(self.clock.now());
        let counts = counting.batches.counts();
        let ended = counts.refilled + counts.unfilled + counts.unwatched;
        assert!(!read_through || ended == 0, "nobody refills what the listener fetches: {counts:?}");
        assert_eq!(self.costs.lock().unwrap().len() as u64, counts.refilled, "a refill has a cost");
        *seen.entry("batch: refilled").or_default() += counts.refilled;
        *seen.entry("batch: never refilled").or_default() += counts.unfilled;
        *seen.entry("batch: request").or_default() += self.requests.load(Relaxed);
    }

    fn passed(&self) -> Duration {
        self.clock.now().since(START)
    }
}

impl BatchRequests for CountedRequests {
    fn come_by_other_means(&self) -> bool {
        false
    }

    fn backend(&self, _: PartitionId) -> (BackendId, Duration) {
        (BackendId(0), Duration::ZERO)
    }

    fn count(
        &self,
        at: Instant,
        partition: PartitionId,
        _: Option<u16>,
        request: FinishedRequest,
        times: u64,
    ) {
        let latency = Duration::from_micros(request.latency_us.into());
        assert!(latency <= self.passed(), "{request:?} took longer than the simulation");
        assert!(at <= self.clock.now() && [1, 64].contains(&times) && partition == PartitionId(0));
        self.requests.fetch_add(1, Relaxed);
    }

    fn record_queries(&self, _: PartitionId, latency: Duration, _: u64, end: KeyEnd) {
        assert!(latency <= self.passed(), "{end:?} took longer than the simulation");
        if end == KeyEnd::Refilled {
            self.costs.lock().unwrap().push(latency);
        }
    }
}
