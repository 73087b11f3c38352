//! Searches for the factors with the lowest latency.

use std::time::Duration;

use super::capacity::{TierSeen, shortage};
use super::collision::collision_probabilities;

/// A search among feasible factors, which starts at one copy in each tier. It has no time of its
/// own: it names the [trial](Self::trial) to be measured, and is given the result.
#[derive(Clone, Debug)]
pub(super) struct Search {
    order: Order,
    feasible: Feasible,
    kept: Vec<u8>,
    /// Measured with the factors kept.
    measured: Measured,
    /// Tiers in which one more copy than kept was no improvement.
    given_up: Vec<bool>,
    trial: Option<Vec<u8>>,
    tries: u32,
}

/// The order in which factors are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// From the factors kept, one more copy in the tier with the largest variability, as long as
    /// that improves the target: sPARE, algorithm 1. Each factor vector is tried at most once.
    Greedy,
    /// All feasible factors, lexicographically: at most the largest factor to the power of the
    /// number of tiers.
    Exhaustive,
}

/// The result of a measuring window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// The target latency of the first tier (R).
    pub(super) latency: Duration,
    /// Each tier's variability: a high percentile of its latency over the mean (w).
    pub(super) variability: Vec<f64>,
}

/// The factors that may be tried (F): all tiers are stable, the copies of a request have different
/// servers within a tier, and meet in a later tier with at most a given probability.
#[derive(Clone, Debug)]
pub(super) struct Feasible {
    /// Each tier, measured with one copy in all of them.
    pub(super) tiers: Vec<TierSeen>,
    pub(super) collision_max: f64,
    pub(super) factor_max: u8,
}

impl Search {
    /// Returns a search that begins with what was measured with one copy in each tier.
    pub(super) fn new(order: Order, feasible: Feasible, measured: Measured) -> Self {
        let tiers = feasible.tiers.len();
        let given_up = vec![false; tiers];
        let mut search =
            Self { order, feasible, kept: vec![1; tiers], measured, given_up, trial: None, tries: 0 };
        search.trial = search.next(&search.kept);
        search
    }

    /// The best factors so far.
    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// The result of the best factors so far.
    pub(super) fn measured(&self) -> &Measured {
        &self.measured
    }

    /// The factors to be measured next; none if the search has ended.
    pub(super) fn trial(&self) -> Option<&[u8]> {
        self.trial.as_deref()
    }

    /// Number of factor vectors whose results are known, without the first, one copy in each tier.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Ends a trial with its result, none if it made a tier unstable, and returns true if the trial
    /// is kept as the best so far. No effect after the end of the search.
    pub(super) fn handle_measured(&mut self, measured: Option<Measured>) -> bool {
        let Some(trial) = self.trial.take() else { return false };
        self.tries += 1;
        let better = measured.filter(|measured| measured.latency < self.measured.latency);
        let is_kept = better.is_some();
        if let Some(measured) = better {
            self.measured = measured;
            self.kept.clone_from(&trial);
            self.given_up.fill(false);
        } else {
            let grown = self.kept.iter().zip(&trial).map(|(kept, tried)| tried > kept);
            self.given_up.iter_mut().zip(grown).for_each(|(given_up, grown)| *given_up |= grown);
        }
        self.trial = self.next(&trial);
        is_kept
    }

    /// Returns the trial that follows the one `tried` last.
    fn next(&self, tried: &[u8]) -> Option<Vec<u8>> {
        match self.order {
            Order::Greedy => self.steepest(),
            Order::Exhaustive => {
                let mut rest = std::iter::successors(self.following(tried), |point| self.following(point));
                rest.find(|point| self.feasible.contains(point))
            }
        }
    }

    /// Returns the factors kept with one more copy in the tier with the largest variability.
    fn steepest(&self) -> Option<Vec<u8>> {
        let step = |tier: usize| {
            let mut trial = self.kept.clone();
            trial[tier] += 1;
            (!self.given_up[tier] && self.feasible.contains(&trial)).then_some((tier, trial))
        };
        let variability = |tier: usize| self.measured.variability[tier];
        // Of equal tiers the first, which is the last of the reversed ones.
        let steps = (0..self.kept.len()).rev().filter_map(step);
        steps.max_by(|(a, _), (b, _)| variability(*a).total_cmp(&variability(*b))).map(|(_, trial)| trial)
    }

