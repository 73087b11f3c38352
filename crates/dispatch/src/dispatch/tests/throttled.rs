//! Calls that a backend throttles: retried after a wait, not at once.

use super::*;
use crate::{OverRate, TenantOptions};
use sherwood_model::TenantId;

fn throttled() -> Reply<u32> {
    failed(FailureKind::Throttled)
}

/// Checks the time of the planned retry, and wakes the machine then. Returns that time.
fn retry(machine: &mut Machine, failed_at: u64, wait_ms: u64) -> (u64, Vec<Act>) {
    let due = machine.next_timeout().expect("a retry is planned");
    let (least, wait) = (at(failed_at + wait_ms), Duration::from_millis(wait_ms));
    assert!((least..=least + wait / 4).contains(&due), "{due:?} after {least:?}");
    machine.handle_timeout(due);
    (due.since(at(0)).as_millis() as u64 + 1, drain(machine))
}

#[test]
fn throttled_call_is_retried_after_a_wait_at_the_same_replica() {
    let mut machine = machine(1, |_| ());
    let (first, replica) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(reply(&mut machine, 1, first, throttled()), []);
    let (ms, actions) = retry(&mut machine, 1, 50);
    let (again, same) = call(&actions);
    assert_eq!(same, replica);
    let told = deliveries(&reply(&mut machine, ms, again, Reply::Ok(vec![Some(7)])));
    assert_eq!(told, [("a", Ok(Some(7)), true, vec![1])]);
    assert_eq!((machine.stats().counters.retries, machine.stats().counters.copies), (1, 0));
    assert_eq!(machine.next_timeout(), None);
    assert_empty(&machine);
}

#[test]
fn another_replica_is_not_asked_at_once_for_throttled_keys() {
    let mut machine = machine(3, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(reply(&mut machine, 1, first, throttled()), []);
    assert_eq!(calls(&fetch(&mut machine, 2, &[("a", 2)])), [], "a joins the fetch that waits");
    let (ms, actions) = retry(&mut machine, 1, 50);
    let told = deliveries(&reply(&mut machine, ms, call(&actions).0, Reply::Ok(vec![None])));
    assert_eq!(told, [("a", Ok(None), true, vec![1, 2])]);
}

#[test]
fn wait_doubles_with_each_retry_until_they_are_used_up() {
    let mut machine = machine(1, |o| {
        o.retry.per_call_max = 2;
        o.timeout = Duration::from_secs(10);
    });
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    reply(&mut machine, 0, first, throttled());
    let (ms, actions) = retry(&mut machine, 0, 50);
    reply(&mut machine, ms, call(&actions).0, throttled());
    let (ms, actions) = retry(&mut machine, ms, 100);
    let ended = error(&reply(&mut machine, ms, call(&actions).0, throttled()));
    assert!(matches!(ended, FetchError::Failed { kind: FailureKind::Throttled, attempts: 3, .. }), "{ended}");
    assert_empty(&machine);
}

#[test]
fn throttled_call_fails_at_once_without_time_or_budget_for_a_retry() {
    let mut machine = machine(2, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let ended = error(&reply(&mut machine, 51, first, throttled()));
    assert!(matches!(ended, FetchError::Failed { kind: FailureKind::Throttled, attempts: 1, .. }), "{ended}");
    // The budget has two tokens, and no fetch pays for more.
    let asked = ["b", "c", "d"].map(|key| call(&fetch(&mut machine, 60, &[(key, 1)])).0);
    let ends = asked.map(|call| deliveries(&reply(&mut machine, 60, call, throttled())).len());
    assert_eq!(ends, [0, 0, 1]);
}

#[test]
fn throttled_keys_of_an_answered_call_are_retried_alone() {
    let mut machine = machine(2, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2), ("c", 3)]));
    let failed = |kind| Err(Failure::new(kind, "as told"));
    let answers = vec![failed(FailureKind::Throttled), Ok(Some(7)), failed(FailureKind::Rejected)];
    let told = deliveries(&reply(&mut machine, 1, first, Reply::Each(answers)));
    assert_eq!(told.iter().map(|(key, ..)| *key).collect::<Vec<_>>(), ["b", "c"]);
    let (ms, actions) = retry(&mut machine, 1, 50);
    let [(again, _, keys)] = &calls(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(keys, &["a"]);
    let told = deliveries(&reply(&mut machine, ms, *again, Reply::Ok(vec![Some(8)])));
    assert_eq!(told, [("a", Ok(Some(8)), true, vec![1])]);
    assert_empty(&machine);
}

