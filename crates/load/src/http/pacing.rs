//! The thread that keeps to the schedule.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::requests::Requests;
use crate::Control;
use crate::pace::{Schedule, wake_on_time};

/// A request whose time has come.
pub(super) struct Due {
    /// Intended start, from the start of the run.
    pub(super) intended: Duration,
    pub(super) body: Bytes,
    /// Its place among the outstanding ones; none left: it is not to be sent.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

pub(super) struct Pacing {
    pub(super) origin: Instant,
    /// Nothing starts at or after this, from the start of the run.
    pub(super) end: Duration,
    pub(super) schedule: Schedule,
    pub(super) requests: Box<dyn Requests>,
    pub(super) places: Arc<Semaphore>,
    pub(super) due: Sender<Due>,
    pub(super) runtime: tokio::runtime::Handle,
}

/// The longest sleep: how soon a stop is noticed.
const SLEEP_MAX: Duration = Duration::from_millis(50);

impl Pacing {
    /// Hands over requests until the end; why it ended early, if it did.
    pub(super) fn run(mut self, control: &Control) -> Option<String> {
        wake_on_time();
        loop {
            // Encoded before the wait, so that only the handing over is left when the time has
            // come.
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
            // The channel holds as many as there are places, and overflow is taken at once: this
            // never waits long.
            if self.due.blocking_send(Due { intended, body, place }).is_err() {
                return Some("the driver ended".to_owned());
            }
        }
    }

    fn place_if_any(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Closed loop: waits until a request has ended, which its time-out sees to.
    fn wait_for_place(&self) -> Option<OwnedSemaphorePermit> {
        self.runtime.block_on(Arc::clone(&self.places).acquire_owned()).ok()
    }

    /// Whether the time came before a stop.
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
