//! Misses of a cold cache, let through at a rate that the backend survives.
//!
//! A cache that starts empty sends its backend many times what it is used to. The backend's queue then grows until every call takes
//! longer than its time-out: all of them are worked on, none is answered in time, nothing fills the cache, and so it stays cold.
//! RobinHood's authors saw half of all requests fail for a quarter of an hour. The way out is to refuse most misses at once, and to
//! fill the cache with the others.
//!
//! How many the backend survives is not known beforehand, and may be anything from ten to a million a second. So the rate is
//! found, as TCP finds that of a path:
//!
//! - *Growth* by a factor each interval until the backend first shows that it is too much, since steps of a fixed size would
//!   take for ever or be too large; afterwards by a tenth of the rate at which it did. Only a rate that was used grows: what was
//!   not asked for has not been tried.
//! - *Retreat* by half when calls fail, or take several times as long as when the backend was idle. Half, since what has queued must be
//!   worked off too. What was sent before a retreat is no reason for another.
//! - *The unloaded latency* is the least mean of an interval so far, forgotten by a hundredth an interval, so that a backend which
//!   has become slower for good is not held to what it once was. It is kept for calls and for keys, and too long is what is so by both:
//!   where a call of many keys takes longer than one of few, or costs each key less, that is no queue. Nor is anything a sign that
//!   takes less than a twentieth of the time-out: what the backend has to survive is calls that nobody waits for any more.
//!
//! *The beginning* is not a rate alone: as long as nobody knows what the backend gives, no more keys are out at a time than a tenth of the
//! [first rate](RampOptions::start_per_s). What is answered then while more is asked for becomes the rate, at most the first one. So a
//! backend that gives five keys a second is never sent a hundred to find out, and one that answers nothing gets half as many each
//! time-out.
//!
//! Turned down: a gradient (rate × unloaded / present latency, as in adaptive concurrency limits), which needs a sound unloaded latency
//! from the first interval on and creeps where slow start jumps; and a limit on calls in flight, which the dispatcher
//! has: sixteen calls that all wait for a disk are as many as sixteen that do not.
//!
//! *The end.* The cache is warm when it asks for less than it may, with the backend keeping up, for [`RampOptions::settle`]
//! on end; after that nothing is refused any more. A ramp that never had to refuse anything does not end: it stands by, at the
//! price of a comparison for each miss, for the load that may come later. A flush of everything begins it again.

use std::time::Duration;

use sherwood_model::Instant;

/// Options of a [ramp](crate::Options::ramp). The defaults are chosen: ten keys at once, a tenth of the first rate, are what a page asks for, and
/// what any backend has in its time-out; three times the unloaded latency is a queue that is busy two thirds of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampOptions {
    /// Keys a second to begin with where the first to be answered do not show that it is too much, at least 1. A tenth of it may be asked
    /// for before.
    pub start_per_s: u32,
    /// What the rate is multiplied by each interval until the backend first falls behind, 1.01 to 10.
    pub grow_ratio: f64,
    /// How many times the unloaded latency is too long, 1.1 to 100.
    pub slow_ratio: f64,
    /// Time between two changes of the rate, 10 ms to 1 min.
    pub interval: Duration,
    /// How long nothing must have been refused for the cache to be warm, at least `interval`.
    pub settle: Duration,
}

impl Default for RampOptions {
    fn default() -> Self {
        Self {
            start_per_s: 100,
            grow_ratio: 1.5,
            slow_ratio: 3.0,
            interval: Duration::from_millis(250),
            settle: Duration::from_secs(10),
        }
    }
}

/// How a ramp stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RampStanding {
    /// Keys a second that are let through.
    pub per_s: u32,
    /// Whether the cache is warm, and everything is let through.
    pub warm: bool,
}

