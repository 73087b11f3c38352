//! Calls that wait for a turn which a scheduler elsewhere gives.

use super::*;
use crate::rules::tests::Learning;

#[test]
fn call_that_waits_may_go_to_another_replica_and_takes_its_place_there() {
    let mut machine = machine(2, |o| (o.in_flight_calls_max, o.queued_calls_max) = (1, 1));
    let (first, from) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let to = machine.begin_wait(first).unwrap();
    assert_ne!(from, to);
    machine.handle_turn(at(5), first, to);
    let in_flight =
        |machine: &Machine, replica: ReplicaId| machine.stats().replicas[replica.index()].in_flight_calls;
    assert_eq!((in_flight(&machine, from), in_flight(&machine, to)), (0, 1));
    let actions = reply(&mut machine, 6, first, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
    assert_eq!((in_flight(&machine, from), in_flight(&machine, to)), (0, 0));
    assert_empty(&machine);
}

#[test]
fn call_without_an_alternative_waits_for_its_only_replica() {
    let mut machine = machine(1, |_| ());
    let (first, replica) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(machine.begin_wait(first), None);
    machine.handle_turn(at(1), first, ReplicaId(7));
    machine.handle_turn(at(1), first, replica);
    let actions = reply(&mut machine, 2, first, Reply::Ok(vec![None]));
    assert_eq!(deliveries(&actions), [("a", Ok(None), true, vec![1])]);
    assert_eq!(machine.begin_wait(first), None);
    machine.handle_turn(at(3), first, replica);
    assert_empty(&machine);
}

#[test]
fn replica_is_not_blamed_for_a_call_that_timed_out_before_its_turn() {
    let mut machine = machine(1, |o| o.probe.failures_max = 1);
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    machine.begin_wait(first);
    assert_eq!(error(&wake(&mut machine, 100)), FetchError::Timeout { timeout: TIMEOUT });
    assert!(machine.stats().replicas[0].up);
    let (second, replica) = call(&fetch(&mut machine, 200, &[("a", 1)]));
    machine.begin_wait(second);
    machine.handle_turn(at(210), second, replica);
    wake(&mut machine, 300);
    assert!(!machine.stats().replicas[0].up);
}

#[test]
fn call_that_is_refused_a_turn_is_rejected_without_a_retry() {
    let mut machine = machine(2, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    machine.begin_wait(first);
    let expected = Duration::from_millis(40);
    let actions = reply(&mut machine, 1, first, Reply::NotAdmitted { expected });
    assert_eq!(error(&actions), FetchError::Rejected { expected });
    assert_eq!(machine.stats().counters.rejected, 1);
    assert_eq!(calls(&actions), []);
    assert_empty(&machine);
}

#[test]
fn call_that_ends_before_its_scheduling_turn_adds_nothing_to_its_replicas_statistics() {
    let mut machine = machine(1, |o| o.balance = BalanceChoice::Tickets);
    machine.balancer = AnyBalancer::Learning(Learning::default());
    let outcomes = [
        Reply::NotAdmitted { expected: Duration::from_millis(40) },
        failed(FailureKind::Rejected),
        Reply::Ok(vec![None]),
    ];
    for outcome in outcomes {
        let (waits, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
        machine.begin_wait(waits);
        reply(&mut machine, 1, waits, outcome);
    }
    let (waits, _) = call(&fetch(&mut machine, 2, &[("a", 1)]));
    machine.begin_wait(waits);
    wake(&mut machine, 102);
    let AnyBalancer::Learning(Learning { seen }) = &machine.balancer else { panic!("it was set") };
    assert_eq!(seen[..], []);
    assert_eq!(machine.replicas[0].queue.measured(), 0);
    assert_empty(&machine);
}
