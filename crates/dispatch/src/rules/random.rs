//! `balance = "random"`: any replica, without a look at its load.

use sherwood_model::{Demand, Instant, SplitMix64};

use super::{Balancer, Picks, ReplicaLoad};
use crate::draws::below;

/// Picks replicas at random, each with the same probability.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random;

impl Balancer for Random {
    fn choose(
        &mut self,
        _now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        let mut draws = SplitMix64::new(entropy);
        for picked in 0..want.min(usable.len()) {
            let drawn = below(draws.next_u64(), (usable.len() - picked) as u64) as usize;
            let left = usable.iter().filter(|load| !picks.contains(&load.replica)).nth(drawn);
            let Some(load) = left else { return };
            picks.push(load.replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn random_picks_are_even_whatever_the_load() {
        let mut draws = Draws::default();
        let usable = loads_of(&[(0, 0), (1, 99), (2, 5)]);
        let mut chosen = [0; 3];
        for _ in 0..3_000 {
            chosen[usize::from(picked(&mut Random, &usable, 1, draws.next())[0])] += 1;
        }
        assert!(chosen.iter().all(|count| (850..1_150).contains(count)), "{chosen:?}");
    }

    #[test]
    fn several_random_picks_are_different() {
        let usable = loads_of(&[(0, 0), (3, 0), (7, 0)]);
        for entropy in 0..50 {
            let mut picks = picked(&mut Random, &usable, 9, entropy);
            picks.sort_unstable();
            assert_eq!(picks, [0, 3, 7]);
        }
        assert!(picked(&mut Random, &[], 1, 0).is_empty());
    }
}
