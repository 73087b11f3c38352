//! When the next operation is to start.

use sherwood_workload::{Arrivals, Rng, rng_from_seed};

use crate::LoadError;

/// How fast to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as answers come: each free place of a pipeline starts the next operation at once.
    Closed,
    /// At a rate, whatever becomes of the answers.
    Open {
        /// Starts per second, above 0 and up to [`RATE_MAX`].
        rate_per_s: f64,
        /// How they are spread.
        gaps: Gaps,
    },
}

/// Keeps the draws of arrivals apart from those of the requests, which are often given the same
/// seed.
const ARRIVALS: u64 = 0x4152_5249_5641_4C53;

/// The highest rate, far above what one thread can send: it bounds what a run that falls behind has
/// to count.
pub const RATE_MAX: f64 = 1e7;

/// How the starts of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// A Poisson process, as of many independent users.
    Poisson,
    /// Equal gaps.
    Fixed,
}

/// The intended starts, in nanoseconds from the start of the run.
#[derive(Debug)]
pub(crate) enum Schedule {
    Closed,
    Open { arrivals: Arrivals, rng: Box<Rng>, due_ns: u64 },
}

impl Schedule {
    pub(crate) fn new(pace: Pace, seed: u64) -> Result<Self, LoadError> {
        let Pace::Open { rate_per_s, gaps } = pace else {
            return Ok(Self::Closed);
        };
        if rate_per_s > RATE_MAX {
            let found = rate_per_s.to_string();
            return Err(LoadError::Option { option: "rate", found, accepted: "up to 10000000 per second" });
        }
        let arrivals = match gaps {
            Gaps::Poisson => Arrivals::poisson(rate_per_s)?,
            Gaps::Fixed => Arrivals::fixed(rate_per_s)?,
        };
        let mut open = Self::Open { arrivals, rng: Box::new(rng_from_seed(seed ^ ARRIVALS)), due_ns: 0 };
        open.advance();
        Ok(open)
    }

    /// The intended start of the next operation, given that it is `now_ns`; it may lie ahead.
    pub(crate) fn next_start(&self, now_ns: u64) -> u64 {
        match self {
            Self::Closed => now_ns,
            Self::Open { due_ns, .. } => *due_ns,
        }
    }

    /// Goes on to the one after.
    pub(crate) fn advance(&mut self) {
        if let Self::Open { arrivals, rng, due_ns } = self {
            let gap = u64::try_from(arrivals.next_gap(rng.as_mut()).as_nanos()).unwrap_or(u64::MAX);
            *due_ns = due_ns.saturating_add(gap);
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

/// Asks the kernel to wake this thread without the 50 µs by which it may delay sleepers to save
/// power. Best effort: a refusal only shows in the lateness that is reported.
pub(crate) fn wake_on_time() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_schedule_depends_on_rate_and_seed_and_not_on_the_clock() {
        let pace = Pace::Open { rate_per_s: 1_000.0, gaps: Gaps::Fixed };
        let mut schedule = Schedule::new(pace, 1).unwrap();
        assert_eq!(schedule.next_start(77), 1_000_000);
        schedule.advance();
        assert_eq!(schedule.next_start(u64::MAX), 2_000_000);
        assert_eq!(Schedule::new(Pace::Closed, 1).unwrap().next_start(77), 77);
    }

    #[test]
    fn rate_of_zero_is_refused() {
        assert!(Schedule::new(Pace::Open { rate_per_s: 0.0, gaps: Gaps::Poisson }, 1).is_err());
    }
}
