//! Each test drives one dispatcher step by step. Keys are letters, values and waiters are numbers.

use std::time::Duration;

mod connections;
mod copies;
mod driven;
mod extra_load;
mod overload;
mod plans;
mod rules;
mod simulation;
mod slow_replica;
mod tenants;
mod throttled;
mod tier;
mod turns;

use super::*;
use crate::rules::Verdict;
use crate::rules::tests::loads_of;
use crate::{BalanceChoice, CancelReason, Failure, FailureKind, ProbeOptions, RetryOptions};

type Machine = Dispatch<&'static str, u32, u32>;
type Act = Action<&'static str, u32, u32>;

const TIMEOUT: Duration = Duration::from_millis(100);

fn options() -> Options {
    Options {
        batch_keys_max: 3,
        in_flight_calls_max: 2,
        queued_calls_max: 1,
        waiters_max: 10,
        timeout: TIMEOUT,
        retry: RetryOptions { per_call_max: 1, ratio: 0.0, burst: 2 },
        probe: ProbeOptions {
            failures_max: 2,
            interval_min: Duration::from_millis(10),
            interval_max: Duration::from_millis(40),
        },
        ramp: None,
        ..Options::default()
    }
}

fn machine(replicas: usize, change: impl FnOnce(&mut Options)) -> Machine {
    let mut options = options();
    change(&mut options);
    Dispatch::new(options, replicas, SeededState::new(1)).unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn fetch(machine: &mut Machine, ms: u64, keys: &[(&'static str, u32)]) -> Vec<Act> {
    machine.handle_fetch(at(ms), &Demand::default(), keys.iter().copied(), 0x9E37);
    drain(machine)
}

fn reply(machine: &mut Machine, ms: u64, call: AttemptId, reply: Reply<u32>) -> Vec<Act> {
    machine.handle_reply(at(ms), call, reply);
    drain(machine)
}

fn wake(machine: &mut Machine, ms: u64) -> Vec<Act> {
    machine.handle_timeout(at(ms));
    drain(machine)
}

fn drain(machine: &mut Machine) -> Vec<Act> {
    std::iter::from_fn(|| machine.poll_action()).collect()
}

fn failed(kind: FailureKind) -> Reply<u32> {
    Reply::Failed(Failure::new(kind, "as told"))
}

/// Returns the calls among some actions: id, replica, keys.
fn calls(actions: &[Act]) -> Vec<(AttemptId, ReplicaId, Vec<&'static str>)> {
    let call = |action: &Act| match action {
        Action::Call { attempt, replica, keys, .. } => Some((*attempt, *replica, keys.clone())),
        _ => None,
    };
    actions.iter().filter_map(call).collect()
}

/// Returns the only call among some actions.
fn call(actions: &[Act]) -> (AttemptId, ReplicaId) {
    match calls(actions)[..] {
        [(call, replica, _)] => (call, replica),
        ref calls => panic!("expected one call, got {calls:?}"),
    }
}

/// Returns the deliveries among some actions: key, result, whether it is current, waiters.
#[allow(clippy::type_complexity, reason = "a tuple of everything reads best in assertions")]
fn deliveries(actions: &[Act]) -> Vec<(&'static str, Result<Option<u32>, FetchError>, bool, Vec<u32>)> {
    let delivery = |action: &Act| match action {
        Action::Deliver { key, result, is_current, waiters, .. } => {
            Some((*key, result.clone(), *is_current, waiters.clone().into_iter().collect()))
        }
        _ => None,
    };
    actions.iter().filter_map(delivery).collect()
}

/// Returns the error of the only key delivered by some actions.
fn error(actions: &[Act]) -> FetchError {
    match &deliveries(actions)[..] {
        [(_, Err(error), false, _)] => error.clone(),
        other => panic!("expected one failed key, got {other:?}"),
    }
}

fn assert_empty(machine: &Machine) {
    let stats = machine.stats();
    assert_eq!((stats.waiters, stats.keys, stats.joinable_keys, stats.calls), (0, 0, 0, 0));
}

#[test]
fn fetch_of_many_keys_is_cut_into_calls_of_bounded_size() {
    let mut machine = machine(1, |o| o.in_flight_calls_max = 9);
    let actions = fetch(&mut machine, 0, &[("a", 1), ("b", 2), ("c", 3), ("d", 4)]);
    let keys: Vec<_> = calls(&actions).into_iter().map(|(_, _, keys)| keys).collect();
    assert_eq!(keys, [vec!["a", "b", "c"], vec!["d"]]);
}

#[test]
fn keys_in_flight_are_joined_and_delivered_once_to_all() {
    let mut machine = machine(1, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2), ("a", 3)]));
    let second = fetch(&mut machine, 1, &[("b", 4), ("c", 5)]);
    assert_eq!(calls(&second)[0].2, ["c"]);
    let actions = reply(&mut machine, 2, first, Reply::Ok(vec![Some(7), Some(8)]));
    assert_eq!(
        deliveries(&actions),
        [("a", Ok(Some(7)), true, vec![1, 3]), ("b", Ok(Some(8)), true, vec![2, 4])]
    );
    let counters = machine.stats().counters;
    assert_eq!((counters.asked, counters.joined, counters.calls), (5, 2, 2));
}

