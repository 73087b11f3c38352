//! Several live attempts of one fetch, planned by rules that only these tests have.

use super::*;
use crate::rules::AttemptPlan;
use crate::{CancelRule, CopiesChoice};

type PlanRule = fn(&Demand) -> AttemptPlan;

/// Returns a dispatcher of `replicas` replicas, with attempts planned by `plan` and a budget of 9
/// extra attempts.
fn machine_of(replicas: usize, plan: PlanRule, change: impl FnOnce(&mut Options)) -> Machine {
    let mut machine = machine(replicas, |o| {
        o.retry.burst = 9;
        o.probe.failures_max = 100;
        o.cancel = CancelRule::Always;
        change(o);
    });
    machine.replication = AnyReplication::Test(plan);
    machine
}

fn two_at_once(_: &Demand) -> AttemptPlan {
    AttemptPlan { now: 2, ..AttemptPlan::ONE }
}

fn one_more_after_20_ms(_: &Demand) -> AttemptPlan {
    AttemptPlan { later: Some((Duration::from_millis(20), 1)), ..AttemptPlan::ONE }
}

#[test]
fn miss_at_one_of_two_replicas_counts_only_if_the_other_does_not_have_the_key_either() {
    let after_a_miss_of_a = |other: Reply<u32>| {
        let mut machine = machine(2, |o| {
            o.misses_wait = true;
            o.copies = CopiesChoice::Fixed { factor: 2 };
        });
        let calls = calls(&fetch(&mut machine, 0, &[("a", 1), ("b", 2)]));
        let [(first, ..), (second, ..)] = calls[..] else { panic!("{calls:?}") };
        let actions = reply(&mut machine, 1, first, Reply::Ok(vec![None, Some(5)]));
        assert_eq!(deliveries(&actions), [("b", Ok(Some(5)), true, vec![2])]);
        deliveries(&reply(&mut machine, 2, second, other))
    };
    let found = after_a_miss_of_a(Reply::Ok(vec![Some(4), Some(5)]));
    assert_eq!(found, [("a", Ok(Some(4)), true, vec![1])]);
    let absent = [("a", Ok(None), true, vec![1])];
    assert_eq!(after_a_miss_of_a(Reply::Ok(vec![None, Some(5)])), absent);
    // A failure says nothing about the key.
    let failed = Reply::Failed(Failure::new(FailureKind::Rejected, "?"));
    assert_eq!(after_a_miss_of_a(failed), absent);
}

/// Returns the attempts that are cancelled among some actions, each for the reason `expected`.
pub(super) fn cancelled(actions: &[Act], expected: CancelReason) -> Vec<AttemptId> {
    let cancel = |action: &Act| match action {
        Action::Cancel { attempt, reason, .. } => {
            assert_eq!(*reason, expected);
            Some(*attempt)
        }
        _ => None,
    };
    actions.iter().filter_map(cancel).collect()
}

/// Returns the attempts of the two calls among some actions, which are for different replicas.
fn two_calls(actions: &[Act]) -> [AttemptId; 2] {
    match calls(actions)[..] {
        [(first, one, _), (second, other, _)] if one != other => [first, second],
        ref calls => panic!("expected two calls to different replicas, got {calls:?}"),
    }
}

#[test]
fn first_reply_answers_the_fetch_and_the_other_attempt_is_cancelled() {
    for winner in 0..2 {
        let mut machine = machine_of(2, two_at_once, |_| ());
        let attempts = two_calls(&fetch(&mut machine, 0, &[("a", 1), ("b", 2)]));
        let (won, lost) = (attempts[winner], attempts[1 - winner]);
        let actions = reply(&mut machine, 5, won, Reply::Ok(vec![Some(7), None]));
        assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1]), ("b", Ok(None), true, vec![2])]);
        assert_eq!(cancelled(&actions, CancelReason::Answered), [lost]);
        assert_eq!(reply(&mut machine, 6, lost, Reply::Ok(vec![Some(8), Some(8)])), []);
        let counters = machine.stats().counters;
        assert_eq!((counters.calls, counters.copies, counters.late_replies), (2, 1, 1));
        assert_empty(&machine);
        assert_eq!(machine.next_timeout(), None);
    }
}

