//! Properties for arbitrary observations: budgets sum to the total, floors and pins are kept, and
//! equal inputs give equal decisions.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{BackendId, Band, LatencySketch, TenantId};

use super::*;
use crate::{
    BandCounts, BubbleWrap, FairMode, LamaMode, LamaOptions, MissLatency, MissRatioCurve,
    PartitionObservation, SizeStage, TaoMode, TaoOptions, TotalStage, available, by_name,
};

/// Draws numbers of every magnitude, the extremes often.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        0..1_000_u64,
        any::<u64>(),
        (0..64_u32).prop_map(|bit| 1 << bit)
    ]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::MAX), number().prop_map(Duration::from_micros)]
}

/// Miss ratio curves of arbitrary points, most with rising sizes and ratios from 0 to 1.
fn curve() -> impl Strategy<Value = MissRatioCurve> {
    let sane = prop::collection::vec((1..1_u64 << 40, 0.0..1.0_f64), 0..20).prop_map(|mut points| {
        points.sort_by_key(|&(bytes, _)| bytes);
        points
    });
    let any = prop::collection::vec((number(), any::<f64>()), 0..5);
    prop_oneof![4 => sane, 1 => any].prop_map(MissRatioCurve::new)
}

fn miss_latency() -> impl Strategy<Value = Option<MissLatency>> {
    prop::collection::vec((duration(), 1..1_000_u64), 0..4).prop_map(|misses| {
        let mut sketch = LatencySketch::default();
        misses.into_iter().for_each(|(latency, times)| sketch.record_times(latency, times));
        MissLatency::of(&sketch)
    })
}

fn partition() -> impl Strategy<Value = PartitionObservation> {
    let pins = (prop_oneof![3 => Just(0), 1 => number()], prop::option::weighted(0.2, number()));
    let slope = prop::option::of(any::<f64>());
    let ids = (0..3_u16, prop_oneof![0..20_u16, any::<u16>()]);
    let measured = (prop::option::of(number()), prop::option::of(curve()), miss_latency());
    (ids, pins, slope, prop::option::of(duration()), prop::array::uniform5(number()), measured).prop_map(
        |((tenant, backend), (min_bytes, max_bytes), hit_ratio_slope, query_p99, counts, measured)| {
            PartitionObservation {
                tenant: TenantId(tenant),
                backend: BackendId(backend),
                allocated_bytes: counts[0],
                used_bytes: counts[1],
                min_bytes,
                max_bytes,
                dry_run: false,
                hits: counts[2],
                misses: counts[3],
                queries: counts[4],
                query_p99,
                hit_ratio_slope,
                shadow_hits: measured.0,
                miss_ratio_curve: measured.1,
                miss_latency: measured.2,
            }
        },
    )
}

/// Request blocking counts: nine times in ten of the bands that policies read and an invalid one;
/// else none.
fn blocking() -> impl Strategy<Value = Vec<BandCounts>> {
    let bands = [(f64::NAN, 1.0), (98.5, 99.5), (99.0, 100.0), (99.0, 99.5)].map(Band::from);
    let counts = || prop::collection::vec(prop_oneof![number(), 0..100_u64], 0..25);
    let every = prop::collection::vec(counts(), bands.len()).prop_map(move |counts| {
        bands.into_iter().zip(counts).map(|(band, counts)| BandCounts { band, counts }).collect()
    });
    prop_oneof![1 => Just(Vec::new()), 9 => every]
}

/// Shortest and longest latency of requests, in this order except for one in ten.
fn latency_range() -> impl Strategy<Value = Option<(Duration, Duration)>> {
    let sorted = (0..1_000_u64, 1..1_000_000_u64)
        .prop_map(|(least, more)| (Duration::from_micros(least), Duration::from_micros(least + more)));
    let range = prop_oneof![9 => sorted, 1 => (duration(), duration())];
    prop::option::weighted(0.95, range)
}

fn observation(partitions: usize) -> impl Strategy<Value = Observation> {
    let partitions = prop::collection::vec(partition(), partitions);
    let requests = prop_oneof![1 => number(), 9 => 2..1_000_000_u64];
    let seen = (latency_range(), prop::option::of(duration()));
    (number(), partitions, requests, seen, blocking()).prop_map(
        |(total_bytes, partitions, requests, (latency_range, tail), blocking)| Observation {
            total_bytes,
            partitions,
            requests,
            latency_range,
            tail,
            blocking,
        },
    )
}

/// Times and observations of successive rounds: with the same number of partitions and at rising
/// times, except for one in ten; with the same total, except for one in four.
fn rounds() -> impl Strategy<Value = Vec<(Instant, Observation)>> {
    let rounds = |partitions| {
        let round = (prop::bool::weighted(0.1), prop::bool::weighted(0.25), observation(partitions));
        (number(), prop::collection::vec(round, 1..8))
    };
    (1..=64_usize).prop_flat_map(rounds).prop_map(|(total_bytes, rounds)| {
        let mut now = Instant::ZERO;
        let timed = |(stands_still, other_total, mut seen): (bool, bool, Observation)| {
            now += Duration::from_secs(if stands_still { 0 } else { 5 });
            if !other_total {
                seen.total_bytes = total_bytes;
            }
            (now, seen)
        };
        rounds.into_iter().map(timed).collect()
    })
}

