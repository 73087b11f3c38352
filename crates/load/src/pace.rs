//! The intended starts of operations.

use sherwood_workload::{Arrivals, Rng, rng_from_seed};

use crate::LoadError;

/// The pace at which operations start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A closed loop: each free place of a pipeline starts the next operation at once.
    Closed,
    /// An open loop: operations start at a rate, independent of the answers.
    Open {
        /// Starts per second, above 0 and up to [`RATE_MAX`].
        rate_per_s: f64,
        /// The distribution of the times between starts.
        gaps: Gaps,
    },
}

/// Makes the random stream of the arrivals independent of that of the requests, which often have
/// the same seed.
const ARRIVALS: u64 = 0x4152_5249_5641_4C53;

/// The highest rate of starts, far above the capacity of one thread: it bounds the overdue
/// operations that a run has to count.
pub const RATE_MAX: f64 = 1e7;

/// The times between the starts of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// A Poisson process, as of many independent users.
    Poisson,
    /// All gaps between starts are equal.
    Fixed,
}

/// The intended starts of a run's operations, in nanoseconds from the start of the run.
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

    /// The intended start of the next operation at the time `now_ns`; it may lie in the future.
    pub(crate) fn next_start(&self, now_ns: u64) -> u64 {
        match self {
            Self::Closed => now_ns,
            Self::Open { due_ns, .. } => *due_ns,
        }
    }

    /// Moves the schedule on by one operation.
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

/// Sets the timer slack of this thread to 1 ns, so that the kernel does not delay its wake-ups by
/// up to 50 µs. Best effort: a failure shows in the reported lateness.
pub(crate) fn wake_on_time() {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intended_starts_of_an_open_loop_do_not_depend_on_the_clock() {
        let pace = Pace::Open { rate_per_s: 1_000.0, gaps: Gaps::Fixed };
        let mut schedule = Schedule::new(pace, 1).unwrap();
        assert_eq!(schedule.next_start(77), 1_000_000);
        schedule.advance();
        assert_eq!(schedule.next_start(u64::MAX), 2_000_000);
        assert_eq!(Schedule::new(Pace::Closed, 1).unwrap().next_start(77), 77);
    }

    #[test]
    fn load_rate_of_zero_is_refused() {
        assert!(Schedule::new(Pace::Open { rate_per_s: 0.0, gaps: Gaps::Poisson }, 1).is_err());
    }
}
