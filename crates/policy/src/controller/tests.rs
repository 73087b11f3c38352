//! Scenarios of successive rounds of a controller.

use std::time::Duration;

use sherwood_model::{BackendId, Band, TenantId};

use super::*;
use crate::{BandCounts, BubbleWrap, PartitionObservation, SizeStage, TotalStage, by_name};

const MIB: u64 = 1 << 20;

/// Options of a controller, with pages of one MiB for every total.
fn options() -> Options {
    Options { page_bytes: Some(MIB), ..Options::default() }
}

fn controller(policy: &str, options: &Options, mib: &[u64]) -> Controller {
    let names = (1..=mib.len()).map(|i| format!("b{i:02}")).collect();
    let policy = by_name(policy, options).expect("a known policy");
    Controller::new(policy, options, names, mib.iter().map(|mib| mib * MIB).collect())
}

/// An observation of one partition per backend, each with its budget filled, and with `counts` as
/// request blocking counts of the paper's band.
fn observation(total_mib: u64, counts: &[u64]) -> Observation {
    let partition = |i| PartitionObservation::new(TenantId(0), BackendId::from_index(i));
    Observation {
        total_bytes: total_mib * MIB,
        partitions: (0..counts.len()).map(partition).collect(),
        requests: 1_000,
        latency_range: Some((Duration::from_millis(1), Duration::from_millis(200))),
        blocking: vec![BandCounts { band: Band::TAIL, counts: counts.to_vec() }],
        ..Observation::default()
    }
}

