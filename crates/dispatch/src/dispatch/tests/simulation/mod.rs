//! Fault simulation of dispatchers: several backends, replicas that die and return, answers that
//! are lost, late, repeated, reordered or wrong, and a clock that stands still and jumps. Fetches
//! have one attempt at a time, or several at once, planned by a rule that only this simulation has;
//! queues, choice of replicas and admission follow any of the rules. Some backends have tenants,
//! whose rates change.
//! Everything is derived from one seed, which a failure prints. After a phase of faults all is
//! healed; then the dispatchers must come to rest and use every replica again.

mod account;
mod backend;
mod connections;
mod draws;
mod world;

use proptest::prelude::*;

use draws::Draws;
use world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_key_ends_once_and_no_fetch_outlives_its_timeout(seed: u64) {
        let mut world = World::new(&mut Draws::new(seed), 3);
        world.run();
        world.heal();
        world.run();
        world.assert_at_rest();
        world.assert_every_replica_is_used();
    }
}

/// Checks that each kind of fault occurs in the simulation.
#[test]
fn every_kind_of_fault_occurs_in_the_simulation() {
    let mut sum = crate::Counters::default();
    let (mut downs, mut deferred, mut over_rate) = (0, 0, 0);
    for seed in 0..200 {
        let mut world = World::new(&mut Draws::new(seed), 3);
        world.run();
        over_rate += world.refused_by_rates();
        for stats in world.stats() {
            sum.joined += stats.counters.joined;
            sum.answered += stats.counters.answered;
            sum.timed_out += stats.counters.timed_out;
            sum.failed += stats.counters.failed;
            sum.refused += stats.counters.refused;
            sum.rejected += stats.counters.rejected;
            sum.retries += stats.counters.retries;
            sum.copies += stats.counters.copies;
            sum.cancelled_calls += stats.counters.cancelled_calls;
            sum.late_replies += stats.counters.late_replies;
            sum.probes += stats.counters.probes;
            downs += stats.replicas.iter().map(|replica| replica.downs).sum::<u64>();
            deferred += stats.replicas.iter().map(|replica| replica.deferred_calls).sum::<u64>();
        }
    }
    let seen = [
        sum.joined,
        sum.answered,
        sum.timed_out,
        sum.failed,
        sum.refused,
        sum.rejected,
        sum.retries,
        sum.copies,
        sum.cancelled_calls,
        sum.late_replies,
        sum.probes,
        downs,
        over_rate,
    ];
    assert!(seen.iter().all(|count| *count > 100), "{sum:?}, downs: {downs}, over rates: {over_rate}");
    // The queues are short, so that few of their heads are late.
    assert!(deferred > 10, "{deferred}");
}
