//! The rules for copies (`copies = …`) and what they cost.

use super::*;
use crate::{AttemptKind, AttemptOutcome, CancelRule, CopiesChoice, ExtraOrder, OptionsError, Stats};

/// Returns a dispatcher whose replicas work on one call each, with these copies and no budget for
/// extra attempts but `burst`.
fn machine_with(replicas: usize, copies: CopiesChoice, burst: u32) -> Machine {
    machine(replicas, |o| {
        (o.copies, o.in_flight_calls_max, o.queued_calls_max) = (copies, 1, 9);
        o.retry = RetryOptions { per_call_max: 1, ratio: 0.0, burst };
        o.probe.failures_max = 100;
    })
}

/// Returns a dispatcher that hedges after the median of latencies, all of which were 4 ms so far.
fn hedging(replicas: usize, burst: u32) -> Machine {
    let percentile = Percent::new("percentile", 50.0).unwrap();
    let copies = CopiesChoice::Hedge { percentile, min: Duration::from_millis(1) };
    let mut machine = machine_with(replicas, copies, burst);
    for turn in 0..64 {
        let (attempt, _) = call(&fetch(&mut machine, 10 * turn, &[("warm", 1)]));
        reply(&mut machine, 10 * turn + 4, attempt, Reply::Ok(vec![None]));
    }
    machine
}

/// Returns the number of attempts that ended in this way.
fn ended(machine: &Machine, kind: AttemptKind, outcome: AttemptOutcome) -> u64 {
    machine.stats().counters.attempts.get(kind, outcome)
}

#[test]
fn fixed_copies_go_to_different_replicas_without_a_budget_and_the_loser_runs_on() {
    let mut machine = machine_with(3, CopiesChoice::Fixed { factor: 2 }, 0);
    let asked = calls(&fetch(&mut machine, 0, &[("a", 1)]));
    let [(won, one, _), (lost, other, _)] = &asked[..] else { panic!("{asked:?}") };
    assert_ne!(one, other);
    let actions = reply(&mut machine, 5, *won, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions).len(), 1);
    assert_eq!(actions.len(), 1, "what runs is left alone");
    assert_eq!(reply(&mut machine, 8, *lost, Reply::Ok(vec![Some(7)])), []);
    assert_eq!(ended(&machine, AttemptKind::First, AttemptOutcome::Used), 1);
    assert_eq!(ended(&machine, AttemptKind::Copy, AttemptOutcome::Unused), 1);
    let Stats { counters, extra_load_ratio, .. } = machine.stats();
    assert_eq!((counters.wasted, extra_load_ratio), (Duration::from_millis(8), 1.6));
    assert_empty(&machine);
}

#[test]
fn first_call_that_hangs_after_the_hedge_has_answered_is_wasted() {
    let mut machine = hedging(2, 1);
    call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    let (hedge, _) = call(&wake(&mut machine, 1_010));
    reply(&mut machine, 1_011, hedge, Reply::Ok(vec![Some(7)]));
    wake(&mut machine, 1_100);
    assert_eq!(ended(&machine, AttemptKind::First, AttemptOutcome::Unused), 1);
    assert_eq!(machine.stats().counters.wasted, Duration::from_millis(100));
    assert_empty(&machine);
}

#[test]
fn factor_beyond_the_replicas_or_eight_is_refused() {
    let refused = |replicas, factor| {
        let options = Options { copies: CopiesChoice::Fixed { factor }, ..Options::default() };
        Dispatch::<u8, u8, u8>::new(options, replicas, SeededState::new(1)).err()
    };
    assert_eq!(refused(2, 3), Some(OptionsError::Factor { factor: 3, most: 2 }));
    assert_eq!(refused(20, 9), Some(OptionsError::Factor { factor: 9, most: 8 }));
    assert_eq!(refused(20, 0), Some(OptionsError::Factor { factor: 0, most: 8 }));
    assert_eq!(refused(20, 8), None);
}

#[test]
fn replaced_rule_acts_on_the_next_fetch_if_the_replicas_suffice() {
    let mut machine = machine_with(3, CopiesChoice::One, 0);
    assert_eq!(calls(&fetch(&mut machine, 0, &[("a", 1)])).len(), 1);
    let refused = machine.replace_copies(CopiesChoice::Fixed { factor: 4 });
    assert_eq!(refused, Err(OptionsError::Factor { factor: 4, most: 3 }));
    assert_eq!(machine.replace_copies(CopiesChoice::Fixed { factor: 2 }), Ok(()));
    assert_eq!(calls(&fetch(&mut machine, 0, &[("b", 2)])).len(), 2, "two replicas are idle");
    assert_eq!(machine.stats().factor, 2);
}