#[test]
fn fetch_fails_when_its_last_live_attempt_has_failed() {
    let mut machine = machine_of(2, two_at_once, |_| ());
    let [first, second] = two_calls(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(reply(&mut machine, 1, first, failed(FailureKind::Rejected)), []);
    let actions = reply(&mut machine, 2, second, failed(FailureKind::Malformed));
    assert!(
        matches!(error(&actions), FetchError::Failed { kind: FailureKind::Malformed, attempts: 2, .. }),
        "{actions:?}"
    );
    assert_empty(&machine);
}

#[test]
fn retry_follows_only_after_all_copies_have_failed() {
    let mut machine = machine_of(3, two_at_once, |_| ());
    let [first, second] = two_calls(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(reply(&mut machine, 1, first, failed(FailureKind::Reset)), []);
    let (retry, _) = call(&reply(&mut machine, 2, second, failed(FailureKind::Reset)));
    let actions = reply(&mut machine, 3, retry, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
    let counters = machine.stats().counters;
    assert_eq!((counters.calls, counters.copies, counters.retries), (3, 1, 1));
    assert_empty(&machine);
}

#[test]
fn each_key_takes_the_first_answer_it_gets_from_any_attempt() {
    let mut machine = machine_of(2, two_at_once, |_| ());
    let [first, second] = two_calls(&fetch(&mut machine, 0, &[("a", 1), ("b", 2), ("c", 3)]));
    let lost = || Err(Failure::new(FailureKind::Reset, "gone"));
    let actions = reply(&mut machine, 1, first, Reply::Each(vec![Ok(Some(7)), lost(), lost()]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
    let actions = reply(&mut machine, 2, second, Reply::Each(vec![Ok(Some(9)), Ok(Some(8)), lost()]));
    assert_eq!(deliveries(&actions), [("b", Ok(Some(8)), true, vec![2])]);
    let [(retry, _, keys)] = &calls(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(keys, &["c"]);
    let actions = reply(&mut machine, 3, *retry, Reply::Ok(vec![Some(6)]));
    assert_eq!(deliveries(&actions), [("c", Ok(Some(6)), true, vec![3])]);
    assert_empty(&machine);
}

#[test]
fn attempt_planned_for_later_is_made_on_another_replica_if_no_answer_has_come() {
    let mut machine = machine_of(2, one_more_after_20_ms, |_| ());
    let (first, replica) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(machine.next_timeout(), Some(at(20)));
    assert_eq!(wake(&mut machine, 19), []);
    let actions = wake(&mut machine, 20);
    let (second, other) = call(&actions);
    assert_ne!(replica, other);
    let Action::Call { timeout, .. } = actions[0] else { panic!("{actions:?}") };
    assert_eq!(timeout, Duration::from_millis(80));
    assert_eq!(machine.next_timeout(), Some(at(100)));
    let actions = reply(&mut machine, 30, second, Reply::Ok(vec![Some(7)]));
    assert_eq!((deliveries(&actions).len(), cancelled(&actions, CancelReason::Answered)), (1, vec![first]));
    assert_empty(&machine);
    let (quick, _) = call(&fetch(&mut machine, 40, &[("b", 1)]));
    reply(&mut machine, 41, quick, Reply::Ok(vec![Some(7)]));
    assert_eq!(machine.next_timeout(), None, "nothing is planned for a fetch that has ended");
}

#[test]
fn later_attempt_asks_only_for_keys_without_an_answer() {
    let mut machine = machine_of(
        3,
        |_| AttemptPlan { later: Some((Duration::from_millis(20), 1)), ..two_at_once(&Demand::default()) },
        |_| (),
    );
    let [first, second] = two_calls(&fetch(&mut machine, 0, &[("a", 1), ("b", 2)]));
    let lost = || Err(Failure::new(FailureKind::Reset, "gone"));
    reply(&mut machine, 1, first, Reply::Each(vec![Ok(Some(7)), lost()]));
    let actions = wake(&mut machine, 20);
    let [(third, _, keys)] = &calls(&actions)[..] else { panic!("{actions:?}") };
    assert_eq!(keys, &["b"]);
    let actions = reply(&mut machine, 21, *third, Reply::Ok(vec![Some(8)]));
    assert_eq!(deliveries(&actions), [("b", Ok(Some(8)), true, vec![2])]);
    assert_eq!(cancelled(&actions, CancelReason::Answered), [second]);
    assert_empty(&machine);
}

#[test]
fn copies_and_retries_are_paid_from_one_budget() {
    let mut machine = machine_of(3, two_at_once, |o| o.retry.burst = 3);
    let mut extra = 0;
    for _ in 0..5 {
        let actions = fetch(&mut machine, 0, &[("a", 1)]);
        let mut live: Vec<_> = calls(&actions).into_iter().map(|(attempt, ..)| attempt).collect();
        extra += live.len() - 1;
        while let Some(attempt) = live.pop() {
            let actions = reply(&mut machine, 1, attempt, failed(FailureKind::Overloaded));
            let more = calls(&actions);
            extra += more.len();
            live.extend(more.into_iter().map(|(attempt, ..)| attempt));
        }
    }
    let counters = machine.stats().counters;
    assert_eq!((extra, counters.copies + counters.retries), (3, 3));
    assert!(counters.copies > 0 && counters.retries > 0, "{counters:?}");
    assert_empty(&machine);
}

/// Gives each of two replicas a call, for keys `a` and `b`, and returns the calls. `plan` holds for
/// fetches after that.
fn occupy_both(machine: &mut Machine, plan: PlanRule) -> [AttemptId; 2] {
    machine.replication = CopiesChoice::One.into();
    let busy = ["a", "b"].map(|key| call(&fetch(machine, 0, &[(key, 1)])).0);
    machine.replication = AnyReplication::Test(plan);
    busy
}

#[test]
fn queued_attempt_leaves_its_queue_after_another_has_answered_unless_never_cancelled() {
    let rules = [CancelRule::Always, CancelRule::Queued, CancelRule::Never];
    for (cancel, runs) in rules.into_iter().zip([false, false, true]) {
        let mut machine = machine_of(2, two_at_once, |o| (o.in_flight_calls_max, o.cancel) = (1, cancel));
        let busy = occupy_both(&mut machine, two_at_once);
        assert_eq!(fetch(&mut machine, 1, &[("c", 3)]), [], "both attempts wait");
        let (won, _) = call(&reply(&mut machine, 2, busy[0], Reply::Ok(vec![None])));
        let actions = reply(&mut machine, 3, won, Reply::Ok(vec![Some(7)]));
        assert_eq!(deliveries(&actions), [("c", Ok(Some(7)), true, vec![3])]);
        let next = calls(&reply(&mut machine, 4, busy[1], Reply::Ok(vec![None])));
        assert_eq!(next.len(), usize::from(runs));
        if let Some((loser, _, keys)) = next.first() {
            assert_eq!(keys, &["c"]);
            assert_eq!(machine.next_timeout(), Some(at(101)), "the call still has its timeout");
            assert_eq!(reply(&mut machine, 5, *loser, Reply::Ok(vec![Some(8)])), []);
        }
        assert_empty(&machine);
        assert_eq!(machine.next_timeout(), None);
    }
}

#[test]
fn started_attempt_runs_on_after_another_has_answered_if_only_queued_ones_are_cancelled() {
    for cancel in [CancelRule::Queued, CancelRule::Never] {
        let mut machine = machine_of(2, two_at_once, |o| (o.in_flight_calls_max, o.cancel) = (1, cancel));
        let [won, lost] = two_calls(&fetch(&mut machine, 0, &[("a", 1)]));
        let actions = reply(&mut machine, 1, won, Reply::Ok(vec![Some(7)]));
        assert_eq!((deliveries(&actions).len(), cancelled(&actions, CancelReason::Answered)), (1, vec![]));
        assert_eq!(machine.stats().calls, 1);
        let actions = wake(&mut machine, 100);
        assert_eq!((deliveries(&actions), cancelled(&actions, CancelReason::Timeout)), (vec![], vec![lost]));
        assert_empty(&machine);
    }
}

#[test]
fn late_answer_of_an_attempt_that_runs_on_is_no_failure() {
    let plan = |_: &Demand| AttemptPlan { now: 3, ..AttemptPlan::ONE };
    let mut machine = machine_of(3, plan, |o| (o.probe.failures_max, o.cancel) = (1, CancelRule::Never));
    let actions = fetch(&mut machine, 0, &[("a", 1), ("b", 2)]);
    let attempts: Vec<_> = calls(&actions).into_iter().map(|(attempt, ..)| attempt).collect();
    assert_eq!(attempts.len(), 3);
    for (ms, attempt) in (1..).zip(attempts) {
        reply(&mut machine, ms, attempt, Reply::Ok(vec![Some(7), None]));
    }
    let stats = machine.stats();
    assert!(stats.replicas.iter().all(|replica| replica.up), "{stats:?}");
    assert_eq!((stats.counters.answered, stats.counters.late_replies), (2, 0));
    assert_empty(&machine);
}

#[test]
fn attempts_planned_for_later_do_not_exceed_the_bound_of_live_attempts() {
    let plan =
        |_: &Demand| AttemptPlan { now: 6, later: Some((Duration::from_millis(20), 6)), ..AttemptPlan::ONE };
    let mut machine = machine_of(12, plan, |o| o.retry.burst = 99);
    assert_eq!(calls(&fetch(&mut machine, 0, &[("a", 1)])).len(), 6);
    assert_eq!(calls(&wake(&mut machine, 20)).len(), 2);
}

#[test]
fn timeout_cancels_every_attempt_of_a_fetch_and_delivers_once() {
    let mut machine = machine_of(2, two_at_once, |_| ());
    let attempts = two_calls(&fetch(&mut machine, 0, &[("a", 1)]));
    let actions = wake(&mut machine, 100);
    assert_eq!(cancelled(&actions, CancelReason::Timeout), attempts);
    assert_eq!(error(&actions), FetchError::Timeout { timeout: TIMEOUT });
    assert_empty(&machine);
}

#[test]
fn attempt_queued_at_a_replica_that_goes_down_is_dropped_while_another_is_live() {
    let mut machine = machine_of(2, two_at_once, |o| {
        o.in_flight_calls_max = 1;
        o.probe.failures_max = 1;
    });
    let busy = occupy_both(&mut machine, two_at_once);
    assert_eq!(fetch(&mut machine, 1, &[("c", 3)]), []);
    let actions = reply(&mut machine, 2, busy[0], failed(FailureKind::Malformed));
    assert_eq!(deliveries(&actions).len(), 1, "only the key of the failed call has ended");
    assert_eq!(machine.stats().calls, 2);
    let (rest, _) = call(&reply(&mut machine, 3, busy[1], Reply::Ok(vec![None])));
    let actions = reply(&mut machine, 4, rest, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("c", Ok(Some(7)), true, vec![3])]);
    assert_empty(&machine);
}

#[test]
fn call_carries_the_earliest_deadline_of_its_waiters_when_it_starts() {
    let mut machine = machine(1, |o| o.in_flight_calls_max = 1);
    let (busy, _) = call(&fetch(&mut machine, 0, &[("a", 1)]));
    let due = |ms| Demand { deadline: Some(at(ms)), best_effort: true, ..Demand::default() };
    for (demand, waiter) in [(due(90), 1), (due(50), 2), (due(70), 3)] {
        machine.handle_fetch(at(1), &demand, [("b", waiter)], 0);
    }
    let actions = reply(&mut machine, 2, busy, Reply::Ok(vec![None]));
    let demand = actions.iter().find_map(|action| match action {
        Action::Call { demand, timeout, .. } => Some((*demand, *timeout)),
        _ => None,
    });
    assert_eq!(demand, Some((due(50), Duration::from_millis(99))), "a deadline is no timeout");
}
