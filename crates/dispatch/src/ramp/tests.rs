//! The ramp in a dispatcher, with a simulated backend that has a queue.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sherwood_model::{Demand, SeededState};

use super::*;
use crate::{Action, AttemptId, Bound, Dispatch, FetchError, Options, ProbeOptions, Reply};

const MS: Duration = Duration::from_millis(1);

/// A backend of several workers, each of which takes `service` for a call, with an unbounded queue;
/// and clients of an initially empty cache, which request keys at random.
struct World {
    dispatch: Dispatch<u64, (), u64>,
    now: Instant,
    workers: Vec<Instant>,
    service: Duration,
    /// Calls by the time at which they end.
    ends: BTreeMap<(Instant, u64), (AttemptId, usize)>,
    serial: u64,
    cached: BTreeSet<u64>,
    keys: u64,
    /// Number of lists of keys requested, which also numbers the waiters, and the lists of which a
    /// key failed.
    lists: u64,
    broken: BTreeSet<u64>,
    seed: u64,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    asked: u64,
    hits: u64,
    fetched: u64,
    ramped: u64,
    failed: u64,
}

impl World {
    fn new(ramp: Option<RampOptions>, workers: usize, service: Duration, keys: u64) -> Self {
        let options = Options {
            ramp,
            timeout: 500 * MS,
            // Calls queue in the backend and not in the dispatcher, as with a client library that
            // has its own pool.
            in_flight_calls_max: 10_000,
            queued_calls_max: 0,
            // A slow backend does not count as down.
            probe: ProbeOptions { failures_max: u32::MAX, ..ProbeOptions::default() },
            ..Options::default()
        };
        Self {
            dispatch: Dispatch::new(options, 1, SeededState::new(3)).expect("valid"),
            now: Instant::ZERO,
            workers: vec![Instant::ZERO; workers],
            service,
            ends: BTreeMap::new(),
            serial: 0,
            cached: BTreeSet::new(),
            keys,
            lists: 0,
            broken: BTreeSet::new(),
            seed: 0x5eed,
            tally: Tally::default(),
        }
    }

