//! Tests of attempts that wait for any replica of the tier (all replicas of a backend).

use sherwood_model::RequestId;

use super::*;
use crate::CancelRule;
use crate::rules::AttemptPlan;

pub(super) const TOKENS: BalanceChoice = BalanceChoice::Tokens { lookups: 0, age: Duration::ZERO };

/// Returns a dispatcher whose replicas work on one call each, with a queue of the tier in which
/// three more calls may wait.
pub(super) fn tier_of(replicas: usize, change: impl FnOnce(&mut Options)) -> Machine {
    machine(replicas, |o| {
        o.balance = TOKENS;
        o.in_flight_calls_max = 1;
        o.queued_calls_max = 3;
        change(o);
    })
}

fn fetch_for(machine: &mut Machine, ms: u64, demand: Demand, key: &'static str) -> Vec<Act> {
    machine.handle_fetch(at(ms), &demand, [(key, 1)], 0x9E37);
    drain(machine)
}

/// Has these replicas hold a partition, of which they have applied these writes.
fn hold(machine: &mut Machine, applied: &[Option<u64>]) {
    for (index, applied) in applied.iter().enumerate() {
        machine.set_applied(at(0), 3, ReplicaId::from_index(index), *applied);
    }
}

/// Fetches a key of the partition.
fn fetch_after(machine: &mut Machine, ms: u64, after: u64, asked: (&'static str, u32)) -> Vec<Act> {
    let demand = Demand { after, ..Demand::default() };
    machine.handle_fetch_from(at(ms), Holders::Partition(3), &demand, [asked], 0x9E37);
    drain(machine)
}

#[test]
fn attempt_queued_for_the_tier_starts_at_the_first_replica_that_becomes_free() {
    let mut machine = tier_of(2, |_| ());
    let (_, first) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let (second, other) = call(&fetch(&mut machine, 0, &[("b", 1)]));
    assert_ne!(first, other);
    for key in ["c", "d", "e"] {
        assert_eq!(fetch(&mut machine, 1, &[(key, 1)]), []);
    }
    assert_eq!(machine.stats().calls_for_any_replica, 3);
    assert!(matches!(error(&fetch(&mut machine, 1, &[("f", 1)])), FetchError::Overloaded { .. }));
    let actions = reply(&mut machine, 2, second, Reply::Ok(vec![Some(7)]));
    let [(_, replica, keys)] = &calls(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((*replica, &keys[..]), (other, &["c"][..]));
    let cancelled = wake(&mut machine, 200);
    assert_eq!(deliveries(&cancelled).len(), 4);
    assert_empty(&machine);
}

#[test]
fn copies_of_a_fetch_queued_for_the_tier_start_at_different_replicas() {
    let two_at_once = |_: &Demand| AttemptPlan { now: 2, ..AttemptPlan::ONE };
    let mut machine = tier_of(2, |o| {
        o.retry.burst = 9;
        o.cancel = CancelRule::Always;
    });
    let (held, busy) = call(&fetch(&mut machine, 0, &[("x", 1)]));
    machine.replication = AnyReplication::Test(two_at_once);
    let (first, free) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_ne!(busy, free);
    assert_eq!(machine.stats().calls_for_any_replica, 1);
    // The second copy waits for the other replica although the first one's replica is free again.
    let actions = reply(&mut machine, 1, held, Reply::Ok(vec![None]));
    assert_eq!(call(&actions).1, busy);
    let actions = reply(&mut machine, 2, first, Reply::Ok(vec![Some(7)]));
    assert!(actions.iter().any(|action| matches!(action, Action::Cancel { .. })), "{actions:?}");
    assert_empty(&machine);
}

#[test]
fn attempts_queued_for_the_tier_fail_when_its_last_replica_goes_down() {
    let mut machine = tier_of(1, |o| o.probe.failures_max = 1);
    let (attempt, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(fetch(&mut machine, 0, &[("b", 1)]), []);
    let actions = reply(&mut machine, 1, attempt, failed(FailureKind::Reset));
    let errors = deliveries(&actions);
    assert!(matches!(errors[0].1, Err(FetchError::Failed { .. })), "{errors:?}");
    assert!(matches!(errors[1].1, Err(FetchError::Unavailable { .. })), "{errors:?}");
    assert_empty(&machine);
}

#[test]
fn retry_queued_for_the_tier_waits_for_a_replica_other_than_the_one_that_failed() {
    let mut machine = tier_of(2, |_| ());
    let (first, failing) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let (held, other) = call(&fetch(&mut machine, 0, &[("b", 1)]));
    assert_eq!(calls(&reply(&mut machine, 1, first, failed(FailureKind::Reset))), []);
    assert_eq!(call(&reply(&mut machine, 2, held, Reply::Ok(vec![None]))).1, other);
    assert_ne!(failing, other);
}

#[test]
fn retry_queued_for_the_tier_returns_to_the_replica_that_failed_if_no_other_is_up() {
    let mut machine = tier_of(2, |o| o.probe.failures_max = 1);
    let (first, avoided) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let (held, _) = call(&fetch(&mut machine, 0, &[("b", 1)]));
    assert_eq!(calls(&reply(&mut machine, 1, first, failed(FailureKind::Overloaded))), []);
    let actions = reply(&mut machine, 2, held, failed(FailureKind::Malformed));
    let [(retry, replica, keys)] = &calls(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((*replica, &keys[..]), (avoided, &["a"][..]));
    let actions = reply(&mut machine, 3, *retry, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
    assert_empty(&machine);
}

#[test]
fn copy_starts_at_a_replica_once_the_record_of_its_call_for_the_same_request_expires() {
    let mut machine = tier_of(2, |_| ());
    let copy = Demand { request: RequestId::new(7), ..Demand::default() };
    let held = machine.connect(at(0), &Demand::default(), Duration::from_secs(9), 1).unwrap();
    let (first, one) = call(&fetch_for(&mut machine, 0, copy, "a"));
    reply(&mut machine, 1, first, Reply::Ok(vec![None]));
    assert_eq!(fetch_for(&mut machine, 50, copy, "b"), [], "{one:?} has worked for the request");
    assert_eq!(machine.next_timeout(), Some(at(100)));
    assert_eq!(call(&wake(&mut machine, 100)).1, one);
    machine.disconnect(at(101), held);
    assert_eq!(machine.stats().leases, 0);
}

#[test]
fn attempt_queued_for_the_tier_starts_when_a_scheduler_moves_a_call_to_another_replica() {
    let mut machine = tier_of(2, |_| ());
    hold(&mut machine, &[Some(6), Some(0)]);
    let (first, from) = call(&fetch_after(&mut machine, 0, 6, ("a", 1)));
    assert_eq!(fetch_after(&mut machine, 0, 6, ("b", 1)), [], "it waits for {from:?}");
    machine.begin_wait(first);
    machine.handle_turn(at(1), first, ReplicaId(1));
    assert_eq!(call(&drain(&mut machine)).1, from);
}

#[test]
fn copies_of_a_request_avoid_a_replica_that_already_worked_for_it() {
    let mut machine = tier_of(2, |_| ());
    machine.balancer = AnyBalancer::Test(|usable, picks| picks.push(usable[0].replica));
    let copy = Demand { request: RequestId::new(7), ..Demand::default() };
    let (first, one) = call(&fetch_for(&mut machine, 0, copy, "a"));
    let (held, other) = call(&fetch_for(&mut machine, 0, Demand::default(), "x"));
    assert_eq!(fetch_for(&mut machine, 0, copy, "b"), []);
    let waits = reply(&mut machine, 1, first, Reply::Ok(vec![None]));
    assert_eq!(calls(&waits), [], "replica {one:?} has worked for the request");
    assert_eq!(call(&reply(&mut machine, 2, held, Reply::Ok(vec![None]))).1, other);
    // Once both work for it, either will do.
    assert_eq!(call(&fetch_for(&mut machine, 3, copy, "c")).1, one);
}

#[test]
fn read_is_sent_only_to_a_replica_that_has_applied_the_write_it_depends_on() {
    let mut machine = machine(3, |_| ());
    hold(&mut machine, &[Some(0), Some(5)]);
    for key in ["a", "b"] {
        assert_eq!(call(&fetch_after(&mut machine, 1, 5, (key, 1))).1, ReplicaId(1));
    }
    let refused = fetch_after(&mut machine, 1, 6, ("c", 1));
    assert_eq!(error(&refused), FetchError::NotAdmitted { replicas: 2 });
    // In a tier it waits until one has.
    let mut machine = tier_of(2, |_| ());
    hold(&mut machine, &[Some(0), Some(0)]);
    assert_eq!(fetch_after(&mut machine, 1, 6, ("a", 1)), []);
    machine.set_applied(at(2), 3, ReplicaId(0), Some(6));
    assert_eq!(call(&drain(&mut machine)).1, ReplicaId(0));
}

#[test]
fn replica_that_is_not_read_any_more_hands_its_calls_to_others() {
    let mut machine = machine(2, |options| (options.in_flight_calls_max, options.queued_calls_max) = (1, 4));
    hold(&mut machine, &[Some(0), None]);
    let (started, at_first) = call(&fetch_after(&mut machine, 0, 0, ("a", 1)));
    let waiting = fetch_after(&mut machine, 0, 0, ("b", 2));
    assert_eq!((at_first, waiting), (ReplicaId(0), vec![]), "it waits");
    machine.set_applied(at(1), 3, ReplicaId(1), Some(4));
    machine.set_applied(at(2), 3, ReplicaId(0), None);
    let actions = drain(&mut machine);
    assert_eq!(super::plans::cancelled(&actions, CancelReason::Outdated), [started]);
    let (retried, replica) = call(&actions);
    assert_eq!(replica, ReplicaId(1));
    let late = reply(&mut machine, 3, started, Reply::Ok(vec![None]));
    assert_eq!(late, [], "it may have lost the key");
    let actions = reply(&mut machine, 3, retried, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
    assert_eq!(call(&actions).1, ReplicaId(1));
    machine.set_applied(at(4), 3, ReplicaId(1), None);
    let refused = error(&drain(&mut machine));
    assert!(matches!(refused, FetchError::Failed { kind: FailureKind::Overloaded, .. }), "{refused:?}");
    let refused = error(&fetch_after(&mut machine, 5, 0, ("c", 3)));
    assert!(matches!(refused, FetchError::Unavailable { replicas: 2, .. }), "{refused:?}");
}

#[test]
fn replica_that_leaves_a_partition_ends_its_calls_and_gets_no_others() {
    let mut machine = machine(2, |_| ());
    hold(&mut machine, &[Some(0)]);
    machine.set_applied(at(0), 4, ReplicaId(0), Some(0));
    let (of_3, _) = call(&fetch_after(&mut machine, 0, 0, ("a", 1)));
    machine.remove_holder(at(1), 3, ReplicaId(0));
    assert_eq!(drain(&mut machine), []);
    assert_eq!(deliveries(&reply(&mut machine, 2, of_3, Reply::Ok(vec![None])))[0].0, "a");
    machine.handle_fetch_from(at(2), Holders::Partition(4), &Demand::default(), [("b", 2)], 0);
    assert_eq!(call(&drain(&mut machine)).1, ReplicaId(0), "it still holds the other one");
    let refused = error(&fetch_after(&mut machine, 3, 0, ("c", 3)));
    assert!(matches!(refused, FetchError::Unavailable { replicas: 0, .. }), "{refused:?}");
}

#[test]
fn read_that_depends_on_a_write_does_not_join_an_earlier_fetch_of_the_key() {
    let mut machine = machine(1, |_| ());
    hold(&mut machine, &[Some(9)]);
    let (old, _) = call(&fetch_after(&mut machine, 0, 0, ("a", 1)));
    let (new, _) = call(&fetch_after(&mut machine, 1, 9, ("a", 1)));
    assert_eq!(fetch_after(&mut machine, 2, 0, ("a", 3)), [], "an earlier one will do for this");
    let actions = reply(&mut machine, 3, old, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), false, vec![1])]);
    let actions = reply(&mut machine, 4, new, Reply::Ok(vec![Some(8)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(8)), true, vec![1, 3])]);
    assert_empty(&machine);
}
