//! `balance = "tickets"`: the one of two random replicas that is expected to meet the deadline;
//! and `balance = "tickets-all"`: the one of all replicas.

use sherwood_model::{Demand, Instant};

use super::best::choose_best;
use super::power_of_two::choose_of_two;
use super::{Balancer, Picks, ReplicaLoad};

/// Picks the one of two replicas drawn at random whose queue expects to meet the deadline without
/// breaking another one; the one that expects to end earlier if both or none do, and the less
/// loaded one if there is no difference.
///
/// Guo et al., "`MicroFuge`" (2014), section II-B.1. The name is the paper's: a client holds a
/// ticket of each replica's scheduler and hands one back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tickets;

impl Balancer for Tickets {
    fn choose(
        &mut self,
        _now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        choose_of_two(usable, want, entropy, picks, is_better);
    }
}

/// Picks the replicas as [`Tickets`] does, but of all instead of two: a dispatcher with the queues
/// of all replicas in its own memory need not ask for tickets over the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllTickets;

impl Balancer for AllTickets {
    fn choose(
        &mut self,
        _now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        choose_best(usable, want, entropy, picks, is_better);
    }
}

/// Returns true if `second` is to be picked instead of `first`.
fn is_better(second: &ReplicaLoad, first: &ReplicaLoad) -> bool {
    match (second.estimate, first.estimate) {
        (Some(second), Some(first)) if second.is_better_than(&first) => true,
        (Some(second), Some(first)) if first.is_better_than(&second) => false,
        _ => second.calls() < first.calls(),
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::Instant;

    use super::*;
    use crate::Estimate;
    use crate::draws::Draws;
    use crate::rules::tests::{loads_of, picked};

    fn estimate(completes_ms: u64, meets_deadline: bool, breaks_another: bool) -> Estimate {
        let completes_at = Instant::from_millis(completes_ms);
        let starts_at = Instant::ZERO;
        Estimate { starts_at, completes_at, meets_deadline, breaks_another, starts_at_once: false }
    }

    /// Returns the number of the replica that is picked of two with these estimates, whatever the
    /// draw is.
    fn pick(first: Estimate, second: Estimate) -> u16 {
        let mut usable = loads_of(&[(0, 0), (1, 0)]);
        (usable[0].estimate, usable[1].estimate) = (Some(first), Some(second));
        let mut draws = Draws::default();
        let picks: Vec<_> = (0..20).map(|_| picked(&mut Tickets, &usable, 1, draws.next())[0]).collect();
        assert!(picks.iter().all(|pick| *pick == picks[0]), "{picks:?}");
        picks[0]
    }

    #[test]
    fn only_replica_that_meets_all_deadlines_is_picked() {
        assert_eq!(pick(estimate(9, true, false), estimate(5, false, false)), 0);
        assert_eq!(pick(estimate(5, true, true), estimate(9, true, false)), 1);
    }

    #[test]
    fn shorter_expected_time_decides_between_two_that_meet_or_miss_the_deadline() {
        assert_eq!(pick(estimate(9, true, false), estimate(5, true, false)), 1);
        assert_eq!(pick(estimate(5, false, false), estimate(9, true, true)), 0);
    }

    #[test]
    fn tickets_of_all_replicas_find_the_best_one_for_every_draw() {
        let mut usable = loads_of(&[(0, 0), (1, 0), (2, 0)]);
        let estimates = [estimate(9, true, false), estimate(2, false, false), estimate(5, true, false)];
        for (load, estimate) in usable.iter_mut().zip(estimates) {
            load.estimate = Some(estimate);
        }
        let mut draws = Draws::default();
        for _ in 0..20 {
            assert_eq!(picked(&mut AllTickets, &usable, 3, draws.next()), [2, 0, 1]);
        }
        let equal = loads_of(&[(0, 0), (1, 0), (2, 0)]);
        let mut firsts: Vec<_> =
            (0..50).map(|_| picked(&mut AllTickets, &equal, 1, draws.next())[0]).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts, [0, 1, 2]);
    }

    #[test]
    fn load_decides_between_equal_estimates() {
        let mut usable = loads_of(&[(0, 2), (1, 1)]);
        for load in &mut usable {
            load.estimate = Some(estimate(5, true, false));
        }
        assert_eq!(picked(&mut Tickets, &usable, 1, 7), [1]);
    }
}