fn mib(decision: &Decision) -> Vec<u64> {
    match &decision.plan.cache {
        CachePlan::Budgets(budgets) => budgets.iter().map(|bytes| bytes / MIB).collect(),
        CachePlan::Shared => panic!("the plan is shared"),
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

#[test]
fn blocking_backends_gain_memory() {
    let mut loop_ = controller("robinhood", &options(), &[1_600; 20]);
    let mut counts = vec![0; 20];
    counts[..3].copy_from_slice(&[50, 30, 20]);
    let decision = loop_.decide(at(5), &observation(32_000, &counts));
    assert_eq!(mib(&decision)[..4], [1_744, 1_680, 1_648, 1_584]);
    assert!(decision.apply && decision.kept.is_none());
    assert_eq!(
        decision.line,
        "moved 272.0 MiB: b01 +144.0 MiB (blocked 50% of the slow requests), b02 +80.0 MiB (30%), b03 +48.0 MiB \
         (20%); given by b04 -16.0 MiB, b05 -16.0 MiB, b06 -16.0 MiB, b07 -16.0 MiB, b08 -16.0 MiB, b09 -16.0 MiB, \
         11 more"
    );
    assert_eq!(decision.moves.len(), 20);
    let first = &decision.moves[0];
    assert_eq!((first.before_bytes / MIB, first.after_bytes / MIB), (1_600, 1_744));
    assert_eq!(loop_.plan(), decision.plan);
}

#[test]
fn allocation_is_kept_without_a_usable_signal() {
    let mut loop_ = controller("robinhood", &options(), &[100, 300]);
    let seen = observation(400, &[1, 0]);
    let cases = [
        (Observation { requests: 0, latency_range: None, ..seen.clone() }, Kept::NoRequests),
        (Observation { requests: 1, ..seen.clone() }, Kept::OneRequest),
        (
            Observation {
                latency_range: Some((Duration::from_secs(1), Duration::from_secs(1))),
                ..seen.clone()
            },
            Kept::EqualLatencies,
        ),
        (observation(400, &[0, 0]), Kept::NoClaim),
        (Observation { blocking: Vec::new(), ..seen.clone() }, Kept::NoClaim),
    ];
    for (second, (seen, kept)) in cases.into_iter().enumerate() {
        let decision = loop_.decide(at(5 + second as u64), &seen);
        assert_eq!((decision.kept, mib(&decision)), (Some(kept), vec![100, 300]));
        assert_eq!(decision.line, format!("kept the budgets: {kept}"));
        assert!(decision.moves.is_empty());
    }
}

#[test]
fn allocation_is_kept_while_the_clock_does_not_advance() {
    let mut loop_ = controller("robinhood", &options(), &[200, 200]);
    let seen = observation(400, &[1, 0]);
    assert_eq!(mib(&loop_.decide(at(5), &seen)), [202, 198]);
    for now in [5, 5, 4] {
        let decision = loop_.decide(at(now), &seen);
        assert_eq!((decision.kept, mib(&decision)), (Some(Kept::NoTimePassed), vec![202, 198]));
    }
    assert_eq!(mib(&loop_.decide(at(6), &seen)), [203, 197]);
}

#[test]
fn partition_that_has_not_filled_its_budget_gets_nothing() {
    let mut loop_ = controller("robinhood", &options(), &[200, 200, 200]);
    let mut seen = observation(600, &[9, 1, 0]);
    seen.partitions[0].used_bytes = 100 * MIB;
    let decision = loop_.decide(at(5), &seen);
    assert_eq!(mib(&decision), [198, 204, 198]);
    assert_eq!(decision.moves[0].reason, Reason::Unfilled);
    assert!(decision.line.ends_with("b01 has room left to fill"), "{}", decision.line);

    let mut seen = observation(600, &[9, 0, 0]);
    seen.partitions[0].used_bytes = 100 * MIB;
    assert_eq!(loop_.decide(at(10), &seen).kept, Some(Kept::Unfilled));
}

#[test]
fn pins_hold_and_the_rest_is_redistributed() {
    let mut loop_ = controller("robinhood", &options(), &[200, 200, 200]);
    let mut seen = observation(600, &[1, 0, 0]);
    seen.partitions[0].max_bytes = Some(201 * MIB);
    seen.partitions[1].min_bytes = 200 * MIB;
    let decision = loop_.decide(at(5), &seen);
    assert_eq!(mib(&decision), [201, 200, 199], "bytes above the maximum are refunded to the giver");
    assert_eq!(decision.moves[1].reason, Reason::AtFloor);

    seen.partitions[0].max_bytes = Some(100 * MIB);
    seen.requests = 0;
    let decision = loop_.decide(at(10), &seen);
    assert_eq!(mib(&decision)[0], 100, "a pin holds also without requests");
    assert_eq!(mib(&decision).iter().sum::<u64>(), 600 - 1, "whole MiB of a split byte-exact total");
    assert_eq!(decision.moves[0].reason, Reason::Fitted);
}

#[test]
fn dry_run_reports_without_adopting_the_plan() {
    let mut loop_ = controller("robinhood", &Options { dry_run: true, ..options() }, &[200, 200]);
    let seen = observation(400, &[1, 0]);
    for now in [5, 10] {
        let decision = loop_.decide(at(now), &seen);
        assert!(!decision.apply && decision.line.starts_with("dry run, not applied: moved 2.0 MiB"));
        assert_eq!(mib(&decision), [202, 198], "each step starts from the plan in force");
        assert_eq!(loop_.budgets(), [200 * MIB, 200 * MIB]);
    }
    loop_.set_dry_run(false);
    assert!(loop_.decide(at(15), &seen).apply);
    assert_eq!(loop_.budgets(), [202 * MIB, 198 * MIB]);
}

#[test]
fn unfinished_resizes_are_carried_over_to_the_next_plan() {
    let mut loop_ = controller("robinhood", &options(), &[200, 200]);
    let mut seen = observation(400, &[1, 0]);
    loop_.decide(at(5), &seen);
    // The cache has not resized yet.
    for partition in &mut seen.partitions {
        (partition.allocated_bytes, partition.used_bytes) = (200 * MIB, 200 * MIB);
    }
    let decision = loop_.decide(at(10), &seen);
    assert_eq!(mib(&decision), [203, 197], "the second step goes on from the first plan");
    assert_eq!(decision.pending_bytes, 2 * MIB, "the second partition has yet to release these");
}

#[test]
fn budgets_before_shared_lru_return_after_it() {
    let mut loop_ = controller("robinhood", &options(), &[200, 200]);
    let seen = observation(400, &[1, 0]);
    loop_.decide(at(5), &seen);
    loop_.set_policy(by_name("shared-lru", &options()).expect("known"));
    let decision = loop_.decide(at(10), &seen);
    assert_eq!((decision.plan, loop_.plan()), (CachePlan::Shared.into(), CachePlan::Shared.into()));
    assert!(decision.moves.is_empty());
    loop_.set_policy(by_name("static", &options()).expect("known"));
    assert_eq!(mib(&loop_.decide(at(15), &seen)), [202, 198]);
}

#[test]
fn robinhood_allocates_bytes_that_static_left_free() {
    let mut loop_ = controller("static", &options(), &[200, 200]);
    let seen = observation(500, &[1, 0]);
    let decision = loop_.decide(at(5), &seen);
    assert_eq!((decision.kept, mib(&decision)), (Some(Kept::AsSet), vec![200, 200]));
    loop_.set_budgets(vec![150 * MIB, 200 * MIB]);
    assert_eq!(mib(&loop_.decide(at(10), &seen)), [150, 200]);
    loop_.set_policy(by_name("robinhood", &options()).expect("known"));
    assert_eq!(mib(&loop_.decide(at(15), &seen)), [302, 198], "150 free and 2 of tax");
}

#[test]
fn static_budgets_obey_pins_but_no_floor() {
    let mut loop_ = controller("static", &options(), &[200, 200]);
    let mut seen = observation(400, &[1, 0]);
    loop_.set_budgets(vec![0, 400 * MIB]);
    let decision = loop_.decide(at(5), &seen);
    assert_eq!((decision.kept, mib(&decision)), (Some(Kept::AsSet), vec![0, 400]));
    assert_eq!(decision.line, "kept the budgets: they stay as they were set");

    seen.partitions[0].min_bytes = 10 * MIB;
    seen.partitions[1].max_bytes = Some(300 * MIB);
    assert_eq!(mib(&loop_.decide(at(10), &seen)), [10, 300]);
}

#[test]
fn budgets_are_equal_after_the_number_of_partitions_changes() {
    let mut loop_ = controller("robinhood", &options(), &[400]);
    assert_eq!(mib(&loop_.decide(at(5), &observation(400, &[0, 0]))), [200, 200]);
    let empty = loop_.decide(at(10), &observation(400, &[]));
    assert_eq!(empty.plan, CachePlan::Budgets(Vec::new()).into());
}

#[test]
fn offline_opt_sizes_are_scaled_to_the_total() {
    let stage = SizeStage { until_s: 10.0, budgets_bytes: vec![100 * MIB, 200 * MIB] };
    let mut loop_ =
        controller("offline_opt", &Options { offline_opt: vec![stage], ..options() }, &[300, 300]);
    let decision = loop_.decide(at(5), &observation(600, &[0, 0]));
    assert_eq!(mib(&decision), [200, 400]);
    assert_eq!(decision.moves[0].reason, Reason::Planned);
    assert_eq!(loop_.decide(at(5), &observation(600, &[0, 0])).kept, Some(Kept::NothingToMove));
}

#[test]
fn bubble_wrap_total_changes_without_requests() {
    let stage = |until_s, mib| TotalStage { until_s, total_bytes: mib * MIB };
    let stages = vec![stage(10.0, 400), stage(20.0, 200), stage(30.0, 900)];
    let bubble_wrap = Some(BubbleWrap { policy: "robinhood".to_owned(), stages });
    let mut loop_ = controller("bubble_wrap", &Options { bubble_wrap, ..options() }, &[300, 100]);
    let quiet = Observation { requests: 0, ..observation(400, &[0, 0]) };
    let mut total = |now| mib(&loop_.decide(at(now), &quiet)).iter().sum::<u64>();
    assert_eq!(
        [total(100), total(110), total(120)],
        [400, 199, 399],
        "at most the observed total, in whole MiB"
    );
}

#[test]
fn robinhood_difference_of_start_allocations_shrinks_one_percent_a_round() {
    let fine = Options { page_bytes: Some(1), floor_pages: 0, ..Options::default() };
    let (total, counts) = (1_u64 << 40, [55, 25, 20, 0]);
    let seen = Observation { total_bytes: total, ..observation(0, &counts) };
    let start = |budgets: [u64; 4]| {
        Controller::new(by_name("robinhood", &fine).expect("known"), &fine, Vec::new(), budgets.to_vec())
    };
    let mut equal = start([total / 4; 4]);
    let mut lopsided = start([total / 2, 0, 0, total / 2]);
    let apart = |a: &Controller, b: &Controller| {
        a.budgets().iter().zip(b.budgets()).map(|(a, b)| a.abs_diff(*b)).sum::<u64>() as f64
    };
    let at_first = apart(&equal, &lopsided);
    let mut left = 1.0;
    for round in 1..=360 {
        equal.decide(at(5 * round), &seen);
        lopsided.decide(at(5 * round), &seen);
        left *= 0.99;
        let error = (apart(&equal, &lopsided) - left * at_first).abs();
        assert!(error <= 4_000.0, "round {round} is {error} bytes off");
    }
    assert!((left - 0.027).abs() < 0.001, "2.7% is left after half an hour of rounds");
}

#[test]
fn robinhood_converges_to_the_shares_of_blocking() {
    let mut loop_ = controller("robinhood", &options(), &[1_000; 4]);
    let seen = observation(4_000, &[55, 25, 20, 0]);
    for round in 1..=2_000 {
        loop_.decide(at(5 * round), &seen);
    }
    // The share of the blocking, within the hundred pages that whole-page tax leaves untaxed.
    for (budget, share) in loop_.budgets().iter().zip([0.55, 0.25, 0.20, 0.0]) {
        let expected = share * 4_000.0;
        assert!((*budget as f64 / MIB as f64 - expected).abs() < 200.0, "{:?}", loop_.budgets());
    }
}

#[test]
fn partition_in_dry_run_keeps_its_budget_and_reports_the_wanted_one() {
    let mut loop_ = controller("robinhood", &options(), &[1_000; 4]);
    let mut seen = observation(4_000, &[60, 40, 0, 0]);
    seen.partitions[0].dry_run = true;
    seen.partitions[2].dry_run = true;
    let decision = loop_.decide(at(5), &seen);
    assert_eq!(mib(&decision), [1_000, 1_010, 1_000, 990]);
    let reasons: Vec<_> = decision.moves.iter().map(|step| step.reason).collect();
    let dry = |mib: u64| Reason::DryRun { bytes: mib * MIB };
    assert_eq!((reasons[0], reasons[2]), (dry(1_014), dry(990)));
    assert_eq!(decision.moves.len(), 4);
    assert!(
        decision
            .line
            .ends_with("b01 in a dry run, would have 1014.0 MiB, b03 in a dry run, would have 990.0 MiB"),
        "{}",
        decision.line
    );
}
