//! A rate, kept by one number: the moment from which everything charged so far is paid for.
//!
//! A token bucket usually holds a level that somebody refills. The same bucket is kept here as the
//! time at which its debt is paid (the generic cell rate algorithm, ITU-T I.371 Annex A): charging
//! moves that time forward by amount / rate, and what may begin now is what finds it in the past.
//! Nothing has to be refilled, and integers of nanoseconds do not drift.
//!
//! Amounts are charged after the decision, never before, so an amount larger than the burst is
//! possible: it begins like any other and the next one waits for it. Over any time `t` at most
//! `rate * (t + burst)` plus the last amount is let through.

use std::time::Duration;

use sherwood_model::Instant;

/// A limit on units per second; the unit is the caller's (operations, seconds of processor time).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Units per second, positive; `None` lets everything through.
    rate: Option<f64>,
    /// How much unused time can be saved up.
    burst: Duration,
    /// From here on everything charged is paid for.
    paid_at: Instant,
}

impl Pace {
    /// No limit yet; once there is one, up to `burst` of unused time is saved up.
    pub(crate) fn unlimited(burst: Duration) -> Self {
        Self { rate: None, burst, paid_at: Instant::ZERO }
    }

    /// Changes the rate. A debt stays the same number of units, so it is paid at the new rate.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: Option<f64>) {
        let debt_s = self.paid_at.since(now).as_secs_f64();
        self.paid_at = match (self.rate, rate) {
            (Some(before), Some(after)) => now + seconds(debt_s * before / after),
            // What was done without a limit is not owed.
            (None, _) | (_, None) => now,
        };
        self.rate = rate;
    }

    /// When the next thing may begin; in the past or now means at once.
    pub(crate) fn ready_at(&self) -> Instant {
        match self.rate {
            Some(_) => self.paid_at,
            None => Instant::ZERO,
        }
    }

    /// Accounts for `units` that begin or were used now.
    pub(crate) fn charge(&mut self, now: Instant, units: f64) {
        if let Some(rate) = self.rate {
            self.paid_at = self.paid_at.max(now - self.burst) + seconds(units / rate);
        }
    }
}

/// A duration from seconds; what does not fit is forever.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: Duration = Duration::from_millis(10);

    fn limited(rate: f64) -> Pace {
        let mut pace = Pace::unlimited(BURST);
        pace.set_rate(Instant::from_secs(1), Some(rate));
        pace
    }

    /// Begins things of `units` each, as early as allowed, until `end`; how many began.
    fn drain(pace: &mut Pace, units: f64, mut now: Instant, end: Instant) -> u32 {
        let mut begun = 0;
        loop {
            now = now.max(pace.ready_at());
            if now >= end {
                return begun;
            }
            pace.charge(now, units);
            begun += 1;
        }
    }

    #[test]
    fn throughput_at_the_limit_is_the_rate_plus_one_burst() {
        let mut pace = limited(100.0);
        let begun = drain(&mut pace, 1.0, Instant::from_secs(1), Instant::from_secs(11));
        // 1000 in ten seconds, 1 for the burst of 10 ms, 1 that finds no debt at the end.
        assert!((1000..=1002).contains(&begun), "{begun}");
    }

    #[test]
    fn amounts_above_the_burst_keep_the_rate() {
        let mut pace = limited(100.0);
        let begun = drain(&mut pace, 300.0, Instant::from_secs(1), Instant::from_secs(301));
        assert!((100..=101).contains(&begun), "{begun}");
    }

    #[test]
    fn unused_time_is_saved_only_up_to_the_burst() {
        let mut pace = limited(1000.0);
        let later = Instant::from_secs(100);
        let begun = drain(&mut pace, 1.0, later, later + Duration::from_nanos(1));
        assert_eq!(begun, 11, "ten for the burst of 10 ms and one that may leave a debt");
    }

    #[test]
    fn a_new_rate_applies_to_the_debt_at_once() {
        let now = Instant::from_secs(1);
        let mut pace = limited(1.0);
        pace.charge(now, 10.0);
        assert_eq!(pace.ready_at(), now + Duration::from_secs(10));
        pace.set_rate(now, Some(10.0));
        assert_eq!(pace.ready_at(), now + Duration::from_secs(1));
        pace.set_rate(now, None);
        assert_eq!(pace.ready_at(), Instant::ZERO);
    }

    #[test]
    fn what_was_done_without_a_limit_is_not_owed() {
        let mut pace = Pace::unlimited(BURST);
        pace.charge(Instant::from_secs(1), 1e12);
        pace.set_rate(Instant::from_secs(1), Some(1.0));
        assert_eq!(pace.ready_at(), Instant::from_secs(1));
    }

    #[test]
    fn a_debt_too_large_for_the_clock_waits_forever_instead_of_wrapping() {
        let mut pace = limited(0.001);
        pace.charge(Instant::from_secs(1), 1e300);
        assert_eq!(pace.ready_at(), Instant::NEVER);
    }
}
