//! Misses of a cold cache, as many at a time as the backend survives.
//!
//! A cache that starts empty sends its backend many times what it is used to. The backend's queue
//! then grows until every call takes longer than its time-out: all of them are worked on, none is
//! answered in time, nothing fills the cache, and so it stays cold. RobinHood's authors saw half of
//! all requests fail for a quarter of an hour. The way out is to refuse most misses at once, and to
//! fill the cache with the others.
//!
//! The number it survives is not known beforehand, and may be anything from ten to a million
//! a second. Two things are to be had of it: that it always has something to do, so that the cache
//! fills as fast as it can, and that what it has to do is done before its time-out. Both are a
//! matter of how many keys are *out*, let through and not ended. By Little's law these are what the
//! backend gives a second, times the time that a key takes; so there is a *window* for them, which
//! is as large as makes a key take a given time and no longer:
//!
//! - *The allowed time* is the unloaded latency and [half](RampOptions::wait_ratio) of what is left
//!   of the time-out beyond it. Where the backend has more to do than it can, less than that would
//!   not make it faster.
//! - *The window* is multiplied by the allowed time over the mean latency of what was let through
//!   since it last changed, and with that is where it should be, if the backend gives the same.
//!   Each time it at most [grows](RampOptions::grow_ratio) by a factor, since what a backend gives
//!   that had next to nothing to do is a guess; and it is at most halved. It changes only when
//!   somebody was refused, since what was not asked for has not been tried; and when as many keys
//!   were answered as were out, since those that are answered first waited least.
//! - *Failures* of some calls leave half of what was out. What was let through before the window
//!   changed is no reason for another change.
//! - *The unloaded latency* is the least mean so far, and the mean itself where the window is one
//!   key: a backend which has become slower for good is not held to what it once was. Latencies are
//!   those of keys, so a long call counts for as many as it has.
//!
//! *The beginning* is [a few keys](RampOptions::start_keys), so that a backend which gives five a
//! second is never sent a hundred to find out.
//!
//! *Whole lists.* The keys that one query misses here are let through together, or none of them is:
//! a request is as good as its worst key, and a window in which there is a part of every request
//! completes none of them. A list that begins where there is room may be over the edge by as much
//! again as the window, but for the first ones, when nothing is known of the backend; what is
//! longer is cut there.
//!
//! Turned down: a rate that halves when latency is a multiple of the unloaded one, and creeps up
//! afterwards, as TCP finds that of a path. It was built first. A backend that is busy has such
//! latencies at any rate, so the rate was mostly below what it could give, and the cache filled
//! more slowly than without a ramp.
//!
//! *The end.* The cache is warm when nothing has been refused for [`RampOptions::settle`] on end
//! while the backend answered; after that nothing is refused any more. Time without answers does
//! not count, or an outage would end the ramp just before all of its misses come. A ramp that never
//! had to refuse anything does not end: it stands by, at the price of a comparison for each miss,
//! for the load that may come later. A flush of everything begins it again.

use std::time::Duration;

use sherwood_model::Instant;

/// Options of a [ramp](crate::Options::ramp). The defaults are chosen: ten keys are what a page
/// asks for, and what any backend has in its time-out; half of the time-out leaves the other half
/// to what a backend does worse than it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampOptions {
    /// Keys that are out at a time to begin with, at least 1.
    pub start_keys: u32,
    /// Largest factor of one change of the window, 1.01 to 10.
    pub grow_ratio: f64,
    /// The part of the time-out beyond the unloaded latency that a key may take, 0.01 to 0.9.
    pub wait_ratio: f64,
    /// Time between two changes of the window, 10 ms to 1 min.
    pub interval: Duration,
    /// Time without refusals after which the cache counts as warm, at least `interval`.
    pub settle: Duration,
}