#[test]
fn changed_factor_acts_on_the_next_fetch_within_the_number_of_replicas() {
    let mut machine = machine_with(3, CopiesChoice::Fixed { factor: 1 }, 0);
    for (factor, expected) in [(1, 1), (3, 2), (9, 0)] {
        machine.set_copies(factor);
        assert_eq!(calls(&fetch(&mut machine, 0, &[("a", 1)])).len(), expected, "one replica each is idle");
        machine.invalidate(&"a");
        assert_eq!(machine.stats().factor, factor.min(3));
    }
}

#[test]
fn hedge_follows_after_the_percentile_of_latencies_and_its_answer_counts() {
    let mut machine = hedging(2, 1);
    let (first, one) = call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    assert_eq!(wake(&mut machine, 1_003), []);
    let (hedge, other) = call(&wake(&mut machine, 1_005));
    assert_ne!(one, other);
    let actions = reply(&mut machine, 1_006, hedge, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
    assert_eq!(reply(&mut machine, 1_050, first, Reply::Ok(vec![Some(8)])), []);
    assert_eq!(ended(&machine, AttemptKind::Copy, AttemptOutcome::Used), 1);
    assert_eq!(ended(&machine, AttemptKind::First, AttemptOutcome::Unused), 1);
    assert_empty(&machine);
}

/// grpc-java#7222: the fetch hung until its timeout.
#[test]
fn fetch_whose_last_attempt_fails_while_the_budget_is_empty_ends_at_once() {
    let mut machine = hedging(3, 1);
    let (first, _) = call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    let (hedge, _) = call(&wake(&mut machine, 1_010));
    assert_eq!(reply(&mut machine, 1_011, first, failed(FailureKind::Reset)), []);
    let actions = reply(&mut machine, 1_012, hedge, failed(FailureKind::Reset));
    assert!(matches!(error(&actions), FetchError::Failed { attempts: 2, .. }), "{actions:?}");
    assert_empty(&machine);
}

/// failsafe-go#141: an empty budget ended attempts in flight.
#[test]
fn empty_budget_makes_no_copy_and_ends_no_attempt_in_flight() {
    let mut machine = hedging(2, 0);
    let (first, _) = call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    assert_eq!(wake(&mut machine, 1_050), []);
    let actions = reply(&mut machine, 1_060, first, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions).len(), 1);
}

/// finagle#962: losers were retried after the win.
#[test]
fn loser_that_fails_after_the_answer_is_not_retried() {
    let mut machine = hedging(3, 9);
    let (first, _) = call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    let (hedge, _) = call(&wake(&mut machine, 1_010));
    reply(&mut machine, 1_011, hedge, Reply::Ok(vec![Some(7)]));
    assert_eq!(reply(&mut machine, 1_012, first, failed(FailureKind::Reset)), []);
    assert_eq!(machine.stats().counters.retries, 0);
    assert_empty(&machine);
}

#[test]
fn fast_failure_does_not_end_the_fetch_while_another_attempt_is_live() {
    let mut machine = machine_with(2, CopiesChoice::Fixed { factor: 2 }, 0);
    let asked = calls(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(reply(&mut machine, 1, asked[0].0, failed(FailureKind::Reset)), []);
    let actions = reply(&mut machine, 9, asked[1].0, Reply::Ok(vec![Some(7)]));
    assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])]);
}

#[test]
fn copy_goes_to_no_replica_that_the_fetch_has_tried() {
    let mut machine = hedging(2, 9);
    let (first, _) = call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    let (retry, _) = call(&reply(&mut machine, 1_001, first, failed(FailureKind::Reset)));
    assert_eq!(wake(&mut machine, 1_050), [], "the other replica has failed already");
    reply(&mut machine, 1_051, retry, Reply::Ok(vec![Some(7)]));
    assert_empty(&machine);
}

/// finagle#956: each fetch paid into the budget twice.
#[test]
fn budget_pays_each_copy_once_and_is_full_again_after_first_attempts() {
    let mut machine = hedging(2, 2);
    machine.set_times(TIMEOUT, RetryOptions { per_call_max: 0, ratio: 0.5, burst: 2 }, options().probe);
    let mut hedged = 0;
    for turn in 100..120 {
        let (first, _) = call(&fetch(&mut machine, 1_000 * turn, &[("a", 1)]));
        let copies = calls(&wake(&mut machine, 1_000 * turn + 50));
        hedged += copies.len();
        reply(&mut machine, 1_000 * turn + 60, first, Reply::Ok(vec![None]));
        for (copy, ..) in copies {
            reply(&mut machine, 1_000 * turn + 61, copy, Reply::Ok(vec![None]));
        }
    }
    // The first payment is lost because the budget is full.
    assert_eq!(hedged, 2 + 19 / 2);
}

