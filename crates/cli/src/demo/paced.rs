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
//! # Precision
//!
//! Service times begin at 0.6 ms, and the runtime's timer rounds up to the next millisecond, which
//! would distort capacities by half. A separate timer thread ([`Timer`]) sleeps on the system's
//! clock instead; a call to an idle server is answered about 0.1 ms late, wake-ups included. In a
//! queue this lateness would accumulate, so it is compensated: the service time of a call that
//! waited counts from the moment its worker was *due* to be free, at most `CREDIT_MAX` (20 ms) ago.
//! Measured over 5,000 calls at saturation, on two cores with other work, the time per call is
//! within 0.02% of the service time drawn from the model.

mod timer;
mod workers;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand_core::Rng as _;
use sherwood_store::{
    Attempt, BoxFuture, Cause, Found, Limit, LimitError, Limits, Store, StoreError, StoreKind,
};
use sherwood_workload::onerf::BackendModel;
use sherwood_workload::{Rng, SplitMix64, rng_from_seed};

pub(crate) use timer::Timer;
use workers::{Worker, Workers};

/// A store behind the workers of a remote server.
pub(crate) struct Paced {
    inner: Arc<dyn Store>,
    backend: BackendModel,
    workers: Arc<Workers>,
    timer: Timer,
    /// The scenario's remaining share of the server's capacity, in (0, 1], as the bits of an
    /// `f64`.
    limit: AtomicU64,
    /// The share set by hand, which takes precedence; NaN if none is set.
    by_hand: AtomicU64,
    waiting: AtomicU32,
    rng: Mutex<Rng>,
}

impl Paced {
    /// Puts `inner` behind the workers of `backend` at the scale of `profile`, one of the model's
    /// profiles. Service times are drawn from `seed` and the backend's number, in the order in
    /// which calls get a worker.
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        backend: &BackendModel,
        profile: &str,
        seed: u64,
        timer: &Timer,
    ) -> Self {
        let stream = SplitMix64::new(seed ^ (u64::from(backend.id) << 48)).next_u64();
        Self {
            inner,
            backend: backend.clone(),
            workers: Workers::new(backend.service.workers[profile]),
            timer: timer.clone(),
            limit: AtomicU64::new(1.0_f64.to_bits()),
            by_hand: AtomicU64::new(f64::NAN.to_bits()),
            waiting: AtomicU32::new(0),
            rng: Mutex::new(rng_from_seed(stream)),
        }
    }

    /// Sets the scenario's remaining share of the server's capacity, in (0, 1], for calls that get
    /// a worker from now on, unless another share is set by hand.
    ///
    /// # Panics
    /// When `limit` is out of range: scenarios are validated when they are read.
    pub(crate) fn set_capacity_ratio(&self, limit: f64) {
        assert!(limit > 0.0 && limit <= 1.0, "a capacity ratio is in (0, 1], not {limit}");
        self.limit.store(limit.to_bits(), Ordering::Relaxed);
    }

    /// Remaining share of the server's capacity: the one set by hand, or else the scenario's.
    pub(crate) fn capacity_ratio(&self) -> f64 {
        self.by_hand().unwrap_or_else(|| f64::from_bits(self.limit.load(Ordering::Relaxed)))
    }

    fn by_hand(&self) -> Option<f64> {
        Some(f64::from_bits(self.by_hand.load(Ordering::Relaxed))).filter(|share| !share.is_nan())
    }

    /// Number of calls waiting for a worker.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Runs `work` for `keys` keys on a worker.
    async fn on_a_worker<T>(
        &self,
        attempt: Attempt,
        keys: usize,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let worker = self.worker(attempt).await?;
        let (began, service_time, started) = (worker.began(), self.service_time(keys), Instant::now());
        let mut busy = Busy { worker: Some(worker), due: began + service_time, timer: &self.timer };
        let result = work.await;
        // An operation that takes longer than the model's service time keeps its worker until it
        // ends.
        busy.due = began + service_time.max(started.elapsed());
        busy.end().await;
        result
    }

    /// Waits for a worker, unless too many calls are waiting.
    async fn worker(&self, attempt: Attempt) -> Result<Worker, StoreError> {
        let arrived = Instant::now();
        if let Some(worker) = self.workers.try_get(arrived) {
            return Ok(worker);
        }
        let Some(_waiting) = Waiting::enter(&self.waiting) else {
            let cause = Cause::Overloaded { queued_calls_max: WAITING_CALLS_MAX as usize };
            return Err(StoreError::new(self.name(), self.kind(), attempt, cause));
        };
        Ok(self.workers.get(arrived).await)
    }

    fn service_time(&self, keys: usize) -> Duration {
        let draw = self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        self.backend.service_time(keys, self.capacity_ratio(), draw)
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
        Limits { cpu_ratio: self.by_hand(), ..self.inner.limits() }
    }

    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        let Limit::CpuRatio(share) = limit else { return self.inner.set_limit(limit) };
        limit.validate()?;
        // A server has no more than its capacity.
        self.by_hand.store(share.map_or(f64::NAN, |share| share.min(1.0)).to_bits(), Ordering::Relaxed);
        Ok(())
    }

    fn cpu_time(&self) -> Duration {
        self.inner.cpu_time()
    }
}

/// A worker that a call occupies until it is due to be free, even when the caller gives up.
struct Busy<'a> {
    worker: Option<Worker>,
    due: Instant,
    timer: &'a Timer,
}

impl Busy<'_> {
    /// Waits until the worker is free again.
    async fn end(mut self) {
        if let Some(worker) = self.worker.take()
            && let Some(freed) = self.timer.free_at(self.due, worker)
        {
            // The timer ends with the demo, when no caller is waiting.
            let _ = freed.await;
        }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            drop(self.timer.free_at(self.due, worker));
        }
    }
}

/// Counts a waiting call until dropped.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn enter(waiting: &'a AtomicU32) -> Option<Self> {
        let entered = waiting.fetch_add(1, Ordering::Relaxed) < WAITING_CALLS_MAX;
        let place = Self(waiting);
        entered.then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Most calls that may wait for a worker: the demo's whole load for several seconds, which exceeds
/// every timeout.
const WAITING_CALLS_MAX: u32 = 4096;

#[cfg(test)]
mod tests;