/// Least rate, keys a second.
const RATE_MIN: f64 = 1.0;
/// Largest rate: what no backend gives, and a number that stays a number.
const RATE_MAX: f64 = 1e9;
/// Part of the rate that may be used at once, seconds.
const BURST_S: f64 = 0.1;
/// What a retreat leaves.
const RETREAT: f64 = 0.5;
/// Growth after the first retreat, as a part of the rate that was too much.
const STEP: f64 = 0.1;
/// Share of the calls of an interval that may fail without being a sign.
const FAILURES: f64 = 0.05;
/// Part of the time-out below which a latency is no sign.
const HARMLESS: f64 = 1.0 / 20.0;
/// What the unloaded latency is multiplied by each interval.
const FORGET: f64 = 1.01;
/// Answers without which an interval says nothing about latency.
const ANSWERS_MIN: u32 = 3;

/// The ramp of one backend: a token bucket whose rate follows how the backend fares. Constant memory, constant time.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    options: RampOptions,
    timeout: Duration,
    rate: f64,
    tokens: f64,
    filled: Option<Instant>,
    /// The rate at which the backend last fell behind.
    too_much: Option<f64>,
    unloaded: Option<Latency>,
    /// Calls made before are not judged.
    judged_from: Instant,
    /// Since when the rate is what it is.
    rate_since: Instant,
    interval: Interval,
    /// Since when nothing was refused.
    quiet_since: Option<Instant>,
    refused_ever: bool,
    warm: bool,
    /// Keys that were let through and have not ended.
    out: u32,
    /// Whether nobody knows yet what the backend gives: then no more keys are out than may be used at once.
    is_first_flight: bool,
}

/// What has happened in the interval under way.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    begun: Option<Instant>,
    admitted: u32,
    refused: u32,
    answered: u32,
    /// Those of `answered` that were asked for at the present rate.
    answered_at_rate: u32,
    failed: u32,
    keys: u64,
    latency_s: f64,
    last_answer: Option<Instant>,
}

/// Means of an interval, seconds.
#[derive(Clone, Copy, Debug)]
struct Latency {
    per_call: f64,
    per_key: f64,
}

impl Interval {
    /// The latency of its calls; none where they are too few.
    fn latency(&self) -> Option<Latency> {
        let Self { answered, keys, latency_s, .. } = *self;
        let mean =
            Latency { per_call: latency_s / f64::from(answered), per_key: latency_s / keys.max(1) as f64 };
        (answered >= ANSWERS_MIN).then_some(mean)
    }

    /// Keys a second that were answered, up to the last; none where there were none, or that took no time.
    fn rate(&self) -> Option<f64> {
        let lasted = self.last_answer?.since(self.begun?).as_secs_f64();
        (lasted > 0.0).then(|| self.keys as f64 / lasted)
    }
}

impl Ramp {
    /// A ramp of a backend with this time-out.
    pub(crate) fn new(options: RampOptions, timeout: Duration) -> Self {
        let rate = f64::from(options.start_per_s);
        Self {
            options,
            timeout,
            rate,
            tokens: burst(rate),
            filled: None,
            too_much: None,
            unloaded: None,
            judged_from: Instant::ZERO,
            rate_since: Instant::ZERO,
            interval: Interval::default(),
            quiet_since: None,
            refused_ever: false,
            warm: false,
            out: 0,
            is_first_flight: true,
        }
    }

    /// Begins again: the cache was emptied. What is known of the backend's latency stays.
    pub(crate) fn restart(&mut self) {
        *self = Self { unloaded: self.unloaded, out: self.out, ..Self::new(self.options, self.timeout) };
    }

    pub(crate) fn standing(&self) -> RampStanding {
        RampStanding { per_s: self.per_s(), warm: self.warm }
    }

    /// The rate in whole keys a second, at least 1.
    pub(crate) fn per_s(&self) -> u32 {
        self.rate as u32
    }

