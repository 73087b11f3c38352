//! The thread that starts requests on schedule.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::requests::Requests;
use crate::Control;
use crate::pace::{Schedule, wake_on_time};

/// A request that is due.
pub(super) struct Due {
    /// Intended start, from the start of the run.
    pub(super) intended: Duration,
    pub(super) body: Bytes,
    /// The permit for one more request in flight; without a permit the request is not sent.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

pub(super) struct Pacing {
    pub(super) origin: Instant,
    /// End of the run, from its start; no request starts at or after it.
    pub(super) end: Duration,
    pub(super) schedule: Schedule,
    pub(super) requests: Box<dyn Requests>,
    pub(super) places: Arc<Semaphore>,
    pub(super) due: Sender<Due>,
    pub(super) runtime: tokio::runtime::Handle,
}

/// The longest sleep of the pacing thread, which bounds the delay of a stop.
const SLEEP_MAX: Duration = Duration::from_millis(50);

impl Pacing {
    /// Passes on requests that are due until the end of the run; returns the reason if it ends
    /// early.
    pub(super) fn run(mut self, control: &Control) -> Option<String> {
        wake_on_time();
        loop {
            // Encoded before the sleep, so that the request only has to be passed on when it is
            // due.
            let body = match self.requests.next() {
                Ok(Some(body)) => body,
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            };
            let place = if self.schedule.is_open() { None } else { self.wait_for_place() };
            let elapsed = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let intended = Duration::from_nanos(self.schedule.next_start(elapsed));
            if intended >= self.end {
                return None;
            }
            if !self.sleep_until(intended, control) {
                return Some("stopped before its end".to_owned());
            }
            self.schedule.advance();
            let place = if self.schedule.is_open() { self.place_if_any() } else { place };
            // The channel has room for all outstanding requests, and the driver takes overflow at
            // once, so this blocks only briefly.
            if self.due.blocking_send(Due { intended, body, place }).is_err() {
                return Some("the driver ended".to_owned());
            }
        }
    }

    fn place_if_any(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Waits until a request has ended, in a closed loop; the request's timeout bounds the wait.
    fn wait_for_place(&self) -> Option<OwnedSemaphorePermit> {
        self.runtime.block_on(Arc::clone(&self.places).acquire_owned()).ok()
    }

    /// Sleeps until the intended start of a request; returns false if the run was stopped before.
    fn sleep_until(&self, intended: Duration, control: &Control) -> bool {
        while !control.stopped() {
            let ahead = intended.saturating_sub(self.origin.elapsed());
            if ahead.is_zero() {
                return true;
            }
            std::thread::sleep(ahead.min(SLEEP_MAX));
        }
        false
    }
}
