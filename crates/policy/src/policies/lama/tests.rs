//! The division against figures worked out by hand.

use std::time::Duration;

use sherwood_model::{BackendId, LatencySketch, TenantId};

use super::*;
use crate::Observation;

const UNIT: u64 = 1_000;

/// A backend whose misses all take `ms`, asked `look_ups` times.
fn backend(curve: &[(u64, f64)], ms: u64, look_ups: u64) -> PartitionSeen {
    let mut sketch = LatencySketch::default();
    sketch.record(Duration::from_millis(ms));
    PartitionSeen {
        misses: look_ups,
        miss_ratio_curve: Some(MissRatioCurve::new(curve.iter().copied())),
        miss_latency: MissLatency::of(&sketch),
        ..PartitionSeen::new(TenantId(0), BackendId(0))
    }
}

fn target(mode: LamaMode, partitions: &[PartitionSeen], budgets: &[u64]) -> Vec<u64> {
    let options = Options { lama: LamaOptions { mode, grid: 0.01 }, ..Options::default() };
    let seen = Observation { partitions: partitions.to_vec(), ..Observation::default() };
    let total_bytes = budgets.iter().sum();
    let view =
        View { elapsed: Duration::ZERO, seen: &seen, budgets, total_bytes, page_bytes: 1, floor_bytes: 0 };
    match Lama::new(&options).propose(&view) {
        Proposal::Toward(target) => target.budgets,
        other => panic!("no target but {other:?}"),
    }
}

#[test]
fn of_two_equal_curves_the_slow_one_gets_all_it_can_use() {
    let line = [(80 * UNIT, 0.0)];
    let slow_and_fast = [backend(&line, 30, 1_000), backend(&line, 10, 1_000)];
    // At 80 units of 100 the slow one has no miss, and at 79.2 one in a hundred: its 99th
    // percentile is a hit's.
    let budgets = target(LamaMode::Minmax, &slow_and_fast, &[50 * UNIT, 50 * UNIT]);
    assert_eq!(budgets, [80 * UNIT, 20 * UNIT]);
    assert_eq!(target(LamaMode::Sum, &slow_and_fast, &[50 * UNIT, 50 * UNIT]), [80 * UNIT, 20 * UNIT]);
}

#[test]
fn the_largest_counts_in_one_mode_and_the_sum_in_the_other() {
    let step = |at: u64| [(at * UNIT - 1, 1.0), (at * UNIT, 0.0)];
    // Sixty units bring the slow one to nothing; the same bring two fast ones there, which are
    // asked far more.
    let partitions =
        [backend(&step(60), 90, 10), backend(&step(30), 30, 1_000), backend(&step(30), 30, 1_000)];
    let budgets = [20 * UNIT, 40 * UNIT, 30 * UNIT];
    assert_eq!(target(LamaMode::Minmax, &partitions, &budgets)[0], 60 * UNIT + 300);
    let summed = target(LamaMode::Sum, &partitions, &budgets);
    assert!(summed[0] < 60 * UNIT && summed[1] >= 30 * UNIT && summed[2] >= 30 * UNIT, "{summed:?}");
}

#[test]
fn what_lowers_no_cost_stays_where_it_is() {
    let flat = [backend(&[(UNIT, 0.5)], 10, 100), backend(&[(UNIT, 0.5)], 20, 100)];
    assert_eq!(target(LamaMode::Minmax, &flat, &[70 * UNIT, 30 * UNIT]), [70 * UNIT, 30 * UNIT]);
    assert_eq!(target(LamaMode::Sum, &flat, &[30 * UNIT, 70 * UNIT]), [30 * UNIT, 70 * UNIT]);
}

#[test]
fn who_is_not_known_keeps_what_he_has() {
    let line = [(80 * UNIT, 0.0)];
    let nothing = PartitionSeen { misses: 1, ..PartitionSeen::new(TenantId(0), BackendId(0)) };
    let partitions = [backend(&line, 10, 100), nothing.clone(), backend(&line, 30, 100)];
    let budgets = target(LamaMode::Minmax, &partitions, &[40 * UNIT, 20 * UNIT, 40 * UNIT]);
    assert_eq!(budgets[1], 20 * UNIT);
    assert!(budgets[2] > 60 * UNIT, "{budgets:?}");
    let view = |seen: &Observation| {
        let view = View {
            elapsed: Duration::ZERO,
            seen,
            budgets: &[1],
            total_bytes: 1,
            page_bytes: 1,
            floor_bytes: 0,
        };
        Lama::new(&Options::default()).propose(&view)
    };
    let seen = Observation { partitions: vec![nothing], ..Observation::default() };
    assert_eq!(view(&seen), Proposal::Keep(Kept::NotMeasured));
}

#[test]
fn a_backend_that_nobody_asks_has_no_slow_queries() {
    let line = [(80 * UNIT, 0.0)];
    let partitions = [backend(&line, 500, 0), backend(&line, 10, 100)];
    assert_eq!(target(LamaMode::Minmax, &partitions, &[90 * UNIT, 10 * UNIT])[1], 80 * UNIT);
}

#[test]
fn the_last_latencies_known_hold_while_nothing_misses() {
    let mut lama = Lama::new(&Options::default());
    let mut seen = vec![backend(&[(UNIT, 0.0)], 30, 10)];
    lama.remember(&seen);
    seen[0].miss_latency = None;
    lama.remember(&seen);
    let known = lama.known(&seen);
    assert!((known[0].as_ref().expect("remembered").latency.p99().as_secs_f64() / 0.03 - 1.0).abs() < 0.01);
}
