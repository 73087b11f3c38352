//! A replica that is slow or new, seen by the balancers that choose by latency. It must be asked
//! again, or it is never used (cassandra#283, linkerd2-proxy#167), and by one call at a time, or a
//! burst waits for it.

use super::driven::{Driven, REPLICAS};
use super::*;
use crate::CopiesChoice;

const NAMES: [&str; 4] = ["peak-ewma", "c3", "prequal", "tokens"];

/// The replica that is slow, and the latencies while it is.
const SLOW: usize = 2;
const SLOW_MS: [u64; REPLICAS] = [1, 1, 500];

/// Returns a dispatcher for each of the balancers, with each of these rules for copies.
fn each_balancer() -> impl Iterator<Item = (String, Driven)> {
    let copies = [CopiesChoice::One, CopiesChoice::Tied { factor: REPLICAS as u8 }];
    let all = copies.into_iter().flat_map(|copies| NAMES.map(|name| (name, copies)));
    all.map(|(name, copies)| {
        let balance = BalanceChoice::by_name(name).unwrap();
        let driven = Driven::new(Options { balance, copies, ..Options::default() });
        (format!("{name}, {copies:?}"), driven)
    })
}

#[test]
fn slow_replica_is_asked_again_within_a_minute_and_by_one_call_at_a_time() {
    for (name, mut driven) in each_balancer() {
        driven.set_latencies(SLOW_MS);
        driven.run(5, 4);
        for _ in 0..3 {
            driven.count();
            driven.run(60, 4);
            let (asked, together) = (driven.made[SLOW], driven.together_max[SLOW]);
            assert!((1..=6).contains(&asked), "{name}: asked {asked} times");
            assert_eq!(together, 1, "{name}");
        }
    }
}

#[test]
fn replica_that_has_recovered_gets_its_share_again() {
    for (name, mut driven) in each_balancer() {
        driven.set_latencies(SLOW_MS);
        driven.run(60, 4);
        driven.set_latencies([1; REPLICAS]);
        driven.run(180, 4);
        driven.count();
        driven.run(20, 4);
        let share = driven.made[SLOW] as f64 / driven.made.iter().sum::<u64>() as f64;
        assert!(share > 0.2, "{name}: {:?}", driven.made);
    }
}

#[test]
fn replica_of_which_nothing_is_known_is_asked_at_once_beside_quick_ones() {
    for (name, mut driven) in each_balancer() {
        let probe = ProbeOptions { failures_max: 1, ..ProbeOptions::default() };
        let health = &mut driven.machine.replicas[SLOW].health;
        assert!(health.note_failure(at(1), &probe, &mut Draws::default()));
        driven.run(1, 4);
        assert_eq!(driven.made[SLOW], 0);
        driven.machine.handle_probe(at(1_001), ReplicaId::from_index(SLOW), true);
        driven.count();
        driven.run(1, 4);
        assert!(driven.made[SLOW] > 20, "{name}: {:?}", driven.made);
    }
}
