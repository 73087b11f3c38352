//! The ramp in a dispatcher, before a backend with a queue.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sherwood_model::SeededState;

use super::*;
use crate::{Action, Bound, CallId, Dispatch, FetchError, Options, ProbeOptions, Reply};

const MS: Duration = Duration::from_millis(1);

/// A backend of some workers, each of which takes `service` for a call, with a queue that knows no end; and the clients of a cache
/// that was empty at the start, who ask for keys at random.
struct World {
    dispatch: Dispatch<u64, (), u64>,
    now: Instant,
    workers: Vec<Instant>,
    service: Duration,
    /// Calls by the time at which they end.
    ends: BTreeMap<(Instant, u64), (CallId, usize)>,
    serial: u64,
    cached: BTreeSet<u64>,
    keys: u64,
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
            // The backend queues, not we: what a client library with a pool of its own would do.
            in_flight_calls_max: 10_000,
            queued_calls_max: 0,
            // Slow is not down.
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
            seed: 0x5eed,
            tally: Tally::default(),
        }
    }

    /// The next of a sequence of numbers without a pattern that matters here (xorshift64).
    fn draw(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// A second in which clients ask for `per_ms` keys each millisecond; what happened in it.
    fn second(&mut self, per_ms: u64) -> Tally {
        let before = self.tally;
        for _ in 0..1_000 {
            self.now += MS;
            self.end_calls();
            for _ in 0..per_ms {
                self.ask();
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
        let key = self.draw() % self.keys;
        self.tally.asked += 1;
        if self.cached.contains(&key) {
            self.tally.hits += 1;
        } else {
            let entropy = self.draw();
            self.dispatch.handle_fetch(self.now, [(key, key)], entropy);
            self.carry_out();
        }
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
                // First come, first served, and nobody is told to stop: a database works on what it was asked for.
                Action::Call { call, keys, .. } => {
                    let worker = self.workers.iter_mut().min().expect("there is one");
                    *worker = (*worker).max(self.now) + self.service;
                    self.serial += 1;
                    self.ends.insert((*worker, self.serial), (call, keys.len()));
                }
                Action::Deliver { key, result, fill, waiters } => {
                    let count = waiters.len() as u64;
                    match result {
                        Ok(_) => self.tally.fetched += count,
                        Err(FetchError::Overloaded { bound: Bound::Ramp, .. }) => self.tally.ramped += count,
                        Err(_) => self.tally.failed += count,
                    }
                    if fill {
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

/// Two thousand calls a second can be served, twenty thousand keys a second are asked for, a hundred thousand there are.
fn cold(ramp: Option<RampOptions>) -> World {
    World::new(ramp, 20, 10 * MS, 100_000)
}

#[test]
fn without_a_ramp_a_cold_cache_stays_cold() {
    let mut world = cold(None);
    let seconds: Vec<_> = (0..20).map(|_| world.second(20)).collect();
    let fetched: u64 = seconds[5..].iter().map(|second| second.fetched).sum();
    let failed: u64 = seconds[5..].iter().map(|second| second.failed).sum();
    assert!(failed > 100 * fetched, "{fetched} fetched, {failed} failed");
}

#[test]
fn with_it_the_cache_fills_at_nearly_the_backends_pace_and_next_to_nothing_fails() {
    let mut world = cold(Some(RampOptions::default()));
    let seconds: Vec<_> = (0..60).map(|_| world.second(20)).collect();
    let failed: u64 = seconds.iter().map(|second| second.failed).sum();
    assert!(failed < world.tally.asked / 1_000, "{failed} of {}", world.tally.asked);
    let fetched: u64 = seconds[5..20].iter().map(|second| second.fetched).sum();
    assert!(fetched > 15 * 1_200, "{fetched} of the 30,000 that the backend could have served");
}

#[test]
fn it_ends_when_the_cache_is_warm_and_begins_again_when_it_is_flushed() {
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
    assert!(world.standing().warm, "what is in flight may be old; the cache is not cold");
    world.cached.clear();
    world.dispatch.restart_ramp();
    assert!(!world.standing().warm);
    let flushed: Vec<_> = (0..5).map(|_| world.second(20)).collect();
    assert!(flushed.iter().all(|second| second.failed < 100 && second.ramped > 0), "{flushed:?}");
}

#[test]
fn a_backend_that_keeps_up_is_soon_given_everything() {
    let mut world = World::new(Some(RampOptions::default()), 1_000, MS, 1 << 40);
    let refused: Vec<_> = (0..8).map(|_| world.second(20).ramped).collect();
    assert!(refused[0] > 0 && refused[6] == 0 && refused[7] == 0, "{refused:?}");
    assert_eq!(world.tally.failed, 0);
}

/// A fifth of a second each, however many are asked for: growth waits for answers, which is slower than a step an interval.
#[test]
fn a_backend_that_is_far_away_is_given_everything_a_little_later() {
    let mut world = World::new(Some(RampOptions::default()), 1_000, 200 * MS, 1 << 40);
    let refused: Vec<_> = (0..8).map(|_| world.second(2).ramped).collect();
    assert!(refused[0] > 0 && refused[5..].iter().all(|refused| *refused == 0), "{refused:?}");
    assert_eq!(world.tally.failed, 0);
}

#[test]
fn little_to_do_does_not_end_it_before_there_is_much() {
    let mut world = cold(Some(RampOptions::default()));
    for _ in 0..30 {
        assert_eq!(world.second(0).asked, 0);
    }
    assert_eq!(world.standing(), RampStanding { per_s: 100, warm: false });
    let first = world.second(20);
    assert!(first.ramped > 15_000 && first.failed == 0, "{first:?}");
}

#[test]
fn a_backend_that_answers_nothing_is_asked_less_and_less() {
    let mut world = World::new(Some(RampOptions::default()), 1, Duration::from_secs(1_000_000), 100_000);
    (0..10).for_each(|_| {
        world.second(20);
    });
    assert!(world.standing().per_s < 20, "{:?}", world.standing());
}

/// Twenty keys a second, of which the first hundred a second to be let through would have to wait for five.
#[test]
fn a_slow_backend_is_not_sent_more_than_it_has_in_its_time_out_to_find_out_that_it_is_slow() {
    let mut world = World::new(Some(RampOptions::default()), 1, 50 * MS, 100_000);
    let seconds: Vec<_> = (0..20).map(|_| world.second(20)).collect();
    let sum = |of: fn(&Tally) -> u64| seconds.iter().map(of).sum::<u64>();
    let (fetched, failed) = (sum(|second| second.fetched), sum(|second| second.failed));
    assert!(failed < 40 && fetched > 250, "{failed} failed, {fetched} fetched of 400: {seconds:?}");
}

#[test]
fn a_page_of_a_few_keys_is_let_through_however_cold_the_cache_and_one_that_comes_much_later_too() {
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
fn a_refusal_is_said_in_the_ramps_words_and_counted() {
    let mut world = cold(Some(RampOptions { start_per_s: 1, ..RampOptions::default() }));
    world.dispatch.handle_fetch(Instant::ZERO, [(1, 1), (2, 2)], 7);
    let refused = world.dispatch.poll_action();
    let Some(Action::Deliver { key: 2, result: Err(error), .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "fetching the key was refused: misses a second that a cold cache may send while its backend keeps up (`ramp`) \
         reached their limit of 1; slow down or raise the limit"
    );
    // A joint wait for the same key costs the backend nothing.
    world.dispatch.handle_fetch(Instant::ZERO, [(1, 3)], 7);
    let counters = world.dispatch.stats().counters;
    assert_eq!((counters.ramped, counters.refused, counters.joined), (1, 1, 1));
}

/// What a ramp makes of five seconds in which it is asked for more than it gives, and each of a hundred calls a second is for so many
/// keys and takes so long.
fn after(ramp: &mut Ramp, from: u64, keys: usize, latency: Duration) -> f64 {
    for step in 0..500 {
        let now = Instant::from_secs(from) + Duration::from_millis(10) * step;
        (0..1_000).for_each(|_| {
            ramp.admits(now);
        });
        ramp.note(now, now - latency, keys, true);
    }
    ramp.rate
}

#[test]
fn a_call_of_more_keys_may_take_longer_and_one_of_fewer_may_cost_each_more() {
    let mut ramp = Ramp::new(RampOptions { grow_ratio: 1.1, ..RampOptions::default() }, 500 * MS);
    let first = after(&mut ramp, 1, 1, 30 * MS);
    let longer = after(&mut ramp, 10, 20, 300 * MS);
    assert!(longer > first, "it takes ten times as long for twenty times as much: {longer}");
    let dearer = after(&mut ramp, 20, 1, 60 * MS);
    assert!(dearer > longer, "a call costs at least so much: {dearer}");
    let slow = after(&mut ramp, 30, 1, 400 * MS);
    assert!(slow < dearer, "that is a queue: {slow}");
}

#[test]
fn what_takes_a_small_part_of_the_time_out_is_no_sign() {
    let mut ramp = Ramp::new(RampOptions { grow_ratio: 1.1, ..RampOptions::default() }, 500 * MS);
    let first = after(&mut ramp, 1, 1, MS / 10);
    let noisy = after(&mut ramp, 10, 1, 20 * MS);
    assert!(noisy > first, "a busy machine: {noisy}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a backend does, the rate stays one, and what is let through in a second is at most what the rate was at its
    /// highest, with the burst.
    #[test]
    fn rate_and_first_flight_are_bounds_whatever_happens(
        steps in prop::collection::vec((0..50_u64, 0..200_u64, 0..4_u8), 1..400),
        start in 1..100_000_u32,
    ) {
        let mut ramp = Ramp::new(RampOptions { start_per_s: start, ..RampOptions::default() }, 500 * MS);
        let (mut now, mut admitted, mut highest) = (Instant::ZERO, 0.0, f64::from(start));
        for (after, asked, outcome) in steps {
            now += Duration::from_millis(after);
            for _ in 0..asked {
                admitted += f64::from(u8::from(ramp.admits(now)));
            }
            if outcome > 0 {
                ramp.note(now, now - Duration::from_millis(u64::from(outcome) * 70), 1, outcome < 3);
            }
            prop_assert!((RATE_MIN..=RATE_MAX).contains(&ramp.rate));
            highest = highest.max(ramp.rate);
            let lasted = now.as_nanos() as f64 / 1e9;
            prop_assert!(admitted <= highest * (lasted + BURST_S) + 1.0, "{} in {} s", admitted, lasted);
            // Nothing ends here, so all that was admitted is out.
            prop_assert!(!ramp.is_first_flight || admitted <= burst(f64::from(start)));
            if ramp.warm {
                break;
            }
        }
    }
}