#[test]
fn throttled_and_broken_keys_of_an_answer_wait_together() {
    let mut machine = machine(2, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2)]));
    let failed = |kind| Err(Failure::new(kind, "as told"));
    let answers = vec![failed(FailureKind::Reset), failed(FailureKind::Throttled)];
    assert_eq!(reply(&mut machine, 1, first, Reply::Each(answers)), []);
    let (_, actions) = retry(&mut machine, 1, 50);
    assert_eq!(calls(&actions)[0].2, ["a", "b"]);
}

#[test]
fn throttled_fetch_ends_with_its_failure_if_every_replica_is_down_at_the_retry() {
    let interval = Duration::from_millis(90);
    let mut machine = machine(1, |o| (o.probe.interval_min, o.probe.interval_max) = (interval, interval));
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    reply(&mut machine, 0, first, throttled());
    for key in ["b", "c"] {
        let (lost, _) = call(&fetch(&mut machine, 1, &[(key, 1)]));
        reply(&mut machine, 1, lost, failed(FailureKind::Unreachable));
    }
    assert!(!machine.stats().replicas[0].up);
    let (_, actions) = retry(&mut machine, 0, 50);
    let ended = error(&actions);
    assert!(matches!(ended, FetchError::Failed { kind: FailureKind::Throttled, .. }), "{ended}");
    assert_empty(&machine);
}

#[test]
fn throttled_replica_counts_as_up() {
    let mut machine = machine(1, |o| o.retry.per_call_max = 0);
    for _ in 0..10 {
        let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
        error(&reply(&mut machine, 0, first, throttled()));
    }
    assert!(machine.stats().replicas[0].up);
}

#[test]
fn throttled_keys_cost_their_tenant_nothing_but_their_retry() {
    let mut machine = machine(1, |o| {
        o.tenants = Some(TenantOptions { tenants: 1, burst_units: 0, lends: false, over: OverRate::Wait });
    });
    machine.set_rates(at(0), 1_000.0, &[1_000.0]);
    // Units that are given back are taken off the next ones, since a counter does not fall.
    let used = |machine: &Machine| machine.tenant_reads(TenantId(0)).unwrap().own_units;
    let (first, _) = call(&fetch(&mut machine, 100, &[("a", 1), ("b", 2)]));
    assert_eq!(used(&machine), 2.0);
    let answers = vec![Ok(Some(7)), Err(Failure::new(FailureKind::Throttled, "as told"))];
    reply(&mut machine, 101, first, Reply::Each(answers));
    let (ms, actions) = retry(&mut machine, 101, 50);
    assert_eq!(used(&machine), 2.0);
    error(&reply(&mut machine, ms, call(&actions).0, throttled()));
    call(&fetch(&mut machine, ms + 1, &[("c", 3)]));
    assert_eq!(used(&machine), 2.0);
    call(&fetch(&mut machine, ms + 2, &[("d", 4)]));
    assert_eq!(used(&machine), 3.0);
}

#[test]
fn units_of_throttled_keys_start_the_next_fetch_at_once() {
    let mut machine = machine(1, |o| {
        o.tenants = Some(TenantOptions { tenants: 1, burst_units: 0, lends: false, over: OverRate::Wait });
    });
    machine.set_rates(at(0), 50.0, &[50.0]);
    let (first, _) = call(&fetch(&mut machine, 100, &[("a", 1)]));
    assert_eq!(fetch(&mut machine, 101, &[("b", 2)]), [], "it waits for a unit");
    let (_, _, keys) = &calls(&reply(&mut machine, 102, first, throttled()))[0];
    assert_eq!(keys, &["b"]);
}
