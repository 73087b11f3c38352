//! Tests of `edf` and of estimates. Times are in milliseconds.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sherwood_model::DemandKind;

use super::*;

type Queue = ReplicaQueue<u32>;

const TIMEOUT_MS: u64 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn due(deadline_ms: u64) -> Demand {
    Demand { deadline: Some(at(deadline_ms)), ..Demand::default() }
}

fn write(deadline_ms: u64) -> Demand {
    Demand { kind: DemandKind::Write, ..due(deadline_ms) }
}

fn keys(keys: u32) -> QueuedCall {
    QueuedCall { keys, is_extra: false }
}

fn queue(order: QueueChoice, workers: u32) -> Queue {
    let (timeout, beta) = (ms(TIMEOUT_MS), Some(Percent::BETA));
    ReplicaQueue::new(QueueOptions { order, workers, queued_max: 1_000, timeout, beta, extra_behind: false })
}

fn edf(workers: u32) -> Queue {
    queue(QueueChoice::Edf { alpha: Percent::ALPHA }, workers)
}

/// Has a server complete calls of one key, each in `took_ms`, until the queue's estimates use that.
fn warm_up(queue: &mut Queue, demand: &Demand, took_ms: u64) {
    for _ in 0..64 {
        add(queue, 0, u32::MAX, demand);
        assert_eq!(queue.start_next(at(0)), Some(u32::MAX));
        queue.complete(u32::MAX, Some(ms(took_ms)));
    }
}

fn add(queue: &mut Queue, now_ms: u64, entry: u32, demand: &Demand) {
    assert!(queue.enqueue(at(now_ms), entry, demand, keys(1)));
}

