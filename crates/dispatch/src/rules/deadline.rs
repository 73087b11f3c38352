//! `admit = "deadline"`: what would miss its deadline, or make another call miss one, is refused.

use std::time::Duration;

use sherwood_model::{Demand, Instant};

use super::shares::{Shares, Standing};
use super::{Admission, ReplicaLoad, Verdict, reject_unless};
use crate::Estimate;

/// Admission by the estimates of the picked replicas' queues.
///
/// Guo et al., "`MicroFuge`" (2014), section II-B.3. Two kinds of calls are admitted whatever the
/// estimate is: best effort, which delays no other call, and a call that would start at once. The
/// latter delays no call that waits, and without it a server whose latencies have all been too long
/// for a while would be asked nothing more, and would never be known to have recovered.
///
/// Not in the paper: while a tenant bursts, its calls are admitted only if they leave room for one
/// more call, and for twice what the others use, until their deadlines. A call of these others is
/// admitted if it meets its own deadline. So it is the burst that is refused, and where a refusal
/// came too late, calls of the burst miss their deadlines.
#[derive(Clone, Debug)]
pub(crate) struct Deadline {
    shares: Shares,
}

impl Deadline {
    /// Returns the rule for replicas that work on so many calls at a time, all together.
    pub(super) fn new(workers: u64) -> Self {
        Self { shares: Shares::new(workers) }
    }
}

impl Admission for Deadline {
    fn judge(&mut self, now: Instant, demand: &Demand, picked: &[ReplicaLoad]) -> Verdict {
        let standing = self.shares.standing(now, demand.tenant);
        let verdict = reject_unless(now, demand, picked, |estimate| {
            estimate.starts_at_once
                || match standing {
                    Standing::Even => estimate.fits(),
                    Standing::Steady => estimate.meets_deadline,
                    Standing::Bursting { reserved_ratio } => {
                        estimate.fits() && leaves_room(now, demand, estimate, reserved_ratio)
                    }
                }
        });
        if verdict == Verdict::Admit
            && !demand.best_effort
            && let Some(estimate) = picked.first().and_then(|load| load.estimate)
        {
            self.shares.note(demand.tenant, time_of(&estimate));
        }
        verdict
    }
}

/// Returns true if a call would end early enough to leave this share of the time until its deadline
/// to others, and the time of one more call.
fn leaves_room(now: Instant, demand: &Demand, estimate: &Estimate, reserved_ratio: f64) -> bool {
    let Some(deadline) = demand.deadline else { return true };
    let reserved = (deadline - now).mul_f64(reserved_ratio) + time_of(estimate);
    estimate.completes_at + reserved <= deadline
}

fn time_of(estimate: &Estimate) -> Duration {
    estimate.completes_at - estimate.starts_at
}

#[cfg(test)]
mod tests {
    use sherwood_model::TenantId;

    use super::*;
    use crate::rules::tests::loads_of;

    const LATE: Estimate = Estimate {
        starts_at: Instant::from_millis(15),
        completes_at: Instant::from_millis(25),
        meets_deadline: false,
        breaks_another: false,
        starts_at_once: false,
    };
    const FITTING: Estimate = Estimate { meets_deadline: true, ..LATE };

    fn judge(rule: &mut Deadline, demand: &Demand, estimates: &[Estimate]) -> Verdict {
        let mut picked = loads_of(&vec![(0, 0); estimates.len()]);
        for (load, estimate) in picked.iter_mut().zip(estimates) {
            load.estimate = Some(*estimate);
        }
        rule.judge(Instant::from_millis(5), demand, &picked)
    }

    #[test]
    fn call_that_would_miss_or_break_a_deadline_everywhere_is_rejected_with_the_expected_time() {
        let rule = &mut Deadline::new(1);
        let demand = Demand::default();
        let breaking = Estimate { breaks_another: true, ..FITTING };
        let later = Estimate { completes_at: Instant::from_millis(45), ..breaking };
        let expected = Verdict::Reject { expected: Duration::from_millis(20) };
        assert_eq!(judge(rule, &demand, &[LATE]), expected);
        assert_eq!(judge(rule, &demand, &[breaking]), expected);
        assert_eq!(judge(rule, &demand, &[later, LATE]), expected);
        assert_eq!(judge(rule, &demand, &[LATE, FITTING]), Verdict::Admit);
    }

    #[test]
    fn best_effort_and_a_call_that_starts_at_once_are_admitted() {
        let rule = &mut Deadline::new(1);
        let best_effort = Demand { best_effort: true, ..Demand::default() };
        assert_eq!(judge(rule, &best_effort, &[LATE]), Verdict::Admit);
        let at_once = Estimate { starts_at_once: true, ..LATE };
        assert_eq!(judge(rule, &Demand::default(), &[at_once]), Verdict::Admit);
    }

    #[test]
    fn burst_is_rejected_from_its_tenant_and_not_from_the_others() {
        let rule = &mut Deadline::new(1);
        let of = |tenant, deadline| Demand {
            tenant: TenantId(tenant),
            deadline: Some(Instant::from_millis(deadline)),
            ..Demand::default()
        };
        let (steady, bursting) = (of(1, 65), of(2, 65));
        assert_eq!(judge(rule, &steady, &[FITTING]), Verdict::Admit);
        (0..26).for_each(|_| assert_eq!(judge(rule, &bursting, &[FITTING]), Verdict::Admit));
        // It ends at 25 ms. Ten more are for another call, and 60 × 2 × 10 / 500 for the others.
        assert_eq!(judge(rule, &of(2, 38), &[FITTING]), Verdict::Admit);
        assert_ne!(judge(rule, &of(2, 36), &[FITTING]), Verdict::Admit);
        let breaking = Estimate { breaks_another: true, ..FITTING };
        assert_ne!(judge(rule, &bursting, &[breaking]), Verdict::Admit);
        assert_eq!(judge(rule, &steady, &[breaking]), Verdict::Admit);
        assert_ne!(judge(rule, &steady, &[LATE]), Verdict::Admit);
    }
}
