//! When items were used, without a time in any of them.
//!
//! A time of last use would cost every item some bytes, and every hit one more word to write. But
//! each use draws a number from one counter anyway, so it is enough to remember when the counter
//! stood where: any number lies between two remembered ones, and so does its time. Precision is
//! wanted for what is recent, so whatever is remembered is thinned out when the memory is full, to
//! gaps in proportion to their age.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sherwood_model::Instant;

use crate::item::Use;

/// Moments remembered at most: 16 KiB. With gaps of a 32nd of their age, two of which are never
/// shorter than that together, they reach back for years.
const MOMENTS_MAX: usize = 1024;
/// A gap is at most this part of its age.
const GAP_DIVISOR: u128 = 32;
/// From one moment remembered to the next: the unit in which anybody asks.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where the counter of uses stood, and when.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// From the oldest to the newest; both parts grow.
    moments: Mutex<Vec<Moment>>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Uses with a smaller number happened before.
    next: u64,
    at: Instant,
}

impl Timeline {
    /// The same, of a copy of the cache.
    pub(crate) fn copy(&mut self) -> Self {
        Self { moments: Mutex::new(self.moments.get_mut().unwrap_or_else(PoisonError::into_inner).clone()) }
    }

    /// Remembers that the next use after `at` gets the number `next`, if that is worth remembering.
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

    /// How long before `now` a use happened, at least.
    pub(crate) fn since(&self, last_use: Use, now: Instant) -> Duration {
        let moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        let after = moments.partition_point(|moment| moment.next <= last_use.0);
        moments.get(after).map_or(Duration::ZERO, |moment| now.since(moment.at))
    }
}

/// Forgets every moment whose neighbours are close enough without it; the oldest, if there is none.
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

    /// A timeline over so many seconds with ten uses in each, the first being number 0.
    fn after(secs: u64) -> Timeline {
        let timeline = Timeline::default();
        for sec in 0..=secs {
            timeline.note(10 * sec, Instant::from_secs(sec));
        }
        timeline
    }

    #[test]
    fn what_is_recent_is_right_to_a_second() {
        let timeline = after(100);
        for sec in 0..100 {
            let age = timeline.since(Use(10 * sec + 5), Instant::from_secs(100));
            assert_eq!(age.as_secs(), 99 - sec);
        }
        assert_eq!(timeline.since(Use(1000), Instant::from_secs(100)), Duration::ZERO);
        assert_eq!(Timeline::default().since(Use(7), Instant::from_secs(100)), Duration::ZERO);
    }

    #[test]
    fn what_is_old_is_right_to_a_few_percent_in_bounded_memory() {
        const DAY: u64 = 86_400;
        let timeline = after(DAY);
        assert!(timeline.moments.lock().unwrap().len() <= MOMENTS_MAX);
        for age in (1..DAY).step_by(97) {
            let told = timeline.since(Use(10 * (DAY - age)), Instant::from_secs(DAY)).as_secs();
            assert!(told <= age && age - told <= 1 + age / 30, "{told} s told of {age} s");
        }
    }

    #[test]
    fn moments_too_close_or_without_a_use_are_not_remembered() {
        let timeline = after(3);
        timeline.note(1000, Instant::from_millis(3999));
        timeline.note(30, Instant::from_secs(50));
        assert_eq!(timeline.moments.lock().unwrap().len(), 4);
    }
}
