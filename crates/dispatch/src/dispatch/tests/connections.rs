//! Tests of connections, which lease slots of replicas.

use super::tier::{TOKENS, tier_of};
use super::*;
use crate::{ConnectionAction, ConnectionId, CopiesChoice, LeaseId};

/// Longest duration of the tests' connections.
const LASTS: Duration = Duration::from_millis(500);

fn connect(machine: &mut Machine, ms: u64) -> Result<ConnectionId, FetchError> {
    machine.connect(at(ms), &Demand::default(), LASTS, 0x9E37)
}

/// Returns the calls that start, as connection, lease, replica and call.
fn started(machine: &mut Machine) -> Vec<(ConnectionId, LeaseId, ReplicaId, u64)> {
    let next = || match machine.poll_connection()? {
        ConnectionAction::Call { connection, lease, replica, call } => {
            Some((connection, lease, replica, call))
        }
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(next).collect()
}

fn end(connection: ConnectionId, timeout: Duration) -> Option<ConnectionAction> {
    Some(ConnectionAction::End { connection, error: FetchError::Timeout { timeout } })
}

#[test]
fn connection_occupies_a_slot_of_a_replica_until_its_client_closes_it() {
    for balance in [BalanceChoice::PowerOfTwo, TOKENS] {
        let mut machine = tier_of(1, |o| o.balance = balance);
        let held = connect(&mut machine, 0).unwrap();
        machine.ask(at(0), held, 7);
        assert!(matches!(started(&mut machine)[..], [(one, _, ReplicaId(0), 7)] if one == held));
        assert_eq!(fetch(&mut machine, 1, &[("a", 1)]), []);
        let waits = connect(&mut machine, 2).unwrap();
        machine.ask(at(2), waits, 8);
        assert_eq!(started(&mut machine), []);
        machine.disconnect(at(3), held);
        machine.disconnect(at(3), held);
        let (attempt, _) = call(&drain(&mut machine));
        reply(&mut machine, 4, attempt, Reply::Ok(vec![None]));
        assert!(matches!(started(&mut machine)[..], [(one, _, ReplicaId(0), 8)] if one == waits));
        machine.disconnect(at(5), waits);
        assert_empty(&machine);
        assert_eq!((machine.stats().leases, machine.next_timeout()), (0, None));
    }
}

#[test]
fn connection_expires_after_its_maximum_duration_and_a_waiting_one_times_out() {
    let mut machine = tier_of(1, |_| ());
    let held = connect(&mut machine, 0).unwrap();
    let waits = connect(&mut machine, 1).unwrap();
    assert_eq!(wake(&mut machine, 101), []);
    assert_eq!(machine.poll_connection(), end(waits, TIMEOUT));
    assert_eq!(fetch(&mut machine, 450, &[("a", 1)]), []);
    call(&wake(&mut machine, 500));
    assert_eq!(machine.poll_connection(), end(held, LASTS));
    machine.ask(at(501), held, 7);
    assert_eq!((started(&mut machine), machine.stats().leases), (vec![], 0));
}

#[test]
fn connections_are_limited_in_number_and_end_when_the_last_replica_goes_down() {
    let mut machine = tier_of(1, |o| o.probe.failures_max = 1);
    let (attempt, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let waiting: Vec<_> = (0..3).map(|_| connect(&mut machine, 0).unwrap()).collect();
    let refused = FetchError::Overloaded { bound: Bound::Leases, limit: 3 };
    assert_eq!(connect(&mut machine, 0), Err(refused));
    reply(&mut machine, 1, attempt, failed(FailureKind::Reset));
    for waits in waiting {
        let Some(ConnectionAction::End { connection, error }) = machine.poll_connection() else {
            panic!("it ends")
        };
        assert_eq!(connection, waits);
        assert!(matches!(error, FetchError::Unavailable { .. }), "{error:?}");
    }
    assert!(matches!(connect(&mut machine, 2), Err(FetchError::Unavailable { .. })));
    assert_eq!(machine.stats().leases, 0);
}

fn two_copies(options: &mut Options) {
    options.copies = CopiesChoice::Fixed { factor: 2 };
}

#[test]
fn call_of_a_connection_goes_to_different_replicas_and_the_first_answer_counts() {
    for balance in [BalanceChoice::RoundRobin, BalanceChoice::Random, TOKENS] {
        let mut machine = tier_of(3, |o| {
            two_copies(o);
            o.balance = balance;
        });
        let connection = connect(&mut machine, 0).unwrap();
        assert_eq!(machine.stats().leases, 2);
        machine.ask(at(0), connection, 1);
        let calls = started(&mut machine);
        let [(_, quick, one, 1), (_, slow, other, 1)] = calls[..] else { panic!("{calls:?}") };
        assert_ne!(one, other);
        assert!(machine.end_call(at(1), quick, true));
        // The other replica still works for the first call, and gets the second one afterwards.
        machine.ask(at(2), connection, 2);
        assert_eq!(started(&mut machine), [(connection, quick, one, 2)]);
        assert!(!machine.end_call(at(3), slow, true), "the client has its answer");
        assert_eq!(started(&mut machine), [(connection, slow, other, 2)]);
        assert!(machine.end_call(at(4), slow, true));
        machine.disconnect(at(5), connection);
        assert!(!machine.end_call(at(6), quick, true), "the client has closed the connection");
        assert_eq!(machine.stats().leases, 0);
    }
}

#[test]
fn call_of_a_connection_starts_at_the_free_replica_and_later_at_the_other_one() {
    let mut machine = tier_of(2, two_copies);
    machine.set_copies(1);
    let (attempt, taken) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    machine.set_copies(2);
    let connection = connect(&mut machine, 0).unwrap();
    machine.ask(at(0), connection, 1);
    let calls = started(&mut machine);
    let [(_, lease, replica, 1)] = calls[..] else { panic!("{calls:?}") };
    assert_ne!(replica, taken);
    reply(&mut machine, 1, attempt, Reply::Ok(vec![None]));
    let calls = started(&mut machine);
    let [(_, _, late, 1)] = calls[..] else { panic!("{calls:?}") };
    assert_eq!(late, taken);
    assert!(machine.end_call(at(2), lease, true));
}

#[test]
fn call_of_a_connection_fails_when_it_has_failed_at_every_replica() {
    let mut machine = tier_of(2, two_copies);
    let connection = connect(&mut machine, 0).unwrap();
    machine.ask(at(0), connection, 1);
    let calls = started(&mut machine);
    assert!(!machine.end_call(at(1), calls[0].1, false));
    assert_eq!(machine.poll_connection(), None, "the other replica may answer");
    assert!(!machine.end_call(at(1), calls[1].1, false));
    assert_eq!(machine.poll_connection(), Some(ConnectionAction::Fail { connection, call: 1 }));
    machine.ask(at(2), connection, 2);
    assert_eq!(started(&mut machine).len(), 2, "the replicas are used again");
    assert!(!machine.end_call(at(3), calls[0].1, false));
    assert_eq!(wake(&mut machine, 500), []);
    assert_eq!(machine.poll_connection(), end(connection, LASTS));
}

#[test]
fn window_of_a_tier_has_the_calls_of_connections_and_the_time_that_slots_are_held() {
    let mut machine = tier_of(2, |o| {
        two_copies(o);
        o.cores = Some(2);
    });
    let connection = connect(&mut machine, 0).unwrap();
    for call in 0..3 {
        let ms = call * 10;
        machine.ask(at(ms), connection, call);
        for (_, lease, ..) in started(&mut machine) {
            machine.end_call(at(ms + 4), lease, true);
        }
    }
    machine.disconnect(at(60), connection);
    let window = machine.tier_window(at(100), Instant::ZERO).unwrap();
    assert_eq!((window.arrivals, window.connections, window.requests), (3, 1, 3));
    let ms = Duration::from_millis;
    assert_eq!((window.demand, window.mean, window.held), (ms(4), ms(4), ms(60)));
}

#[test]
fn connection_avoids_the_replica_that_still_worked_when_an_earlier_one_closed() {
    let mut machine = tier_of(3, two_copies);
    let slow = {
        let connection = connect(&mut machine, 0).unwrap();
        machine.ask(at(0), connection, 1);
        let calls = started(&mut machine);
        assert!(machine.end_call(at(1), calls[0].1, true));
        machine.disconnect(at(90), connection);
        calls[1].2
    };
    for ms in [100, 101, 102] {
        let connection = connect(&mut machine, ms).unwrap();
        machine.ask(at(ms), connection, ms);
        let calls = started(&mut machine);
        assert!(calls.len() == 2 && calls.iter().all(|call| call.2 != slow), "{slow:?} in {calls:?}");
        calls.iter().for_each(|call| _ = machine.end_call(at(ms), call.1, true));
        machine.disconnect(at(ms), connection);
    }
}

#[test]
fn tied_copies_are_of_fetches_and_a_connection_has_one_slot() {
    let mut machine = tier_of(3, |o| o.copies = CopiesChoice::Tied { factor: 3 });
    connect(&mut machine, 0).unwrap();
    assert_eq!(machine.stats().leases, 1);
}

#[test]
fn tokens_of_a_closing_connection_go_to_others_that_wait() {
    let mut machine = tier_of(2, |o| {
        two_copies(o);
        o.queued_calls_max = 9;
    });
    machine.set_copies(1);
    let (attempt, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    machine.set_copies(2);
    let closing = connect(&mut machine, 0).unwrap();
    let waiting = connect(&mut machine, 0).unwrap();
    machine.ask(at(0), waiting, 5);
    assert_eq!((started(&mut machine), machine.stats().leases), (vec![], 4));
    machine.disconnect(at(1), closing);
    assert!(matches!(started(&mut machine)[..], [(one, _, _, 5)] if one == waiting));
    reply(&mut machine, 2, attempt, Reply::Ok(vec![None]));
    assert!(matches!(started(&mut machine)[..], [(one, _, _, 5)] if one == waiting));
}
