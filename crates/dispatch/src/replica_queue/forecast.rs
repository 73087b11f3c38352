//! The waiting work of a server, by the time of its deadline.
//!
//! An estimate needs the work before a deadline, and for each later deadline the work until that.
//! The exact answer takes a pass over all that waits. Here the work is summed up in 128 buckets of
//! deadlines, of which the near ones are narrow and each is at most a fifteenth as wide as it is
//! far away (a sixteenth, as time begins to approach it), so that the pass takes a constant time.
//!
//! ```text
//!  now            32 ticks           64              128     …           2,048
//!   │ 32 buckets of 1 │ 16 of 2 ticks │ 16 of 4 ticks │ …  16 of 64 ticks │ one for the rest
//! ```
//!
//! Buckets lie at fixed times. Where the passing time brings a bucket nearer than its level allows,
//! its entries are moved to the two buckets of half the width, found in the ordered map that holds
//! them: each entry six times at most, one for each level. This is a hierarchical timing wheel
//! (Varghese and Lauck, "Hashed and hierarchical timing wheels", 1987) that adds up instead of
//! firing.

use std::time::Duration;

use sherwood_model::Instant;

use super::work::{KeyTimes, Work};

/// Sums of waiting work, by deadline.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    /// The tick that the buckets are arranged around.
    now: u64,
    /// Work whose deadline is over.
    overdue: Bucket,
    near: [Bucket; NEAR as usize],
    levels: [[Bucket; WIDTHS as usize]; LEVELS],
    far: Bucket,
}

/// The work of deadlines that lie close together.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    work: Work,
    /// Number of calls that should meet their deadline.
    bound: u32,
}

/// A call as a forecast counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// Time that ranks the call, which is its deadline if it is bound to it.
    pub(super) at: Instant,
    pub(super) work: Work,
    /// True if the call should meet its deadline; false if it was given up.
    pub(super) is_bound: bool,
}

/// The place of a bucket, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Overdue,
    /// Bucket of this tick.
    Near(u64),
    /// Bucket number of a level, from the origin of time. Level 0 has buckets of 2 ticks.
    Level(usize, u64),
    Far,
}

/// The waiting work before and behind a new call, as far as estimates need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outlook {
    /// Time that the calls before the new one take.
    pub(super) before: Duration,
    /// True if a call behind the new one is expected to meet its deadline without it alone.
    pub(super) breaks_another: bool,
}

/// A call that may be added, and the server that it would wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    /// Time that the call takes.
    pub(super) own: Duration,
    /// Time at which the calls that have been started are expected to have ended.
    pub(super) start: Instant,
    pub(super) times: KeyTimes,
    /// Number of workers, at least 1, which share the waiting work evenly.
    pub(super) workers: u32,
}

impl Bucket {
    fn is_empty(&self) -> bool {
        let Self { work, bound } = *self;
        bound == 0 && work == Work::default()
    }
}

impl Forecast {
    pub(super) fn new() -> Self {
        let none = Bucket::default();
        let levels = [[none; WIDTHS as usize]; LEVELS];
        Self { now: 0, overdue: none, near: [none; NEAR as usize], levels, far: none }
    }

    pub(super) fn add(&mut self, call: Counted) {
        let bucket = self.bucket(self.place(tick_of(call.at)));
        bucket.work += call.work;
        bucket.bound += u32::from(call.is_bound);
    }

    pub(super) fn remove(&mut self, call: Counted) {
        let bucket = self.bucket(self.place(tick_of(call.at)));
        bucket.work -= call.work;
        bucket.bound -= u32::from(call.is_bound);
    }

    /// Arranges the buckets around `now`. `calls` are the calls between two times, the second
    /// excluded unless it is [`Instant::NEVER`], and `count` is the number of all. Takes as many
    /// steps as ticks have passed, or a step for each call, whichever is fewer. A clock that steps
    /// back changes nothing.
    pub(super) fn advance<I: Iterator<Item = Counted>>(
        &mut self,
        now: Instant,
        count: usize,
        calls: impl Fn(Instant, Instant) -> I,
    ) {
        let now = tick_of(now);
        if now.saturating_sub(self.now) > 2 * count as u64 + 16 {
            *self = Self { now, ..Self::new() };
            calls(Instant::ZERO, Instant::NEVER).for_each(|call| self.add(call));
            return;
        }
        while self.now < now {
            self.step(&calls);
        }
    }

