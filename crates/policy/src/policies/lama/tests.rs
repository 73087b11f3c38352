//! Divisions of policy `lama` compared with results calculated by hand.

use std::time::Duration;

use sherwood_model::{BackendId, LatencySketch, TenantId};

use super::*;
use crate::Observation;

const UNIT: u64 = 1_000;

/// A backend with `look_ups` look-ups whose misses all take `ms`.
fn backend(curve: &[(u64, f64)], ms: u64, look_ups: u64) -> PartitionObservation {
    let mut sketch = LatencySketch::default();
    sketch.record(Duration::from_millis(ms));
    PartitionObservation {
        misses: look_ups,
        miss_ratio_curve: Some(MissRatioCurve::new(curve.iter().copied())),
        miss_latency: MissLatency::of(&sketch),
        ..PartitionObservation::new(TenantId(0), BackendId(0))
    }
}

fn target(mode: LamaMode, partitions: &[PartitionObservation], budgets: &[u64]) -> Vec<u64> {
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
fn lama_gives_the_slower_of_two_backends_with_equal_curves_all_it_can_use() {
    let line = [(80 * UNIT, 0.0)];
    let slow_and_fast = [backend(&line, 30, 1_000), backend(&line, 10, 1_000)];
    // With 80 of 100 units the slow backend has no miss. With 79.2 one look-up in a hundred misses,
    // and its 99th percentile is still that of a hit.
    let budgets = target(LamaMode::Minmax, &slow_and_fast, &[50 * UNIT, 50 * UNIT]);
    assert_eq!(budgets, [80 * UNIT, 20 * UNIT]);
    assert_eq!(target(LamaMode::Sum, &slow_and_fast, &[50 * UNIT, 50 * UNIT]), [80 * UNIT, 20 * UNIT]);
}

#[test]
fn lama_minmax_lowers_the_largest_p99_and_sum_the_total_cost() {
    let step = |at: u64| [(at * UNIT - 1, 1.0), (at * UNIT, 0.0)];
    // Sixty units avoid all misses of the slow backend, or those of two fast ones with many more
    // look-ups.
    let partitions =
        [backend(&step(60), 90, 10), backend(&step(30), 30, 1_000), backend(&step(30), 30, 1_000)];
    let budgets = [20 * UNIT, 40 * UNIT, 30 * UNIT];
    assert_eq!(target(LamaMode::Minmax, &partitions, &budgets)[0], 60 * UNIT + 300);
    let summed = target(LamaMode::Sum, &partitions, &budgets);
    assert!(summed[0] < 60 * UNIT && summed[1] >= 30 * UNIT && summed[2] >= 30 * UNIT, "{summed:?}");
}

#[test]
fn lama_leaves_bytes_that_lower_no_cost_in_place() {
    let flat = [backend(&[(UNIT, 0.5)], 10, 100), backend(&[(UNIT, 0.5)], 20, 100)];
    assert_eq!(target(LamaMode::Minmax, &flat, &[70 * UNIT, 30 * UNIT]), [70 * UNIT, 30 * UNIT]);
    assert_eq!(target(LamaMode::Sum, &flat, &[30 * UNIT, 70 * UNIT]), [30 * UNIT, 70 * UNIT]);
}

#[test]
fn lama_keeps_the_budget_of_a_partition_without_measurements() {
    let line = [(80 * UNIT, 0.0)];
    let nothing = PartitionObservation { misses: 1, ..PartitionObservation::new(TenantId(0), BackendId(0)) };
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
fn lama_counts_a_backend_without_look_ups_as_fast() {
    let line = [(80 * UNIT, 0.0)];
    let partitions = [backend(&line, 500, 0), backend(&line, 10, 100)];
    assert_eq!(target(LamaMode::Minmax, &partitions, &[90 * UNIT, 10 * UNIT])[1], 80 * UNIT);
}

#[test]
fn lama_uses_the_last_known_miss_latencies_while_nothing_misses() {
    let mut lama = Lama::new(&Options::default());
    let mut seen = vec![backend(&[(UNIT, 0.0)], 30, 10)];
    lama.remember(&seen);
    seen[0].miss_latency = None;
    lama.remember(&seen);
    let known = lama.known(&seen);
    assert!((known[0].as_ref().expect("remembered").latency.p99().as_secs_f64() / 0.03 - 1.0).abs() < 0.01);
}
