//! The daemon's own two threads: the control loop and the housekeeper.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use sherwood_cache::{Cache, Work};
use sherwood_model::Instant;
use sherwood_process::background::{BackgroundTasks, CHECK_INTERVAL, Progress, Share};
use sherwood_process::buffers::Buffers;
use sherwood_process::clock::Clock;
use sherwood_process::mapped::Mapped;
use sherwood_process::resident::Watch;
use sherwood_process::vital::Vital;

use crate::control::Control;
use crate::observe::shadow::Shadow;
use crate::observe::telemetry::Telemetry;

/// Items that the housekeeper evicts or moves between two pauses: while listeners run, some tens of
/// microseconds, by which it may delay a request on its core.
const STEP_ITEMS: usize = 64;
/// Items between two pauses while all listeners are asleep, and on a crowded machine, where each
/// pause takes milliseconds and a lowered budget must be reached, too.
const STEP_ITEMS_LONG: usize = 512;
/// Bytes of memory that the housekeeper returns to the system between two pauses, and on a crowded
/// machine. Chosen: 128 system pages take the system some hundred microseconds.
const RETURN_BYTES: usize = 512 << 10;
const RETURN_BYTES_CROWDED: usize = 4 << 20;
/// Pause between two steps. The housekeeper sleeps rather than yields: a thread that yields is
/// often selected again at once, for up to a whole slice of 4 ms, because a listener that has done
/// most of the work has had more than its part of the core. Linux adds 50 µs.
const PAUSE: Duration = Duration::from_micros(50);
/// Duration of a pause from which on the machine counts as crowded.
const CROWDED: Duration = Duration::from_millis(1);
/// Interval of searches for expired items when nothing wakes the housekeeper.
const REST: Duration = Duration::from_millis(50);

/// Least time between two observations of tenants.
const STEP_MIN: Duration = Duration::from_millis(1);

/// A thread that runs until it is told to stop, or its worker is dropped.
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    /// True once a round has ended after the last [check](Worker::check).
    checked: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    thread: Thread,
}

impl Worker {
    /// Starts a thread that calls `round` repeatedly and sleeps for the returned time in between,
    /// unless woken.
    fn start(name: &str, mut round: impl FnMut() -> Duration + Send + 'static) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let checked = Arc::new(AtomicBool::new(true));
        let (stopped, answer) = (Arc::clone(&stop), Arc::clone(&checked));
        let run = move || {
            let _vital = Vital;
            while !stopped.load(Relaxed) {
                let pause = round();
                answer.store(true, Relaxed);
                thread::park_timeout(pause);
            }
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { stop, checked, thread: handle.thread().clone(), handle: Some(handle) })
    }

    /// Returns a handle that wakes the thread.
    pub(crate) fn thread(&self) -> Thread {
        self.thread.clone()
    }

    /// Has the thread work a round now, as a sign of life.
    pub(crate) fn check(&self) {
        self.checked.store(false, Relaxed);
        self.thread.unpark();
    }

    /// Returns true if a round has ended since the last [check](Self::check), or there was none.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked.load(Relaxed)
    }

    /// Waits for the current round to end and starts no further one.
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

/// The parts of the node that the housekeeper works on.
pub(crate) struct Keeper {
    pub(crate) cache: Arc<Cache>,
    pub(crate) memory: Arc<Mapped>,
    pub(crate) shadow: Arc<Shadow>,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) background: Arc<BackgroundTasks>,
    pub(crate) clock: Clock,
    pub(crate) watch: Option<Watch>,
}

/// Starts the housekeeper: evicts items above a budget and reclaims dead ones in small steps,
/// unless listeners do so, returns memory to the system that was not used again, and checks the
/// process's memory.
pub(crate) fn housekeeper(keeper: Keeper) -> std::io::Result<Worker> {
    let Keeper { cache, memory, shadow, buffers, background, clock, mut watch } = keeper;
    let mut progress = Progress::default();
    let mut paused = None;
    Worker::start("sherwood-keeper", move || {
        let now = clock.now();
        let until_look = watch.as_mut().map_or(REST, |watch| watch.look(&cache, &buffers, &memory, now));
        let away = paused.take().map_or(Duration::ZERO, |since| now - since);
        let is_crowded = away >= CROWDED;
        let warm = memory.step(now, if is_crowded { RETURN_BYTES_CROWDED } else { RETURN_BYTES });
        let items = match progress.share(&background, now) {
            Share::Nothing => return until_look.min(CHECK_INTERVAL),
            Share::Short if !is_crowded => STEP_ITEMS,
            Share::Short | Share::Long => STEP_ITEMS_LONG,
        };
        // More work may be left than the listeners have done so far.
        let more = cache.work(now, items) != Work::Done;
        background.set_waiting(more);
        if more || warm || shadow.step(now, items) {
            paused = Some(clock.now());
            return PAUSE;
        }
        until_look.min(REST)
    })
}

/// Starts the control thread, which observes the SLOs, runs the control loop and calls `record`,
/// each when it is due. `record` is given the time and returns when it is due next.
pub(crate) fn control(
    clock: Clock,
    telemetry: Arc<Telemetry>,
    control: Arc<Mutex<Control>>,
    mut record: impl FnMut(Instant) -> Instant + Send + 'static,
) -> std::io::Result<Worker> {
    let band = control.lock().expect("no panics while held").band();
    let mut recording = clock.now();
    Worker::start("sherwood-control", move || {
        let now = clock.now();
        let observe = telemetry.observe_slo(now, band);
        let mut control = control.lock().expect("no panics while held");
        if now >= control.next_timeout() {
            control.run(now);
        }
        // A loop that is late is asked for the present again; time has to pass.
        let due = control.next_timeout().max(now + STEP_MIN);
        drop(control);
        if now >= recording {
            recording = record(now);
        }
        observe.min(due).min(recording).since(clock.now())
    })
}
