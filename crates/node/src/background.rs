//! The cache's background work, shared by the housekeeper and the threads of listeners.
//!
//! The housekeeper begins the work, and continues it where listeners do too little of it: because
//! they have no clients, are busy, or other threads want the core. [`BackgroundWork`] defines when
//! a listener helps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_cache::{Cache, Work};
use sherwood_model::Instant;

use crate::vital::Vital;
use sherwood_listener::BackgroundWork;

/// Items that a listener's thread handles in one step of background work. Chosen: some ten
/// microseconds (and a visit to every shard when little is left to do), a few times the cost of
/// polling for events.
const STEP_ITEMS: usize = 32;
/// Number of the listeners' steps in a millisecond above which the housekeeper leaves the
/// background work to them. Chosen: they take about a quarter of a core.
const STEPS_A_MS: u64 = 16;
/// Interval of the housekeeper's checks of the listeners' progress.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Pending background work, and the listeners' progress with it.
#[derive(Debug)]
pub(crate) struct BackgroundTasks {
    cache: Arc<Cache>,
    waiting: AtomicBool,
    /// Number of steps by listeners that left more work to do.
    steps: AtomicU64,
}

impl BackgroundTasks {
    /// Creates the background work of `cache`, with nothing pending.
    pub(crate) fn new(cache: Arc<Cache>) -> Self {
        Self { cache, waiting: AtomicBool::new(false), steps: AtomicU64::new(0) }
    }

    /// Sets whether there is background work for the listeners' threads.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        if self.waiting.load(Relaxed) != waiting {
            self.waiting.store(waiting, Relaxed);
        }
    }
}

impl BackgroundWork for BackgroundTasks {
    fn is_waiting(&self) -> bool {
        self.waiting.load(Relaxed)
    }

    fn step(&self, now: Instant) -> bool {
        let _vital = Vital;
        let more = self.cache.work(now, STEP_ITEMS) == Work::Left;
        if more {
            self.steps.fetch_add(1, Relaxed);
        }
        more
    }
}

/// The listeners' progress at the housekeeper's last check.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    at: Instant,
    steps: u64,
}

impl Progress {
    /// Returns whether listeners have done enough since the last check for the work to be left to
    /// them; false if the last check was less than [`CHECK_INTERVAL`] ago.
    pub(crate) fn is_enough(&mut self, background: &BackgroundTasks, now: Instant) -> bool {
        if now < self.at + CHECK_INTERVAL {
            return false;
        }
        let steps = background.steps.load(Relaxed);
        let last = std::mem::replace(self, Self { at: now, steps });
        let enough = now.since(last.at).as_micros() as u64 * STEPS_A_MS / 1000;
        steps - last.steps > enough
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use sherwood_cache::{Access, NewItem, Options, Partition};
    use sherwood_model::{BackendId, CachePlan, PartitionId, SeededState, TenantId};

    use super::*;
    use crate::buffers::Buffers;
    use crate::clock::Clock;
    use sherwood_listener::{Bound, ConnectionLimit, ListenerOptions, Routing, Service, Target};

    const BYTES: u64 = 1 << 20;

    fn at(micros: u64) -> Instant {
        Instant::from_millis(1) + Duration::from_micros(micros)
    }

    /// Creates a cache of 2,000 items whose budget is then set to zero, so that all are to be
    /// evicted.
    fn over() -> Cache {
        let partition = Partition::new(TenantId(0), BackendId(0), BYTES);
        let options = Options { total_bytes: BYTES, ..Options::default() };
        let cache = Cache::new(options, &[partition], SeededState::new(1)).expect("valid options");
        for number in 0..2_000_u64 {
            let stored = cache.set(
                PartitionId(0),
                &number.to_le_bytes(),
                NewItem::bytes(b"value"),
                &Access::at(at(0)),
            );
            stored.expect("room");
        }
        cache.apply(&CachePlan::Budgets(vec![0])).expect("one budget");
        cache
    }

    #[test]
    fn listener_with_clients_does_all_background_work() {
        let cache = Arc::new(over());
        let background = Arc::new(BackgroundTasks::new(Arc::clone(&cache)));
        let bind = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let options = ListenerOptions { bind, threads: 1, ..ListenerOptions::default() };
        let target = Target { partition: PartitionId(0), tenant: TenantId(0), read_through: false };
        let service = Service {
            cache: Arc::clone(&cache),
            routing: Routing::single(target),
            backends: None,
            connection_limit: Arc::new(ConnectionLimit::new(1)),
            buffers: Buffers::new(1 << 20),
            background: Some(Arc::clone(&background) as Arc<dyn BackgroundWork>),
            passwords: None,
        };
        let running = Bound::bind(options).expect("a port").serve(service, Arc::new(Clock::start()));
        let running = running.expect("a thread");
        let mut client = TcpStream::connect(running.address().tcp().expect("a port")).expect("a listener");
        let mut ask = || {
            client.write_all(b"mn\r\n").expect("a connection");
            client.read_exact(&mut [0; 4]).expect("an answer");
        };
        ask();
        let used = cache.used_bytes();
        background.set_waiting(true);
        // Most of the calls run at least one step, whatever else the machine does.
        (0..1_000_000).take_while(|_| cache.used_bytes() > 0).for_each(|_| ask());
        assert!(used > 0 && cache.used_bytes() == 0, "{} of {used} bytes are left", cache.used_bytes());
        running.stop();
        running.join().expect("no panic");
    }

    #[test]
    fn housekeeper_leaves_background_work_to_listeners_that_do_enough_of_it() {
        let (background, mut progress) = (BackgroundTasks::new(Arc::new(over())), Progress::default());
        let mut look = |millis, steps| {
            background.steps.store(steps, Relaxed);
            progress.is_enough(&background, Instant::from_millis(millis))
        };
        assert!(!look(1, 0), "nobody");
        assert!(look(2, 17));
        assert!(!look(4, 49), "as many in twice the time");
        assert!(look(5, 66));
        assert!(!look(6, 66), "they have gone to sleep");
    }

    #[test]
    fn housekeeper_checks_within_a_millisecond_count_as_one() {
        let (background, mut progress) = (BackgroundTasks::new(Arc::new(over())), Progress::default());
        assert!(!progress.is_enough(&background, at(0)));
        for (micros, steps) in [(40, 1), (80, 2), (999, 16)] {
            background.steps.store(steps, Relaxed);
            assert!(!progress.is_enough(&background, at(micros)), "{steps} steps in {micros} µs");
        }
        assert!(!progress.is_enough(&background, at(1_000)), "all of it counts");
        background.steps.store(33, Relaxed);
        assert!(progress.is_enough(&background, at(2_000)));
    }
}
