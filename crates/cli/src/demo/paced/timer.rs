//! A thread that frees workers when they are due.
//!
//! A thread serves all stores. It sleeps on a condition variable until the earliest due time,
//! which the system keeps to within its timer slack (50 µs on Linux); the runtime's timer wheel
//! turns only once a millisecond. It holds at most one entry per worker of all stores.

use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use tokio::sync::oneshot;

use super::workers::Worker;

/// A handle to the timer thread, which frees workers when they are due. The thread ends with the
/// last handle and then frees all remaining workers at once.
#[derive(Clone)]
pub(crate) struct Timer(Arc<Running>);

struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: BinaryHeap<Entry>,
    closed: bool,
}

/// A worker to free, in the timer's heap. Earlier entries compare as greater, because the heap
/// keeps the greatest on top.
struct Entry {
    due: Instant,
    worker: Worker,
    freed: oneshot::Sender<()>,
}

impl Timer {
    /// Starts the timer thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let thread = {
            let shared = Arc::clone(&shared);
            Builder::new().name("demo-timer".to_owned()).spawn(move || shared.run())?
        };
        Ok(Self(Arc::new(Running { shared, thread: Some(thread) })))
    }

    /// Frees `worker` at `due` and notifies the receiver. Returns `None` when the worker was
    /// already due and has been freed.
    pub(super) fn free_at(&self, due: Instant, mut worker: Worker) -> Option<oneshot::Receiver<()>> {
        worker.set_due(due);
        if due <= Instant::now() {
            return None;
        }
        let (freed, receiver) = oneshot::channel();
        let mut state = self.0.shared.lock();
        let earliest = state.entries.peek().is_none_or(|entry| due < entry.due);
        state.entries.push(Entry { due, worker, freed });
        drop(state);
        if earliest {
            self.0.shared.changed.notify_one();
        }
        Some(receiver)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread runs only the timer's code, which does not panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut due = Vec::new();
        while self.take_due(&mut due) {
            for Entry { worker, freed, .. } in due.drain(..) {
                // The answer is sent before the next call starts, so that answers keep the order of
                // the queue. The receiver may be gone.
                let _ = freed.send(());
                drop(worker);
            }
        }
    }

    /// Sleeps until entries are due and moves them to `due` in order. Returns false when the timer
    /// ends.
    fn take_due(&self, due: &mut Vec<Entry>) -> bool {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            while state.entries.peek().is_some_and(|entry| state.closed || entry.due <= now) {
                due.extend(state.entries.pop());
            }
            if state.closed || !due.is_empty() {
                return !state.closed;
            }
            state = match state.entries.peek().map(|entry| entry.due - now) {
                Some(sleep) => {
                    self.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}
