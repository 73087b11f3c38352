//! `admit = "deadline"`: what would miss its deadline, or make another call miss one, is refused.

use sherwood_model::{Demand, Instant};

use super::{Admission, ReplicaLoad, Verdict, reject_unless};

/// Admission by the estimates of the picked replicas' queues.
///
/// Guo et al., "`MicroFuge`" (2014), section II-B.3. Two kinds of calls are admitted whatever the
/// estimate is: best effort, which delays no other call, and a call that would start at once. The
/// latter delays no call that waits, and without it a server whose latencies have all been too long
/// for a while would be asked nothing more, and would never be known to have recovered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline;

impl Admission for Deadline {
    fn judge(&mut self, now: Instant, demand: &Demand, picked: &[ReplicaLoad]) -> Verdict {
        reject_unless(now, demand, picked, |estimate| estimate.fits() || estimate.starts_at_once)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Estimate;
    use crate::rules::tests::loads_of;

    const LATE: Estimate = Estimate {
        starts_at: Instant::from_millis(15),
        completes_at: Instant::from_millis(25),
        meets_deadline: false,
        breaks_another: false,
        starts_at_once: false,
    };

    fn judge(demand: &Demand, estimates: &[Estimate]) -> Verdict {
        let mut picked = loads_of(&vec![(0, 0); estimates.len()]);
        for (load, estimate) in picked.iter_mut().zip(estimates) {
            load.estimate = Some(*estimate);
        }
        Deadline.judge(Instant::from_millis(5), demand, &picked)
    }

    #[test]
    fn call_that_would_miss_or_break_a_deadline_everywhere_is_rejected_with_the_expected_time() {
        let demand = Demand::default();
        let breaking = Estimate { meets_deadline: true, breaks_another: true, ..LATE };
        let later = Estimate { completes_at: Instant::from_millis(45), ..breaking };
        let expected = Verdict::Reject { expected: Duration::from_millis(20) };
        assert_eq!(judge(&demand, &[LATE]), expected);
        assert_eq!(judge(&demand, &[breaking]), expected);
        assert_eq!(judge(&demand, &[later, LATE]), expected);
        let fitting = Estimate { meets_deadline: true, ..LATE };
        assert_eq!(judge(&demand, &[LATE, fitting]), Verdict::Admit);
    }

    #[test]
    fn best_effort_and_a_call_that_starts_at_once_are_admitted() {
        let best_effort = Demand { best_effort: true, ..Demand::default() };
        assert_eq!(judge(&best_effort, &[LATE]), Verdict::Admit);
        let at_once = Estimate { starts_at_once: true, ..LATE };
        assert_eq!(judge(&Demand::default(), &[at_once]), Verdict::Admit);
    }
}
