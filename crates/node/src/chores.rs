//! Who does the cache's background work.
//!
//! A thread of its own for it is at odds with those that serve clients as soon as they share a
//! core: the system lets it run on for most of a millisecond before it gives way to a client's
//! thread that has been woken, whatever its priority, and a priority so low that it gives way at
//! once would be a trap, for a thread that holds a shard's lock and is not run keeps everybody from
//! that shard. A listener's thread knows better than the system when it has nothing to do. So while
//! there is work, it asks for events without waiting for them, and when there are none it does a
//! little and asks again: a client waits for one such step at most, and all the time that clients
//! leave is used.
//!
//! The housekeeper begins the work, and goes on with it where no listener does enough of it:
//! because none has clients just now, because they leave no time, or because others want the core.
//! Then a thread that always has something to do would have to wait for its turn as they do, and
//! its clients with it, where one that sleeps as often as not is let in at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_cache::{Cache, Work};
use sherwood_model::Instant;

use crate::vital::Vital;

/// Items of a listener's step. Chosen: some ten microseconds (and a look at every shard where
/// little is left to do), a few times as long as asking for events takes.
const STEP_ITEMS: usize = 32;
/// A listener that had no events for so long goes to sleep, and leaves the work to the housekeeper.
/// Chosen: clients that ask a thousand times a second are enough.
const LEISURE: Duration = Duration::from_millis(1);
/// A step that ended so late was not all that the core did meanwhile.
pub(crate) const CROWDED: Duration = Duration::from_millis(1);
/// For how long a listener leaves the work to the housekeeper then. Chosen: as long as giving up a
/// tenth of a cache takes.
const RETREAT: Duration = Duration::from_millis(100);
/// Steps of listeners in a millisecond that the housekeeper leaves the work to. Chosen: they take
/// about a quarter of a core.
const STEPS_A_MS: u64 = 16;
/// From one look of the housekeeper at what listeners do to the next.
pub(crate) const GLANCE: Duration = Duration::from_millis(1);

/// Background work that waits, and what listeners have done of it.
#[derive(Debug, Default)]
pub struct Chores {
    wait: AtomicBool,
    /// Steps after which there was more to do.
    steps: AtomicU64,
}

impl Chores {
    /// Says whether there is work for listeners.
    pub(crate) fn set_waiting(&self, wait: bool) {
        if self.wait.load(Relaxed) != wait {
            self.wait.store(wait, Relaxed);
        }
    }
}

/// A listener's time for chores.
#[derive(Debug, Default)]
pub(crate) struct Leisure {
    from: Instant,
    until: Instant,
    /// When the step before this moment began, if there was one.
    step: Option<Instant>,
}

impl Leisure {
    /// Whether there is something to do for somebody who has no events.
    pub(crate) fn is_used(&self, chores: &Chores, now: Instant) -> bool {
        chores.wait.load(Relaxed) && (self.from..self.until).contains(&now)
    }

    /// Notes that the system has been asked for events, whether it was to wait for them, and
    /// whether there were any.
    pub(crate) fn asked(&mut self, waited: bool, any: bool, now: Instant) {
        if self.step.take().is_some_and(|began| !waited && now > began + CROWDED) {
            self.from = now + RETREAT;
        }
        if any {
            self.until = now + LEISURE;
        }
    }

    /// Does a little. Where that was all there is, or somebody else is at it, the rest of the time
    /// is for sleeping.
    pub(crate) fn help(&mut self, chores: &Chores, cache: &Cache, now: Instant) {
        let _vital = Vital;
        match cache.work(now, STEP_ITEMS) {
            Work::Left => {
                chores.steps.fetch_add(1, Relaxed);
                self.step = Some(now);
            }
            Work::Done | Work::Elsewhere => self.until = now,
        }
    }
}

/// What the housekeeper knew of the listeners when it looked last.
#[derive(Debug, Default)]
pub(crate) struct Glance {
    at: Instant,
    steps: u64,
}

