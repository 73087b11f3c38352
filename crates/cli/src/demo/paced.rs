//! A local store with the capacity of a remote server.
//!
//! In production each backend runs on machines of its own. In the demo all twenty share one machine
//! with the node and the load, so their latency cannot be the time that the machine needs.
//! [`Paced`] models the remote server's *capacity*: a number of workers, each of which an operation
//! occupies for the service time of the workload's model, divided by the current limit. A call
//!
//! 1. waits for a worker, in order of arrival;
//! 2. reads the limit at that moment;
//! 3. performs the real operation on the inner store (a lookup on disk, a join, a product);
//! 4. keeps its worker until the service time has passed since it got it, and is answered then.
//!
//! So the queue is real: latency under a limit is the time spent behind other calls, not a computed
//! delay, and it grows without bound when the load exceeds the capacity. The service time itself is
//! *not* real: it is drawn from the model, unless the real operation takes longer.
//!
//! A caller that gives up while waiting leaves the queue. A caller that gives up later does not
//! free the worker, as a remote server would not notice either.
//!
//! # A share of the load
//!
//! On a busy machine the demo sends a share of its requests. The servers keep their capacity, and
//! the requests that are left out still occupy it: each call brings as many calls of the same size,
//! at random times shortly after it, which use workers and do nothing else. Utilisation and queues
//! are then those of the whole load. There are none while the cache warms up: with fewer requests
//! it stays cold for longer, and the servers would be overloaded for as long.
//!
//! # Precision
//!
//! Service times begin at 0.6 ms, and the runtime's timer rounds up to the next millisecond, which
//! would distort capacities by half. A separate timer thread ([`Timer`]) sleeps on the system's
//! clock instead; a call to an idle server is answered about 0.1 ms late, wake-ups included. In a
//! queue this lateness would accumulate, so it is compensated: the service time of a call that
//! waited counts from the moment its worker was *due* to be free, at most `CREDIT_MAX` (20 ms) ago.
//! Measured over 5,000 calls at saturation, on two cores with other work, the time per call is
//! within 0.02% of the service time drawn from the model.

mod server;
mod timer;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sherwood_store::{
    Attempt, BoxFuture, Cause, Found, Limit, LimitError, Limits, Store, StoreError, StoreKind,
};
use sherwood_workload::onerf::BackendModel;

use self::server::{Server, WAITING_CALLS_MAX};
pub(crate) use self::timer::Timer;
use super::share::LoadShare;

/// A store behind the workers of a remote server.
pub(crate) struct Paced {
    inner: Arc<dyn Store>,
    server: Arc<Server>,
    share: LoadShare,
    /// True while requests that are left out occupy workers.
    stands_in: AtomicBool,
}

/// The options of the server that a store is put behind.
#[derive(Clone, Copy)]
pub(crate) struct PacedOptions<'a> {
    /// The scale of the server, one of the model's profiles.
    pub(crate) profile: &'a str,
    /// Share of the load that is sent; the rest only occupies workers.
    pub(crate) share: LoadShare,
    /// Seed from which service times are drawn, with the backend's number, in the order in which
    /// calls get a worker.
    pub(crate) seed: u64,
}

impl Paced {
    /// Puts `inner` behind the workers of `backend`.
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        backend: &BackendModel,
        options: PacedOptions<'_>,
        timer: &Timer,
    ) -> Self {
        let PacedOptions { profile, share, seed } = options;
        let server = Arc::new(Server::new(backend, profile, seed, timer));
        Self { inner, server, share, stands_in: AtomicBool::new(false) }
    }

    /// Selects whether requests that are left out occupy workers, from the next call on.
    pub(crate) fn stand_in(&self, stands_in: bool) {
        self.stands_in.store(stands_in, Ordering::Relaxed);
    }

    /// Sets the scenario's remaining share of the server's capacity, in (0, 1], for calls that get
    /// a worker from now on, unless another share is set by hand.
    ///
    /// # Panics
    /// When `ratio` is out of range: scenarios are validated when they are read.
    pub(crate) fn set_capacity_ratio(&self, ratio: f64) {
        assert!(ratio > 0.0 && ratio <= 1.0, "a capacity ratio is in (0, 1], not {ratio}");
        self.server.set_capacity_ratio(ratio);
    }

    /// Remaining share of the server's capacity: the one set by hand, or else the scenario's.
    pub(crate) fn capacity_ratio(&self) -> f64 {
        self.server.capacity_ratio()
    }

    /// Number of calls waiting for a worker.
    pub(crate) fn waiting(&self) -> u32 {
        self.server.waiting()
    }

    /// Runs `work` for `keys` keys on a worker.
    async fn on_a_worker<T>(
        &self,
        attempt: Attempt,
        keys: usize,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let left_out = if self.stands_in.load(Ordering::Relaxed) { self.share.left_out() } else { 0 };
        for _ in 0..left_out {
            tokio::spawn(Arc::clone(&self.server).serve_left_out(keys));
        }
        let served = self.server.serve(keys, work).await;
        served.unwrap_or_else(|| {
            let cause = Cause::Overloaded { queued_calls_max: WAITING_CALLS_MAX as usize };
            Err(StoreError::new(self.name(), self.kind(), attempt, cause))
        })
    }
}

impl Store for Paced {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn kind(&self) -> StoreKind {
        self.inner.kind()
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let count = keys.len();
        Box::pin(async move {
            self.on_a_worker(Attempt::Get { keys: count }, count, self.inner.get_many(keys)).await
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.on_a_worker(Attempt::Put, 1, self.inner.put(key, value)))
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.on_a_worker(Attempt::Delete, 1, self.inner.delete(key)))
    }

    /// Returns the inner engine's limits, but for `cpu_ratio`, the share of the server's capacity
    /// that was set by hand.
    fn limits(&self) -> Limits {
        Limits { cpu_ratio: self.server.by_hand(), ..self.inner.limits() }
    }

    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        let Limit::CpuRatio(share) = limit else { return self.inner.set_limit(limit) };
        limit.validate()?;
        // A server has no more than its capacity.
        self.server.set_by_hand(share.map(|share| share.min(1.0)));
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.inner.cpu_time()
    }
}

#[cfg(test)]
mod tests;
