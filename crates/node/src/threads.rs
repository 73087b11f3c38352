//! The daemon's own two threads: the control loop and the housekeeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use sherwood_cache::Cache;

use crate::clock::Clock;
use crate::core::Core;
use crate::resident::Watch;

/// Items the housekeeper looks at before it lets others have the processor.
const STEP_ITEMS: usize = 256;
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
    fn start(
        name: &str,
        mut round: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            while !stopped.load(Relaxed) {
                match round() {
                    Some(rest) => thread::park_timeout(rest),
                    None => thread::yield_now(),
                }
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

/// Evicts what is over its budget, in small steps, reclaims dead items, and lets `watch` look at the process.
pub(crate) fn housekeeper(
    cache: Arc<Cache>,
    clock: Clock,
    mut watch: Option<Watch>,
) -> std::io::Result<Worker> {
    Worker::start("sherwood-keeper", move || {
        let now = clock.now();
        let until_look = watch.as_mut().map_or(REST, |watch| watch.look(&cache, now));
        if cache.step(now, STEP_ITEMS) { None } else { Some(until_look.min(REST)) }
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
        Some(observe.min(due).since(core.clock.now()))
    })
}
