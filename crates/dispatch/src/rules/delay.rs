//! `admit = "delay"`: a call that would wait too long in a queue is refused.

use std::time::Duration;

use sherwood_model::{Demand, Instant};

use super::{Admission, ReplicaLoad, Verdict, reject_unless};

/// Admission by queueing delay, whatever the deadline is.
///
/// The overload control of Zhou et al., "Overload control for scaling `WeChat` microservices"
/// (DAGOR, 2018) and Cho et al., "Overload control for µs-scale RPCs with Breakwater" (2020): both
/// keep the time that a request waits at a server near a target. Theirs is measured, and the
/// clients are told; here it is estimated for the very call, where the queue is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    /// The longest queueing delay of a call that is admitted.
    pub(crate) target: Duration,
}

impl Admission for Delay {
    fn judge(&mut self, now: Instant, demand: &Demand, picked: &[ReplicaLoad]) -> Verdict {
        reject_unless(now, demand, picked, |estimate| estimate.starts_at - now <= self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Estimate;
    use crate::rules::tests::loads_of;

    #[test]
    fn call_that_would_wait_longer_than_the_target_is_rejected_whatever_its_deadline_is() {
        let mut rule = Delay { target: Duration::from_millis(20) };
        let mut judge = |starts_ms, demand: &Demand| {
            let (starts_at, completes_at) = (Instant::from_millis(starts_ms), Instant::from_millis(90));
            let (meets_deadline, breaks_another, starts_at_once) = (true, false, false);
            let mut picked = loads_of(&[(0, 0)]);
            picked[0].estimate =
                Some(Estimate { starts_at, completes_at, meets_deadline, breaks_another, starts_at_once });
            rule.judge(Instant::from_millis(5), demand, &picked)
        };
        assert_eq!(judge(25, &Demand::default()), Verdict::Admit);
        let expected = Duration::from_millis(85);
        assert_eq!(judge(26, &Demand::default()), Verdict::Reject { expected });
        assert_eq!(judge(26, &Demand { best_effort: true, ..Demand::default() }), Verdict::Admit);
    }
}
