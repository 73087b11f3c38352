//! Times of uses, without a time stored per item.
//!
//! A time of last use would cost every item some bytes and every hit another write. Each use draws
//! a number from one counter anyway, so it suffices to record at which times the counter had which
//! values: the time of any number lies between those of two recorded ones. Recent times need the
//! most precision, so when the record is full it is thinned out to gaps in proportion to their age.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sherwood_model::Instant;

use crate::item::Use;

/// Largest number of recorded moments: 16 KiB. With gaps of a 32nd of their age, and two adjacent
/// gaps never shorter than that together, they cover years.
const MOMENTS_MAX: usize = 1024;
/// Divisor of the age of a gap between two recorded moments that gives the gap's largest length.
const GAP_DIVISOR: u128 = 32;
/// Least time between recorded moments, which is the resolution of queries.
const INTERVAL: Duration = Duration::from_secs(1);

/// Recorded values of the counter of uses and their times.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Recorded moments from the oldest to the newest; their times and their numbers both ascend.
    moments: Mutex<Vec<Moment>>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Number of the next use at that time: uses with smaller numbers happened before.
    next: u64,
    at: Instant,
}

impl Timeline {
    /// Returns a copy of the recorded times, for a copy of the cache.
    pub(crate) fn copy(&mut self) -> Self {
        Self { moments: Mutex::new(self.moments.get_mut().unwrap_or_else(PoisonError::into_inner).clone()) }
    }

    /// Records that the next use after `at` gets the number `next`, unless the last record is too
    /// recent or equal.
    pub(crate) fn note(&self, next: u64, at: Instant) {
        let mut moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        if moments.last().is_some_and(|last| at < last.at + INTERVAL || next <= last.next) {
            return;
        }
        if moments.len() == MOMENTS_MAX {
            thin_out(&mut moments, at);
        }
        moments.push(Moment { next, at });
    }

    /// Lower bound of the time from a use to `now`.
    pub(crate) fn since(&self, last_use: Use, now: Instant) -> Duration {
        let moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        let after = moments.partition_point(|moment| moment.next <= last_use.0);
        moments.get(after).map_or(Duration::ZERO, |moment| now.since(moment.at))
    }
}

/// Removes every moment whose neighbours are close enough without it; if there is none, the oldest.
fn thin_out(moments: &mut Vec<Moment>, now: Instant) {
    let mut kept = 1;
    for index in 1..moments.len() {
        let next = moments.get(index + 1).map_or(now, |next| next.at);
        let gap = next.since(moments[kept - 1].at);
        if gap.as_nanos() > now.since(next).as_nanos() / GAP_DIVISOR {
            moments[kept] = moments[index];
            kept += 1;
        }
    }
    if kept == moments.len() {
        moments.remove(0);
    }
    moments.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timeline of `secs` seconds with ten uses each, the first being number 0.
    fn after(secs: u64) -> Timeline {
        let timeline = Timeline::default();
        for sec in 0..=secs {
            timeline.note(10 * sec, Instant::from_secs(sec));
        }
        timeline
    }

    #[test]
    fn recent_times_of_use_are_precise_to_a_second() {
        let timeline = after(100);
        for sec in 0..100 {
            let age = timeline.since(Use(10 * sec + 5), Instant::from_secs(100));
            assert_eq!(age.as_secs(), 99 - sec);
        }
        assert_eq!(timeline.since(Use(1000), Instant::from_secs(100)), Duration::ZERO);
        assert_eq!(Timeline::default().since(Use(7), Instant::from_secs(100)), Duration::ZERO);
    }

    #[test]
    fn old_times_of_use_are_precise_to_a_few_percent_in_bounded_memory() {
        const DAY: u64 = 86_400;
        let timeline = after(DAY);
        assert!(timeline.moments.lock().unwrap().len() <= MOMENTS_MAX);
        for age in (1..DAY).step_by(97) {
            let told = timeline.since(Use(10 * (DAY - age)), Instant::from_secs(DAY)).as_secs();
            assert!(told <= age && age - told <= 1 + age / 30, "{told} s told of {age} s");
        }
    }

    #[test]
    fn times_too_close_together_or_without_uses_are_not_recorded() {
        let timeline = after(3);
        timeline.note(1000, Instant::from_millis(3999));
        timeline.note(30, Instant::from_secs(50));
        assert_eq!(timeline.moments.lock().unwrap().len(), 4);
    }
}