#[test]
fn copies_of_an_idle_rule_go_only_where_nothing_waits_or_runs() {
    let mut machine = machine_with(3, CopiesChoice::Idle { factor: 3 }, 9);
    assert_eq!(calls(&fetch(&mut machine, 0, &[("a", 1)])).len(), 3);
    assert_eq!(calls(&fetch(&mut machine, 1, &[("b", 1)])).len(), 0, "no replica is idle");
    assert_eq!(machine.stats().calls, 4);
    let mut busy = machine_with(3, CopiesChoice::Idle { factor: 3 }, 1);
    assert_eq!(calls(&fetch(&mut busy, 0, &[("a", 1)])).len(), 2, "the budget pays for one");
}

#[test]
fn copies_wait_behind_first_attempts_unless_they_are_equal() {
    for (extra, expected) in [(ExtraOrder::Behind, "c"), (ExtraOrder::Equal, "b")] {
        let mut machine = machine(2, |o| {
            (o.copies, o.extra) = (CopiesChoice::Fixed { factor: 2 }, extra);
            (o.in_flight_calls_max, o.queued_calls_max) = (1, 9);
            o.balance = BalanceChoice::RoundRobin;
            o.cancel = CancelRule::Never;
        });
        // Both replicas work; "b" waits first at replica 0 and as a copy at 1, "c" the other way.
        let busy = calls(&fetch(&mut machine, 0, &[("a", 1)]));
        fetch(&mut machine, 0, &[("b", 1)]);
        fetch(&mut machine, 0, &[("d", 1)]);
        machine.set_copies(1);
        fetch(&mut machine, 0, &[("x", 1)]);
        fetch(&mut machine, 0, &[("c", 1)]);
        let at_one = busy.iter().find(|(_, replica, _)| *replica == ReplicaId(1)).unwrap();
        let next = calls(&reply(&mut machine, 1, at_one.0, Reply::Ok(vec![None])));
        assert_eq!(next[0].2, [expected]);
    }
}

#[test]
fn progress_of_a_call_postpones_its_hedge() {
    let mut machine = hedging(2, 9);
    let (first, _) = call(&fetch(&mut machine, 1_000, &[("a", 1)]));
    for ms in [1_003, 1_006, 1_009] {
        machine.handle_progress(at(ms), first);
        assert_eq!(drain(&mut machine), [], "the call goes on");
    }
    assert_eq!(wake(&mut machine, 1_012), []);
    call(&wake(&mut machine, 1_014));
    machine.handle_progress(at(1_015), first);
    reply(&mut machine, 1_016, first, Reply::Ok(vec![None]));
    machine.handle_progress(at(1_017), first);
}

#[test]
fn balancer_learns_from_progress_before_a_call_has_ended() {
    let mut machine =
        machine(2, |o| (o.balance, o.in_flight_calls_max) = (BalanceChoice::C3 { age: Duration::ZERO }, 9));
    let begin = |machine: &mut Machine| {
        let started = call(&fetch(machine, 0, &[("a", 1)]));
        machine.invalidate(&"a");
        started
    };
    let (first, one) = begin(&mut machine);
    let (second, other) = begin(&mut machine);
    assert_ne!(one, other);
    machine.handle_progress(at(40), first);
    machine.handle_progress(at(41), second);
    machine.handle_progress(at(42), second);
    assert_eq!(begin(&mut machine).1, other, "its latest report came after a millisecond");
}

#[test]
fn fetch_takes_the_free_tokens_and_waits_for_the_others() {
    let mut machine = machine(3, |o| {
        o.copies = CopiesChoice::Fixed { factor: 2 };
        o.balance = BalanceChoice::Tokens { lookups: 0, age: Duration::ZERO };
        (o.in_flight_calls_max, o.queued_calls_max) = (1, 9);
    });
    assert!(machine.options.has_tokens());
    let first = calls(&fetch(&mut machine, 0, &[("a", 1)]));
    assert_eq!(first.len(), 2);
    let second = calls(&fetch(&mut machine, 0, &[("b", 1)]));
    assert_eq!((second.len(), machine.stats().calls_for_any_replica), (1, 1));
    // A token that is free again goes to the attempt that waits, at another replica.
    let next = calls(&reply(&mut machine, 1, first[0].0, Reply::Ok(vec![None])));
    assert_eq!((&next[0].2[..], next[0].1), (&["b"][..], first[0].1));
    assert_ne!(next[0].1, second[0].1);
}
