//! The daemon's own two threads: the control loop and the housekeeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use sherwood_cache::Cache;

use crate::clock::Clock;
use crate::core::Core;
use crate::shadow::Shadow;

/// Items the housekeeper looks at between two looks at the clock.
const STEP_ITEMS: usize = 32;
/// How long the housekeeper works without a pause, about 90 evictions: as long as a request on its core may have to wait for
/// it. A thread that only yields may be let go on for milliseconds by the kernel.
const BURST: Duration = Duration::from_micros(50);
/// The pause between two bursts; the kernel adds up to 50 µs. Short, because a lowered budget is to be reached in 20 ms:
/// 4,000 evictions take 44 bursts.
const PAUSE: Duration = Duration::from_micros(20);
/// How often the housekeeper looks for dead items when nobody wakes it.
const REST: Duration = Duration::from_millis(50);

/// A thread that runs until it is told to stop, or its worker is dropped.
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    thread: Thread,
}

impl Worker {
    /// Starts a thread that calls `round` again and again and sleeps for as long as it says, unless woken.
    fn start(name: &str, mut round: impl FnMut() -> Duration + Send + 'static) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            while !stopped.load(Relaxed) {
                thread::park_timeout(round());
            }
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop, thread: handle.thread().clone(), handle: Some(handle) })
    }

    /// What wakes the thread up.
    pub(crate) fn thread(&self) -> Thread {
        self.thread.clone()
    }

    /// Lets the round under way end, and no further one begin.
    pub(crate) fn stop(mut self) {
        self.tell_to_stop();
        if self.handle.take().is_some_and(|handle| handle.join().is_err()) {
            tracing::error!("a thread of the node had panicked");
        }
    }

    fn tell_to_stop(&self) {
        self.stop.store(true, Relaxed);
        self.thread.unpark();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// Evicts what is over its budget, in short bursts, and reclaims dead items.
pub(crate) fn housekeeper(cache: Arc<Cache>, shadow: Arc<Shadow>, clock: Clock) -> std::io::Result<Worker> {
    Worker::start("sherwood-keeper", move || {
        let start = clock.now();
        let mut now = start;
        loop {
            if !cache.step(now, STEP_ITEMS) && !shadow.step(now, STEP_ITEMS) {
                return REST;
            }
            now = clock.now();
            if now - start >= BURST {
                return PAUSE;
            }
        }
    })
}

/// Observes the SLO and decides, each when it is due.
pub(crate) fn control(core: Arc<Core>) -> std::io::Result<Worker> {
    let mut due = core.clock.now() + core.control().delta();
    Worker::start("sherwood-control", move || {
        let now = core.clock.now();
        let observe = core.telemetry.observe_slo(now);
        if now >= due {
            let mut control = core.control();
            control.decide(&core, now);
            // A round that was missed is not made up for: decisions would crowd.
            due = if due + control.delta() > now { due + control.delta() } else { now + control.delta() };
        }
        observe.min(due).since(core.clock.now())
    })
}