    fn following(&self, point: &[u8]) -> Option<Vec<u8>> {
        let place = point.iter().rposition(|&factor| factor < self.feasible.factor_max)?;
        let mut next = point.to_vec();
        next[place] += 1;
        next[place + 1..].fill(1);
        Some(next)
    }
}

impl Feasible {
    fn contains(&self, factors: &[u8]) -> bool {
        let servers = || self.tiers.iter().map(|tier| tier.servers);
        let collisions = collision_probabilities(servers().zip(factors.iter().copied()));
        let ones = vec![1; factors.len()];
        factors
            .iter()
            .zip(servers())
            .all(|(&factor, servers)| factor <= self.factor_max && u32::from(factor) <= servers)
            && collisions.iter().skip(1).all(|&collision| collision <= self.collision_max)
            && shortage(&self.tiers, &ones, factors).is_none()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 36 and 12 servers, as in the paper, of which one copy uses `shares` of the cores.
    fn feasible(shares: [f64; 2], collision_max: f64) -> Feasible {
        let tier = |servers, share: f64| TierSeen {
            servers,
            cores: 1,
            arrivals_per_s: share * f64::from(servers),
            demand: Duration::from_secs(1),
            ..TierSeen::default()
        };
        Feasible { tiers: vec![tier(36, shares[0]), tier(12, shares[1])], collision_max, factor_max: 3 }
    }

    fn measured(micros: u32, variability: [f64; 2]) -> Measured {
        Measured { latency: Duration::from_micros(micros.into()), variability: variability.to_vec() }
    }

    /// Runs a search on a surface of latencies, and returns the factors tried and those kept.
    fn run(order: Order, feasible: Feasible, surface: impl Fn(&[u8]) -> Measured) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut search = Search::new(order, feasible, surface(&[1, 1]));
        let mut tried = Vec::new();
        while let Some(trial) = search.trial() {
            let trial = trial.to_vec();
            search.handle_measured(Some(surface(&trial)));
            tried.push(trial);
        }
        assert_eq!(search.tries() as usize, tried.len());
        (tried, search.kept().to_vec())
    }

    #[test]
    fn greedy_search_takes_the_steps_of_the_papers_example() {
        // Figure 7: tier 2 varies most at (1,1), tier 1 at (1,2), then tier 2.
        let surface = |r: &[u8]| match r {
            [1, 1] => measured(1_900, [2.0, 3.0]),
            [1, 2] => measured(1_500, [3.0, 2.0]),
            [2, 2] => measured(1_100, [2.0, 3.0]),
            _ => measured(1_300, [9.0, 9.0]),
        };
        let (tried, kept) = run(Order::Greedy, feasible([0.1, 0.1], 1.0), surface);
        assert_eq!((tried, kept), (vec![vec![1, 2], vec![2, 2], vec![2, 3], vec![3, 2]], vec![2, 2]));
        let (tried, kept) = run(Order::Greedy, feasible([0.1, 0.1], 0.5), surface);
        assert_eq!((tried, kept), (vec![vec![1, 2], vec![2, 2]], vec![2, 2]), "collisions above 0.5");
    }

    #[test]
    fn direction_given_up_is_tried_again_after_a_step_in_another() {
        let surface = |r: &[u8]| match r {
            [1, 1] => measured(1_000, [9.0, 1.0]),
            [2, 1] => measured(1_000, [1.0, 1.0]),
            [1, 2] => measured(900, [9.0, 1.0]),
            [2, 2] => measured(800, [1.0, 1.0]),
            _ => measured(2_000, [1.0, 1.0]),
        };
        let (tried, kept) = run(Order::Greedy, feasible([0.1, 0.1], 0.5), surface);
        assert_eq!((tried, kept), (vec![vec![2, 1], vec![1, 2], vec![2, 2]], vec![2, 2]));
    }

    #[test]
    fn unstable_factors_are_not_tried_and_a_trial_that_proves_unstable_is_given_up() {
        let falls = |r: &[u8]| measured(1_000 - 100 * u32::from(r[0] + r[1]), [1.0, 1.0]);
        let (tried, kept) = run(Order::Greedy, feasible([0.6, 0.3], 1.0), falls);
        assert_eq!((tried, kept), (vec![vec![1, 2], vec![1, 3]], vec![1, 3]), "0.6 × 2 > 1");
        let mut search = Search::new(Order::Greedy, feasible([0.1, 0.1], 0.5), falls(&[1, 1]));
        assert!(!search.handle_measured(None));
        assert_eq!((search.kept(), search.trial()), (&[1, 1][..], Some(&[1, 2][..])));
    }