#[test]
fn observed_call_shows_its_waiters_and_origin_until_it_ends() {
    let mut machine = machine(2, |options| options.retry.per_call_max = 1);
    let (first, _) = call(&fetch(&mut machine, 3, &[("a", 1), ("b", 2), ("a", 3)]));
    fetch(&mut machine, 4, &[("b", 4), ("c", 5)]);
    let observed = |machine: &Machine, attempt| {
        let mut waiters = Vec::new();
        let origin = machine.observe_call(attempt, |waiter| waiters.push(*waiter));
        (waiters, origin.map(|CallOrigin { earlier, asked_at }| (earlier, asked_at)))
    };
    let at = Instant::from_millis(3);
    assert_eq!(observed(&machine, first), (vec![1, 3, 2, 4], Some((0, at))));
    let failed = Reply::Failed(Failure::new(FailureKind::Reset, "gone"));
    let (again, _) = call(&reply(&mut machine, 5, first, failed));
    assert_eq!(observed(&machine, first), (vec![], None));
    assert_eq!(observed(&machine, again), (vec![1, 3, 2, 4], Some((1, at))));
}

#[test]
fn a_key_is_joinable_from_its_fetch_to_its_end_or_invalidation() {
    let mut machine = machine(1, |_| ());
    let joinable = |machine: &Machine| ["a", "b"].map(|key| machine.is_joinable(&key));
    assert_eq!(joinable(&machine), [false, false]);
    let (call, _) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2)]));
    assert_eq!(joinable(&machine), [true, true]);
    machine.invalidate_where(|key| *key > "a");
    assert_eq!(joinable(&machine), [true, false]);
    reply(&mut machine, 1, call, Reply::Ok(vec![Some(7), Some(8)]));
    assert_eq!(joinable(&machine), [false, false]);
}

#[test]
fn an_invalidated_key_neither_fills_nor_is_joined() {
    let mut machine = machine(1, |_| ());
    let (old, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    machine.invalidate(&"a");
    machine.invalidate(&"never asked for");
    let (new, _) = call(&fetch(&mut machine, 1, &[("a", 2)]));
    let actions = reply(&mut machine, 2, old, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), false, vec![1])]);
    assert!(calls(&fetch(&mut machine, 3, &[("a", 3)])).is_empty(), "the new call is still joined");
    let actions = reply(&mut machine, 4, new, Reply::Ok(vec![Some(8)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(8)), true, vec![2, 3])]);
    assert_empty(&machine);
}

#[test]
fn a_flush_invalidates_every_key_in_flight() {
    let mut machine = machine(1, |_| ());
    let (old, _) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2)]));
    machine.invalidate_where(|_| true);
    assert_eq!(machine.stats().joinable_keys, 0);
    call(&fetch(&mut machine, 1, &[("a", 3)]));
    let actions = reply(&mut machine, 2, old, Reply::Ok(vec![Some(7), Some(8)]));
    assert_eq!(
        deliveries(&actions),
        [("a", Ok(Some(7)), false, vec![1]), ("b", Ok(Some(8)), false, vec![2])]
    );
    assert_eq!(machine.stats().joinable_keys, 1);
}

