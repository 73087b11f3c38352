//! Workers of a server: the free ones, and the order in which calls get one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Largest correction of a call's start when its worker was freed late. A remote server would have
/// continued while this machine ran other work, so a delay of a few scheduler slices is
/// compensated: on two cores with five busy threads, 2 ms lost up to 13% of the capacity. A longer
/// stall affects the whole machine; compensating for it would produce a burst that no server can
/// deliver.
pub(super) const CREDIT_MAX: Duration = Duration::from_millis(20);

/// The workers of a server. Calls get them in order of arrival.
pub(super) struct Workers {
    permits: Arc<Semaphore>,
    /// Due times of the free workers.
    free: Mutex<Vec<Instant>>,
}

/// A worker in use; dropping it frees it.
pub(super) struct Worker {
    workers: Arc<Workers>,
    /// Start of the current call.
    began: Instant,
    /// Time at which the worker is due to be free again.
    due: Instant,
    /// Permit that is returned after the entry in `free` is written; `None` from then on.
    permit: Option<OwnedSemaphorePermit>,
}

impl Workers {
    pub(super) fn new(workers: u32) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(workers as usize)),
            free: Mutex::new(vec![now; workers as usize]),
        })
    }

    /// Returns a worker for a call that arrived at `arrived`, if one is free and no call is
    /// waiting.
    pub(super) fn try_get(self: &Arc<Self>, arrived: Instant) -> Option<Worker> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(self.take(permit, arrived))
    }

    /// Waits for a worker for a call that arrived at `arrived`.
    pub(super) async fn get(self: &Arc<Self>, arrived: Instant) -> Worker {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        self.take(permit, arrived)
    }

    fn take(self: &Arc<Self>, permit: OwnedSemaphorePermit, arrived: Instant) -> Worker {
        let freed =
            self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().expect("one entry per permit");
        // An idle worker was free before the call arrived; a busy one became free while the call
        // waited.
        let began = freed.max(arrived);
        Worker { workers: Arc::clone(self), began, due: began, permit: Some(permit) }
    }
}

impl Worker {
    /// Start of the call that has this worker; its service time counts from here.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Sets the time at which the worker is due to be free; it is dropped at about that time.
    pub(super) fn set_due(&mut self, due: Instant) {
        self.due = due;
    }

    /// Frees the worker at time `now`; does nothing the second time.
    fn free(&mut self, now: Instant) {
        let Some(permit) = self.permit.take() else { return };
        let freed = self.due.max(now.checked_sub(CREDIT_MAX).unwrap_or(now)).min(now);
        self.workers.free.lock().unwrap_or_else(PoisonError::into_inner).push(freed);
        drop(permit);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.free(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Serves calls one after the other on one worker. Each takes `service` and is freed `late`
    /// after its due time. Returns the time from the first start to the last due time.
    fn serve(calls: u32, service: Duration, late: Duration) -> Duration {
        let workers = Workers::new(1);
        let start = Instant::now() + MS;
        let mut end = start;
        for _ in 0..calls {
            let mut worker = workers.try_get(start).unwrap();
            end = worker.began() + service;
            worker.set_due(end);
            worker.free(end + late);
        }
        end - start
    }

    #[test]
    fn calls_get_workers_in_order_of_arrival() {
        let workers = Workers::new(1);
        let now = Instant::now();
        let mut held = workers.try_get(now);
        let mut calls: Vec<_> = (0..20).map(|_| Box::pin(workers.get(now))).collect();
        let poll = |call: Pin<&mut _>| Future::poll(call, &mut Context::from_waker(Waker::noop()));
        assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
        while !calls.is_empty() {
            drop(held.take());
            assert!(workers.try_get(now).is_none(), "a call that did not wait got the worker");
            assert!(calls[1..].iter_mut().all(|call| poll(call.as_mut()).is_pending()));
            let Poll::Ready(worker) = poll(calls.remove(0).as_mut()) else { panic!("the first still waits") };
            held = Some(worker);
        }
    }

    #[test]
    fn late_freeing_of_a_worker_up_to_the_credit_is_compensated() {
        assert_eq!(serve(1000, 6 * MS / 10, 4 * MS / 10), 600 * MS);
        assert_eq!(serve(1000, 6 * MS / 10, CREDIT_MAX), 600 * MS);
    }

    #[test]
    fn late_freeing_of_a_worker_above_the_credit_is_not_compensated() {
        assert_eq!(serve(101, MS, CREDIT_MAX + MS), 101 * MS + 100 * MS);
    }

    #[test]
    fn idle_time_of_a_worker_is_not_compensated() {
        let workers = Workers::new(2);
        let arrived = Instant::now() + 1000 * MS;
        assert_eq!(workers.try_get(arrived).unwrap().began(), arrived);
    }

    #[test]
    fn calls_in_progress_are_limited_by_the_workers() {
        let workers = Workers::new(2);
        let now = Instant::now();
        let first = workers.try_get(now).unwrap();
        let _second = workers.try_get(now).unwrap();
        assert!(workers.try_get(now).is_none());
        drop(first);
        assert!(workers.try_get(now).is_some());
    }
}