    #[test]
    fn no_tier_has_more_copies_than_servers() {
        let mut few = feasible([0.0, 0.0], 1.0);
        few.tiers.iter_mut().for_each(|tier| tier.servers = 2);
        let (tried, _) = run(Order::Exhaustive, few, |_| measured(1, [1.0, 1.0]));
        assert_eq!(tried, [[1, 2], [2, 1], [2, 2]]);
    }

    /// The tiers' shares of cores, the limit of collisions, and a latency and variabilities for
    /// each factor vector.
    type Surface = ([f64; 2], f64, Vec<(u32, [f64; 2])>);

    fn surfaces() -> impl Strategy<Value = Surface> {
        let cell = (1_u32..1_000, [1.0..10.0, 1.0..10.0]);
        ([0.0..1.0, 0.0..1.0], proptest::sample::select(vec![0.5, 1.0]), proptest::collection::vec(cell, 9))
    }

    fn at(cells: &[(u32, [f64; 2])], r: &[u8]) -> Measured {
        let (micros, variability) = cells[usize::from((r[0] - 1) * 3 + r[1] - 1)];
        measured(micros, variability)
    }

    proptest! {
        /// On any surface, greedy search ends at feasible factors from which no step in one tier is
        /// an improvement, after at most 4 tries with collisions limited as by default.
        #[test]
        fn greedy_search_ends_at_a_local_optimum((shares, collision_max, cells) in surfaces()) {
            let feasible = feasible(shares, collision_max);
            let (tried, kept) = run(Order::Greedy, feasible.clone(), |r| at(&cells, r));
            prop_assert!(tried.len() <= if collision_max < 1.0 { 4 } else { 7 }, "{tried:?}");
            prop_assert!(tried.iter().all(|trial| feasible.contains(trial)));
            for tier in 0..2 {
                let mut step = kept.clone();
                step[tier] += 1;
                let improves = feasible.contains(&step) && at(&cells, &step).latency < at(&cells, &kept).latency;
                prop_assert!(!improves, "{kept:?} to {step:?}");
            }
        }

        #[test]
        fn exhaustive_search_finds_the_lowest_latency_of_all_feasible_factors(
            (shares, collision_max, cells) in surfaces(),
        ) {
            let feasible = feasible(shares, collision_max);
            let (tried, kept) = run(Order::Exhaustive, feasible.clone(), |r| at(&cells, r));
            let all = (1..=3).flat_map(|one| (1..=3).map(move |other| vec![one, other]));
            let all: Vec<_> = all.filter(|point| *point == [1, 1] || feasible.contains(point)).collect();
            prop_assert_eq!(tried.len(), all.len() - 1);
            let least = all.iter().map(|point| at(&cells, point).latency).min();
            prop_assert_eq!(Some(at(&cells, &kept).latency), least);
        }

        /// Greedy search finds the optimum in at most 6 tries, whatever varies most, where the
        /// gains of a tier's copies get smaller from copy to copy and do not depend on the other
        /// tier.
        #[test]
        fn greedy_search_on_a_smooth_surface_finds_the_optimum_within_six_tries(
            gains in [0.0..400.0_f64, 0.0..400.0_f64],
            costs in [1.0..60.0_f64, 1.0..60.0_f64],
            (_, _, cells) in surfaces(),
        ) {
            let seconds = |tier: usize, factor: u8| {
                gains[tier] / f64::from(factor) + costs[tier] * f64::from(factor)
            };
            let surface = |r: &[u8]| Measured {
                latency: Duration::from_secs_f64(seconds(0, r[0]) + seconds(1, r[1])),
                ..at(&cells, r)
            };
            let (tried, kept) = run(Order::Greedy, feasible([0.05, 0.05], 1.0), surface);
            prop_assert!(tried.len() <= 6, "{tried:?}");
            let (_, best) = run(Order::Exhaustive, feasible([0.05, 0.05], 1.0), surface);
            prop_assert_eq!(kept, best);
        }
    }
}
