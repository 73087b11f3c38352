//! A node whose stores answer after simulated times, with a clock that the test advances.
//!
//! Requests and calls overlap as they do in a simulation: the clock advances from one event to the
//! next, and between two events the node's tasks run until all are idle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::Value;
use sherwood_model::{BackendId, Instant};
use sherwood_ports::http::WholeBody;
use sherwood_store::{BoxFuture, Found, Store, StoreError, StoreKind};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::driven::Driven;
use crate::backend::BackendDriver;
use crate::gateway;
use crate::start::*;

/// Number of scheduling turns of all tasks after which every task is idle.
const TURNS: usize = 40;

/// Unanswered calls, ordered by the time at which they are answered and by their number. Each has
/// the channel that ends it.
type Waiting = BTreeMap<(Instant, u64), oneshot::Sender<()>>;

/// The calls in flight, and the number of the last call.
#[derive(Default)]
pub(super) struct Calls {
    waiting: Mutex<(u64, Waiting)>,
}

/// A function that returns the duration of a call for a key.
pub(super) type KeyTime = Box<dyn Fn(&[u8]) -> Duration + Send + Sync>;

/// A store whose calls take simulated times and return values of a simulated size.
pub(super) struct TimedStore {
    pub(super) name: String,
    pub(super) calls: Arc<Calls>,
    pub(super) nanos: &'static AtomicU64,
    /// Returns the duration of a call for a key.
    pub(super) time: KeyTime,
    pub(super) value_bytes: usize,
}

impl Calls {
    fn call(&self, due: Instant) -> oneshot::Receiver<()> {
        let (sender, answered) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap();
        waiting.0 += 1;
        let number = waiting.0;
        waiting.1.insert((due, number), sender);
        answered
    }

    /// Removes the next call that is due by `until`, and returns the time of its answer.
    fn next(&self, until: Instant) -> Option<(Instant, oneshot::Sender<()>)> {
        let mut waiting = self.waiting.lock().unwrap();
        let entry = waiting.1.first_entry().filter(|entry| entry.key().0 <= until)?;
        let ((due, _), sender) = entry.remove_entry();
        Some((due, sender))
    }
}

impl Store for TimedStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Kv
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        Box::pin(async move {
            let now = Instant::from_nanos(self.nanos.load(Relaxed));
            let time = keys.iter().map(|key| (self.time)(key)).max().unwrap_or_default();
            self.calls.call(now + time).await.expect("the test answers every call");
            let value = |_| Some(Found::from(Bytes::from(vec![0; self.value_bytes])));
            Ok(keys.iter().map(value).collect())
        })
    }

    fn put(&self, _: Bytes, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("nothing is written")
    }

    fn delete(&self, _: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        unreachable!("nothing is written")
    }
}

/// A node with a driven clock, and its calls and requests in flight.
pub(super) struct Staged {
    pub(super) node: Driven,
    calls: Arc<Calls>,
    asked: Vec<(u64, JoinHandle<Value>)>,
}

impl Staged {
    /// Returns the node of `configuration` at time zero. `store` creates the store of each backend
    /// from the backend's name, the calls in flight and the clock.
    pub(super) fn new(
        configuration: &str,
        change: impl FnOnce(&mut Setup),
        store: impl Fn(&str, Arc<Calls>, &'static AtomicU64) -> TimedStore,
    ) -> Self {
        let (nanos, calls): (&AtomicU64, Arc<Calls>) = (Box::leak(Box::default()), Arc::default());
        let node = Driven::on_clock(nanos, configuration, |setup| {
            for backend in &mut setup.backends {
                backend.stores = vec![Arc::new(store(&backend.name, Arc::clone(&calls), nanos))];
            }
            change(setup);
        });
        let staged = Self { node, calls, asked: Vec::new() };
        staged.settle();
        staged
    }

    /// Answers all calls that are due by `at`, and sets the clock to `at`. Returns the numbers and
    /// answers of the requests that ended meanwhile.
    pub(super) fn advance(&mut self, at: Instant) -> Vec<(u64, Value)> {
        let mut ended = Vec::new();
        loop {
            let wakes = self.wakes_at().filter(|wakes| *wakes <= at);
            if let Some((due, answer)) = self.calls.next(wakes.unwrap_or(at)) {
                self.node.nanos.store(due.as_nanos(), Relaxed);
                answer.send(()).expect("the store waits");
            } else if let Some(due) = wakes {
                self.node.nanos.store(due.as_nanos(), Relaxed);
                for backend in self.backends() {
                    backend.drive(|state, now, cache| state.machine.handle_timeout(now, cache));
                }
            } else {
                break;
            }
            ended.extend(self.settle_all());
        }
        self.node.nanos.store(at.as_nanos(), Relaxed);
        ended
    }

    /// Sends a request with this number and body. Returns the numbers and answers of the requests
    /// that end at once.
    pub(super) fn ask(&mut self, number: u64, body: &Value) -> Vec<(u64, Value)> {
        let core = Arc::clone(&self.node.core);
        let body = WholeBody { bytes: body.to_string().into(), hold: core.buffers.hold() };
        let asked = self.node.runtime.spawn(async move {
            let answer = gateway::handle(State(core), HeaderMap::new(), body).await;
            let answer = answer.unwrap_or_else(|_| panic!("the request is well-formed"));
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            serde_json::from_slice(&body).unwrap()
        });
        self.asked.push((number, asked));
        self.settle_all()
    }

    /// Runs the control loop now, and then all pending work of the housekeeper (such as evictions).
    pub(super) fn run_control(&self) {
        let now = self.node.core.clock.now();
        self.node.core.control().run(now);
        while self.node.core.cache.step(now, 4_096) {}
        self.settle();
    }

    fn backends(&self) -> impl Iterator<Item = &Arc<BackendDriver>> {
        let ids = (0..self.node.core.names.backends().len()).map(BackendId::from_index);
        ids.filter_map(|id| self.node.core.backend(id))
    }

    /// Returns the earliest time at which a backend has timed work, such as a timeout; the present
    /// time if that is already over.
    fn wakes_at(&self) -> Option<Instant> {
        let now = self.node.core.clock.now();
        let each = self.backends().filter_map(|of| of.drive(|state, _, _| state.machine.next_timeout()));
        each.min().map(|wakes| wakes.max(now))
    }

    fn settle_all(&mut self) -> Vec<(u64, Value)> {
        self.settle();
        let asked = std::mem::take(&mut self.asked);
        let (ended, waiting): (Vec<_>, _) = asked.into_iter().partition(|(_, of)| of.is_finished());
        self.asked = waiting;
        let mut answers = Vec::new();
        for (number, of) in ended {
            answers.push((number, self.node.runtime.block_on(of).unwrap()));
        }
        answers
    }

    /// Runs the node's tasks until all are idle.
    fn settle(&self) {
        self.node.runtime.block_on(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
    }
}
