//! Background work on the cache, done by listener threads that have no events.
//!
//! A separate thread for this work would compete with the threads that serve clients whenever they
//! share a core: the system lets it run for most of a millisecond before it switches to a woken
//! thread, whatever its priority. A priority so low that the thread yields at once would be
//! dangerous, because a thread that holds a shard's lock and is not scheduled blocks all others
//! from that shard. A listener's thread knows when it is idle. So while work waits, it polls for
//! events without blocking, and if there are none it does one small step and polls again: a client
//! waits for at most one step, and all idle time is used.
//!
//! A thread whose core is busy with something else stops helping for a while. A thread that never
//! sleeps has to queue for the core, and its clients with it, whereas a thread that often sleeps is
//! scheduled at once.

use std::time::Duration;

use sherwood_model::Instant;

/// The time after its last events for which a thread helps with background work. Chosen so that
/// clients which send a thousand requests a second are enough.
const IDLE_MAX: Duration = Duration::from_millis(1);
/// The longest background step after which the thread's core counts as free; a longer step was
/// interrupted.
const CROWDED: Duration = Duration::from_millis(1);
/// The time for which a thread does not help after an interrupted step. Chosen: the time that
/// freeing a tenth of a cache takes.
const RETREAT: Duration = Duration::from_millis(100);

/// Background work that listener threads can help with.
pub trait BackgroundWork: Send + Sync {
    /// Returns true if there is background work to do. A listener's thread asks this before it
    /// polls for events, whether it may help or not.
    fn is_waiting(&self) -> bool;

    /// Does one step of the work, of some ten microseconds. Returns true if there is more work that
    /// this thread can do.
    fn step(&self, now: Instant) -> bool;
}

/// The time in which a listener's thread does background work.
#[derive(Debug, Default)]
pub(super) struct IdleTime {
    from: Instant,
    until: Instant,
    /// The start of the previous background step, if it was the last thing that the thread did.
    step: Option<Instant>,
}

impl IdleTime {
    /// Returns true if there is work and the thread may help with it now.
    pub(super) fn is_used(&self, work: &dyn BackgroundWork, now: Instant) -> bool {
        work.is_waiting() && (self.from..self.until).contains(&now)
    }

    /// Records that the thread polled for events: whether the poll could block, and whether there
    /// were any events.
    pub(super) fn asked(&mut self, waited: bool, any: bool, now: Instant) {
        if self.step.take().is_some_and(|began| !waited && now > began + CROWDED) {
            self.from = now + RETREAT;
        }
        if any {
            self.until = now + IDLE_MAX;
        }
    }

    /// Does one step of `work`. If nothing is left that this thread can do, it stops helping until
    /// its next events.
    pub(super) fn help(&mut self, work: &dyn BackgroundWork, now: Instant) {
        if work.step(now) {
            self.step = Some(now);
        } else {
            self.until = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// Background work that consists of a number of steps.
    struct Steps(AtomicU64);

    impl Steps {
        fn left(&self) -> u64 {
            self.0.load(Relaxed)
        }
    }

    impl BackgroundWork for Steps {
        fn is_waiting(&self) -> bool {
            self.left() > 0
        }

        fn step(&self, _: Instant) -> bool {
            self.0.fetch_sub(1, Relaxed) > 1
        }
    }

    fn steps(count: u64) -> (Steps, IdleTime) {
        (Steps(AtomicU64::new(count)), IdleTime::default())
    }

    fn at(micros: u64) -> Instant {
        Instant::from_millis(1) + Duration::from_micros(micros)
    }

    #[test]
    fn idle_thread_does_background_work_until_it_is_done_or_events_are_long_ago() {
        let (work, mut idle) = steps(0);
        idle.asked(true, true, at(0));
        assert!(!idle.is_used(&work, at(1)), "there is no work");
        work.0.store(3, Relaxed);
        assert!(idle.is_used(&work, at(999)) && !idle.is_used(&work, at(1_000)));
        idle.help(&work, at(2));
        assert_eq!(work.left(), 2);
        idle.asked(false, false, at(20));
        while idle.is_used(&work, at(20)) {
            idle.help(&work, at(20));
        }
        assert_eq!(work.left(), 0);
    }

    #[test]
    fn thread_stops_helping_if_only_other_threads_can_do_the_background_work() {
        let (work, mut idle) = steps(1);
        idle.asked(true, true, at(0));
        idle.help(&work, at(1));
        work.0.store(9, Relaxed);
        assert!(!idle.is_used(&work, at(2)));
        idle.asked(true, true, at(3));
        assert!(idle.is_used(&work, at(4)));
    }

    #[test]
    fn interrupted_background_step_makes_the_thread_stop_helping_for_a_while() {
        let (work, mut idle) = steps(9);
        idle.asked(true, true, at(0));
        idle.help(&work, at(1));
        idle.asked(false, true, at(2_000));
        assert!(!idle.is_used(&work, at(2_000)));
        idle.asked(true, true, at(102_000));
        assert!(idle.is_used(&work, at(102_000)));
    }

    #[test]
    fn time_asleep_after_a_background_step_does_not_count_as_an_interruption() {
        let (work, mut idle) = steps(9);
        idle.asked(true, true, at(0));
        idle.help(&work, at(990));
        idle.asked(true, true, at(5_000));
        assert!(idle.is_used(&work, at(5_000)));
    }
}