#[test]
fn a_key_without_an_answer_fails_alone_and_the_replica_works() {
    let mut machine = machine(1, |_| ());
    let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2), ("c", 3)]));
    let too_large = || Failure::new(FailureKind::Rejected, "too large");
    let actions = reply(&mut machine, 1, first, Reply::Each(vec![Ok(Some(7)), Err(too_large()), Ok(None)]));
    let Failure { kind, reason } = too_large();
    assert_eq!(
        deliveries(&actions),
        [
            ("a", Ok(Some(7)), true, vec![1]),
            ("b", Err(FetchError::Failed { kind, reason, attempts: 1 }), false, vec![2]),
            ("c", Ok(None), true, vec![3])
        ]
    );
    assert_eq!(calls(&actions), [], "it is not asked for again");
    assert_eq!(machine.stats().counters.failed, 1);
    assert_empty(&machine);
    let (again, _) = call(&fetch(&mut machine, 2, &[("b", 4)]));
    assert!(matches!(
        error(&reply(&mut machine, 3, again, Reply::Each(Vec::new()))),
        FetchError::Failed { kind: FailureKind::Malformed, .. }
    ));
}

#[test]
fn keys_that_failed_at_one_replica_are_retried_at_another() {
    let mut machine = machine(2, |_| {});
    let (first, replica) = call(&fetch(&mut machine, 0, &[("a", 1), ("b", 2), ("c", 3)]));
    let lost = || Err(Failure::new(FailureKind::Reset, "gone"));
    let actions = reply(&mut machine, 1, first, Reply::Each(vec![lost(), Ok(Some(7)), lost()]));
    assert_eq!(deliveries(&actions), [("b", Ok(Some(7)), true, vec![2])]);
    let [(again, other, keys)] = &calls(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!((*other != replica, &keys[..]), (true, &["a", "c"][..]));
    let actions = reply(&mut machine, 2, *again, Reply::Each(vec![Ok(Some(8)), lost()]));
    let ends = deliveries(&actions);
    assert_eq!(ends[0], ("a", Ok(Some(8)), true, vec![1]));
    assert!(
        matches!(ends[1].1, Err(FetchError::Failed { kind: FailureKind::Reset, attempts: 2, .. })),
        "{ends:?}"
    );
    assert_eq!(machine.stats().counters.retries, 1);
    assert_empty(&machine);
}

#[test]
fn absence_of_a_value_is_an_answer_that_may_be_cached() {
    let mut machine = machine(1, |_| ());
    let (call, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(
        deliveries(&reply(&mut machine, 1, call, Reply::Ok(vec![None]))),
        [("a", Ok(None), true, vec![1])]
    );
}

#[test]
fn timeout_cancels_the_call_and_late_replies_are_ignored() {
    let mut machine = machine(1, |_| ());
    let (first, replica) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    fetch(&mut machine, 60, &[("a", 2)]);
    assert_eq!(machine.next_timeout(), Some(at(100)));
    assert_eq!(wake(&mut machine, 99), []);
    let actions = wake(&mut machine, 100);
    assert_eq!(actions[0], Action::Cancel { attempt: first, replica, reason: CancelReason::Timeout });
    assert_eq!(
        deliveries(&actions),
        [("a", Err(FetchError::Timeout { timeout: TIMEOUT }), false, vec![1, 2])]
    );
    assert_eq!(machine.next_timeout(), None);
    assert_eq!(reply(&mut machine, 101, first, Reply::Ok(vec![Some(7)])), []);
    assert_eq!(machine.stats().counters.late_replies, 1);
    assert_empty(&machine);
}

/// redis-py#2624: an abandoned call left its answer to the next one.
#[test]
fn id_of_an_ended_attempt_does_not_answer_the_call_that_reuses_its_storage() {
    let mut machine = machine(1, |_| ());
    let (old, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    reply(&mut machine, 1, old, Reply::Ok(vec![Some(7)]));
    let (new, _) = call(&fetch(&mut machine, 2, &[("b", 2)]));
    assert_eq!(reply(&mut machine, 3, old, Reply::Ok(vec![Some(9)])), []);
    assert_eq!(
        deliveries(&reply(&mut machine, 4, new, Reply::Ok(vec![Some(8)]))),
        [("b", Ok(Some(8)), true, vec![2])]
    );
}

#[test]
fn waiters_over_the_bound_are_refused_and_the_others_kept() {
    let mut machine = machine(1, |o| o.waiters_max = 2);
    let actions = fetch(&mut machine, 0, &[("a", 1), ("a", 2), ("a", 3)]);
    assert_eq!(error(&actions), FetchError::Overloaded { bound: Bound::Waiters, limit: 2 });
    assert!(error(&actions).to_string().contains("`waiters_max`"));
    let (call, _) = call(&actions);
    assert_eq!(
        deliveries(&reply(&mut machine, 1, call, Reply::Ok(vec![Some(7)]))),
        [("a", Ok(Some(7)), true, vec![1, 2])]
    );
}

#[test]
fn calls_queue_up_to_the_bound_then_are_refused_and_leave_in_order() {
    let mut machine = machine(1, |o| {
        o.in_flight_calls_max = 1;
        o.queued_calls_max = 2;
    });
    let (a, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(fetch(&mut machine, 1, &[("b", 2)]), []);
    assert_eq!(fetch(&mut machine, 2, &[("c", 3)]), []);
    let refused = fetch(&mut machine, 3, &[("d", 4)]);
    assert_eq!(error(&refused), FetchError::Overloaded { bound: Bound::QueuedCalls, limit: 2 });
    let actions = reply(&mut machine, 4, a, Reply::Ok(vec![None]));
    assert_eq!(calls(&actions)[0].2, ["b"]);
    let actions = reply(&mut machine, 5, call(&actions).0, Reply::Ok(vec![None]));
    assert_eq!(calls(&actions)[0].2, ["c"]);
}

#[test]
fn queued_call_that_times_out_leaves_the_queue_and_does_not_count_against_the_replica() {
    let mut machine = machine(1, |o| {
        o.in_flight_calls_max = 1;
        o.probe.failures_max = 1;
    });
    let (a, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    fetch(&mut machine, 10, &[("b", 2)]);
    // The answer for a is so late that b, sent then, has less than half of the timeout left.
    let (_, replica) = call(&reply(&mut machine, 70, a, Reply::Ok(vec![None])));
    assert_eq!(fetch(&mut machine, 71, &[("c", 3)]), []);
    let actions = wake(&mut machine, 110);
    assert_eq!(deliveries(&actions)[0].0, "b");
    assert_eq!(calls(&actions)[0].2, ["c"]);
    assert!(machine.stats().replicas[replica.index()].up);
}

#[test]
fn safe_failure_is_retried_once_on_another_replica_within_the_first_timeout() {
    let mut machine = machine(2, |_| ());
    let (first, replica) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let actions = reply(&mut machine, 30, first, failed(FailureKind::Reset));
    let Action::Call { attempt: second, replica: other, timeout, .. } = actions[0] else {
        panic!("{actions:?}")
    };
    assert_ne!(replica, other);
    assert_eq!(timeout, Duration::from_millis(70));
    assert_eq!(reply(&mut machine, 31, first, Reply::Ok(vec![Some(1)])), [], "the first attempt is over");
    let actions = reply(&mut machine, 40, second, failed(FailureKind::Reset));
    assert_eq!(
        error(&actions),
        FetchError::Failed { kind: FailureKind::Reset, reason: Arc::from("as told"), attempts: 2 }
    );
    assert_eq!(machine.stats().counters.retries, 1);
    assert_empty(&machine);
}

#[test]
fn failure_common_to_all_replicas_is_not_retried() {
    for kind in [FailureKind::Rejected, FailureKind::Malformed] {
        let mut machine = machine(2, |_| ());
        let (call, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
        assert!(matches!(
            error(&reply(&mut machine, 1, call, failed(kind))),
            FetchError::Failed { attempts: 1, .. }
        ));
    }
}

#[test]
fn reply_with_a_wrong_number_of_values_is_malformed() {
    let mut machine = machine(1, |_| ());
    let (call, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let error = error(&reply(&mut machine, 1, call, Reply::Ok(vec![Some(1), Some(2)])));
    assert!(error.to_string().contains("malformed answer: 2 values for 1 keys"), "{error}");
}

#[test]
fn retries_stop_when_the_budget_is_spent() {
    let mut machine = machine(2, |o| {
        o.probe.failures_max = 100;
        o.retry.burst = 2;
    });
    for round in 0..5 {
        let (first, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
        let actions = reply(&mut machine, 0, first, failed(FailureKind::Overloaded));
        if round < 2 {
            reply(&mut machine, 0, call(&actions).0, failed(FailureKind::Overloaded));
        } else {
            assert!(matches!(error(&actions), FetchError::Failed { attempts: 1, .. }), "round {round}");
        }
    }
    assert_eq!(machine.stats().counters.retries, 2);
}

/// Fails calls of a dispatcher with a single replica until that is down.
fn take_down(machine: &mut Machine, ms: u64) {
    for _ in 0..2 {
        let (call, _) = call(&fetch(machine, ms, &[("a", 1)]));
        reply(machine, ms, call, failed(FailureKind::Unreachable));
    }
    assert!(!machine.stats().replicas[0].up);
}

#[test]
fn all_replicas_down_fails_fast_with_the_reason() {
    let mut machine = machine(1, |_| ());
    take_down(&mut machine, 0);
    let error = error(&fetch(&mut machine, 1, &[("a", 1)]));
    assert_eq!(error, FetchError::Unavailable { replicas: 1, reason: Arc::from("as told") });
    assert_eq!(machine.stats().counters.refused, 1);
    assert_empty(&machine);
}

#[test]
fn a_down_replica_is_probed_with_growing_waits_and_used_again_after_a_success() {
    let mut machine = machine(1, |_| ());
    take_down(&mut machine, 0);
    let probe = Action::Probe { replica: ReplicaId(0), key: Some("a"), timeout: TIMEOUT };
    let mut now = at(0);
    for interval_ms in [10, 20, 40, 40] {
        let due = machine.next_timeout().unwrap();
        let interval = Duration::from_millis(interval_ms);
        assert!(
            interval <= due - now && due - now < interval + interval / 4,
            "{interval:?}: {:?}",
            due - now
        );
        machine.handle_timeout(due);
        assert_eq!(drain(&mut machine), std::slice::from_ref(&probe));
        // The probe gets no answer and times out.
        now = due + TIMEOUT;
        assert_eq!(machine.next_timeout(), Some(now));
        machine.handle_timeout(now);
        assert_eq!(drain(&mut machine), []);
    }
    machine.handle_probe(now, ReplicaId(0), true);
    assert!(!machine.stats().replicas[0].up, "an answer after the probe was given up is too late");
    let due = machine.next_timeout().unwrap();
    machine.handle_timeout(due);
    machine.handle_probe(due, ReplicaId(0), true);
    machine.handle_probe(due, ReplicaId(9), true);
    assert_eq!(drain(&mut machine), [probe]);
    assert_eq!(machine.next_timeout(), None);
    machine.handle_fetch(due, &Demand::default(), [("a", 1)], 0);
    assert_eq!(calls(&drain(&mut machine)).len(), 1);
}

#[test]
fn probes_alternate_between_answered_and_unanswered_keys() {
    let mut machine = machine(1, |_| ());
    let (good, _) = call(&fetch(&mut machine, 0, &[("good", 1)]));
    reply(&mut machine, 0, good, Reply::Ok(vec![None]));
    take_down(&mut machine, 0);
    let mut probed = Vec::new();
    for _ in 0..3 {
        let due = machine.next_timeout().unwrap();
        machine.handle_timeout(due);
        probed.extend(drain(&mut machine).into_iter().map(|action| match action {
            Action::Probe { key, .. } => key,
            other => panic!("expected a probe, got {other:?}"),
        }));
        machine.handle_probe(due, ReplicaId(0), false);
    }
    assert_eq!(probed, [Some("good"), Some("a"), Some("good")]);
}

#[test]
fn replica_that_is_down_gets_no_calls_and_its_queue_moves_to_others() {
    let mut machine = machine(2, |o| {
        o.in_flight_calls_max = 1;
        o.queued_calls_max = 4;
        o.probe.failures_max = 1;
        o.retry.per_call_max = 0;
    });
    let first = calls(&fetch(&mut machine, 0, &[("a", 1)]))[0].clone();
    let second = calls(&fetch(&mut machine, 0, &[("b", 2)]))[0].clone();
    assert_ne!(first.1, second.1, "the idle replica is preferred");
    for (key, waiter) in [("c", 3), ("d", 4)] {
        fetch(&mut machine, 1, &[(key, waiter)]);
    }
    let queued: Vec<_> = machine.stats().replicas.iter().map(|replica| replica.queued_calls).collect();
    assert_eq!(queued, [1, 1]);
    reply(&mut machine, 2, first.0, failed(FailureKind::Unreachable));
    let replicas = machine.stats().replicas;
    assert_eq!(replicas[first.1.index()].queued_calls, 0);
    assert_eq!(replicas[second.1.index()].queued_calls, 2);
    for _ in 0..2 {
        assert!(calls(&fetch(&mut machine, 3, &[("e", 5)])).is_empty(), "the other replica is busy");
    }
    assert_eq!(machine.stats().replicas[first.1.index()].in_flight_calls, 0);
}

#[test]
fn queued_calls_end_when_the_last_replica_goes_down() {
    let mut machine = machine(1, |o| {
        o.in_flight_calls_max = 1;
        o.probe.failures_max = 1;
    });
    let (call, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    fetch(&mut machine, 0, &[("b", 2)]);
    let actions = reply(&mut machine, 1, call, failed(FailureKind::Unreachable));
    let ended = deliveries(&actions);
    assert!(matches!(ended[0].1, Err(FetchError::Failed { .. })));
    assert!(matches!(ended[1].1, Err(FetchError::Unavailable { .. })));
    assert_empty(&machine);
}

#[test]
fn retry_without_a_queue_place_ends_with_the_first_failure() {
    for full in [true, false] {
        let mut machine = machine(2, |o| {
            o.in_flight_calls_max = 1;
            o.probe.failures_max = 1;
        });
        let (a, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
        let (b, _) = call(&fetch(&mut machine, 0, &[("b", 2)]));
        let queued = reply(&mut machine, 1, a, failed(FailureKind::Overloaded));
        assert_eq!(queued, [], "the retry waits behind b");
        let (c, _) = call(&fetch(&mut machine, 2, &[("c", 3)]));
        if full {
            assert_eq!(fetch(&mut machine, 3, &[("d", 4)]), [], "d fills the queue behind c");
        } else {
            reply(&mut machine, 3, c, failed(FailureKind::Unreachable));
        }
        let actions = reply(&mut machine, 4, b, failed(FailureKind::Unreachable));
        let error =
            FetchError::Failed { kind: FailureKind::Overloaded, reason: Arc::from("as told"), attempts: 1 };
        assert_eq!(deliveries(&actions)[1], ("a", Err(error), false, vec![1]), "full: {full}");
        let counters = machine.stats().counters;
        assert_eq!((counters.refused, counters.failed), (0, if full { 2 } else { 3 }));
    }
}

#[test]
fn timeouts_in_flight_take_a_replica_down() {
    let mut machine = machine(1, |_| ());
    fetch(&mut machine, 0, &[("a", 1)]);
    fetch(&mut machine, 0, &[("b", 1)]);
    wake(&mut machine, 100);
    assert!(matches!(error(&fetch(&mut machine, 101, &[("a", 1)])), FetchError::Unavailable { .. }));
}

#[test]
fn fetch_is_refused_by_a_balancer_without_a_usable_pick() {
    let refusing: [fn(&mut Machine); 2] = [
        |machine| machine.balancer = AnyBalancer::Test(|_, _| {}),
        |machine| machine.balancer = AnyBalancer::Test(|_, picks| picks.push(ReplicaId(7))),
    ];
    for refuse in refusing {
        let mut machine = machine(2, |_| ());
        refuse(&mut machine);
        let error = error(&fetch(&mut machine, 0, &[("a", 1)]));
        assert_eq!(error, FetchError::NotAdmitted { replicas: 2 });
        assert_empty(&machine);
    }
}

#[test]
fn fetch_that_admission_rejects_ends_with_the_expected_time() {
    let expected = Duration::from_millis(7);
    let mut machine = machine(2, |_| ());
    machine.admission = AnyAdmission::Test(|demand| match demand.best_effort {
        true => Verdict::Admit,
        false => Verdict::Reject { expected: Duration::from_millis(7) },
    });
    let error = error(&fetch(&mut machine, 0, &[("a", 1), ("a", 2)]));
    assert_eq!((error.expected(), &error), (Some(expected), &FetchError::Rejected { expected }));
    assert_empty(&machine);
    let counters = machine.stats().counters;
    assert_eq!((counters.refused, counters.rejected), (2, 2));
    let best_effort = Demand { best_effort: true, ..Demand::default() };
    machine.handle_fetch(at(0), &best_effort, [("a", 1)], 7);
    call(&drain(&mut machine));
}

#[test]
fn fetch_without_keys_does_nothing_and_invalid_options_are_refused() {
    let mut machine = machine(1, |_| ());
    assert_eq!(fetch(&mut machine, 0, &[]), []);
    let refused = |replicas| Machine::new(options(), replicas, SeededState::new(1)).err();
    assert_eq!(refused(0), Some(OptionsError::Replicas { replicas: 0 }));
    assert_eq!(refused(70_000), Some(OptionsError::Replicas { replicas: 70_000 }));
}

#[test]
fn every_fetch_error_names_its_cause_and_remedy() {
    let errors = [
        FetchError::Timeout { timeout: TIMEOUT },
        FetchError::Overloaded { bound: Bound::QueuedCalls, limit: 3 },
        FetchError::NotAdmitted { replicas: 2 },
        FetchError::Rejected { expected: TIMEOUT },
        FetchError::Unavailable { replicas: 2, reason: Arc::from("refused") },
        FetchError::Failed { kind: FailureKind::Unreachable, reason: Arc::from("refused"), attempts: 2 },
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.starts_with("fetching the key ") && text.len() > 40, "{text}");
    }
}

#[test]
fn fetch_from_a_given_replica_asks_no_other_and_fails_with_it() {
    let mut machine = machine(3, |o| o.retry.per_call_max = 2);
    let from = |machine: &mut Machine, key| {
        machine.handle_fetch_from(at(0), Holders::One(ReplicaId(1)), &Demand::default(), [(key, 1)], 7);
        drain(machine)
    };
    for key in ["a", "b"] {
        let (asked, replica) = call(&from(&mut machine, key));
        assert_eq!(replica, ReplicaId(1));
        let ends = reply(&mut machine, 0, asked, failed(FailureKind::Unreachable));
        assert!(
            matches!(error(&ends), FetchError::Failed { attempts: 1, .. }),
            "no other replica is called: {ends:?}"
        );
    }
    let refused = from(&mut machine, "c");
    assert!(matches!(error(&refused), FetchError::Unavailable { replicas: 1, .. }), "{refused:?}");
    assert_eq!(calls(&fetch(&mut machine, 0, &[("c", 1)])).len(), 1, "the others are up");
}

#[test]
fn fetch_from_a_ring_asks_only_the_replicas_that_hold_the_keys() {
    let mut machine = machine(5, |o| o.in_flight_calls_max = 100);
    let holders = Holders::Ring { first: ReplicaId(4), copies: 2 };
    let mut asked = std::collections::BTreeSet::new();
    for (number, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        machine.handle_fetch_from(at(0), holders, &Demand::default(), [(key, 1)], number as u64);
        asked.insert(call(&drain(&mut machine)).1);
    }
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [ReplicaId(0), ReplicaId(4)]);
}

#[test]
fn replicas_are_picked_once_each_in_order_and_up_to_the_wanted_number() {
    let mut machine = machine(3, |_| ());
    machine.usable = loads_of(&[(0, 0), (1, 0), (2, 0)]);
    machine.balancer = AnyBalancer::Test(|_, picks| picks.extend([2, 7, 2, 0, 1].map(ReplicaId)));
    let fetch = machine.fetches.insert(Fetch::new(at(0), at(100), Holders::All, &Demand::default()));
    assert_eq!(machine.pick(at(0), fetch, 2).as_slice(), [ReplicaId(2), ReplicaId(0)]);
    assert_eq!(machine.pick(at(0), fetch, 8).as_slice(), [2, 0, 1].map(ReplicaId));
}
