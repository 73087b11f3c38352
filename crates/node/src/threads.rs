//! The daemon's own two threads: the control loop and the housekeeper.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use sherwood_cache::{Cache, Work};

use crate::buffers::Buffers;
use crate::chores::{Chores, LOOK, Progress};
use crate::clock::Clock;
use crate::control::Control;
use crate::resident::Watch;
use crate::shadow::Shadow;
use crate::telemetry::Telemetry;
use crate::vital::Vital;

/// Items the housekeeper evicts or moves before it lets others have the processor: some tens of
/// microseconds, which is as long as a request on its core then waits for it.
const STEP_ITEMS: usize = 64;
/// Items between two yields when others have had the processor for long, and want all of it: each
/// hands the processor over for milliseconds, and a lowered budget is to be reached all the same.
const STEP_ITEMS_CROWDED: usize = 512;
/// For how long the processor is away when others want all of it.
const CROWDED: Duration = Duration::from_millis(1);
/// The time between looks for expired items when nothing wakes the housekeeper.
const REST: Duration = Duration::from_millis(50);

/// A thread that runs until it is told to stop, or its worker is dropped.
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    thread: Thread,
}

impl Worker {
    /// Starts a thread that calls `round` again and again and sleeps for as long as it says, unless
    /// woken; where it says nothing, it only lets others go first.
    fn start(
        name: &str,
        mut round: impl FnMut() -> Option<Duration> + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let _vital = Vital;
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

    /// Returns a handle that wakes the thread.
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

/// The parts of the housekeeper.
pub(crate) struct Keeper {
    pub(crate) cache: Arc<Cache>,
    pub(crate) shadow: Arc<Shadow>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) chores: Arc<Chores>,
    pub(crate) clock: Clock,
    pub(crate) watch: Option<Watch>,
}

/// Sees to it that what is over its budget is evicted, in small steps, and the dead reclaimed, by
/// listeners or by itself, and looks at the process.
pub(crate) fn housekeeper(keeper: Keeper) -> std::io::Result<Worker> {
    let Keeper { cache, shadow, buffers, chores, clock, mut watch } = keeper;
    let mut progress = Progress::default();
    let mut yielded = None;
    Worker::start("sherwood-keeper", move || {
        let now = clock.now();
        let until_look = watch.as_mut().map_or(REST, |watch| watch.look(&cache, &buffers, now));
        if progress.is_enough(&chores, now) {
            yielded = None;
            return Some(until_look.min(LOOK));
        }
        let away = yielded.map_or(Duration::ZERO, |since| now - since);
        let items = if away < CROWDED { STEP_ITEMS } else { STEP_ITEMS_CROWDED };
        // Where a listener is at it, nobody knows yet.
        let more = cache.work(now, items) != Work::Done;
        chores.set_waiting(more);
        if more || shadow.step(now, items) {
            yielded = Some(clock.now());
            return None;
        }
        yielded = None;
        Some(until_look.min(REST))
    })
}

/// Observes the SLO and decides, each when it is due.
pub(crate) fn control(
    clock: Clock,
    telemetry: Arc<Telemetry>,
    control: Arc<Mutex<Control>>,
) -> std::io::Result<Worker> {
    let mut due = clock.now() + control.lock().expect("no panics while held").delta();
    Worker::start("sherwood-control", move || {
        let now = clock.now();
        let observe = telemetry.observe_slo(now);
        if now >= due {
            let mut control = control.lock().expect("no panics while held");
            control.decide(now);
            // A round that was missed is not made up for: decisions would crowd.
            due = if due + control.delta() > now { due + control.delta() } else { now + control.delta() };
        }
        Some(observe.min(due).since(clock.now()))
    })
}