    /// Advances by one tick.
    fn step<I: Iterator<Item = Counted>>(&mut self, calls: &impl Fn(Instant, Instant) -> I) {
        let before = self.now;
        let passed = std::mem::take(self.bucket(Place::Near(before)));
        self.overdue.work += passed.work;
        self.overdue.bound += passed.bound;
        self.now += 1;
        // Narrow buckets first: each level has room for two more once it has handed one on.
        for power in 1..=LEVELS as u32 + 1 {
            let (from, to) = (first_tick(power, before), first_tick(power, self.now));
            if from == to {
                break;
            }
            let wide = match power as usize - 1 {
                level if level < LEVELS => Place::Level(level, from >> power),
                _ => Place::Far,
            };
            if self.bucket(wide).is_empty() {
                continue;
            }
            for call in calls(instant_of(from), instant_of(to)) {
                let bucket = self.bucket(wide);
                bucket.work -= call.work;
                bucket.bound -= u32::from(call.is_bound);
                self.add(call);
            }
        }
    }

    /// Looks at the waiting work around a new call that ranks at `at`. Calls whose deadline is in
    /// the bucket of its own are taken to be before it, and those of a later bucket to have their
    /// deadline in its middle.
    pub(super) fn outlook(&self, at: Instant, new: &Arriving) -> Outlook {
        let tick = tick_of(at);
        let mut seen = Work::default();
        let mut before = Work::default();
        let mut breaks_another = false;
        self.each_bucket(|first_tick, power, bucket| {
            let earlier = seen;
            seen += bucket.work;
            if first_tick <= tick {
                before = seen;
            } else if bucket.bound > 0 && !breaks_another {
                breaks_another = new.breaks(earlier, seen, bucket.bound, middle_of(first_tick, power));
            }
        });
        Outlook { before: before.time(new.times) / new.workers, breaks_another }
    }

    /// Calls `see` with each bucket that is not empty, in the order of time, with its first tick
    /// and the power of two of ticks that is its width.
    #[inline]
    fn each_bucket(&self, mut see: impl FnMut(u64, u32, &Bucket)) {
        let mut see = |first_tick, power, bucket: &Bucket| {
            if !bucket.is_empty() {
                see(first_tick, power, bucket);
            }
        };
        see(0, 0, &self.overdue);
        for tick in self.now..first_tick(1, self.now) {
            see(tick, 0, &self.near[(tick % NEAR) as usize]);
        }
        for (power, buckets) in (1..).zip(&self.levels) {
            let (from, to) = (first_tick(power, self.now), first_tick(power + 1, self.now));
            for number in from >> power..to >> power {
                see(number << power, power, &buckets[(number % WIDTHS) as usize]);
            }
        }
        see(first_tick(LEVELS as u32 + 1, self.now), 0, &self.far);
    }

    fn place(&self, tick: u64) -> Place {
        if tick < self.now {
            return Place::Overdue;
        }
        if tick < first_tick(1, self.now) {
            return Place::Near(tick);
        }
        let level = (0..LEVELS).find(|level| tick < first_tick(*level as u32 + 2, self.now));
        level.map_or(Place::Far, |level| Place::Level(level, tick >> (level + 1)))
    }

    fn bucket(&mut self, place: Place) -> &mut Bucket {
        match place {
            Place::Overdue => &mut self.overdue,
            Place::Near(tick) => &mut self.near[(tick % NEAR) as usize],
            Place::Level(level, number) => &mut self.levels[level][(number % WIDTHS) as usize],
            Place::Far => &mut self.far,
        }
    }
}