    /// Returns the next number of a pseudorandom sequence (xorshift64).
    fn draw(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Simulates a second in which clients request `per_ms` keys each millisecond; returns its
    /// counts.
    fn second(&mut self, per_ms: u64) -> Tally {
        self.second_of_lists(per_ms, 1)
    }

    /// Simulates a second as [`second`](Self::second) does, with requests for lists of `length`
    /// keys.
    fn second_of_lists(&mut self, per_ms: u64, length: u64) -> Tally {
        let before = self.tally;
        for _ in 0..1_000 {
            self.now += MS;
            self.end_calls();
            for _ in 0..per_ms {
                self.ask_list(length);
            }
            self.dispatch.handle_timeout(self.now);
            self.carry_out();
        }
        let after = self.tally;
        Tally {
            asked: after.asked - before.asked,
            hits: after.hits - before.hits,
            fetched: after.fetched - before.fetched,
            ramped: after.ramped - before.ramped,
            failed: after.failed - before.failed,
        }
    }

    fn ask(&mut self) {
        self.ask_list(1);
    }

    fn ask_list(&mut self, length: u64) {
        self.lists += 1;
        let mut missed = Vec::new();
        for _ in 0..length {
            let key = self.draw() % self.keys;
            self.tally.asked += 1;
            if self.cached.contains(&key) {
                self.tally.hits += 1;
            } else {
                missed.push((key, self.lists));
            }
        }
        let entropy = self.draw();
        self.dispatch.handle_fetch(self.now, &Demand::default(), missed, entropy);
        self.carry_out();
    }

    fn end_calls(&mut self) {
        while let Some((&(at, serial), &(call, keys))) = self.ends.first_key_value()
            && at <= self.now
        {
            self.ends.remove(&(at, serial));
            self.dispatch.handle_reply(self.now, call, Reply::Ok(vec![Some(()); keys]));
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.dispatch.poll_action() {
            match action {
                // First come, first served, without cancellation: a database works on every call
                // that it received.
                Action::Call { attempt, keys, .. } => {
                    let worker = self.workers.iter_mut().min().expect("there is one");
                    *worker = (*worker).max(self.now) + self.service;
                    self.serial += 1;
                    self.ends.insert((*worker, self.serial), (attempt, keys.len()));
                }
                Action::Deliver { key, result, is_current, waiters, .. } => {
                    let count = waiters.len() as u64;
                    if result.is_err() {
                        self.broken.extend(waiters);
                    }
                    match result {
                        Ok(_) => self.tally.fetched += count,
                        Err(FetchError::Overloaded { bound: Bound::Ramp, .. }) => self.tally.ramped += count,
                        Err(_) => self.tally.failed += count,
                    }
                    if is_current {
                        self.cached.insert(key);
                    }
                }
                Action::Cancel { .. } | Action::Probe { .. } => {}
            }
        }
    }

    fn standing(&self) -> RampStanding {
        self.dispatch.stats().ramp.expect("there is a ramp")
    }
}

/// Creates a backend that serves 2,000 calls a second, for clients that request 20,000 of 100,000
/// keys a second.
fn cold(ramp: Option<RampOptions>) -> World {
    World::new(ramp, 20, 10 * MS, 100_000)
}

#[test]
fn cold_cache_stays_cold_without_a_ramp() {
    let mut world = cold(None);
    let seconds: Vec<_> = (0..20).map(|_| world.second(20)).collect();
    let fetched: u64 = seconds[5..].iter().map(|second| second.fetched).sum();
    let failed: u64 = seconds[5..].iter().map(|second| second.failed).sum();
    assert!(failed > 100 * fetched, "{fetched} fetched, {failed} failed");
}

#[test]
fn ramp_fills_the_cache_at_nearly_the_backends_rate_and_few_fetches_fail() {
    let mut world = cold(Some(RampOptions::default()));
    let seconds: Vec<_> = (0..60).map(|_| world.second(20)).collect();
    let failed: u64 = seconds.iter().map(|second| second.failed).sum();
    assert!(failed < world.tally.asked / 1_000, "{failed} of {}", world.tally.asked);
    let fetched: u64 = seconds[5..20].iter().map(|second| second.fetched).sum();
    assert!(fetched > 15 * 1_200, "{fetched} of the 30,000 that the backend could have served");
}

#[test]
fn ramp_ends_when_the_cache_is_warm_and_restarts_on_a_flush() {
    let mut world = cold(Some(RampOptions::default()));
    let warm_after = (1..200).find(|_| {
        world.second(20);
        world.standing().warm
    });
    let warm_after = warm_after.expect("it gets warm");
    assert!(warm_after > 50, "a hundred thousand keys take fifty seconds: {warm_after}");
    let Tally { asked, hits, ramped, failed, .. } = world.second(20);
    assert!(ramped == 0 && failed == 0 && hits > asked * 9 / 10, "{hits} of {asked}");
    world.dispatch.invalidate_where(|_| true);
    assert!(world.standing().warm, "keys in flight may be old; the cache is not cold");
    world.cached.clear();
    world.dispatch.restart_ramp();
    assert!(!world.standing().warm);
    let flushed: Vec<_> = (0..5).map(|_| world.second(20)).collect();
    assert!(flushed.iter().all(|second| second.failed < 100 && second.ramped > 0), "{flushed:?}");
}

#[test]
fn ramp_soon_admits_all_misses_of_a_fast_backend() {
    let mut world = World::new(Some(RampOptions::default()), 1_000, MS, 1 << 40);
    let refused: Vec<_> = (0..8).map(|_| world.second(20).ramped).collect();
    assert!(refused[0] > 0 && refused[6] == 0 && refused[7] == 0, "{refused:?}");
    assert_eq!(world.tally.failed, 0);
}

/// Simulates calls that take 200 ms each, however many there are. The window (keys that may be in
/// flight) grows with the answers, so more slowly than once per interval.
#[test]
fn ramp_admits_all_misses_of_a_backend_of_long_latency_somewhat_later() {
    let mut world = World::new(Some(RampOptions::default()), 1_000, 200 * MS, 1 << 40);
    let refused: Vec<_> = (0..8).map(|_| world.second(2).ramped).collect();
    assert!(refused[0] > 0 && refused[5..].iter().all(|refused| *refused == 0), "{refused:?}");
    assert_eq!(world.tally.failed, 0);
}

#[test]
fn ramp_does_not_end_before_the_first_refusal() {
    let mut world = cold(Some(RampOptions::default()));
    for _ in 0..30 {
        assert_eq!(world.second(0).asked, 0);
    }
    assert_eq!(world.standing(), RampStanding { keys: 10, warm: false });
    let first = world.second(20);
    assert!(first.ramped > 15_000 && first.failed == 0, "{first:?}");
}

#[test]
fn ramp_window_of_a_silent_backend_shrinks_to_one_key() {
    let mut world = World::new(Some(RampOptions::default()), 1, Duration::from_secs(1_000_000), 100_000);
    (0..10).for_each(|_| {
        world.second(20);
    });
    assert_eq!(world.standing().keys, 1);
}

/// Simulates a backend that serves 20 keys a second. If 20 keys were sent at once, the last one
/// would wait for twice the timeout.
#[test]
fn ramp_lets_few_fetches_of_a_slow_backend_time_out_at_the_start() {
    let mut world = World::new(Some(RampOptions::default()), 1, 50 * MS, 100_000);
    let seconds: Vec<_> = (0..20).map(|_| world.second(20)).collect();
    let sum = |of: fn(&Tally) -> u64| seconds.iter().map(of).sum::<u64>();
    let (fetched, failed) = (sum(|second| second.fetched), sum(|second| second.failed));
    assert!(failed < 40 && fetched > 250, "{failed} failed, {fetched} fetched of 400: {seconds:?}");
}

/// Simulates a backend that serves a fifth of the requested keys. A list with one missing key
/// counts as failed.
#[test]
fn ramp_admits_the_missing_keys_of_one_query_together() {
    let mut world = World::new(Some(RampOptions::default()), 2, 10 * MS, 1 << 40);
    (0..10).for_each(|_| {
        world.second_of_lists(1, 10);
    });
    let (lists, broken) = (world.lists, world.broken.len() as u64);
    (0..10).for_each(|_| {
        world.second_of_lists(1, 10);
    });
    let whole = world.lists - lists - (world.broken.len() as u64 - broken);
    assert!(whole > 1_200, "{whole} of the 2,000 that the backend could have served");
}

#[test]
fn list_as_long_as_the_first_ramp_window_is_admitted_at_the_start_and_after_pauses() {
    let mut world = World::new(Some(RampOptions::default()), 1, 40 * MS, 100_000);
    for _ in 0..5 {
        (0..10).for_each(|_| world.ask());
        assert_eq!(world.tally.ramped, 0);
        (0..60).for_each(|_| {
            world.second(0);
        });
    }
    (0..50).for_each(|_| world.ask());
    assert_eq!(world.tally.ramped, 40);
}

#[test]
fn ramp_refusal_names_the_ramp_and_is_counted() {
    let mut world = cold(Some(RampOptions { start_keys: 1, ..RampOptions::default() }));
    world.dispatch.handle_fetch(Instant::ZERO, &Demand::default(), [(1, 1), (2, 2)], 7);
    let refused = world.dispatch.poll_action();
    let Some(Action::Deliver { key: 2, result: Err(error), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "fetching the key was refused: misses of a cold cache that its backend may have at a time (`ramp`) \
         reached their limit of 1; slow down or raise the limit"
    );
    // Joining a fetch in flight does not load the backend.
    world.dispatch.handle_fetch(Instant::ZERO, &Demand::default(), [(1, 3)], 7);
    let counters = world.dispatch.stats().counters;
    assert_eq!((counters.ramped, counters.refused, counters.joined), (1, 1, 1));
}

/// Returns the window (keys that may be in flight) after a second with more requests than the ramp
/// admits, all of which take `latency`.
fn after(ramp: &mut Ramp, from: u64, latency: Duration) -> f64 {
    let mut out = std::collections::VecDeque::new();
    for step in 0..1_000 {
        let now = Instant::from_secs(from) + MS * step;
        while out.front().is_some_and(|asked| now.since(*asked) >= latency) {
            ramp.note(now, out.pop_front().expect("there is one"), 1, true);
            ramp.note_end();
        }
        while ramp.admits(now, &mut List::default()) {
            out.push_back(now);
        }
    }
    out.iter().for_each(|_| ramp.note_end());
    ramp.window
}

#[test]
fn ramp_window_grows_below_the_allowed_latency_and_shrinks_above_it() {
    let mut ramp = Ramp::new(RampOptions { grow_ratio: 1.5, ..RampOptions::default() }, 500 * MS);
    let first = after(&mut ramp, 1, 30 * MS);
    assert!(first > 20.0, "{first}");
    let longer = after(&mut ramp, 10, 150 * MS);
    assert!(longer > first, "half of the timeout is left: {longer}");
    let slow = after(&mut ramp, 20, 400 * MS);
    assert!(slow < longer, "that is a queue: {slow}");
}

#[test]
fn unloaded_latency_adapts_to_a_backend_that_became_slower() {
    let mut ramp = Ramp::new(RampOptions::default(), 500 * MS);
    after(&mut ramp, 1, MS);
    let mut least = f64::MAX;
    let grown = (0..60).any(|second| {
        let window = after(&mut ramp, 10 + 2 * second, 300 * MS);
        least = least.min(window);
        window > 10.0 * least
    });
    assert!(grown, "{least}: {ramp:?}");
}

/// Simulates an outage: while the only replica is down, each admitted key ends at once, and no call
/// is made.
#[test]
fn outage_does_not_end_the_ramp() {
    let mut ramp = Ramp::new(RampOptions::default(), 500 * MS);
    after(&mut ramp, 1, 30 * MS);
    let mut pass = |from: u64, seconds: u64, answered: bool| {
        for step in 0..50 * seconds {
            let now = Instant::from_secs(from) + Duration::from_millis(20 * step);
            assert!(ramp.admits(now, &mut List::default()));
            if answered {
                ramp.note(now, now, 1, true);
            }
            ramp.note_end();
        }
        ramp.warm
    };
    assert!(!pass(10, 60, false));
    assert!(!pass(100, 5, true), "the backend is back, and its load is still to return");
    assert!(pass(105, 6, true));
}

#[test]
fn occasional_failures_do_not_shrink_the_ramp_window() {
    let mut ramp = Ramp::new(RampOptions::default(), 500 * MS);
    let window = after(&mut ramp, 1, 30 * MS);
    assert!(window > 20.0);
    for second in 10..100 {
        let now = Instant::from_secs(second);
        ramp.admits(now, &mut List::default());
        ramp.note(now, now, 1, second % 10 > 0);
        ramp.note_end();
    }
    assert!(ramp.window >= window, "{ramp:?}");
}

/// Compares calls of a hundred keys, which wait long, with ten calls of a single key, which do not.
#[test]
fn latency_of_a_call_counts_for_the_ramp_once_per_key() {
    let mut ramp = Ramp::new(RampOptions { start_keys: 1_010, ..RampOptions::default() }, 500 * MS);
    let mut round = |from: u64, latency: Duration| {
        let now = Instant::from_secs(from);
        let mut list = List::default();
        while ramp.admits(now, &mut list) {}
        (0..10).for_each(|_| ramp.note(now + MS, now, 1, true));
        (0..=ramp.in_flight / 100).for_each(|_| ramp.note(now + latency, now, 100, true));
        (0..ramp.in_flight).for_each(|_| ramp.note_end());
        ramp.admits(now + Duration::from_secs(1), &mut List::default());
        ramp.note_end();
        ramp.window
    };
    let first = round(1, 20 * MS);
    assert!(first > 1_010.0, "{first}");
    let second = round(10, 450 * MS);
    assert!(second < first, "{second} of {first}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks that keys in flight never exceed twice the largest window, nor the first window
    /// before anything is known of the backend.
    #[test]
    fn keys_in_flight_stay_within_twice_the_largest_ramp_window(
        steps in prop::collection::vec((0..50_u64, 0..200_u64, 0..4_u8, 1..40_u64), 1..400),
        start in 1..1_000_u32,
    ) {
        let mut ramp = Ramp::new(RampOptions { start_keys: start, ..RampOptions::default() }, 500 * MS);
        let (mut now, mut largest) = (Instant::ZERO, f64::from(start));
        for (after, asked, outcome, length) in steps {
            now += Duration::from_millis(after);
            let mut list = List::default();
            for key in 0..asked {
                if key % length == 0 {
                    list = List::default();
                }
                ramp.admits(now, &mut list);
                largest = largest.max(ramp.window);
            }
            if outcome > 0 && ramp.in_flight > 0 {
                ramp.note(now, now - Duration::from_millis(u64::from(outcome) * 70), 1, outcome < 3);
                ramp.note_end();
            }
            prop_assert!((WINDOW_MIN..=WINDOW_MAX).contains(&ramp.window));
            largest = largest.max(ramp.window);
            prop_assert!(ramp.warm || f64::from(ramp.in_flight) <= 2.0 * largest, "{} of {}", ramp.in_flight, largest);
            prop_assert!(ramp.unloaded_s.is_some() || f64::from(ramp.in_flight) <= largest.max(1.0));
            if ramp.warm {
                break;
            }
        }
    }
}
