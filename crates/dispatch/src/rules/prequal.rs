//! `balance = "prequal"`: the hot-cold lexicographic rule of Prequal (Wydrowski et al., NSDI 2024,
//! section 4).

use std::time::Duration;

use sherwood_model::{Demand, Instant, ReplicaId, SplitMix64};

use super::best::from;
use super::speeds::{Mean, Speeds};
use super::{Balancer, CallEnd, Completion, Figures, Picks, ReplicaLoad};
use crate::draws::below;

/// Picks, of up to 16 replicas drawn at random, the one with the least latency among those that
/// have no more calls than 84% of them have.
///
/// Calls and latency are those that a server has told within the last second, else our own calls
/// and the latency of its latest answer.
#[derive(Clone, Debug)]
pub(crate) struct Prequal {
    speeds: Speeds,
    told: Vec<Option<(Instant, u32)>>,
}

/// Replicas that are compared, the size of the paper's pool of probes.
const POOL: usize = 16;
/// Share of replicas that are cold (the paper's Q_RIF).
const COLD_RATIO: f64 = 0.84;
/// Time for which what a server has told counts, as in the paper.
const FRESH: Duration = Duration::from_secs(1);

impl Prequal {
    pub(crate) fn new(age: Duration) -> Self {
        Self { speeds: Speeds::new(Mean::Last, age), told: Vec::new() }
    }

    fn calls(&self, now: Instant, load: &ReplicaLoad) -> u64 {
        let told = self.told.get(load.replica.index()).copied().flatten();
        let fresh = told.filter(|(at, _)| now - *at <= FRESH);
        fresh.map_or(0, |(_, calls)| u64::from(calls)).max(load.calls())
    }
}

impl Balancer for Prequal {
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
        let least = self.speeds.least(now, usable);
        for _ in 0..want.min(usable.len()) {
            let start = below(draws.next_u64(), usable.len() as u64) as usize;
            let left = from(usable, start).filter(|load| !picks.contains(&load.replica)).take(POOL);
            let mut pool: smallvec::SmallVec<[_; POOL]> = left
                .map(|load| {
                    let latency = self.speeds.get(now, load.replica).unwrap_or(least);
                    (self.calls(now, load), latency, load.replica)
                })
                .collect();
            pool.sort_by_key(|(calls, ..)| *calls);
            let place = (pool.len().saturating_sub(1) as f64 * COLD_RATIO) as usize;
            let Some(&(limit, ..)) = pool.get(place) else { return };
            let cold = pool.iter().filter(|(calls, ..)| *calls <= limit);
            let Some(&(.., best)) = cold.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
            picks.push(best);
        }
    }

    fn asked(&mut self, now: Instant, replica: ReplicaId) {
        self.speeds.asked(now, replica);
    }

    fn said(&mut self, now: Instant, replica: ReplicaId, figures: &Figures) {
        let index = replica.index();
        if self.told.len() <= index {
            self.told.resize(index + 1, None);
        }
        self.told[index] = Some((now, figures.calls));
        let Figures { latency: took, .. } = *figures;
        self.speeds.completed(replica, &Completion::of(now, took, CallEnd::Answered));
    }

    fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        self.speeds.completed(replica, completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn quickest_replica_is_picked_unless_it_has_more_calls_than_most() {
        let mut rule = Prequal::new(Duration::ZERO);
        for (replica, ms) in [(0, 9), (1, 1), (2, 5)] {
            let figures = Figures { calls: 0, latency: Duration::from_millis(ms) };
            rule.said(Instant::ZERO, ReplicaId(replica), &figures);
        }
        let mut draws = Draws::default();
        for (calls, expected) in [([1, 1, 1], 1), ([1, 8, 1], 2), ([1, 9, 3], 2)] {
            let usable = loads_of(&[(0, calls[0]), (1, calls[1]), (2, calls[2])]);
            assert!((0..50).all(|_| picked(&mut rule, &usable, 1, draws.next()) == [expected]));
        }
        let figures = Figures { calls: 90, latency: Duration::from_millis(1) };
        rule.said(Instant::ZERO, ReplicaId(1), &figures);
        assert_eq!(picked(&mut rule, &loads_of(&[(0, 1), (1, 1), (2, 1)]), 1, 3), [2], "it has told of 90");
    }
}
