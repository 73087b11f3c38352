//! The remote server in front of which calls wait.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand_core::Rng as _;
use sherwood_workload::onerf::BackendModel;
use sherwood_workload::{Rng, SplitMix64, rng_from_seed};

use super::timer::Timer;
use super::workers::{Worker, Workers};

/// The workers of a remote server, and the time for which a call occupies one of them.
pub(super) struct Server {
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

impl Server {
    pub(super) fn new(backend: &BackendModel, profile: &str, seed: u64, timer: &Timer) -> Self {
        let stream = SplitMix64::new(seed ^ (u64::from(backend.id) << 48)).next_u64();
        Self {
            backend: backend.clone(),
            workers: Workers::new(backend.service.workers[profile]),
            timer: timer.clone(),
            limit: AtomicU64::new(1.0_f64.to_bits()),
            by_hand: AtomicU64::new(f64::NAN.to_bits()),
            waiting: AtomicU32::new(0),
            rng: Mutex::new(rng_from_seed(stream)),
        }
    }

    pub(super) fn set_capacity_ratio(&self, ratio: f64) {
        self.limit.store(ratio.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn capacity_ratio(&self) -> f64 {
        self.by_hand().unwrap_or_else(|| f64::from_bits(self.limit.load(Ordering::Relaxed)))
    }

    pub(super) fn by_hand(&self) -> Option<f64> {
        Some(f64::from_bits(self.by_hand.load(Ordering::Relaxed))).filter(|ratio| !ratio.is_nan())
    }

    pub(super) fn set_by_hand(&self, ratio: Option<f64>) {
        self.by_hand.store(ratio.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Runs `work` for `keys` keys on a worker. Returns `None` if too many calls are waiting.
    pub(super) async fn serve<T>(&self, keys: usize, work: impl Future<Output = T>) -> Option<T> {
        let worker = self.worker().await?;
        let (began, service_time, started) = (worker.began(), self.service_time(keys), Instant::now());
        let mut busy = Busy { worker: Some(worker), due: began + service_time, timer: &self.timer };
        let result = work.await;
        // An operation that takes longer than the model's service time keeps its worker until it
        // ends.
        busy.due = began + service_time.max(started.elapsed());
        busy.end().await;
        Some(result)
    }

    /// Occupies a worker as a call for `keys` keys would, at a random time soon. It needs a runtime
    /// with a timer.
    pub(super) async fn serve_left_out(self: Arc<Self>, keys: usize) {
        let delay = LEFT_OUT_SPREAD.mul_f64(uniform(self.draw()));
        tokio::time::sleep(delay).await;
        // Like a call that is refused, one that finds too many waiting has no effect.
        let _: Option<()> = self.serve(keys, std::future::ready(())).await;
    }

    /// Waits for a worker, unless too many calls are waiting.
    async fn worker(&self) -> Option<Worker> {
        let arrived = Instant::now();
        if let Some(worker) = self.workers.try_get(arrived) {
            return Some(worker);
        }
        let _waiting = Waiting::enter(&self.waiting)?;
        Some(self.workers.get(arrived).await)
    }

    pub(super) fn service_time(&self, keys: usize) -> Duration {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        self.backend.service_time(keys, self.capacity_ratio(), self.draw())
    }

    fn draw(&self) -> u64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }
}

/// Converts a draw to a number in [0, 1).
fn uniform(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1_u64 << 53) as f64
}

/// Time within which calls of requests that are left out follow the call that stands for them. It
/// is long beside the times between a backend's calls, so that they come apart, and short beside
/// the SLO's window.
const LEFT_OUT_SPREAD: Duration = Duration::from_millis(100);

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
pub(super) const WAITING_CALLS_MAX: u32 = 4096;