impl Glance {
    /// Whether listeners have done enough since the last look for the work to be left to them. Too
    /// soon after it nobody can tell.
    pub(crate) fn sees_help(&mut self, chores: &Chores, now: Instant) -> bool {
        if now < self.at + GLANCE {
            return false;
        }
        let steps = chores.steps.load(Relaxed);
        let last = std::mem::replace(self, Self { at: now, steps });
        let enough = now.since(last.at).as_micros() as u64 * STEPS_A_MS / 1000;
        steps - last.steps > enough
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;

    use sherwood_cache::{Access, NewItem, Options, Partition};
    use sherwood_model::{BackendId, CachePlan, PartitionId, SeededState, TenantId};
    use tokio::sync::watch;

    use super::*;
    use crate::buffers::Buffers;
    use crate::clock::Clock;
    use crate::listener::{Bound, MemcachedOptions, Places, Routing, Service, Target};

    const BYTES: u64 = 1 << 20;

    fn at(micros: u64) -> Instant {
        Instant::from_millis(1) + Duration::from_micros(micros)
    }

    /// A cache that has to give up all it holds.
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
    fn a_listener_helps_until_all_is_done_or_its_clients_are_gone() {
        let (cache, chores, mut leisure) = (over(), Chores::default(), Leisure::default());
        leisure.asked(true, true, at(0));
        assert!(!leisure.is_used(&chores, at(1)), "there is no work");
        chores.set_waiting(true);
        assert!(leisure.is_used(&chores, at(999)) && !leisure.is_used(&chores, at(1_000)));
        let used = cache.used_bytes();
        leisure.help(&chores, &cache, at(2));
        assert!((1..used).contains(&cache.used_bytes()), "a little");
        leisure.asked(false, false, at(20));
        assert!(leisure.is_used(&chores, at(20)));
        while leisure.is_used(&chores, at(20)) {
            leisure.help(&chores, &cache, at(20));
        }
        assert_eq!(cache.used_bytes(), 0);
    }

    #[test]
    fn a_listener_whose_core_is_wanted_by_others_leaves_the_work_to_the_housekeeper() {
        let (cache, chores, mut leisure) = (over(), Chores::default(), Leisure::default());
        chores.set_waiting(true);
        leisure.asked(true, true, at(0));
        leisure.help(&chores, &cache, at(1));
        leisure.asked(false, true, at(2_000));
        assert!(!leisure.is_used(&chores, at(2_000)));
        leisure.asked(true, true, at(102_000));
        assert!(leisure.is_used(&chores, at(102_000)));
    }

    #[test]
    fn a_listener_that_slept_until_its_clients_came_has_not_been_kept_waiting() {
        let (cache, chores, mut leisure) = (over(), Chores::default(), Leisure::default());
        chores.set_waiting(true);
        leisure.asked(true, true, at(0));
        leisure.help(&chores, &cache, at(990));
        leisure.asked(true, true, at(5_000));
        assert!(leisure.is_used(&chores, at(5_000)));
    }

    #[test]
    fn clients_that_ask_leave_time_for_all_of_the_work() {
        let (cache, chores) = (Arc::new(over()), Arc::new(Chores::default()));
        let bind = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let options = MemcachedOptions { bind, threads: 1, ..MemcachedOptions::default() };
        let target = Target { partition: PartitionId(0), tenant: TenantId(0), read_through: false };
        let service = Service {
            cache: Arc::clone(&cache),
            routing: Routing::single(target),
            backends: None,
            places: Arc::new(Places::new(1)),
            buffers: Buffers::new(1 << 20),
            chores: Arc::clone(&chores),
            passwords: None,
        };
        let (stop, stopping) = watch::channel(false);
        let running = Bound::bind(options).expect("a port").serve(service, Clock::start(), stopping);
        let running = running.expect("a thread");
        let mut client = TcpStream::connect(running.address().tcp().expect("a port")).expect("a listener");
        let mut ask = || {
            client.write_all(b"mn\r\n").expect("a connection");
            client.read_exact(&mut [0; 4]).expect("an answer");
        };
        ask();
        let used = cache.used_bytes();
        chores.set_waiting(true);
        // A step at least for most of them, whatever the machine does besides.
        (0..1_000_000).take_while(|_| cache.used_bytes() > 0).for_each(|_| ask());
        assert!(used > 0 && cache.used_bytes() == 0, "{} of {used} bytes are left", cache.used_bytes());
        stop.send_replace(true);
        running.join().expect("no panic");
    }

    #[test]
    fn the_housekeeper_leaves_the_work_to_listeners_that_do_enough_of_it() {
        let (chores, mut glance) = (Chores::default(), Glance::default());
        let mut look = |millis, steps| {
            chores.steps.store(steps, Relaxed);
            glance.sees_help(&chores, Instant::from_millis(millis))
        };
        assert!(!look(1, 0), "nobody");
        assert!(look(2, 17));
        assert!(!look(4, 49), "as many in twice the time");
        assert!(look(5, 66));
        assert!(!look(6, 66), "they have gone to sleep");
    }

    #[test]
    fn a_step_in_a_moment_says_nothing_of_a_millisecond() {
        let (chores, mut glance) = (Chores::default(), Glance::default());
        assert!(!glance.sees_help(&chores, at(0)));
        for (micros, steps) in [(40, 1), (80, 2), (999, 16)] {
            chores.steps.store(steps, Relaxed);
            assert!(!glance.sees_help(&chores, at(micros)), "{steps} steps in {micros} µs");
        }
        assert!(!glance.sees_help(&chores, at(1_000)), "all of it counts");
        chores.steps.store(33, Relaxed);
        assert!(glance.sees_help(&chores, at(2_000)));
    }
}
