//! `copies = "hedge"`: one more attempt where the first takes long.

use std::time::Duration;

use sherwood_model::{Demand, Percent};

use super::{AttemptPlan, CallEnd, Completion, CopyTerms, Replication, Tier};
use crate::replica_queue::Window;

/// Replication rule that plans a copy of every call that has not ended after a percentile of the
/// latencies of all replicas (Dean and Barroso, "The tail at scale", 2013), at least `min`. Where a
/// call reports progress, the longest time without any counts instead of the latency, so that as
/// many calls have a copy however often they report.
///
/// No copy is planned before 64 latencies are known. A failed call says nothing, and a cancelled
/// one that its latency is at least the time that it had.
#[derive(Clone, Debug)]
pub(crate) struct Hedge {
    min: Duration,
    latencies: Window,
}

impl Hedge {
    pub(crate) fn new(percentile: Percent, min: Duration) -> Self {
        Self { min, latencies: Window::new(percentile, percentile) }
    }

    fn delay(&self) -> Option<Duration> {
        let percentile = self.latencies.high();
        (percentile > Duration::ZERO).then(|| percentile.max(self.min))
    }
}

impl Replication for Hedge {
    fn plan(&mut self, _demand: &Demand, _tier: &Tier) -> AttemptPlan {
        let later = self.delay().map(|delay| (delay, 1));
        AttemptPlan { now: 1, later, terms: CopyTerms::Budget }
    }

    fn completed(&mut self, completion: &Completion) {
        if completion.end != CallEnd::Failed {
            self.latencies.note(completion.longest_gap);
        }
    }

    fn progressed(&self) -> Option<Duration> {
        self.delay()
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::Instant;

    use super::*;

    const TIER: Tier = Tier { now: Instant::ZERO, slots: 9, waiting: 0 };

    fn after(latencies_ms: impl Iterator<Item = u64>, end: CallEnd) -> Option<(Duration, u8)> {
        let mut rule = Hedge::new(Percent::new("percentile", 95.0).unwrap(), Duration::from_millis(1));
        for took in latencies_ms.map(Duration::from_millis) {
            rule.completed(&Completion::of(Instant::ZERO, took, end));
        }
        rule.plan(&Demand::default(), &TIER).later
    }

    #[test]
    fn copy_is_planned_for_the_percentile_of_latencies_and_at_least_the_minimum() {
        let (delay, copies) = after((1..=128).cycle().take(1_024), CallEnd::Answered).unwrap();
        assert!(copies == 1 && (118..=126).contains(&delay.as_millis()), "{delay:?}");
        let least = Some((Duration::from_millis(1), 1));
        assert_eq!(after(std::iter::repeat_n(0, 64), CallEnd::Answered), least);
    }

    #[test]
    fn longest_time_without_progress_counts_however_often_a_call_reports() {
        let mut rule = Hedge::new(Percent::HEDGE, Duration::from_millis(1));
        for ms in (1..=128).cycle().take(1_024) {
            let took = Duration::from_secs(9);
            let (gap, longest_gap) = (Duration::from_millis(1), Duration::from_millis(ms));
            let ended = Completion::of(Instant::ZERO, took, CallEnd::Answered);
            rule.completed(&Completion { gap, longest_gap, ..ended });
        }
        let delay = rule.progressed().unwrap();
        assert!((118..=126).contains(&delay.as_millis()), "{delay:?}");
    }

    #[test]
    fn no_copy_is_planned_while_nothing_is_known_of_the_replicas() {
        assert_eq!(after(std::iter::repeat_n(5, 63), CallEnd::Answered), None);
        assert_eq!(after(std::iter::repeat_n(5, 640), CallEnd::Failed), None);
        assert!(after(std::iter::repeat_n(5, 64), CallEnd::Cancelled).is_some());
    }
}
