//! The load that copies and retries add, whatever fails and however long calls take.

use super::driven::{Driven, REPLICAS};
use super::*;
use crate::{AdmitChoice, CopiesChoice, QueueChoice};

/// Makes fetches whose attempts all fail until one is not retried. Returns the number of retries.
fn retries_until_refused(machine: &mut Machine, ms: u64) -> u32 {
    for retries in 0.. {
        let (first, _) = call(&fetch(machine, ms, &[("a", 1)]));
        let actions = reply(machine, ms, first, failed(FailureKind::Overloaded));
        match calls(&actions)[..] {
            [] => return retries,
            [(retry, ..)] => _ = reply(machine, ms, retry, failed(FailureKind::Overloaded)),
            ref calls => panic!("expected one retry, got {calls:?}"),
        }
    }
    unreachable!("the budget is empty at some time")
}

/// venice#1498: after a time without traffic the budget was never filled again.
#[test]
fn budget_that_was_empty_over_a_quiet_hour_is_filled_by_the_next_fetches() {
    let retry = RetryOptions { per_call_max: 1, ratio: 0.5, burst: 4 };
    let mut machine = machine(2, |o| o.retry = retry);
    let full = retries_until_refused(&mut machine, 0);
    assert!(full >= retry.burst);
    assert!(retries_until_refused(&mut machine, 1) <= 1, "the budget is empty");
    for fetched in 0..8 {
        let ms = 3_600_000 + fetched;
        let (first, _) = call(&fetch(&mut machine, ms, &[("a", 1)]));
        reply(&mut machine, ms, first, Reply::Ok(vec![None]));
    }
    assert_eq!(retries_until_refused(&mut machine, 3_700_000), full);
}

/// finagle#905: hedges after a delay near 0 doubled the load.
#[test]
fn hedges_without_a_delay_add_no_more_calls_than_the_budget_pays_for() {
    let percentile = Percent::new("percentile", 25.0).unwrap();
    let mut machine = machine(2, |o| {
        o.copies = CopiesChoice::Hedge { percentile, min: Duration::ZERO };
        o.retry = RetryOptions { per_call_max: 0, ratio: 0.1, burst: 5 };
    });
    let fetches = 1_000;
    for turn in 0..fetches {
        // Half of the latencies are 0, so that the delay is as well.
        let took = if turn < 64 || turn % 2 == 0 { 0 } else { 2 };
        let (first, _) = call(&fetch(&mut machine, 10 * turn, &[("a", 1)]));
        let hedge = if took > 0 { calls(&wake(&mut machine, 10 * turn + 1)) } else { Vec::new() };
        for attempt in hedge.iter().map(|(hedge, ..)| *hedge).chain([first]) {
            reply(&mut machine, 10 * turn + took, attempt, Reply::Ok(vec![None]));
        }
    }
    let Counters { calls, copies, .. } = machine.stats().counters;
    assert_eq!(calls, fetches + copies);
    assert!((90..=5 + fetches / 10).contains(&copies), "{copies}");
}

/// tower#475: a latency that the histogram of a hedge could not hold was an error.
#[test]
fn answers_that_take_hours_are_delivered_whichever_rule_measures_them() {
    let hours = |count: u64| Duration::from_secs(3_600 * count);
    let percentile = Percent::new("percentile", 95.0).unwrap();
    for balance in ["tickets", "tokens", "peak-ewma", "c3", "prequal"] {
        let mut machine = machine(2, |o| {
            o.balance = BalanceChoice::by_name(balance).unwrap();
            o.copies = CopiesChoice::Hedge { percentile, min: Duration::ZERO };
            o.queue = QueueChoice::Edf { alpha: Percent::ALPHA };
            o.admit = AdmitChoice::Deadline { target: None };
            (o.timeout, o.cores) = (hours(10), Some(1));
            o.retry.burst = 0;
        });
        for turn in 0..130 {
            let (asked, answered) = (36_000_000 * turn, 36_000_000 * turn + 32_400_000);
            let (first, _) = call(&fetch(&mut machine, asked, &[("a", 1)]));
            let actions = reply(&mut machine, answered, first, Reply::Ok(vec![Some(7)]));
            assert_eq!(deliveries(&actions), [("a", Ok(Some(7)), true, vec![1])], "{balance}");
        }
        call(&fetch(&mut machine, 36_000_000 * 130, &[("a", 1)]));
        let hedge_at = machine.next_timeout().unwrap();
        assert!(hedge_at < at(36_000_000 * 130) + hours(1), "{balance}: {hedge_at:?}");
    }
}

#[test]
fn fixed_copies_are_made_only_while_the_replicas_have_slots_for_all_of_them() {
    let copies = CopiesChoice::Fixed { factor: 2 };
    let retry = RetryOptions { per_call_max: 0, ratio: 0.0, burst: 0 };
    let mut driven = Driven::new(Options { copies, retry, in_flight_calls_max: 1, ..Options::default() });
    // A fetch every 10 ms: 2 calls of 12 ms hold 2.4 of the 3 slots, of 18 ms they would hold 3.6.
    for (latency_ms, calls) in [(12, 400), (18, 200), (12, 400)] {
        driven.set_latencies([latency_ms; REPLICAS]);
        driven.run(20, 1);
        driven.count();
        driven.run(2, 1);
        let made: u64 = driven.made.iter().sum();
        assert!(made.abs_diff(calls) <= 4, "calls of {latency_ms} ms for 200 fetches: {made}");
    }
}