/// Starts and completes all entries at `now_ms`, and returns them in their order.
fn drain(queue: &mut Queue, now_ms: u64) -> Vec<u32> {
    let next = || {
        let entry = queue.start_next(at(now_ms))?;
        queue.complete(entry, None);
        Some(entry)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn earliest_deadline_starts_first_timeout_ranks_without_one_and_best_effort_is_last() {
    let mut queue = edf(1);
    let best_effort = Demand { best_effort: true, ..due(1) };
    let demands = [best_effort, Demand::default(), due(30), due(TIMEOUT_MS - 1), due(10), due(30)];
    for (entry, demand) in (0..).zip(demands) {
        add(&mut queue, 0, entry, &demand);
    }
    assert_eq!(drain(&mut queue, 0), [4, 2, 5, 3, 1, 0]);
}

#[test]
fn entry_moves_forward_when_its_demand_becomes_more_urgent() {
    let mut queue = edf(1);
    let best_effort = Demand { best_effort: true, ..Demand::default() };
    for (entry, demand) in [(1, due(10)), (2, due(20)), (3, due(30)), (4, best_effort)] {
        add(&mut queue, 0, entry, &demand);
    }
    for (entry, demand) in [(3, due(5)), (4, due(15)), (9, due(1)), (2, due(40))] {
        queue.update(at(0), entry, &demand);
    }
    assert_eq!(drain(&mut queue, 0), [3, 1, 4, 2]);
}

#[test]
fn hopeless_head_is_deferred_once_behind_those_that_can_make_it() {
    let mut queue = edf(1);
    warm_up(&mut queue, &Demand::default(), 10);
    for (entry, deadline) in [(1, 105), (2, 130), (3, 140), (4, 108)] {
        add(&mut queue, 0, entry, &due(deadline));
    }
    let next = |queue: &mut Queue, now| {
        let entry = queue.start_next(at(now));
        queue.complete(entry.unwrap_or_default(), None);
        (entry, queue.deferred())
    };
    assert_eq!(next(&mut queue, 100), (Some(2), 2));
    // A deferred entry has a rank like others, and is not deferred again.
    add(&mut queue, 100, 5, &due(100 + (TIMEOUT_MS - 100) / 2 + 1));
    add(&mut queue, 100, 6, &due(500));
    assert_eq!(drain(&mut queue, 120), [3, 6, 1, 4, 5]);
    assert_eq!(queue.deferred(), 2);
}

#[test]
fn endless_hopeless_and_feasible_arrivals_do_not_starve_a_deferred_entry() {
    let mut queue = edf(1);
    warm_up(&mut queue, &Demand::default(), 10);
    add(&mut queue, 0, 0, &due(1));
    for step in 1.. {
        let now = u64::from(step) * 10;
        add(&mut queue, now, 2 * step, &due(now + 5));
        add(&mut queue, now, 2 * step + 1, &due(now + 200));
        let started = queue.start_next(at(now)).expect("entries wait");
        queue.complete(started, None);
        if started == 0 {
            assert!((TIMEOUT_MS / 2 - 200..=TIMEOUT_MS / 2 + 20).contains(&now), "{now}");
            break;
        }
        assert!(now <= 2 * TIMEOUT_MS, "the deferred entry starves");
    }
}

#[test]
fn writes_start_in_order_of_arrival_and_are_not_deferred() {
    let mut queue = edf(1);
    warm_up(&mut queue, &Demand::default(), 10);
    warm_up(&mut queue, &write(0), 10);
    let best_effort = Demand { best_effort: true, ..write(900) };
    let demands = [write(50), write(20), due(40), due(60), best_effort, write(5)];
    for (entry, demand) in (0..).zip(demands) {
        add(&mut queue, 0, entry, &demand);
    }
    assert_eq!(drain(&mut queue, 0), [2, 0, 1, 3, 4, 5]);
    assert_eq!(queue.deferred(), 0);
    add(&mut queue, 0, 7, &write(5));
    add(&mut queue, 0, 8, &due(40));
    assert_eq!(drain(&mut queue, 10), [7, 8]);
}

#[test]
fn estimate_without_latencies_takes_no_time() {
    for order in [QueueChoice::Fifo, QueueChoice::Edf { alpha: Percent::ALPHA }] {
        let mut queue = queue(order, 1);
        (0..100).for_each(|entry| add(&mut queue, 0, entry, &due(10)));
        assert_eq!(queue.start_next(at(0)), Some(0));
        queue.complete(0, Some(ms(500)));
        let estimate = queue.estimate(at(7), &due(8), 1);
        assert_eq!((estimate.starts_at, estimate.completes_at, estimate.fits()), (at(7), at(7), true));
        assert!(!queue.estimate(at(9), &due(8), 1).meets_deadline);
    }
}

/// Returns the expected start and end, rounded to 5 milliseconds, and the two forecasts.
fn rounded(estimate: Estimate) -> (u64, u64, bool, bool) {
    let round = |at: Instant| (at.as_nanos() + 2_500_000) / 5_000_000 * 5;
    let Estimate { starts_at, completes_at, meets_deadline, breaks_another, .. } = estimate;
    (round(starts_at), round(completes_at), meets_deadline, breaks_another)
}

#[test]
fn fifo_estimate_counts_all_that_waits_and_what_is_in_flight() {
    let mut queue = queue(QueueChoice::Fifo, 1);
    warm_up(&mut queue, &Demand::default(), 10);
    warm_up(&mut queue, &write(0), 20);
    assert!(queue.estimate(at(0), &due(100), 1).starts_at_once);
    assert_eq!(rounded(queue.estimate(at(0), &due(100), 3)), (0, 30, true, false));
    add(&mut queue, 0, 1, &due(1));
    assert_eq!(queue.start_next(at(0)), Some(1));
    assert!(queue.enqueue(at(0), 2, &write(100), keys(2)));
    assert_eq!(rounded(queue.estimate(at(4), &due(100), 1)), (50, 60, true, false));
    assert_eq!(rounded(queue.estimate(at(14), &due(60), 1)), (55, 65, false, false));
    assert!(!queue.estimate(at(4), &due(100), 1).starts_at_once);
}

#[test]
fn edf_estimate_counts_earlier_deadlines_and_tells_if_a_later_one_breaks() {
    let mut queue = edf(1);
    warm_up(&mut queue, &Demand::default(), 10);
    add(&mut queue, 0, 1, &due(1));
    assert_eq!(queue.start_next(at(0)), Some(1));
    add(&mut queue, 0, 2, &due(35));
    add(&mut queue, 0, 3, &due(200));
    assert_eq!(rounded(queue.estimate(at(0), &due(100), 1)), (20, 30, true, false));
    assert_eq!(rounded(queue.estimate(at(0), &due(100), 18)), (20, 200, false, true));
    assert_eq!(rounded(queue.estimate(at(0), &due(15), 1)), (10, 20, false, false));
    assert_eq!(rounded(queue.estimate(at(0), &due(25), 2)), (10, 30, false, true));
    let best_effort = Demand { best_effort: true, ..due(15) };
    assert_eq!(rounded(queue.estimate(at(0), &best_effort, 9)), (30, 120, false, false));
}

#[test]
fn several_workers_share_the_work_before_a_call() {
    let mut queue = edf(2);
    warm_up(&mut queue, &Demand::default(), 10);
    for entry in 1..=4 {
        assert!(queue.estimate(at(0), &due(100), 1).starts_at_once == (entry <= 2));
        add(&mut queue, 0, entry, &due(100));
        queue.start_next(at(0));
    }
    assert_eq!(rounded(queue.estimate(at(0), &due(100), 1)), (20, 30, true, false));
}

#[test]
fn absurd_latency_is_dropped_and_counted() {
    let mut queue = edf(1);
    warm_up(&mut queue, &Demand::default(), 10);
    let before = queue.estimate(at(0), &due(100), 1);
    for _ in 0..64 {
        add(&mut queue, 0, 1, &due(1));
        assert_eq!(queue.start_next(at(0)), Some(1));
        queue.complete(1, Some(Duration::MAX));
    }
    assert_eq!(queue.dropped_latencies(), 64);
    assert_eq!(queue.estimate(at(0), &due(100), 1), before);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue { demand: Demand, keys: u32 },
    Cancel(u32),
    Update(u32, u64),
    StartNext,
    Complete { after_ms: u64 },
}

fn demands() -> impl Strategy<Value = Demand> {
    let deadline = prop_oneof![1 => Just(None), 1 => Just(Some(Instant::NEVER)), 5 => (0..600_u64).prop_map(|ms| Some(at(ms)))];
    (deadline, prop::bool::weighted(0.2), prop::bool::weighted(0.1)).prop_map(
        |(deadline, is_write, best_effort)| {
            let kind = if is_write { DemandKind::Write } else { DemandKind::Read };
            Demand { deadline, kind, best_effort, ..Demand::default() }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (demands(), 1..4_u32).prop_map(|(demand, keys)| Step::Enqueue { demand, keys }),
        2 => (0..100_u32).prop_map(Step::Cancel),
        1 => (0..100_u32, 0..600_u64).prop_map(|(entry, ms)| Step::Update(entry, ms)),
        6 => Just(Step::StartNext),
        4 => (0..40_u64).prop_map(|after_ms| Step::Complete { after_ms }),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn every_entry_ends_once_in_edf_order_with_writes_in_order_and_none_deferred_twice(
        workers in 1..3_u32, steps in steps()
    ) {
        let mut queue = edf(workers);
        warm_up(&mut queue, &Demand::default(), 10);
        let (mut now, mut last_write) = (0, None);
        let mut waiting = BTreeSet::new();
        let (mut in_flight, mut reads) = (Vec::new(), 0);
        for (entry, step) in (0..).zip(steps) {
            match step {
                Step::Enqueue { demand, keys } => {
                    let call = QueuedCall { keys, is_extra: false };
                    prop_assert!(queue.enqueue(at(now), entry, &demand, call));
                    waiting.insert((entry, demand.kind == DemandKind::Write));
                    reads += u64::from(demand.kind == DemandKind::Read);
                }
                Step::Cancel(entry) => {
                    let before = waiting.len();
                    waiting.retain(|(waiting, _)| *waiting != entry);
                    prop_assert_eq!(queue.cancel(entry), waiting.len() < before);
                }
                Step::Update(entry, ms) => queue.update(at(now), entry, &due(ms)),
                Step::StartNext => {
                    let order: Vec<_> = queue.entries().collect();
                    let deferred = queue.deferred();
                    let started = queue.start_next(at(now));
                    prop_assert_eq!(started.is_some(), !order.is_empty() && in_flight.len() < workers as usize);
                    let Some(started) = started else { continue };
                    let overtaken = order.iter().position(|entry| *entry == started).unwrap() as u64;
                    prop_assert!(overtaken <= queue.deferred() - deferred);
                    let kind = waiting.iter().find(|(entry, _)| *entry == started).copied();
                    prop_assert!(kind.is_some_and(|kind| waiting.remove(&kind)), "{started} started twice");
                    if kind.is_some_and(|(_, is_write)| is_write) {
                        prop_assert!(last_write < Some(started), "write {started} after {last_write:?}");
                        last_write = Some(started);
                    }
                    in_flight.push(started);
                }
                Step::Complete { after_ms } => {
                    now += after_ms;
                    if let Some(entry) = in_flight.pop() {
                        queue.complete(entry, Some(ms(after_ms)));
                    }
                }
            }
            prop_assert!(queue.deferred() <= reads);
            prop_assert_eq!(queue.queued() as usize, waiting.len());
            let listed: BTreeSet<_> = queue.entries().collect();
            prop_assert_eq!(listed, waiting.iter().map(|(entry, _)| *entry).collect());
        }
    }
}
