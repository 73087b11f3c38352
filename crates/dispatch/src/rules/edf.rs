//! `queue = "edf"`: the earliest deadline first.

use std::time::Duration;

use sherwood_model::{Demand, DemandKind, Instant};

use super::{QueueOrder, Rank};

/// Queue order by deadline, with best effort behind everything that has one.
///
/// A head that cannot meet its deadline any more would only make others miss theirs, so it is
/// deferred: behind the middle of the time that is left until its timeout, so that it ends late
/// rather than not at all. It still precedes whatever arrives much later, and is not deferred
/// again, so that it starts at last however much arrives.
///
/// Guo et al., "`MicroFuge`" (2014), section II-B.2, where the later deadline is only said to be
/// "much larger". A deadline after the timeout counts as the timeout. A write is ranked by its
/// deadline even if it is best effort: later writes wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edf {
    /// The backend's timeout.
    pub(crate) timeout: Duration,
}

impl QueueOrder for Edf {
    fn rank(&self, now: Instant, demand: &Demand) -> Rank {
        let ends_at = now + self.timeout;
        let at = demand.deadline.map_or(ends_at, |deadline| deadline.min(ends_at));
        Rank { class: u8::from(is_last(demand)), at }
    }

    fn defer(&self, now: Instant, arrived: Instant, demand: &Demand, quickest: Duration) -> Option<Rank> {
        let deadline = demand.deadline?;
        let left = deadline - now;
        if is_last(demand) || (left >= quickest && left > Duration::ZERO) {
            return None;
        }
        let at = now + (arrived + self.timeout - now) / 2;
        (at > deadline).then_some(Rank { class: 0, at })
    }
}

fn is_last(demand: &Demand) -> bool {
    demand.best_effort && demand.kind == DemandKind::Read
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDF: Edf = Edf { timeout: Duration::from_secs(2) };

    fn due(ms: u64) -> Demand {
        Demand { deadline: Some(Instant::from_millis(ms)), ..Demand::default() }
    }

    #[test]
    fn earlier_deadline_ranks_first_and_best_effort_last() {
        let rank = |demand: &Demand| EDF.rank(Instant::from_millis(5), demand);
        let best_effort = Demand { best_effort: true, ..due(10) };
        let ranks = [due(10), due(20), Demand::default(), best_effort].map(|demand| rank(&demand));
        assert!(ranks.is_sorted());
        assert_eq!(rank(&Demand { kind: DemandKind::Write, ..best_effort }), rank(&due(10)));
    }

    #[test]
    fn deadline_after_the_timeout_ranks_as_the_timeout() {
        let now = Instant::from_millis(5);
        assert_eq!(EDF.rank(now, &due(9_000)), EDF.rank(now, &Demand::default()));
    }

    #[test]
    fn demand_without_enough_time_is_deferred_by_half_of_what_is_left_until_its_timeout() {
        let (now, quickest) = (Instant::from_millis(5), Duration::from_millis(3));
        let defer = |demand: &Demand, quickest| EDF.defer(now, Instant::from_millis(1), demand, quickest);
        assert_eq!(defer(&due(8), quickest), None);
        let later = Some(Rank { class: 0, at: Instant::from_millis(1_003) });
        assert_eq!(defer(&due(7), quickest), later);
        assert_eq!(defer(&due(4), Duration::ZERO), later);
        assert_eq!(defer(&due(6), Duration::ZERO), None);
        assert_eq!(defer(&due(1_003), Duration::from_secs(1)), None, "no later than it ranks already");
        assert_eq!(defer(&Demand { best_effort: true, ..due(4) }, quickest), None);
    }
}
