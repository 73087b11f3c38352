//! `copies = "fixed"`: every fetch has the same number of attempts at once.

use std::time::Duration;

use sherwood_model::{Demand, Instant};

use super::{AttemptPlan, CallEnd, Completion, CopyTerms, Replication, Tier};

/// Replication rule that plans `factor` attempts for every fetch (r), as long as the replicas have
/// slots for all of them.
///
/// The copies have an allowance of their own, r − 1 a fetch. It is withdrawn at once when the slots
/// do not suffice for r calls of every fetch: λ r T ≥ slots, with the rate of fetches λ and the
/// time T for which a call holds its slot (sPARE, section 5.1, eq. 5), each a moving average.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub(crate) factor: u8,
    /// The time of the latest fetch.
    asked_at: Option<Instant>,
    /// Moving averages in nanoseconds: time between two fetches, and time of a call.
    gap: f64,
    held: f64,
}

/// Most mean gaps that a gap between two fetches counts as.
const PAUSE: f64 = 8.0;
/// Weight of the latest value in a moving average.
const WEIGHT: f64 = 1.0 / 64.0;

impl Fixed {
    pub(crate) fn new(factor: u8) -> Self {
        Self { factor, asked_at: None, gap: 0.0, held: 0.0 }
    }

    /// Returns true while the slots suffice for all attempts. They do as long as nothing is known.
    fn is_stable(&self, slots: u64) -> bool {
        f64::from(self.factor) * self.held <= self.gap * slots as f64
    }
}

impl Replication for Fixed {
    fn plan(&mut self, _demand: &Demand, tier: &Tier) -> AttemptPlan {
        if let Some(before) = self.asked_at.replace(tier.now) {
            let gap = (tier.now - before).as_nanos() as f64;
            // A pause says little about the load that follows it.
            let most = if self.gap > 0.0 { PAUSE * self.gap } else { gap };
            average(&mut self.gap, gap.min(most));
        }
        let now = if self.is_stable(tier.slots) { self.factor } else { 1 };
        AttemptPlan { now, later: None, terms: CopyTerms::Planned }
    }

    fn completed(&mut self, completion: &Completion) {
        if completion.end != CallEnd::Failed {
            self.held(completion.took);
        }
    }

    fn held(&mut self, took: Duration) {
        average(&mut self.held, took.as_nanos() as f64);
    }
}

fn average(mean: &mut f64, latest: f64) {
    *mean = if *mean == 0.0 { latest } else { *mean + (latest - *mean) * WEIGHT };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the attempts that are planned for fetches every `gap_ms`, of which each call takes
    /// `took_ms`, at 4 slots.
    fn planned(rule: &mut Fixed, from_ms: u64, gap_ms: u64, took_ms: u64) -> u8 {
        let mut planned = 0;
        for fetch in 0..1_000 {
            let now = Instant::from_millis(from_ms + fetch * gap_ms);
            let tier = Tier { now, slots: 4, waiting: 0 };
            planned = rule.plan(&Demand::default(), &tier).now;
            let took = Duration::from_millis(took_ms);
            rule.completed(&Completion::of(now, took, CallEnd::Answered));
        }
        planned
    }

    #[test]
    fn planned_copies_are_withdrawn_while_the_slots_do_not_suffice_for_them() {
        let mut rule = Fixed::new(2);
        assert_eq!(planned(&mut rule, 0, 10, 19), 2, "3.8 slots of 4 are held");
        assert_eq!(planned(&mut rule, 10_000, 10, 21), 1, "4.2 slots would be held");
        assert_eq!(planned(&mut rule, 20_000, 10, 5), 2, "they are made again");
    }
}