impl Default for RampOptions {
    fn default() -> Self {
        Self {
            start_keys: 10,
            grow_ratio: 2.0,
            wait_ratio: 0.5,
            interval: Duration::from_millis(250),
            settle: Duration::from_secs(10),
        }
    }
}

/// State of a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RampStanding {
    /// The window: keys that may be out at a time.
    pub keys: u32,
    /// True if the cache is warm and everything is admitted.
    pub warm: bool,
}

/// Least window, keys.
const WINDOW_MIN: f64 = 1.0;
/// Largest window: more than a dispatcher ever holds, and a number that stays a number.
const WINDOW_MAX: f64 = 1e9;
/// Smallest factor of one change of the window, also applied after failures.
const RETREAT: f64 = 0.5;
/// Share of the calls that may fail without being a sign.
const FAILURES: f64 = 0.05;
/// Calls without which nothing is said, of those that failed as of those that were answered.
const CALLS_MIN: u32 = 3;
/// Part of [`RampOptions::settle`] that an interval in which nothing happened may count for,
/// however long it was.
const QUIET: u32 = 4;

/// The ramp of one backend. Constant memory, constant time.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    options: RampOptions,
    timeout: Duration,
    window: f64,
    /// Keys that were let through and have not ended.
    out: u32,
    /// Mean latency of a key when the backend had least to do, seconds.
    unloaded_s: Option<f64>,
    /// Calls asked for before are not judged: the window was another one.
    judged_from: Instant,
    sample: Sample,
    interval: Interval,
    /// For how long the backend has answered and nothing was refused.
    quiet: Duration,
    refused_ever: bool,
    warm: bool,
}

/// The keys that one query misses at a backend, as far as the ramp was asked about them.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// True if the last key was admitted; none before the first.
    admitted: Option<bool>,
}

/// Observations since the window was last judged.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    answered: u32,
    failed: u32,
    /// Of the calls that were answered, and the latencies of them all together.
    keys: u64,
    latency_s: f64,
    /// Keys that were out at a time, at most.
    out_max: u32,
    refused: bool,
}

/// Events of the current interval.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    begun: Option<Instant>,
    answered: bool,
    refused: bool,
}

impl Ramp {
    /// A ramp of a backend with this time-out.
    pub(crate) fn new(options: RampOptions, timeout: Duration) -> Self {
        Self {
            options,
            timeout,
            window: f64::from(options.start_keys),
            out: 0,
            unloaded_s: None,
            judged_from: Instant::ZERO,
            sample: Sample::default(),
            interval: Interval::default(),
            quiet: Duration::ZERO,
            refused_ever: false,
            warm: false,
        }
    }

    /// Begins again: the cache was emptied. What is known of the backend's latency stays.
    pub(crate) fn restart(&mut self) {
        let sample = Sample { out_max: self.out, ..Sample::default() };
        let Self { unloaded_s, out, .. } = *self;
        *self = Self { unloaded_s, out, sample, ..Self::new(self.options, self.timeout) };
    }

    pub(crate) fn standing(&self) -> RampStanding {
        RampStanding { keys: self.keys(), warm: self.warm }
    }

    /// The window in whole keys, at least 1.
    pub(crate) fn keys(&self) -> u32 {
        self.window as u32
    }

    /// Returns true if the next key of a list that missed at `now` may be fetched; the caller then
    /// reports its [end](Self::note_end).
    pub(crate) fn admits(&mut self, now: Instant, list: &mut List) -> bool {
        if self.warm {
            self.out += 1;
            return true;
        }
        self.turn(now);
        let room = match list.admitted {
            None => self.window,
            // Before anything is known of the backend the window is a bound without exceptions.
            Some(true) if self.unloaded_s.is_some() => 2.0 * self.window,
            Some(true) => self.window,
            Some(false) => 0.0,
        };
        let admits = f64::from(self.out) + 1.0 <= room;
        list.admitted = Some(admits);
        if admits {
            self.out += 1;
            self.sample.out_max = self.sample.out_max.max(self.out);
        } else {
            (self.sample.refused, self.interval.refused) = (true, true);
            self.refused_ever = true;
        }
        admits
    }