fn options(inner: &str) -> Options {
    let stage = |until_s, bytes| SizeStage { until_s, budgets_bytes: vec![bytes; 5] };
    let total = |until_s, total_bytes| TotalStage { until_s, total_bytes };
    let stages = vec![total(10.0, u64::MAX), total(20.0, 1_000), total(1e9, 1 << 40)];
    Options {
        offline_opt: vec![stage(10.0, u64::MAX), stage(1e300, 0)],
        bubble_wrap: Some(BubbleWrap { policy: inner.to_owned(), stages }),
        // A coarse grid, for speed.
        lama: LamaOptions { grid: 0.1, ..LamaOptions::default() },
        ..Options::default()
    }
}

/// Every policy with every combination of modes, as name and options.
fn every() -> Vec<(&'static str, Options)> {
    let mut modes: Vec<_> = available().iter().map(|&policy| (policy, options("robinhood"))).collect();
    let mut also = |policy, change: &dyn Fn(&mut Options)| {
        let mut options = options("robinhood");
        change(&mut options);
        modes.push((policy, options));
    };
    also("fair", &|options| options.fair.mode = FairMode::Waterfill);
    also("lama", &|options| options.lama.mode = LamaMode::Sum);
    also("lama", &|options| options.lama.mode = LamaMode::Threshold);
    also("tao", &|options| options.tao.learn = Duration::from_secs(12));
    also("tao", &|options| {
        options.tao =
            TaoOptions { learn: Duration::from_secs(12), mode: TaoMode::Snapshot, ..TaoOptions::default() };
    });
    modes
}

fn controller(policy: &str) -> Controller {
    controller_of(policy, &options("robinhood"))
}

fn controller_of(policy: &str, options: &Options) -> Controller {
    Controller::new(by_name(policy, options).expect("known"), options, Vec::new(), Vec::new())
}

/// Checks a plan against the bounds stated in the documentation of [`Controller::decide`].
fn check(policy: &str, seen: &Observation, decision: &Decision) -> Result<(), TestCaseError> {
    prop_assert!(decision.line.len() <= 2_000);
    let CachePlan::Budgets(budgets) = &decision.plan.cache else {
        prop_assert_eq!(policy, "shared-lru");
        return Ok(());
    };
    prop_assert_eq!(budgets.len(), seen.partitions.len());
    let (total, given) = (u128::from(seen.total_bytes), sum(budgets));
    match policy {
        "static" | "bubble_wrap" => prop_assert!(given <= total),
        _ => prop_assert_eq!(given, total),
    }
    let floor = if policy == "static" { 0 } else { Options::default().floor_bytes(seen.total_bytes) };
    let high: Vec<u64> =
        seen.partitions.iter().map(|seen| seen.max_bytes.unwrap_or(u64::MAX).max(seen.min_bytes)).collect();
    let low: Vec<u64> =
        seen.partitions.iter().zip(&high).map(|(seen, &high)| seen.min_bytes.max(floor.min(high))).collect();
    if sum(&low) <= given && policy != "bubble_wrap" {
        prop_assert!(budgets.iter().zip(&low).all(|(bytes, low)| bytes >= low), "floors and minimums fit");
    }
    let min: Vec<u64> = seen.partitions.iter().map(|seen| seen.min_bytes).collect();
    if sum(&min) <= total && policy != "bubble_wrap" {
        prop_assert!(budgets.iter().zip(&min).all(|(bytes, min)| bytes >= min), "minimums win over floors");
    }
    // Maximums below the total are raised, also under `static`, which need not allocate all of it.
    if sum(&high) >= total && policy != "bubble_wrap" {
        prop_assert!(budgets.iter().zip(&high).all(|(bytes, high)| bytes <= high), "maximums are possible");
    }
    Ok(())
}

/// Returns `partitions` with their pins replaced by those of `others`.
fn pinned_as(
    partitions: &[PartitionObservation],
    others: &[PartitionObservation],
) -> Vec<PartitionObservation> {
    let pinned = |(seen, other): (&PartitionObservation, &PartitionObservation)| PartitionObservation {
        min_bytes: other.min_bytes,
        max_bytes: other.max_bytes,
        ..seen.clone()
    };
    partitions.iter().zip(others).map(pinned).collect()
}

