//! Admission of a cold cache's misses, limited to what the backend can serve.
//!
//! A cache that starts empty sends its backend many times the usual number of fetches. The
//! backend's queue then grows until every call takes longer than its timeout: the backend works on
//! all of them, none is answered in time, nothing fills the cache, and it stays cold. RobinHood's
//! authors saw half of all requests fail for a quarter of an hour. The remedy is to refuse most
//! misses at once, and to fill the cache with the others.
//!
//! The backend's capacity is not known in advance and may be anything from ten to a million keys a
//! second. The ramp has two goals: the backend is always busy, so that the cache fills as fast as
//! possible, and its queue is served within the timeout. Both depend on the number of keys *in
//! flight*: admitted and not ended. By Little's law that is the backend's throughput times the
//! latency of a key. So the ramp bounds it by a *window*, as large as gives a key a certain
//! latency:
//!
//! - *The allowed latency* is the unloaded latency and [half](RampOptions::wait_ratio) of the rest
//!   of the timeout. A smaller one would not make an overloaded backend faster.
//! - *The window* is multiplied by the allowed latency over the mean latency since its last change,
//!   which reaches the right size at once if the throughput stays the same. Each change at most
//!   [grows](RampOptions::grow_ratio) it by a factor, since the throughput of a nearly idle backend
//!   says little, and at most halves it. It changes only after a refusal, because otherwise it was
//!   not the limit, and only after as many keys were answered as were in flight, because the first
//!   answers had the shortest wait.
//! - *Failures* of some calls halve the number of keys that were in flight. Calls admitted before
//!   the last change cause no further change.
//! - *The unloaded latency* is the lowest mean so far, or the current mean while the window is one
//!   key, so that it adapts to a backend that became slower for good. A call counts once for each
//!   of its keys.
//!
//! *The start* is [a few keys](RampOptions::start_keys), so that a backend that serves five a
//! second is never sent a hundred.
//!
//! *Whole lists.* The keys that one query misses are admitted together or not at all: a request
//! needs all of its keys, and a window full of parts of requests completes none of them. A list
//! that begins within the window may exceed it by as much again, except at the start, when nothing
//! is known of the backend. A longer list is cut there.
//!
//! An earlier design set a rate that halves when latency is a multiple of the unloaded one and
//! creeps up afterwards, as TCP does. A busy backend has such latencies at any rate, so the rate
//! was mostly below its capacity, and the cache filled more slowly than without a ramp.
//!
//! *The end.* The cache is warm when nothing has been refused for [`RampOptions::settle`] while the
//! backend answered; then nothing is refused any more. Time without answers does not count, or an
//! outage would end the ramp just before the load returns. A ramp that never refused anything does
//! not end, but remains ready for later load at the cost of one comparison per miss. A flush of all
//! keys restarts the ramp.

use std::time::Duration;

use sherwood_model::Instant;

/// Options of a [ramp](crate::Options::ramp). The defaults are chosen: a page requests about ten
/// keys, which any backend serves within its timeout, and half of the timeout is left as a reserve
/// in case the backend becomes slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampOptions {
    /// Number of keys that may be in flight (the window) at the start, at least 1.
    pub start_keys: u32,
    /// Largest factor by which one change increases the number of keys that may be in flight, 1.01
    /// to 10.
    pub grow_ratio: f64,
    /// The share of the timeout beyond the latency under the least load that a key may take, 0.01
    /// to 0.9.
    pub wait_ratio: f64,
    /// Time between two changes of the number of keys that may be in flight, 10 ms to 1 min.
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

/// State of the ramp that limits the misses of a cold cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RampStanding {
    /// Number of keys that may be in flight at present.
    pub keys: u32,
    /// True if the cache is warm, so that every key is admitted.
    pub warm: bool,
}

/// Smallest window (number of keys that may be in flight).
const WINDOW_MIN: f64 = 1.0;
/// Largest window (number of keys that may be in flight): more keys than a dispatcher ever holds,
/// and far from the limits of a float.
const WINDOW_MAX: f64 = 1e9;
/// Smallest factor of one change of the window (keys that may be in flight), also applied after
/// failures.
const RETREAT: f64 = 0.5;
/// Share of failed calls up to which the backend does not count as overloaded.
const FAILURES: f64 = 0.05;
/// Smallest number of failed calls, or of answered ones, that can change the window (keys that may
/// be in flight).
const CALLS_MIN: u32 = 3;
/// Divisor of [`RampOptions::settle`] that gives the longest time for which one interval may count
/// as quiet, however long it lasted.
const QUIET: u32 = 4;

/// The ramp of one backend, which limits the misses of a cold cache. Uses constant memory, and
/// constant time for each call.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    options: RampOptions,
    timeout: Duration,
    window: f64,
    /// Number of keys that were admitted and have not ended.
    in_flight: u32,
    /// Mean latency of a key with the least load, in seconds.
    unloaded_s: Option<f64>,
    /// Start of the current window (number of keys that may be in flight). Calls that began earlier
    /// do not count for its next change.
    judged_from: Instant,
    sample: Sample,
    interval: Interval,
    /// Time for which the backend has answered and the ramp has refused nothing.
    quiet: Duration,
    refused_ever: bool,
    warm: bool,
}

