//! A rate limit whose state is one time: the time from which the next unit may start.
//!
//! A token bucket usually stores a level that is refilled. Here its state is the time at which its
//! debt is paid (the generic cell rate algorithm, ITU-T I.371 Annex A): a charge moves that time
//! forward by amount / rate, and a unit may start once it lies in the past. There is no refill, and
//! integers of nanoseconds do not drift.
//!
//! Amounts are charged after the decision, so an amount may exceed the burst: it starts like any
//! other, and the next one waits for it. In any time `t`, at most `rate * (t + burst)` plus the
//! last amount is admitted.

use std::time::Duration;

use crate::Instant;

/// A limit on units per second; the unit is the caller's (operations, seconds of processor time).
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Units admitted per second, positive; `None` is no limit.
    rate: Option<f64>,
    /// Most unused time for which units may be caught up later.
    burst: Duration,
    /// The time at which all units charged so far are paid for at the rate.
    paid_at: Instant,
}

impl TokenBucket {
    /// Makes a rate limit that is not set yet; once it is, up to `burst` of unused time may be
    /// caught up.
    #[must_use]
    pub fn unlimited(burst: Duration) -> Self {
        Self { rate: None, burst, paid_at: Instant::ZERO }
    }

    /// Changes the rate to a positive number, or lifts the limit. A debt stays the same number of
    /// units, which are paid for at the new rate.
    pub fn set_rate(&mut self, now: Instant, rate: Option<f64>) {
        let debt_s = self.paid_at.since(now).as_secs_f64();
        self.paid_at = match (self.rate, rate) {
            (Some(before), Some(after)) => now + seconds(debt_s * before / after),
            // Units without a limit are not charged.
            (None, _) | (_, None) => now,
        };
        self.rate = rate;
    }

    /// The rate, in units per second; none without a limit.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// Changes the unused time that may be caught up later.
    pub fn set_burst(&mut self, burst: Duration) {
        self.burst = burst;
    }

    /// The time at which the next unit may start; now or in the past means at once.
    #[must_use]
    pub fn ready_at(&self) -> Instant {
        match self.rate {
            Some(_) => self.paid_at,
            None => Instant::ZERO,
        }
    }

    /// Charges `units` that start or were used now.
    pub fn charge(&mut self, now: Instant, units: f64) {
        self.charge_waited(now, now, units);
    }

    /// Charges `units` that start now and have waited since `since`: the time from then on was not
    /// unused, so all of it may be caught up, not only the burst.
    pub fn charge_waited(&mut self, now: Instant, since: Instant, units: f64) {
        if let Some(rate) = self.rate {
            self.paid_at = self.paid_at.max(since.min(now - self.burst)) + seconds(units / rate);
        }
    }

    /// Gives back units that were charged.
    pub fn refund(&mut self, units: f64) {
        if let Some(rate) = self.rate {
            self.paid_at = self.paid_at - seconds(units / rate);
        }
    }
}

/// Converts seconds to a duration; a number that does not fit becomes the longest one.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: Duration = Duration::from_millis(10);

    fn limited(rate: f64) -> TokenBucket {
        let mut bucket = TokenBucket::unlimited(BURST);
        bucket.set_rate(Instant::from_secs(1), Some(rate));
        bucket
    }

    /// Charges amounts of `units` each, as early as the rate allows, until `end`; returns how many.
    fn drain(bucket: &mut TokenBucket, units: f64, mut now: Instant, end: Instant) -> u32 {
        let mut begun = 0;
        loop {
            now = now.max(bucket.ready_at());
            if now >= end {
                return begun;
            }
            bucket.charge(now, units);
            begun += 1;
        }
    }

    #[test]
    fn units_admitted_at_the_limit_are_the_rate_plus_one_burst() {
        let mut bucket = limited(100.0);
        let begun = drain(&mut bucket, 1.0, Instant::from_secs(1), Instant::from_secs(11));
        // 1000 in ten seconds, 1 for the burst of 10 ms, 1 that finds no debt at the end.
        assert!((1000..=1002).contains(&begun), "{begun}");
    }

    #[test]
    fn amounts_larger_than_the_burst_are_admitted_at_the_rate() {
        let mut bucket = limited(100.0);
        let begun = drain(&mut bucket, 300.0, Instant::from_secs(1), Instant::from_secs(301));
        assert!((100..=101).contains(&begun), "{begun}");
    }

    #[test]
    fn units_of_unused_time_are_admitted_later_up_to_the_burst() {
        let mut bucket = limited(1000.0);
        let later = Instant::from_secs(100);
        let begun = drain(&mut bucket, 1.0, later, later + Duration::from_nanos(1));
        assert_eq!(begun, 11, "ten for the burst of 10 ms and one that may leave a debt");
    }

    #[test]
    fn time_for_which_units_waited_is_caught_up_beyond_the_burst() {
        let mut bucket = limited(1000.0);
        let (since, now) = (Instant::from_millis(100_000), Instant::from_millis(100_030));
        let starts =
            std::iter::from_fn(|| (bucket.ready_at() <= now).then(|| bucket.charge_waited(now, since, 1.0)));
        assert_eq!(starts.count(), 31);
        assert_eq!(bucket.ready_at(), now + Duration::from_millis(1));
    }

    #[test]
    fn changed_rate_applies_to_the_debt_at_once() {
        let now = Instant::from_secs(1);
        let mut bucket = limited(1.0);
        bucket.charge(now, 10.0);
        assert_eq!(bucket.ready_at(), now + Duration::from_secs(10));
        bucket.set_rate(now, Some(10.0));
        assert_eq!(bucket.ready_at(), now + Duration::from_secs(1));
        bucket.set_rate(now, None);
        assert_eq!(bucket.ready_at(), Instant::ZERO);
    }

    #[test]
    fn units_charged_without_a_rate_leave_no_debt() {
        let mut bucket = TokenBucket::unlimited(BURST);
        bucket.charge(Instant::from_secs(1), 1e12);
        bucket.set_rate(Instant::from_secs(1), Some(1.0));
        assert_eq!(bucket.ready_at(), Instant::from_secs(1));
    }

    #[test]
    fn refund_at_the_time_of_the_charge_undoes_it() {
        let now = Instant::from_secs(9);
        let mut bucket = limited(100.0);
        bucket.charge(now, 5.0);
        let before = bucket.ready_at();
        bucket.charge(now, 7.0);
        bucket.refund(7.0);
        assert_eq!(bucket.ready_at(), before);
    }

    #[test]
    fn debt_too_large_for_the_clock_is_never_paid() {
        let mut bucket = limited(0.001);
        bucket.charge(Instant::from_secs(1), 1e300);
        assert_eq!(bucket.ready_at(), Instant::NEVER);
    }
}