/// Returns `partitions` with their look-ups removed.
fn silent(partitions: &[PartitionObservation]) -> Vec<PartitionObservation> {
    partitions.iter().map(|seen| PartitionObservation { hits: 0, misses: 0, ..seen.clone() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn budgets_sum_to_the_total_within_bounds_for_any_observation(rounds in rounds()) {
        for (policy, options) in every() {
            let (mut controller, mut twin) = (controller_of(policy, &options), controller_of(policy, &options));
            for (now, seen) in &rounds {
                let decision = controller.decide(*now, seen);
                check(policy, seen, &decision)?;
                prop_assert_eq!(&decision, &twin.decide(*now, seen), "equal inputs, equal decisions");
                let moved = |m: &Move| {
                    if let Reason::Aim(Aim { now, then, .. }) = m.reason {
                        return now.is_finite() && then.is_finite() && now >= 0.0 && then >= 0.0;
                    }
                    let claim = matches!(m.reason, Reason::Claim { ratio, .. } if !(0.0..=1.0).contains(&ratio));
                    !claim && decision.plan.cache.budget(m.partition).is_none_or(|after| after == m.after_bytes)
                };
                prop_assert!(decision.moves.iter().all(moved));
            }
        }
    }

    #[test]
    fn allocation_is_kept_while_requests_are_too_few(mut rounds in rounds()) {
        for policy in ["robinhood", "crit_smooth", "latency", "prototype", "tao"] {
            let mut controller = controller(policy);
            let (_, first) = &rounds[0];
            let mut kept = controller.decide(Instant::ZERO, first).plan;
            let seen = first.clone();
            for (second, (_, silent)) in rounds.iter_mut().enumerate() {
                silent.clone_from(&seen);
                silent.requests = second as u64 % 2;
                let decision = controller.decide(Instant::from_secs(1 + second as u64), silent);
                prop_assert_eq!(&decision.plan, &kept);
                kept = decision.plan;
            }
        }
    }

    #[test]
    fn allocation_is_kept_without_look_ups(mut rounds in rounds()) {
        for policy in ["cliffhanger", "fair", "lama"] {
            let mut controller = controller(policy);
            let (_, first) = &rounds[0];
            let mut kept = controller.decide(Instant::ZERO, first).plan;
            let seen = first.clone();
            for (second, (_, silent)) in rounds.iter_mut().enumerate() {
                silent.clone_from(&seen);
                silent.partitions.iter_mut().for_each(|seen| (seen.hits, seen.misses) = (0, 0));
                let decision = controller.decide(Instant::from_secs(1 + second as u64), silent);
                prop_assert_eq!(decision.kept, Some(Kept::NoLookUps));
                prop_assert_eq!(&decision.plan, &kept);
                kept = decision.plan;
            }
        }
    }

    #[test]
    fn step_towards_a_target_moves_at_most_the_tax_of_the_total(rounds in rounds()) {
        for (policy, options) in every() {
            let mut controller = controller_of(policy, &options);
            let (_, first) = &rounds[0];
            for (now, seen) in &rounds {
                let seen = Observation { total_bytes: first.total_bytes, ..seen.clone() };
                let seen = Observation { partitions: pinned_as(&seen.partitions, &first.partitions), ..seen };
                let before = controller.decide(*now, &Observation { requests: 0, partitions: silent(&seen.partitions), ..seen.clone() });
                let after = controller.decide(*now + Duration::from_secs(1), &seen);
                if let (CachePlan::Budgets(before), CachePlan::Budgets(after)) = (before.plan.cache, after.plan.cache)
                    && ["cliffhanger", "fair", "lama"].contains(&policy)
                {
                    let moved: u128 = before.iter().zip(&after).map(|(b, a)| u128::from(a.saturating_sub(*b))).sum();
                    prop_assert!(moved <= options.step_bytes(seen.total_bytes), "{} moved {}", policy, moved);
                }
            }
        }
    }

    #[test]
    fn budgets_are_unchanged_after_a_period_of_shared_lru(seen in (1..=64_usize).prop_flat_map(observation)) {
        let mut controller = controller("equal");
        let before = controller.decide(Instant::from_secs(1), &seen).plan;
        controller.set_policy(by_name("shared-lru", &options("robinhood")).expect("known"));
        prop_assert_eq!(controller.decide(Instant::from_secs(2), &seen).plan, CachePlan::Shared.into());
        controller.set_policy(by_name("robinhood", &options("robinhood")).expect("known"));
        let silent = Observation { requests: 0, ..seen };
        prop_assert_eq!(controller.decide(Instant::from_secs(3), &silent).plan, before);
    }

    #[test]
    fn partition_in_dry_run_keeps_its_budget_and_others_share_the_rest(
        rounds in rounds(),
        held in prop::collection::vec(prop::bool::weighted(0.3), 64),
    ) {
        for policy in ["robinhood", "equal", "lama", "fair"] {
            let mut controller = controller(policy);
            for (now, seen) in &rounds {
                let mut seen = Observation { total_bytes: 1 << 30, ..seen.clone() };
                for (seen, &held) in seen.partitions.iter_mut().zip(&held) {
                    (seen.dry_run, seen.min_bytes, seen.max_bytes) = (held, 0, None);
                }
                let before = controller.budgets().to_vec();
                controller.decide(*now, &seen);
                let after = controller.budgets();
                prop_assert_eq!(sum(after), 1 << 30);
                let kept = |index: usize| !held[index] || before.is_empty() || before[index] == after[index];
                prop_assert!((0..after.len()).all(kept), "{}", policy);
            }
        }
    }
}
