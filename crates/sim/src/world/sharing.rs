//! Processor sharing: a server whose cores are shared equally by the jobs in service.

use std::collections::BTreeSet;
use std::time::Duration;

use sherwood_model::Instant;

/// A server in which each of n jobs in service progresses at a rate of min(1, cores / n), divided
/// by the server's slowdown.
///
/// The server is simulated exactly, in virtual time, which is the progress of a job in service
/// since the server was last idle. A job ends when virtual time has advanced by its work, whatever
/// the rate was meanwhile, so a change of the rate costs nothing per job. Each call takes time
/// logarithmic in the number of jobs.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    cores: f64,
    /// Time that a unit of work takes on a core of its own; 1 without interference.
    slowdown: f64,
    /// The time up to which `progress_ns` is computed.
    at: Instant,
    /// Virtual time, in nanoseconds of work.
    progress_ns: f64,
    /// The jobs in service by the virtual time at which they end, whose bits are in the order of
    /// the times, since no time is negative.
    jobs: BTreeSet<(u64, u32)>,
}

impl Sharing {
    /// Returns an idle server.
    pub(crate) fn new(cores: u32) -> Self {
        Self {
            cores: cores.into(),
            slowdown: 1.0,
            at: Instant::ZERO,
            progress_ns: 0.0,
            jobs: BTreeSet::new(),
        }
    }

    /// Changes the server's slowdown, 1 or more, from now on.
    pub(crate) fn set_slowdown(&mut self, now: Instant, slowdown: f64) {
        self.advance(now);
        self.slowdown = slowdown;
    }

    /// Adds a job that takes the time `work` on a core of its own without slowdown.
    pub(crate) fn add(&mut self, now: Instant, job: u32, work: Duration) {
        self.advance(now);
        let end_ns = self.progress_ns + work.as_nanos() as f64;
        self.jobs.insert((end_ns.to_bits(), job));
    }

    /// Returns the time at which the next job ends unless something changes before; none if the
    /// server is idle.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let (end_ns, _) = self.jobs.first()?;
        let left_ns = (f64::from_bits(*end_ns) - self.progress_ns) / self.rate();
        Some(self.at + Duration::from_nanos(left_ns.ceil() as u64))
    }

    /// Removes a job that has ended by now.
    pub(crate) fn take_ended(&mut self, now: Instant) -> Option<u32> {
        self.advance(now);
        // Events are at whole nanoseconds; sums may be off by a small part of one.
        let is_over = |end_ns: u64| f64::from_bits(end_ns) < self.progress_ns + 0.5;
        self.jobs.first().filter(|(end_ns, _)| is_over(*end_ns))?;
        let (_, job) = self.jobs.pop_first()?;
        if self.jobs.is_empty() {
            self.progress_ns = 0.0;
        }
        Some(job)
    }

    fn advance(&mut self, now: Instant) {
        if !self.jobs.is_empty() {
            self.progress_ns += (now - self.at).as_nanos() as f64 * self.rate();
        }
        self.at = now;
    }

    /// Progress of each job per unit of time; there is at least one job.
    fn rate(&self) -> f64 {
        (self.cores / self.jobs.len() as f64).min(1.0) / self.slowdown
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// A change of a server, some time after the one before.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        Add { work_us: u32 },
        Slow { percent: u32 },
    }

    fn changes() -> impl Strategy<Value = Vec<(u32, Change)>> {
        let change = prop_oneof![
            (0..5_000_u32).prop_map(|work_us| Change::Add { work_us }),
            (100..900_u32).prop_map(|percent| Change::Slow { percent }),
        ];
        prop::collection::vec((0..3_000_u32, change), 1..40)
    }

    /// Returns the times in µs at which the jobs end, in the order in which they were added,
    /// integrated in steps of 1 µs.
    fn integrated(changes: &[(u32, Change)]) -> Vec<f64> {
        let mut left: Vec<f64> = Vec::new();
        let mut ends = Vec::new();
        let (mut slowdown, mut at, mut next, mut due) = (1.0, 0_u32, 0, changes[0].0);
        while next < changes.len() || left.iter().any(|left| *left > 0.0) {
            while next < changes.len() && due == at {
                match changes[next].1 {
                    Change::Add { work_us } => {
                        left.push(work_us.into());
                        ends.push(f64::from(at));
                    }
                    Change::Slow { percent } => slowdown = f64::from(percent) / 100.0,
                }
                next += 1;
                due += changes.get(next).map_or(0, |change| change.0);
            }
            let jobs = left.iter().filter(|left| **left > 0.0).count() as f64;
            let step = (2.0 / jobs).min(1.0) / slowdown;
            at += 1;
            for (left, end) in left.iter_mut().zip(&mut ends).filter(|(left, _)| **left > 0.0) {
                *left -= step;
                *end = f64::from(at);
            }
        }
        ends
    }

    /// Returns the same times, computed by the server.
    fn shared(changes: &[(u32, Change)]) -> Vec<f64> {
        let (mut server, mut ends, mut at) = (Sharing::new(2), Vec::new(), Instant::ZERO);
        let end_before = |server: &mut Sharing, ends: &mut Vec<f64>, before: Instant| {
            while let Some(end) = server.next_end().filter(|end| *end <= before) {
                while let Some(job) = server.take_ended(end) {
                    ends[job as usize] = end.as_nanos() as f64 / 1e3;
                }
            }
        };
        for (after_us, change) in changes {
            at += *after_us * US;
            end_before(&mut server, &mut ends, at);
            match *change {
                Change::Add { work_us } => {
                    server.add(at, ends.len() as u32, work_us * US);
                    ends.push(f64::NAN);
                }
                Change::Slow { percent } => server.set_slowdown(at, f64::from(percent) / 100.0),
            }
        }
        end_before(&mut server, &mut ends, Instant::NEVER);
        ends
    }

    proptest! {
        #[test]
        fn jobs_end_when_their_integrated_progress_reaches_their_work(changes in changes()) {
            let (exact, coarse) = (shared(&changes), integrated(&changes));
            prop_assert_eq!(exact.len(), coarse.len());
            for (exact, coarse) in exact.iter().zip(&coarse) {
                // A step in which a job ends is given to it alone: at most a step for each job.
                prop_assert!((exact - coarse).abs() <= 45.0, "{} instead of {}", exact, coarse);
            }
        }
    }

    #[test]
    fn three_jobs_on_two_cores_progress_at_two_thirds_of_the_rate() {
        let mut server = Sharing::new(2);
        let at = |us: u32| Instant::ZERO + us * US;
        server.add(at(0), 1, 300 * US);
        server.add(at(0), 2, 100 * US);
        server.add(at(0), 3, 200 * US);
        assert_eq!(server.next_end(), Some(at(150)));
        assert_eq!(server.take_ended(at(150)), Some(2));
        // 100 µs of the third job are left, and it has a core.
        assert_eq!((server.take_ended(at(150)), server.next_end()), (None, Some(at(250))));
        server.set_slowdown(at(200), 4.0);
        assert_eq!(server.next_end(), Some(at(400)));
        assert_eq!((server.take_ended(at(400)), server.next_end()), (Some(3), Some(at(800))));
        assert_eq!((server.take_ended(at(800)), server.next_end()), (Some(1), None));
    }
}