    /// Takes note that a key which was let through has ended, however it did.
    pub(crate) fn note_end(&mut self) {
        self.out -= 1;
    }

    /// Takes note of a call that was asked for at `asked` and ended at `now`, answered or not, and
    /// of how many `keys` ended with it.
    pub(crate) fn note(&mut self, now: Instant, asked: Instant, keys: usize, answered: bool) {
        if self.warm {
            return;
        }
        self.turn(now);
        self.interval.answered |= answered;
        if asked < self.judged_from {
            return;
        }
        if answered {
            self.sample.answered = self.sample.answered.saturating_add(1);
            self.sample.keys += keys as u64;
            self.sample.latency_s += now.since(asked).as_secs_f64() * keys as f64;
        } else {
            self.sample.failed = self.sample.failed.saturating_add(1);
        }
    }

    /// Ends the current interval if it is over, and changes the window if needed.
    fn turn(&mut self, now: Instant) {
        let Some(begun) = self.interval.begun else {
            (self.interval.begun, self.judged_from) = (Some(now), now);
            return;
        };
        let lasted = now.since(begun);
        if lasted < self.options.interval {
            return;
        }
        let ended =
            std::mem::replace(&mut self.interval, Interval { begun: Some(now), ..Interval::default() });
        self.settle(lasted, ended);
        self.judge(now);
    }

    /// Changes the window, if enough was seen to say that it should.
    fn judge(&mut self, now: Instant) {
        let Sample { answered, failed, keys, latency_s, out_max, refused } = self.sample;
        let (answers, failures) = (f64::from(answered), f64::from(failed));
        if failed >= CALLS_MIN && failures > (answers + failures) * FAILURES {
            // What was never out is no window that was tried; but few keys fail for other reasons
            // than that there are too many.
            let tried = self.window.min(f64::from(out_max.max(self.options.start_keys)));
            self.quiet = Duration::ZERO;
            self.set_window(now, tried * RETREAT);
        } else if answered >= CALLS_MIN && keys >= u64::from(out_max) {
            let change = self.change(latency_s / keys.max(1) as f64);
            if refused {
                self.set_window(now, self.window * change);
            } else {
                self.sample = Sample { out_max: self.out, ..Sample::default() };
            }
        }
    }

    /// Returns the factor of the window for this mean latency of a key.
    fn change(&mut self, latency_s: f64) -> f64 {
        let unloaded = match self.unloaded_s {
            // With a window of one there is next to no queue, whatever was before.
            Some(least) if self.window >= 2.0 * WINDOW_MIN => least.min(latency_s),
            _ => latency_s,
        };
        self.unloaded_s = Some(unloaded);
        let beyond = (self.timeout.as_secs_f64() - unloaded).max(0.0);
        let allowed = unloaded + beyond * self.options.wait_ratio;
        // An answer in no time at all is as good as one in the least.
        (allowed / latency_s.max(f64::MIN_POSITIVE)).clamp(RETREAT, self.options.grow_ratio)
    }

    fn set_window(&mut self, now: Instant, window: f64) {
        (self.window, self.judged_from) = (window.clamp(WINDOW_MIN, WINDOW_MAX), now);
        self.sample = Sample { out_max: self.out, ..Sample::default() };
    }

    /// Ends the ramp when nothing has been refused for long enough.
    fn settle(&mut self, lasted: Duration, ended: Interval) {
        if ended.refused {
            self.quiet = Duration::ZERO;
        } else if ended.answered {
            let longest = self.options.interval.max(self.options.settle / QUIET);
            self.quiet += lasted.min(longest);
        }
        self.warm = self.refused_ever && self.quiet >= self.options.settle;
    }
}

#[cfg(test)]
mod tests;