    /// Whether a key that missed at `now` may be fetched; one that may is to be [ended](Self::note_end).
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        if self.warm {
            self.out += 1;
            return true;
        }
        self.turn(now);
        let since = self.filled.replace(now).map_or(Duration::ZERO, |filled| now.since(filled));
        let most = burst(self.rate);
        self.tokens = (self.tokens + since.as_secs_f64() * self.rate).min(most);
        let has_room = !self.is_first_flight || f64::from(self.out) + 1.0 <= most;
        let admits = self.tokens >= 1.0 && has_room;
        if admits {
            self.tokens -= 1.0;
            self.out += 1;
            self.interval.admitted = self.interval.admitted.saturating_add(1);
        } else {
            self.interval.refused = self.interval.refused.saturating_add(1);
            (self.refused_ever, self.quiet_since) = (true, None);
        }
        admits
    }

    /// Takes note that a key which was let through has ended, however it did.
    pub(crate) fn note_end(&mut self) {
        self.out -= 1;
    }

    /// Takes note of a call for `keys` keys that was asked for at `asked` and ended at `now`, answered or not.
    pub(crate) fn note(&mut self, now: Instant, asked: Instant, keys: usize, answered: bool) {
        if self.warm {
            return;
        }
        self.turn(now);
        if asked < self.judged_from {
            return;
        }
        if answered {
            self.interval.answered = self.interval.answered.saturating_add(1);
            self.interval.keys += keys as u64;
            self.interval.latency_s += now.since(asked).as_secs_f64();
            self.interval.last_answer = Some(now);
            self.interval.answered_at_rate += u32::from(asked >= self.rate_since);
        } else {
            self.interval.failed = self.interval.failed.saturating_add(1);
        }
    }

    /// Ends the interval under way if its time has come, and draws the conclusion.
    fn turn(&mut self, now: Instant) {
        let begun = *self.interval.begun.get_or_insert(now);
        let lasted = now.since(begun);
        if lasted < self.options.interval {
            return;
        }
        let ended =
            std::mem::replace(&mut self.interval, Interval { begun: Some(now), ..Interval::default() });
        let latency = ended.latency();
        if self.falls_behind(&ended, latency) {
            self.too_much = Some(self.rate);
            self.set_rate(now, self.rate * RETREAT);
            (self.judged_from, self.quiet_since) = (now, None);
            return;
        }
        if self.is_first_flight
            && ended.refused > 0
            && let Some(given) = ended.rate()
        {
            self.is_first_flight = false;
            if given < self.rate {
                return self.set_rate(now, given);
            }
        }
        if let Some(mean) = latency {
            let least = self.unloaded.unwrap_or(mean);
            self.unloaded = Some(Latency {
                per_call: (least.per_call * FORGET).min(mean.per_call),
                per_key: (least.per_key * FORGET).min(mean.per_key),
            });
        }
        let used = f64::from(ended.admitted) >= self.rate * lasted.as_secs_f64() / 2.0;
        // A backend that has answered nothing that was asked for at this rate has not kept up with it yet.
        if ended.answered_at_rate > 0 && (used || ended.refused > 0) {
            let grown = match self.too_much {
                None => self.rate * self.options.grow_ratio,
                Some(too_much) => self.rate + (too_much * STEP).max(RATE_MIN),
            };
            self.set_rate(now, grown);
        }
        self.settle(now, &ended);
    }

    fn set_rate(&mut self, now: Instant, rate: f64) {
        (self.rate, self.rate_since) = (rate.clamp(RATE_MIN, RATE_MAX), now);
    }

    /// Whether the interval shows that the backend gets more than it can take.
    fn falls_behind(&self, ended: &Interval, latency: Option<Latency>) -> bool {
        let calls = f64::from(ended.answered) + f64::from(ended.failed);
        if f64::from(ended.failed) > calls * FAILURES {
            return true;
        }
        let Some((mean, unloaded)) = latency.zip(self.unloaded) else { return false };
        let slow = self.options.slow_ratio;
        mean.per_call > self.timeout.as_secs_f64() * HARMLESS
            && mean.per_call > unloaded.per_call * slow
            && mean.per_key > unloaded.per_key * slow
    }

    /// Ends the ramp when the cache has asked for less than it may for long enough.
    fn settle(&mut self, now: Instant, ended: &Interval) {
        if ended.refused > 0 || ended.admitted == 0 {
            return;
        }
        let since = *self.quiet_since.get_or_insert(now);
        self.warm = self.refused_ever && now.since(since) >= self.options.settle;
    }
}

/// How much of a rate may be used at once, keys.
fn burst(rate: f64) -> f64 {
    (rate * BURST_S).max(1.0)
}

#[cfg(test)]
mod tests;
