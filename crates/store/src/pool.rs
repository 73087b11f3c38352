//! The threads of one embedded store, with a bounded queue and limits before them.
//!
//! The engines block, so each store has threads of its own instead of the async runtime's. A thread
//! takes the call at the head of the queue when the [`Gate`] admits it, executes it with its own
//! [`Session`], and answers over a oneshot channel. One lock guards queue and gate; it is never
//! held while an engine works.
//!
//! Threads sleep in two places: before a call (`work`), until one arrives, a slot is free or the
//! rate of operations allows it; and within a call (`parked`), while the store is over its
//! processor share. A changed limit and the end of the pool wake both.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use sherwood_model::Instant;
use tokio::sync::oneshot;

use crate::clock::{Clock, thread_cpu_of};
use crate::limit::{Admission, Gate};
use crate::session::Session;
use crate::{Cause, Limit, Limits};

/// The threads of one embedded store. Dropping the pool answers queued calls with
/// [`Cause::Closed`], waits for running ones, and joins the threads.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A call to the store, with the channel for its answer.
pub(crate) enum Job {
    Get { keys: Vec<Bytes>, reply: Reply<Vec<Option<Bytes>>> },
    Put { key: Bytes, value: Bytes, reply: Reply<()> },
    Delete { key: Bytes, reply: Reply<()> },
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Cause>>;

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    parked: Condvar,
    /// True if the store has a processor limit; without one, threads save two system calls per key.
    cpu_limited: AtomicBool,
    clock: Arc<dyn Clock>,
    queued_calls_max: usize,
}

struct State {
    queue: VecDeque<Job>,
    gate: Gate,
    closed: bool,
}

impl Pool {
    /// Starts one thread per session, each named after the store.
    pub(crate) fn start(
        name: &str,
        sessions: Vec<Box<dyn Session>>,
        queued_calls_max: usize,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { queue: VecDeque::new(), gate: Gate::new(), closed: false }),
            work: Condvar::new(),
            parked: Condvar::new(),
            cpu_limited: AtomicBool::new(false),
            clock,
            queued_calls_max,
        });
        let mut pool = Self { shared, threads: Vec::new() };
        for (i, session) in sessions.into_iter().enumerate() {
            let shared = Arc::clone(&pool.shared);
            let name = format!("{name}-{i}").replace('\0', "");
            let thread =
                Builder::new().name(name).spawn(move || Worker { shared, session, metered: None }.run())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Adds a call to the queue of the store.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Cause> {
        let mut state = self.shared.lock();
        if state.queue.len() >= self.shared.queued_calls_max {
            state.queue.retain(|job| !job.is_abandoned());
        }
        if state.queue.len() >= self.shared.queued_calls_max {
            return Err(Cause::Overloaded { queued_calls_max: self.shared.queued_calls_max });
        }
        state.queue.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    pub(crate) fn limits(&self) -> Limits {
        self.shared.lock().gate.limits()
    }

    /// Changes one limit of the store, which has been validated, and wakes all waiting threads.
    pub(crate) fn set_limit(&self, limit: Limit) {
        let now = self.shared.clock.now();
        let mut state = self.shared.lock();
        state.gate.set(now, limit);
        let cpu_limited = state.gate.limits().cpu_ratio.is_some();
        self.shared.cpu_limited.store(cpu_limited, Ordering::Relaxed);
        drop(state);
        self.wake();
    }

    /// Returns the processor time of all threads of the pool since they started.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.threads.iter().map(thread_cpu_of).sum()
    }

    /// Wakes every thread to check clock, limits and queue again.
    pub(crate) fn wake(&self) {
        // A thread holds the lock between its check and its sleep; taking it here ensures that the
        // thread does not miss the notification.
        drop(self.shared.lock());
        self.shared.work.notify_all();
        self.shared.parked.notify_all();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let queued = {
            let mut state = self.shared.lock();
            state.closed = true;
            std::mem::take(&mut state.queue)
        };
        for job in queued {
            job.fail(Cause::Closed);
        }
        self.wake();
        for thread in self.threads.drain(..) {
            // Workers catch the panics of engines; one that got past them has nothing left to be
            // told.
            let _ = thread.join();
        }
    }
}

/// The next step of a pool thread that executes no call.
enum ThreadStep {
    /// Execute this call, which is counted as started.
    Job(Job),
    /// Check the queue and the limits again at this time.
    At(Instant),
    /// Check again when a call has arrived or ended, or a limit has changed.
    AfterAnEvent,
    /// End the thread: the pool is closed.
    Closed,
}

