//! Interference: neighbours on a server's machine that slow the server down.

use std::time::Duration;

use sherwood_model::Instant;
use sherwood_workload::{Rng, uniform};

/// Law of the neighbours of a server.
///
/// Neighbours arrive by a Poisson process and stay for exponential times; several may be there at
/// once. As long as there is any, the server's slowdown is 1 plus an exponential draw, which is
/// drawn anew after exponential times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbours {
    /// Mean time between the arrivals of two neighbours.
    pub(crate) gap: Duration,
    /// Mean time that a neighbour stays.
    pub(crate) stay: Duration,
    /// Mean time until the slowdown is drawn anew.
    pub(crate) redraw: Duration,
    /// Mean of what neighbours add to the slowdown.
    pub(crate) slowdown: f64,
}

/// The neighbours of one server over time, with random draws of their own.
#[derive(Clone, Debug)]
pub(crate) struct Interference {
    law: Neighbours,
    draws: Rng,
    arrives_at: Instant,
    present: Option<Present>,
}

/// Times while neighbours are there.
#[derive(Clone, Copy, Debug)]
struct Present {
    /// The time at which the last neighbour leaves.
    until: Instant,
    redraw_at: Instant,
    slowdown: f64,
}

impl Interference {
    /// Returns a server without neighbours at time 0.
    pub(crate) fn new(law: Neighbours, draws: Rng) -> Self {
        let mut new = Self { law, draws, arrives_at: Instant::ZERO, present: None };
        new.arrives_at = Instant::ZERO + new.draw(law.gap);
        new
    }

    /// The time of the next change.
    pub(crate) fn next_change(&self) -> Instant {
        let present = self.present.map_or(Instant::NEVER, |present| present.until.min(present.redraw_at));
        self.arrives_at.min(present)
    }

    /// Makes the change that is due now, and returns the server's slowdown from now on.
    pub(crate) fn change(&mut self, now: Instant) -> f64 {
        self.present = self.present.filter(|present| present.until > now);
        if self.arrives_at <= now {
            let until = now + self.draw(self.law.stay);
            self.arrives_at = now + self.draw(self.law.gap);
            match &mut self.present {
                Some(present) => present.until = present.until.max(until),
                none => *none = Some(Present { until, redraw_at: now, slowdown: 1.0 }),
            }
        }
        if let Some(Present { until, redraw_at, .. }) = self.present
            && redraw_at <= now
        {
            let slowdown = 1.0 + exponential(&mut self.draws) * self.law.slowdown;
            let redraw_at = now + self.draw(self.law.redraw);
            self.present = Some(Present { until, redraw_at, slowdown });
        }
        self.present.map_or(1.0, |present| present.slowdown)
    }

    fn draw(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(exponential(&mut self.draws))
    }
}

/// Draws from the exponential distribution with a mean of 1.
fn exponential(draws: &mut Rng) -> f64 {
    -libm::log(1.0 - uniform(draws))
}

#[cfg(test)]
mod tests {
    use sherwood_workload::rng_from_seed;

    use super::*;

    #[test]
    fn neighbours_are_there_as_often_and_slow_as_much_as_their_law_says() {
        let law = Neighbours {
            gap: Duration::from_secs(40),
            stay: Duration::from_secs(10),
            redraw: Duration::from_millis(120),
            slowdown: 3.3,
        };
        let mut server = Interference::new(law, rng_from_seed(5));
        let (mut at, mut slowdown) = (Instant::ZERO, 1.0);
        let (mut present_s, mut slowed_s, mut redrawn) = (0.0, 0.0, 0_u64);
        while at < Instant::from_secs(1_000_000) {
            let (next, was) = (server.next_change(), slowdown);
            assert!(next >= at);
            let passed = (next - at).as_secs_f64();
            present_s += if slowdown > 1.0 { passed } else { 0.0 };
            slowed_s += passed * slowdown;
            (at, slowdown) = (next, server.change(next));
            redrawn += u64::from(slowdown != was && slowdown > 1.0);
        }
        // The numbers of neighbours are those of jobs in M/M/∞.
        let share = 1.0 - libm::exp(-10.0 / 40.0);
        assert!((present_s / 1e6 - share).abs() < 0.03 * share, "{present_s}");
        let mean = 1.0 + share * 3.3;
        assert!((slowed_s / 1e6 - mean).abs() < 0.02 * mean, "{slowed_s}");
        let expected = share * 1e6 / 0.12;
        assert!((redrawn as f64 - expected).abs() < 0.03 * expected, "{redrawn}");
    }
}
