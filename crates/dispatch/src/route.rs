//! Which replica a call goes to.
//!
//! The dispatcher knows what a replica may be asked at all: it offers those that are up and have
//! room. Which of these it should be, and whether the call is worth making, is a [`Route`]'s
//! decision. [`PowerOfTwo`] is the one there is.
//!
//! The trait is cut so that the mechanisms planned next fit without a second way through the
//! dispatcher:
//! - *Deadline tickets* (MicroFuge): the route keeps an estimate of each replica's finishing time,
//!   fed with the loads, and compares it with [`CallShape::remaining`]; no replica that would make
//!   it is a refusal, which is admission control. The order inside a replica's queue stays the
//!   dispatcher's.
//! - *Tokens* (sPARE): a route that owns the tier's pool of tokens offers only replicas it holds a
//!   token of. It will need to hear when a call ends, a second method with an empty default.
//! - *Duplicates* (Zoolander): the answer grows from one replica to a small ordered set. A call's
//!   keys and deadline are already stored apart from where it was sent, and stale ids are harmless,
//!   so that the first answer can win and the others be cancelled.

use std::time::Duration;

use sherwood_model::ReplicaId;

use crate::draws::below;

/// A replica that may take one more call, and what it has to do already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// Which one.
    pub replica: ReplicaId,
    /// Calls it works on.
    pub in_flight_calls: u32,
    /// Calls that wait for it.
    pub queued_calls: u32,
}

impl ReplicaLoad {
    /// Calls it works on and calls that wait for it.
    #[must_use]
    pub fn calls(&self) -> u64 {
        u64::from(self.in_flight_calls) + u64::from(self.queued_calls)
    }
}

/// What a route may know of the call it chooses a replica for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallShape {
    /// Keys in the call, at least 1.
    pub keys: usize,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Time left until its waiters are told that it took too long.
    pub remaining: Duration,
}

/// Chooses a replica for a call.
pub trait Route {
    /// One of `usable`, or none to refuse the call. `usable` is never empty and ascends by replica;
    /// a replica that is not in it counts as a refusal. `entropy` is 64 fresh random bits.
    fn choose(&mut self, call: &CallShape, usable: &[ReplicaLoad], entropy: u64) -> Option<ReplicaId>;
}

/// The less loaded of two replicas drawn at random; the first drawn when they are equal.
///
/// Mitzenmacher, "The power of two choices in randomized load balancing" (2001): the longest queue
/// grows with `log log n` replicas where one random choice gives `log n / log log n`, and unlike
/// the global minimum it does not send every dispatcher that shares the replicas to the same one.
/// Load is counted in calls in flight and queued *by this dispatcher*, so a replica that is slow,
/// for whatever reason, soon looks loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct PowerOfTwo;

impl Route for PowerOfTwo {
    fn choose(&mut self, _call: &CallShape, usable: &[ReplicaLoad], entropy: u64) -> Option<ReplicaId> {
        let (first, second) = two_of(usable.len(), entropy)?;
        let (first, second) = (usable[first], usable[second]);
        Some(if second.calls() < first.calls() { second.replica } else { first.replica })
    }
}

/// Two different indices below `len`, every pair equally likely; the same one twice when there is
/// no other.
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

    const CALL: CallShape = CallShape { keys: 1, attempt: 1, remaining: Duration::from_secs(1) };

    fn loads(in_flight: &[u32]) -> Vec<ReplicaLoad> {
        let load = |(index, &in_flight_calls)| ReplicaLoad {
            replica: ReplicaId::from_index(index),
            in_flight_calls,
            queued_calls: 0,
        };
        in_flight.iter().enumerate().map(load).collect()
    }

    #[test]
    fn the_less_loaded_of_two_is_chosen_whatever_the_draw() {
        let mut draws = Draws::default();
        let usable = loads(&[3, 2]);
        assert!((0..100).all(|_| PowerOfTwo.choose(&CALL, &usable, draws.next()) == Some(ReplicaId(1))));
    }

    #[test]
    fn the_most_loaded_of_many_is_never_chosen_and_equals_share() {
        let mut draws = Draws::default();
        let usable = loads(&[1, 9, 1, 1]);
        let mut chosen = [0; 4];
        for _ in 0..3_000 {
            chosen[PowerOfTwo.choose(&CALL, &usable, draws.next()).unwrap().index()] += 1;
        }
        assert_eq!(chosen[1], 0);
        assert!([0, 2, 3].iter().all(|&replica| (850..1_150).contains(&chosen[replica])), "{chosen:?}");
    }

    #[test]
    fn a_single_replica_is_chosen_and_none_is_none() {
        assert_eq!(PowerOfTwo.choose(&CALL, &loads(&[5]), u64::MAX), Some(ReplicaId(0)));
        assert_eq!(PowerOfTwo.choose(&CALL, &[], u64::MAX), None);
    }

    #[test]
    fn pairs_are_different_and_evenly_drawn() {
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