impl State {
    fn next(&mut self, now: Instant) -> ThreadStep {
        if self.closed {
            return ThreadStep::Closed;
        }
        while self.queue.front().is_some_and(Job::is_abandoned) {
            self.queue.pop_front();
        }
        let Some(job) = self.queue.pop_front() else { return ThreadStep::AfterAnEvent };
        let wait = match self.gate.admission(now) {
            Admission::Now => {
                self.gate.begin(now, job.ops());
                return ThreadStep::Job(job);
            }
            Admission::At(at) => ThreadStep::At(at),
            Admission::AfterACall => ThreadStep::AfterAnEvent,
        };
        self.queue.push_front(job);
        wait
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No engine runs under the lock, so the data of a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits on `condition` until woken, or until the second time in `until` if it is given; the
    /// first one is now.
    fn sleep<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        condition: &Condvar,
        until: Option<(Instant, Instant)>,
    ) -> MutexGuard<'a, State> {
        match until.and_then(|(now, until)| self.clock.sleep(now, until)) {
            Some(timeout) => condition.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0,
            None => condition.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The next call that may start, already counted as started; `None` when the pool is closed.
    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            let now = self.clock.now();
            let until = match state.next(now) {
                ThreadStep::Closed => return None,
                ThreadStep::Job(job) => {
                    if !state.queue.is_empty() {
                        // This thread may have received the notification of the next call while it
                        // waited for this one.
                        self.work.notify_one();
                    }
                    return Some(job);
                }
                ThreadStep::At(at) => Some((now, at)),
                ThreadStep::AfterAnEvent => None,
            };
            state = self.sleep(state, &self.work, until);
        }
    }

    fn end_job(&self) {
        self.lock().gate.end();
        self.work.notify_one();
    }

    /// Charges processor time to the store's limit, then parks the thread while the store is over
    /// its share.
    fn pay_cpu(&self, used: Duration) {
        let mut state = self.lock();
        state.gate.charge_cpu(self.clock.now(), used);
        loop {
            let (now, ready_at) = (self.clock.now(), state.gate.cpu_ready_at());
            if state.closed || ready_at <= now {
                return;
            }
            state = self.sleep(state, &self.parked, Some((now, ready_at)));
        }
    }
}

/// A thread of the store's pool, with its session.
struct Worker {
    shared: Arc<Shared>,
    session: Box<dyn Session>,
    /// The thread's processor time up to which the store has been charged; `None` while the store
    /// has no processor limit.
    metered: Option<Duration>,
}

impl Worker {
    fn run(mut self) {
        while let Some(job) = self.shared.next_job() {
            self.pay();
            self.serve(job);
            self.pay();
            self.shared.end_job();
        }
    }

    fn serve(&mut self, job: Job) {
        let Self { shared, session, metered } = self;
        match job {
            Job::Get { keys, reply } => {
                let mut pause = || pay(shared, metered);
                answer(reply, || session.get_many(&keys, &mut pause));
            }
            Job::Put { key, value, reply } => answer(reply, || session.put(&key, &value)),
            Job::Delete { key, reply } => answer(reply, || session.delete(&key)),
        }
    }

    fn pay(&mut self) {
        pay(&self.shared, &mut self.metered);
    }
}

/// Charges the store for the processor time of this thread since its last charge.
fn pay(shared: &Shared, metered: &mut Option<Duration>) {
    if !shared.cpu_limited.load(Ordering::Relaxed) {
        *metered = None;
        return;
    }
    let used = shared.clock.thread_cpu();
    if let Some(before) = metered.replace(used) {
        shared.pay_cpu(used.saturating_sub(before));
    }
}

/// Runs `work` on the engine and sends its answer. A panic of the engine is an error of this call;
/// the thread continues.
fn answer<T>(reply: Reply<T>, work: impl FnOnce() -> Result<T, Cause>) {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let detail = format!("panicked: {}", message(panic.as_ref()));
        tracing::error!(%detail, "an embedded engine failed");
        Err(Cause::Engine { detail })
    });
    // The caller may have dropped the call.
    let _ = reply.send(result);
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Job {
    /// Operations that the call is charged for: one per key.
    fn ops(&self) -> usize {
        match self {
            Self::Get { keys, .. } => keys.len(),
            Self::Put { .. } | Self::Delete { .. } => 1,
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Get { reply, .. } => reply.is_closed(),
            Self::Put { reply, .. } | Self::Delete { reply, .. } => reply.is_closed(),
        }
    }

    fn fail(self, cause: Cause) {
        // The caller may have dropped the call.
        let _ = match self {
            Self::Get { reply, .. } => reply.send(Err(cause)).is_ok(),
            Self::Put { reply, .. } | Self::Delete { reply, .. } => reply.send(Err(cause)).is_ok(),
        };
    }
}

#[cfg(test)]
pub(crate) mod tests;
