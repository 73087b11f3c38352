//! `balance = "power-of-two"`: the less loaded of two replicas drawn at random.

use sherwood_model::{Demand, Instant, SplitMix64};

use super::{Balancer, Picks, ReplicaLoad};
use crate::draws::below;

/// Picks the less loaded of two replicas drawn at random; the first drawn when they are equal.
///
/// Mitzenmacher, "The power of two choices in randomized load balancing" (2001): the longest queue
/// grows with `log log n` replicas where one random choice gives `log n / log log n`, and unlike
/// the global minimum it does not send every dispatcher that shares the replicas to the same one.
/// Load is counted in calls in flight and queued *by this dispatcher*, so a replica that is slow,
/// for whatever reason, soon looks loaded.
///
/// Of several picks, each is drawn from the replicas that are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PowerOfTwo;

impl Balancer for PowerOfTwo {
    fn choose(
        &mut self,
        _now: Instant,
        _demand: &Demand,
        usable: &[ReplicaLoad],
        want: usize,
        entropy: u64,
        picks: &mut Picks,
    ) {
        choose_of_two(usable, want, entropy, picks, |second, first| second.calls() < first.calls());
    }
}

/// Picks the better of two replicas drawn at random, and so on from those that are left.
/// `is_better` says if its first replica is to be picked instead of its second, drawn first.
pub(super) fn choose_of_two(
    usable: &[ReplicaLoad],
    want: usize,
    entropy: u64,
    picks: &mut Picks,
    is_better: impl Fn(&ReplicaLoad, &ReplicaLoad) -> bool,
) {
    let better = |first: &ReplicaLoad, second: &ReplicaLoad| {
        if is_better(second, first) { second.replica } else { first.replica }
    };
    let Some((first, second)) = two_of(usable.len(), entropy) else { return };
    picks.push(better(&usable[first], &usable[second]));
    let mut more = SplitMix64::new(entropy);
    for picked in 1..want.min(usable.len()) {
        let taken = picks.clone();
        let left = || usable.iter().filter(|load| !taken.contains(&load.replica));
        let drawn = two_of(usable.len() - picked, more.next_u64());
        let Some((first, second)) = drawn.and_then(|(a, b)| left().nth(a).zip(left().nth(b))) else {
            return;
        };
        picks.push(better(first, second));
    }
}

/// Returns two different indices below `len`, every pair equally likely; the same one twice if
/// `len` is 1.
fn two_of(len: usize, entropy: u64) -> Option<(usize, usize)> {
    let others = len.checked_sub(1)?;
    let first = below(entropy & 0xFFFF_FFFF_0000_0000, len as u64) as usize;
    let second = below(entropy << 32, others as u64) as usize;
    Some((first, if second >= first && others > 0 { second + 1 } else { second }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;
    use crate::rules::tests::{loads_of, picked};

    #[test]
    fn less_loaded_of_two_replicas_is_picked_for_every_draw() {
        let mut draws = Draws::default();
        let usable = loads_of(&[(0, 3), (1, 2)]);
        assert!((0..100).all(|_| picked(&mut PowerOfTwo, &usable, 1, draws.next()) == [1]));
    }

    #[test]
    fn most_loaded_replica_is_never_picked_and_equal_ones_share_the_picks() {
        let mut draws = Draws::default();
        let usable = loads_of(&[(0, 1), (1, 9), (2, 1), (3, 1)]);
        let mut chosen = [0; 4];
        for _ in 0..3_000 {
            chosen[usize::from(picked(&mut PowerOfTwo, &usable, 1, draws.next())[0])] += 1;
        }
        assert_eq!(chosen[1], 0);
        assert!([0, 2, 3].iter().all(|&replica| (850..1_150).contains(&chosen[replica])), "{chosen:?}");
    }

    #[test]
    fn single_replica_is_always_picked_and_no_replica_gives_no_pick() {
        assert_eq!(picked(&mut PowerOfTwo, &loads_of(&[(5, 5)]), 1, u64::MAX), [5]);
        assert!(picked(&mut PowerOfTwo, &[], 1, u64::MAX).is_empty());
    }

    #[test]
    fn several_picks_are_different_and_leave_out_the_most_loaded_replica() {
        let mut draws = Draws::default();
        let usable = loads_of(&[(0, 1), (1, 9), (2, 1), (3, 1)]);
        for _ in 0..100 {
            let entropy = draws.next();
            let picks = picked(&mut PowerOfTwo, &usable, 3, entropy);
            assert_eq!(picks[..1], picked(&mut PowerOfTwo, &usable, 1, entropy), "the first is the same");
            let mut sorted = picks;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 2, 3]);
        }
        assert_eq!(picked(&mut PowerOfTwo, &usable, 9, 7).len(), 4);
    }

    #[test]
    fn two_drawn_replicas_are_different_and_every_pair_is_equally_likely() {
        let mut draws = Draws::default();
        let mut counts = [[0; 3]; 3];
        for _ in 0..6_000 {
            let (first, second) = two_of(3, draws.next()).unwrap();
            counts[first][second] += 1;
        }
        for (first, row) in counts.iter().enumerate() {
            for (second, &count) in row.iter().enumerate() {
                assert!(
                    if first == second { count == 0 } else { (850..1_150).contains(&count) },
                    "{counts:?}"
                );
            }
        }
    }
}
