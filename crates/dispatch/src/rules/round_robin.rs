//! `balance = "round-robin"`: the replicas take turns.

use sherwood_model::{Demand, Instant, ReplicaId};

use super::{Balancer, Picks, ReplicaLoad};

/// Picks the usable replica that follows the one picked last, by number, and the first one after
/// the last. A replica that is down or full is left out of the round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundRobin {
    /// The replica that was picked last.
    last: Option<ReplicaId>,
}

impl Balancer for RoundRobin {
    fn choose(
        &mut self,
        _now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        _entropy: u64,
        picks: &mut Picks,
    ) {
        let start = usable.partition_point(|load| self.last.is_some_and(|last| load.replica <= last));
        let (before, after) = usable.split_at(start);
        for load in after.iter().chain(before).take(want) {
            picks.push(load.replica);
            self.last = Some(load.replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn replicas_take_turns_under_round_robin() {
        let mut rule = RoundRobin::default();
        let usable = loads_of(&[(0, 9), (1, 0), (2, 4)]);
        let turns: Vec<_> = (0..5).map(|_| picked(&mut rule, &usable, 1, 0)[0]).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
    }

    #[test]
    fn unusable_replica_is_left_out_and_returns_in_its_turn() {
        let mut rule = RoundRobin::default();
        let (all, some) = (loads_of(&[(0, 0), (1, 0), (2, 0)]), loads_of(&[(0, 0), (2, 0)]));
        assert_eq!(picked(&mut rule, &all, 1, 0), [0]);
        assert_eq!(picked(&mut rule, &some, 1, 0), [2]);
        assert_eq!(picked(&mut rule, &some, 1, 0), [0]);
        assert_eq!(picked(&mut rule, &all, 1, 0), [1]);
    }

    #[test]
    fn several_round_robin_picks_are_consecutive_and_different() {
        let mut rule = RoundRobin::default();
        let usable = loads_of(&[(0, 0), (1, 0), (2, 0)]);
        assert_eq!(picked(&mut rule, &usable, 2, 0), [0, 1]);
        assert_eq!(picked(&mut rule, &usable, 2, 0), [2, 0]);
        assert_eq!(picked(&mut rule, &usable, 9, 0), [1, 2, 0]);
    }
}
