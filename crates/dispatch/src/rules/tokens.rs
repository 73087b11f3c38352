//! `balance = "tokens"`: token-based arbitration (TAD) of sPARE, section 4.

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId, SplitMix64};

use super::best::{from, least};
use super::speeds::{Mean, Speeds};
use super::{Balancer, Completion, Picks, ReplicaLoad};
use crate::draws::below;

/// Picks the replicas whose last latency is least, of all that have a token (a free slot), or of
/// `lookups` drawn at random.
///
/// Attempts wait for a token in the common queue of the tier, so a fetch of r attempts takes the h
/// tokens that are free and waits for the others, each of another replica.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    lookups: usize,
    speeds: Speeds,
}

impl Tokens {
    /// Returns a rule that looks at `lookups` replicas, 0 for all, and halves a latency that is not
    /// renewed for `age`; an age of zero keeps it, as published.
    pub(crate) fn new(lookups: u32, age: Duration) -> Self {
        Self { lookups: lookups as usize, speeds: Speeds::new(Mean::Last, age) }
    }
}

impl Balancer for Tokens {
    fn choose(
        &mut self,
        now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        let mut draws = SplitMix64::new(entropy);
        let looked_at = if self.lookups == 0 { usable.len() } else { self.lookups.min(usable.len()) };
        let quickest = self.speeds.least(now, usable);
        for _ in 0..want.min(usable.len()) {
            // Consecutive replicas from a random one on: equal ones are picked evenly.
            let start = below(draws.next_u64(), usable.len() as u64) as usize;
            let rank =
                |load: &ReplicaLoad| (self.speeds.get(now, load.replica).unwrap_or(quickest), load.calls());
            let looked_at = from(usable, start).take(looked_at);
            let Some(best) = least(looked_at, picks, rank) else { return };
            picks.push(best);
        }
    }

    fn asked(&mut self, now: Instant, replica: ReplicaId) {
        self.speeds.asked(now, replica);
    }

    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        self.speeds.completed(replica, completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::CallEnd;
    use crate::rules::tests::{loads_of, picked};

    fn after(latencies_ms: &[(u16, u64)], lookups: u32) -> Tokens {
        let mut rule = Tokens::new(lookups, Duration::ZERO);
        for &(replica, ms) in latencies_ms {
            let took = Duration::from_millis(ms);
            let completion = Completion::of(Instant::ZERO, took, CallEnd::Answered);
            rule.completed(ReplicaId(replica), &completion);
        }
        rule
    }

    #[test]
    fn replicas_with_the_least_last_latencies_are_picked_and_an_unknown_one_is_as_good_as_the_best() {
        let usable = loads_of(&[(0, 0), (1, 0), (2, 0), (3, 1)]);
        let mut rule = after(&[(0, 5), (1, 3), (2, 4)], 0);
        let mut draws = Draws::default();
        for _ in 0..50 {
            assert_eq!(picked(&mut rule, &usable, 3, draws.next()), [1, 3, 2]);
        }
    }

    #[test]
    fn equal_replicas_are_picked_evenly() {
        let usable = loads_of(&[(0, 0), (1, 0), (2, 0)]);
        let (mut rule, mut draws, mut chosen) = (after(&[], 0), Draws::default(), [0; 3]);
        for _ in 0..3_000 {
            chosen[usize::from(picked(&mut rule, &usable, 1, draws.next())[0])] += 1;
        }
        assert!(chosen.iter().all(|count| (850..1_150).contains(count)), "{chosen:?}");
    }

    #[test]
    fn number_of_lookups_bounds_the_replicas_that_are_compared() {
        let usable = loads_of(&[(0, 0), (1, 0), (2, 0), (3, 0)]);
        let (mut rule, mut draws, mut chosen) =
            (after(&[(0, 1), (1, 2), (2, 3), (3, 4)], 2), Draws::default(), [0; 4]);
        for _ in 0..1_000 {
            chosen[usize::from(picked(&mut rule, &usable, 1, draws.next())[0])] += 1;
        }
        assert!(chosen[0] > 400 && chosen[1] > 150 && chosen[2] > 150 && chosen[3] == 0, "{chosen:?}");
    }
}