impl Arriving {
    /// Returns true if one of `count` calls between `earlier` and `until`, which end in equal
    /// steps, is expected to meet the deadline without the new call alone.
    #[inline]
    fn breaks(&self, earlier: Work, until: Work, count: u32, deadline: Instant) -> bool {
        if deadline < self.start {
            return false;
        }
        // Work is compared with the time of all workers until the deadline, without a division.
        let slack = nanos(deadline - self.start).saturating_mul(u64::from(self.workers));
        let until = nanos(until.time(self.times));
        if until.saturating_add(nanos(self.own)) <= slack {
            return false;
        }
        let earlier = nanos(earlier.time(self.times));
        let first = |slack: u64| until - earlier <= slack.saturating_mul(u64::from(count));
        slack.checked_sub(earlier).is_some_and(first)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the deadline that stands for those of a bucket. Overdue calls have one that is over, and
/// far ones an early one.
fn middle_of(first_tick: u64, power: u32) -> Instant {
    instant_of(first_tick) + Duration::from_nanos(1 << (TICK_POWER - 1 + power))
}

/// A tick is 2^20 ns, about a millisecond: the buckets reach 2 seconds ahead, the default timeout,
/// and tell deadlines apart that are far closer together than most stores answer.
const TICK_POWER: u32 = 20;

/// Number of buckets of one tick.
const NEAR: u64 = 32;

/// Number of buckets of each level.
const WIDTHS: u64 = 16;

/// Number of levels. Together with the near ones there are 128 buckets.
const LEVELS: usize = 6;

/// Returns the first tick, when it is tick `now`, of the buckets that are at least `2^power` ticks
/// wide.
fn first_tick(power: u32, now: u64) -> u64 {
    ((now >> power) + WIDTHS) << power
}

fn tick_of(at: Instant) -> u64 {
    at.as_nanos() >> TICK_POWER
}

fn instant_of(tick: u64) -> Instant {
    Instant::from_nanos(tick << TICK_POWER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sherwood_model::DemandKind;

    use super::*;

    /// Returns the waiting calls between two times.
    fn between(calls: &[Counted], from: Instant, to: Instant) -> impl Iterator<Item = Counted> {
        calls.iter().filter(move |call| from <= call.at && call.at < to).copied()
    }

    fn middle(forecast: &Forecast, place: Place) -> Instant {
        match place {
            Place::Overdue => middle_of(0, 0),
            Place::Near(tick) => middle_of(tick, 0),
            Place::Level(level, number) => middle_of(number << (level + 1), level as u32 + 1),
            Place::Far => middle_of(first_tick(LEVELS as u32 + 1, forecast.now), 0),
        }
    }

    /// Looks at the work around a new call exactly, in a pass over all calls, if each has its
    /// deadline in the middle of its bucket.
    fn exact(forecast: &Forecast, calls: &[Counted], at: Instant, new: &Arriving) -> Outlook {
        let rounded = |at: Instant| forecast.place(tick_of(at));
        let mut sorted = calls.to_vec();
        sorted.sort_by_key(|call| call.at);
        let (mut work, mut before, mut breaks_another) = (Work::default(), Duration::ZERO, false);
        for call in sorted {
            work += call.work;
            let until = work.time(new.times) / new.workers;
            if rounded(call.at) <= rounded(at) {
                before = until;
            } else if call.is_bound {
                let deadline = middle(forecast, rounded(call.at));
                let slack = (deadline - new.start) * new.workers;
                let until = work.time(new.times);
                breaks_another |= deadline >= new.start && until <= slack && until + new.own > slack;
            }
        }
        Outlook { before, breaks_another }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Add { after_us: u64, is_bound: bool },
        Remove(usize),
        Pass { us: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let after = prop_oneof![0..50_000_u64, 0..500_000_u64, 0..5_000_000_u64];
        let pass = prop_oneof![8 => 0..5_000_u64, 2 => 0..100_000_u64, 1 => 0..3_000_000_u64];
        let step = prop_oneof![
            8 => (after, prop::bool::weighted(0.9))
                .prop_map(|(after_us, is_bound)| Step::Add { after_us, is_bound }),
            3 => (0..200_usize).prop_map(Step::Remove),
            4 => pass.prop_map(|us| Step::Pass { us }),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Compares the forecast with an exact one after every step. Only equal calls end in equal
        /// steps, so the calls are equal, and those that are not bound to a deadline have no work.
        #[test]
        fn forecast_is_exact_for_deadlines_rounded_to_their_buckets(
            steps in steps(), asked_us in 0..4_000_000_u64, workers in 1..4_u32, start_us in 0..50_000_u64,
            read_us in 1_000..40_000_u64,
        ) {
            let mut forecast = Forecast::new();
            let mut calls: Vec<Counted> = Vec::new();
            let mut now = Instant::from_secs(1_000);
            for step in steps {
                match step {
                    Step::Add { after_us, is_bound } => {
                        let at = now + Duration::from_micros(after_us);
                        let work = Work::new(DemandKind::Read, u32::from(is_bound));
                        let call = Counted { at, work, is_bound };
                        forecast.advance(now, calls.len(), |from, to| between(&calls, from, to));
                        forecast.add(call);
                        calls.push(call);
                    }
                    Step::Remove(index) if index < calls.len() => forecast.remove(calls.swap_remove(index)),
                    Step::Remove(_) => {}
                    Step::Pass { us } => {
                        now += Duration::from_micros(us);
                        forecast.advance(now, calls.len(), |from, to| between(&calls, from, to));
                    }
                }
                let times = KeyTimes { read: Duration::from_micros(read_us), write: Duration::ZERO };
                let (own, start) = (times.read, now + Duration::from_micros(start_us));
                let new = Arriving { own, start, times, workers };
                let at = now + Duration::from_micros(asked_us);
                prop_assert_eq!(forecast.outlook(at, &new), exact(&forecast, &calls, at, &new));
            }
        }

        #[test]
        fn bucket_is_at_most_a_fifteenth_as_wide_as_it_is_far_away(now: u32, after in 0..1_920_u64) {
            let now = u64::from(now);
            let forecast = Forecast { now, ..Forecast::new() };
            let place = forecast.place(now + after);
            let width = match place {
                Place::Near(_) => 1,
                Place::Level(level, _) => 2 << level,
                Place::Overdue | Place::Far => return Err(TestCaseError::fail(format!("{place:?}"))),
            };
            prop_assert!(width <= (after / 15).max(1), "{width}");
            let middle = middle(&forecast, place);
            prop_assert!(middle >= instant_of(now + after) - Duration::from_nanos(width << TICK_POWER));
            prop_assert!(middle <= instant_of(now + after + width));
        }
    }
}