/// The keys that one query misses at a backend, as far as the ramp has decided about them.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// True if the last key of the list was admitted; none before the first.
    admitted: Option<bool>,
}

/// Observations since the last change of the window (keys that may be in flight).
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    answered: u32,
    failed: u32,
    /// Number of keys of the answered calls, and the sum of their latencies.
    keys: u64,
    latency_s: f64,
    /// Largest number of keys that were in flight.
    in_flight_max: u32,
    refused: bool,
}

/// Refusals, answers and failures in the current interval between changes of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    begun: Option<Instant>,
    answered: bool,
    refused: bool,
}

impl Ramp {
    /// Creates the ramp of a backend with this timeout.
    pub(crate) fn new(options: RampOptions, timeout: Duration) -> Self {
        Self {
            options,
            timeout,
            window: f64::from(options.start_keys),
            in_flight: 0,
            unloaded_s: None,
            judged_from: Instant::ZERO,
            sample: Sample::default(),
            interval: Interval::default(),
            quiet: Duration::ZERO,
            refused_ever: false,
            warm: false,
        }
    }

    /// Restarts the ramp because the cache was emptied. The unloaded latency is kept.
    pub(crate) fn restart(&mut self) {
        let sample = Sample { in_flight_max: self.in_flight, ..Sample::default() };
        let Self { unloaded_s, in_flight, .. } = *self;
        *self = Self { unloaded_s, in_flight, sample, ..Self::new(self.options, self.timeout) };
    }

    pub(crate) fn standing(&self) -> RampStanding {
        RampStanding { keys: self.keys(), warm: self.warm }
    }

    /// Returns the number of keys that may be in flight, at least 1.
    pub(crate) fn keys(&self) -> u32 {
        self.window as u32
    }

    /// Returns true if the next key of a list that missed at `now` may be fetched; the caller then
    /// reports its [end](Self::note_end).
    pub(crate) fn admits(&mut self, now: Instant, list: &mut List) -> bool {
        if self.warm {
            self.in_flight += 1;
            return true;
        }
        self.turn(now);
        let room = match list.admitted {
            None => self.window,
            // While nothing is known of the backend the window is a strict bound.
            Some(true) if self.unloaded_s.is_some() => 2.0 * self.window,
            Some(true) => self.window,
            Some(false) => 0.0,
        };
        let admits = f64::from(self.in_flight) + 1.0 <= room;
        list.admitted = Some(admits);
        if admits {
            self.in_flight += 1;
            self.sample.in_flight_max = self.sample.in_flight_max.max(self.in_flight);
        } else {
            (self.sample.refused, self.interval.refused) = (true, true);
            self.refused_ever = true;
        }
        admits
    }

    /// Records the end of an admitted key, with any result.
    pub(crate) fn note_end(&mut self) {
        self.in_flight -= 1;
    }

    /// Records a call of `keys` keys that began at `asked` and ended at `now`, answered or not.
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

    /// Ends the current interval if it is over, and changes the number of keys that may be in
    /// flight if needed.
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

    /// Changes the number of keys that may be in flight, if there are enough observations.
    fn judge(&mut self, now: Instant) {
        let Sample { answered, failed, keys, latency_s, in_flight_max, refused } = self.sample;
        let (answers, failures) = (f64::from(answered), f64::from(failed));
        if failed >= CALLS_MIN && failures > (answers + failures) * FAILURES {
            // Only as many keys as were in flight have been tried. But at least `start_keys` count
            // as tried: failures with so few keys have other causes than overload.
            let tried = self.window.min(f64::from(in_flight_max.max(self.options.start_keys)));
            self.quiet = Duration::ZERO;
            self.set_window(now, tried * RETREAT);
        } else if answered >= CALLS_MIN && keys >= u64::from(in_flight_max) {
            let change = self.change(latency_s / keys.max(1) as f64);
            if refused {
                self.set_window(now, self.window * change);
            } else {
                self.sample = Sample { in_flight_max: self.in_flight, ..Sample::default() };
            }
        }
    }

    /// Returns the factor by which the window (keys that may be in flight) changes for this mean
    /// latency of a key.
    fn change(&mut self, latency_s: f64) -> f64 {
        let unloaded = match self.unloaded_s {
            // With a window of one key there is almost no queue.
            Some(least) if self.window >= 2.0 * WINDOW_MIN => least.min(latency_s),
            _ => latency_s,
        };
        self.unloaded_s = Some(unloaded);
        let beyond = (self.timeout.as_secs_f64() - unloaded).max(0.0);
        let allowed = unloaded + beyond * self.options.wait_ratio;
        // Avoids a division by zero.
        (allowed / latency_s.max(f64::MIN_POSITIVE)).clamp(RETREAT, self.options.grow_ratio)
    }

    fn set_window(&mut self, now: Instant, window: f64) {
        (self.window, self.judged_from) = (window.clamp(WINDOW_MIN, WINDOW_MAX), now);
        self.sample = Sample { in_flight_max: self.in_flight, ..Sample::default() };
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
