//! The intended starts of operations.

use std::time::Duration;

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
    Changing(Box<Changing>),
}

/// A Poisson process whose rate changes.
#[derive(Debug)]
pub(crate) struct Changing {
    /// Times from which on rates hold, in starts per second; ascending.
    rates: Vec<(u64, f64)>,
    rng: Rng,
    due_ns: u64,
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

    /// Returns the starts of a Poisson process whose rate changes at these times, in starts per
    /// second, 0 for none. The times ascend from 0.
    pub(crate) fn changing(rates: &[(Duration, f64)], seed: u64) -> Self {
        let nanos = |at: Duration| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let rates = rates.iter().map(|&(at, per_s)| (nanos(at), per_s)).collect();
        let mut changing =
            Self::Changing(Box::new(Changing { rates, rng: rng_from_seed(seed ^ ARRIVALS), due_ns: 0 }));
        changing.advance();
        changing
    }

    /// The intended start of the next operation at the time `now_ns`; it may lie in the future.
    pub(crate) fn next_start(&self, now_ns: u64) -> u64 {
        match self {
            Self::Closed => now_ns,
            Self::Open { due_ns, .. } => *due_ns,
            Self::Changing(changing) => changing.due_ns,
        }
    }

    /// Moves the schedule on by one operation.
    pub(crate) fn advance(&mut self) {
        match self {
            Self::Closed => {}
            Self::Open { arrivals, rng, due_ns } => *due_ns = due_ns.saturating_add(gap(arrivals, rng)),
            Self::Changing(changing) => changing.advance(),
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        !matches!(self, Self::Closed)
    }
}

impl Changing {
    /// Draws the next start. A gap that goes beyond the next change is drawn again from there on,
    /// which changes nothing, since the process has no memory.
    fn advance(&mut self) {
        let Self { rates, rng, due_ns } = self;
        let mut from = *due_ns;
        loop {
            let next = rates.partition_point(|(at, _)| *at <= from);
            let until = rates.get(next).map_or(u64::MAX, |(at, _)| *at);
            let rate = next.checked_sub(1).map_or(0.0, |current| rates[current].1);
            let due = Arrivals::poisson(rate)
                .map_or(u64::MAX, |mut arrivals| from.saturating_add(gap(&mut arrivals, rng)));
            if due < until || until == u64::MAX {
                *due_ns = due;
                return;
            }
            from = until;
        }
    }
}

fn gap(arrivals: &mut Arrivals, rng: &mut Rng) -> u64 {
    u64::try_from(arrivals.next_gap(rng).as_nanos()).unwrap_or(u64::MAX)
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
    fn rate_of_arrivals_changes_at_its_times() {
        let seconds = Duration::from_secs;
        let rates = [(seconds(0), 1_000.0), (seconds(10), 0.0), (seconds(20), 5_000.0), (seconds(30), 0.0)];
        let mut schedule = Schedule::changing(&rates, 1);
        let mut counts = [0_u32; 4];
        while schedule.next_start(0) < u64::MAX {
            counts[(schedule.next_start(0) / 10_000_000_000) as usize] += 1;
            schedule.advance();
        }
        assert!((9_700..10_300).contains(&counts[0]) && (49_000..51_000).contains(&counts[2]), "{counts:?}");
        assert_eq!((counts[1], counts[3]), (0, 0));
    }

    #[test]
    fn load_rate_of_zero_is_refused() {
        assert!(Schedule::new(Pace::Open { rate_per_s: 0.0, gaps: Gaps::Poisson }, 1).is_err());
    }
}
