//! The cache's background work, shared by the housekeeper and the threads of listeners.
//!
//! The housekeeper begins the work, and continues it where listeners do too little of it: because
//! they have no clients, are busy, or other threads want the core. [`BackgroundWork`] defines when
//! a listener helps.
//!
//! A listener with events looks for work before it polls again. So the housekeeper knows if any of
//! them runs, and then works in short steps ([`Share`]), as a request may be waiting for its core.

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
pub const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Pending background work, and the listeners' progress with it.
#[derive(Debug)]
pub struct BackgroundTasks {
    cache: Arc<Cache>,
    waiting: AtomicBool,
    /// Number of steps by listeners that left more work to do.
    steps: AtomicU64,
    /// Number of times that listeners looked for work and some was pending.
    looks: AtomicU64,
}

impl BackgroundTasks {
    /// Creates the background work of `cache`, with nothing pending.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache, waiting: AtomicBool::new(false), steps: AtomicU64::new(0), looks: AtomicU64::new(0) }
    }

    /// Sets whether there is background work for the listeners' threads.
    pub fn set_waiting(&self, waiting: bool) {
        if self.waiting.load(Relaxed) != waiting {
            self.waiting.store(waiting, Relaxed);
        }
    }
}

impl BackgroundWork for BackgroundTasks {
    fn is_waiting(&self) -> bool {
        let waiting = self.waiting.load(Relaxed);
        if waiting {
            self.looks.fetch_add(1, Relaxed);
        }
        waiting
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

/// The housekeeper's share of the background work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// None: listeners do enough.
    Nothing,
    /// Short steps: a listener runs, or it is not known yet if one does.
    #[default]
    Short,
    /// Long steps: all listeners are asleep.
    Long,
}

/// The listeners' progress at the housekeeper's last check, and its share since then.
#[derive(Debug, Default)]
pub struct Progress {
    at: Instant,
    steps: u64,
    looks: u64,
    share: Share,
}

impl Progress {
    /// Returns the housekeeper's share by the listeners' progress since the last check. A check is
    /// made each [`CHECK_INTERVAL`] from when the work began; in between, only a listener that has
    /// woken up makes a difference.
    pub fn share(&mut self, background: &BackgroundTasks, now: Instant) -> Share {
        let (steps, looks) = (background.steps.load(Relaxed), background.looks.load(Relaxed));
        let has_begun = background.waiting.load(Relaxed);
        if has_begun && now < self.at + CHECK_INTERVAL {
            if looks != self.looks && self.share == Share::Long {
                self.share = Share::Short;
            }
            return self.share;
        }
        let enough = now.since(self.at).as_micros() as u64 * STEPS_A_MS / 1000;
        let share = if !has_begun {
            Share::Short
        } else if steps - self.steps > enough {
            Share::Nothing
        } else if looks != self.looks {
            Share::Short
        } else {
            Share::Long
        };
        *self = Self { at: now, steps, looks, share };
        share
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
    use sherwood_listener::{Bound, ConnectionLimit, ListenerOptions, Protocol, Routing, Service, Target};

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
        let target = Target {
            partition: PartitionId(0),
            tenant: TenantId(0),
            read_through: false,
            write_through: false,
            shared: false,
        };
        let service = Service {
            cache: Arc::clone(&cache),
            routing: Routing::single(target),
            backends: None,
            connection_limit: Arc::new(ConnectionLimit::new(1)),
            buffers: Buffers::new(1 << 20),
            background: Some(Arc::clone(&background) as Arc<dyn BackgroundWork>),
            passwords: None,
            users: sherwood_listener::UserRoutes::default(),
            network: None,
            standings: None,
            times: Arc::default(),
            batches: None,
            hot_keys: None,
        };
        let running = Bound::bind(options).expect("a port").serve(
            Protocol::Memcached,
            service,
            Arc::new(Clock::start()),
            1,
        );
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

    /// Returns the share of the housekeeper at a time, in microseconds, when listeners have made
    /// `steps` steps and have looked `looks` times so far.
    fn share(
        progress: &mut Progress,
        background: &BackgroundTasks,
        micros: u64,
        counts: (u64, u64),
    ) -> Share {
        background.steps.store(counts.0, Relaxed);
        background.looks.store(counts.1, Relaxed);
        progress.share(background, at(micros))
    }

    #[test]
    fn housekeeper_leaves_background_work_to_listeners_that_do_enough_of_it() {
        let (background, mut progress) = (BackgroundTasks::new(Arc::new(over())), Progress::default());
        let mut look = |micros, counts| share(&mut progress, &background, micros, counts);
        assert_eq!(look(0, (0, 0)), Share::Short, "nothing is pending");
        background.set_waiting(true);
        assert_eq!(look(999, (16, 16)), Share::Short);
        assert_eq!(look(1_000, (17, 17)), Share::Nothing);
        assert_eq!(look(3_000, (49, 49)), Share::Short, "as many in twice the time");
        assert_eq!(look(4_000, (66, 66)), Share::Nothing);
        assert_eq!(look(5_000, (66, 66)), Share::Long, "they have gone to sleep");
    }

    #[test]
    fn housekeeper_takes_long_steps_while_no_listener_looks_for_work() {
        let (background, mut progress) = (BackgroundTasks::new(Arc::new(over())), Progress::default());
        let mut look = |micros, looks| share(&mut progress, &background, micros, (0, looks));
        assert_eq!(look(7_000, 3), Share::Short, "nothing is pending");
        background.set_waiting(true);
        assert_eq!(look(7_999, 3), Share::Short, "the work has just begun");
        assert_eq!(look(8_000, 3), Share::Long);
        assert_eq!(look(8_500, 4), Share::Short, "one has woken up");
        assert_eq!(look(9_000, 4), Share::Short);
        assert_eq!(look(10_000, 4), Share::Long);
        background.set_waiting(false);
        assert_eq!(look(10_001, 4), Share::Short);
    }

    #[test]
    fn listener_that_looks_for_work_is_noticed_while_some_is_pending() {
        let background = BackgroundTasks::new(Arc::new(over()));
        assert!(!background.is_waiting());
        assert_eq!(background.looks.load(Relaxed), 0);
        background.set_waiting(true);
        assert!(background.is_waiting());
        assert_eq!(background.looks.load(Relaxed), 1);
    }
}
