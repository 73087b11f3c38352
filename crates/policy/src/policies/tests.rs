//! Weights compared with values calculated by hand.

use std::time::Duration;

use sherwood_model::{
    BackendId, Band, FinishedRequest, Instant, PartitionId, RequestWindow, TenantId, WindowOptions,
};

use super::fill::Fill;
use super::*;
use crate::{
    BandCounts, CliffhangerOptions, Controller, FairMode, FairOptions, Kept, MissRatioCurve, Observation,
    Options, PartitionObservation, Policy, Proposal, Reason, TaoMode, TaoOptions, View, by_name,
};

const MIB: u64 = 1 << 20;

fn partition(backend: u16) -> PartitionObservation {
    PartitionObservation::new(TenantId(0), BackendId(backend))
}

fn close(found: &[f64], expected: &[f64]) {
    let sum: f64 = found.iter().sum();
    let near = |(found, expected): (&f64, &f64)| (found / sum - expected).abs() < 1e-3;
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?}");
}

fn view<'a>(seen: &'a Observation, budgets: &'a [u64]) -> View<'a> {
    let (total_bytes, elapsed) = (budgets.iter().sum(), Duration::ZERO);
    View { elapsed, seen, budgets, total_bytes, page_bytes: MIB, floor_bytes: 30 * MIB }
}

/// The weights that `policy` proposes for the observation `seen`.
fn weights(policy: &mut dyn Policy, seen: &Observation, budgets: &[u64]) -> Vec<f64> {
    match policy.propose(&view(seen, budgets)) {
        Proposal::Claims(claims) => claims.weights,
        other => panic!("{} gave no claims but {other:?}", policy.name()),
    }
}

fn counted(band: Band, counts: &[u64], partitions: Vec<PartitionObservation>) -> Observation {
    let blocking = vec![BandCounts { band, counts: counts.to_vec() }];
    Observation { partitions, blocking, ..Observation::default() }
}

#[test]
fn alternating_backends_have_equal_blocking_counts() {
    let mut window = RequestWindow::new(WindowOptions::of(Duration::from_secs(60)));
    let now = Instant::from_secs(1);
    for ms in 1..=1_000 {
        let blocking = BackendId(if ms % 2 == 1 { 0 } else { 1 });
        window.record(now, now, FinishedRequest::new(Duration::from_millis(ms), Some(blocking)));
    }
    let snapshot = window.snapshot(now, Duration::from_secs(60));
    let options = Options::default();
    let blocked = |policy: &mut dyn Policy| {
        let mut seen = Observation { partitions: vec![partition(0), partition(1)], ..Observation::default() };
        seen.see_requests(&snapshot, &policy.needs(), 2);
        assert_eq!((seen.requests, seen.latency_range.map(|range| range.1.as_secs())), (1_000, Some(1)));
        weights(policy, &seen, &[0, 0])
    };
    assert_eq!(blocked(&mut Critical::robinhood(&options)), [5.0, 5.0]);
    assert_eq!(blocked(&mut Critical::path(&options)), [5.0, 5.0]);
    assert_eq!(blocked(&mut Critical::small_window(&options)), [3.0, 2.0]);
}

#[test]
fn robinhood_ignores_partitions_with_budgets_above_1_3_of_used_bytes() {
    let options = Options::default();
    let weight = |budget: u64, used: u64| {
        let seen = counted(Band::TAIL, &[7], vec![PartitionObservation { used_bytes: used, ..partition(0) }]);
        weights(&mut Critical::robinhood(&options), &seen, &[budget])[0]
    };
    assert_eq!(weight(1_300 * MIB, 1_000 * MIB), 7.0, "at the limit it still counts as filled");
    assert_eq!(weight(1_300 * MIB + 1, 1_000 * MIB), 0.0);
    assert_eq!(weight(1_600 * MIB, 0), 7.0, "an empty partition counts as filled");
    assert_eq!(weight(1_600 * MIB, MIB), 0.0);
}

#[test]
fn unfilled_rules_of_the_variants_differ_at_two_pages_and_at_the_threshold() {
    let options = Options::default();
    let filled = |fill: Fill, budget: u64, used: u64| {
        fill.filled(&PartitionObservation { used_bytes: used * MIB, ..partition(0) }, budget * MIB, MIB)
    };
    assert!(filled(Fill::critical(&options), 1_300, 1_000));
    assert!(!filled(Fill::strict(&options), 1_300, 1_000));
    assert!(filled(Fill::critical(&options), 1_600, 1));
    assert!(filled(Fill::strict(&options), 1_600, 1));
    assert!(!filled(Fill::critical(&options), 1_600, 3));
    let off = Options { unfilled_ratio_max: f64::INFINITY, ..Options::default() };
    assert!(filled(Fill::robinhood(&off), u64::MAX / MIB, 1), "infinity switches the rule off");
}

#[test]
fn unfilled_partitions_lose_their_claim_and_are_listed() {
    let partitions =
        vec![PartitionObservation { used_bytes: 10, ..partition(0) }, partition(1), partition(2)];
    let seen = counted(Band::TAIL, &[7, 7, 0], partitions);
    let proposal = Critical::robinhood(&Options::default()).propose(&view(&seen, &[100, 100, 100]));
    let Proposal::Claims(claims) = proposal else { panic!("no claims") };
    assert_eq!((claims.weights, claims.unfilled), (vec![0.0, 7.0, 0.0], vec![PartitionId(0)]));
}

#[test]
fn blocking_count_of_a_backend_is_shared_by_its_tenants_queries() {
    let of = |tenant, backend, queries| PartitionObservation {
        queries,
        ..PartitionObservation::new(TenantId(tenant), BackendId(backend))
    };
    let partitions = vec![of(0, 0, 30), of(1, 0, 10), of(0, 1, 0), of(1, 1, 0), of(0, 2, 0)];
    let seen = counted(Band::TAIL, &[8, 6, 5], partitions);
    let shared = critical::blocking_weights(&seen, Band::TAIL);
    assert_eq!(shared, [6.0, 2.0, 3.0, 3.0, 5.0]);
}

#[test]
fn crit_smooth_weights_the_old_average_with_0_7() {
    assert!((critical::smooth(10.0, 20.0) - 13.0).abs() < 1e-12);
}

#[test]
fn crit_smooth_average_is_reset_while_a_partition_is_unfilled() {
    let mut policy = CriticalSmooth::new(&Options::default());
    let using = |used_bytes, backend| PartitionObservation { used_bytes, ..partition(backend) };
    let seen = |used| counted(Band::TAIL, &[10, 10], vec![using(used, 0), using(used, 1)]);
    let budgets = [1_000 * MIB; 2];
    assert!((weights(&mut policy, &seen(1_000 * MIB), &budgets)[0] - 3.0).abs() < 1e-12);
    assert_eq!(weights(&mut policy, &seen(10 * MIB), &budgets), [0.0, 0.0]);
    assert!(
        (weights(&mut policy, &seen(1_000 * MIB), &budgets)[0] - 3.0).abs() < 1e-12,
        "it starts from zero"
    );
}

#[test]
fn crit_path_w_delta_multiplies_blocking_count_and_slope() {
    let slope = |hit_ratio_slope, backend| PartitionObservation { hit_ratio_slope, ..partition(backend) };
    let partitions =
        vec![slope(Some(2e-11), 0), slope(Some(6e-11), 1), slope(None, 2), slope(Some(f64::NAN), 3)];
    let mut policy = CriticalSlope::new(&Options::default());
    let seen = counted(Band { low: 99.0, high: 100.0 }, &[3, 1, 9, 9], partitions);
    let weights = weights(&mut policy, &seen, &[0; 4]);
    assert!((weights[0] / weights[1] - 1.0).abs() < 1e-9 && weights[2] == 0.0);
    assert!(policy.needs().hit_ratio_slope);
}

#[test]
fn latency_weights_are_p99s_above_0_9_of_the_mean() {
    close(&latency::weights(&[Some(10.0), Some(50.0), Some(100.0)]), &[0.0, 0.333, 0.667]);
    assert_eq!(latency::weights(&[None, Some(0.0)]), [0.0, 0.0]);
}

#[test]
fn hit_ratio_weights_are_mean_over_own_ratio_below_the_mean() {
    close(&hit_ratio::weights(&[Some(0.2), Some(0.4), Some(0.9)], &[true; 3]), &[0.667, 0.333, 0.0]);
    let unfilled_as_zero = hit_ratio::weights(&[Some(0.2), Some(0.4), Some(0.9)], &[true, true, false]);
    assert_eq!(unfilled_as_zero[1..], [0.0, 0.0], "the mean is 0.2");
    assert_eq!(hit_ratio::weights(&[Some(0.0), None, Some(0.5)], &[true; 3]), [0.0; 3], "no hit, no look-up");
}

#[test]
fn request_rate_weights_are_query_counts() {
    let queries = |queries, backend| PartitionObservation { queries, ..partition(backend) };
    let seen = Observation { partitions: vec![queries(3, 0), queries(1, 1)], ..Observation::default() };
    assert_eq!(weights(&mut RequestRate::new(&Options::default()), &seen, &[0; 2]), [3.0, 1.0]);
}

#[test]
fn prototype_weights_follow_the_latency_rank() {
    let ms = |ms: &[u64]| ms.iter().map(|&ms| Some(Duration::from_millis(ms))).collect::<Vec<_>>();
    close(&prototype::weights(&ms(&[1, 2, 3, 4]), &[true; 4]), &[0.0, 0.25, 0.25, 0.5]);
    let fastest_at_its_floor = prototype::weights(&ms(&[1, 2, 3, 4]), &[false, true, true, true]);
    assert_eq!(fastest_at_its_floor, [1.0, 0.0, 1.0, 2.0]);
    assert_eq!(prototype::weights(&ms(&[1, 2]), &[true, false]), [0.0; 2], "only one above its floor");
    assert_eq!(prototype::weights(&[None, None], &[true; 2]), [0.0; 2]);
}

#[test]
fn offline_opt_follows_its_stages_by_time() {
    let stage = |until_s, bytes| crate::SizeStage { until_s, budgets_bytes: vec![bytes] };
    let options = Options { offline_opt: vec![stage(10.0, 1), stage(20.0, 2)], ..Options::default() };
    let mut policy = OfflineOpt::new(&options).expect("a valid list");
    let seen = Observation { partitions: vec![partition(0)], ..Observation::default() };
    let mut at =
        |seconds| policy.propose(&View { elapsed: Duration::from_secs(seconds), ..view(&seen, &[0]) });
    assert_eq!(at(9), Proposal::Budgets(vec![1]));
    assert_eq!(at(10), Proposal::Budgets(vec![2]));
    assert_eq!(at(99), Proposal::Budgets(vec![2]), "the last stage does not end");
}

/// Returns the proposal of `policy` at `seconds` since it was chosen.
fn after(policy: &mut dyn Policy, seen: &Observation, budgets: &[u64], seconds: u64) -> Proposal {
    policy.propose(&View { elapsed: Duration::from_secs(seconds), ..view(seen, budgets) })
}

fn learning(mode: TaoMode) -> Tao {
    let tao = TaoOptions { learn: Duration::from_secs(30), mode, ..TaoOptions::default() };
    Tao::new(&Options { tao, ..Options::default() })
}

#[test]
fn tao_freezes_the_time_weighted_mean_of_learned_budgets() {
    let seen = counted(Band::TAIL, &[1, 0], vec![partition(0), partition(1)]);
    let mut tao = learning(TaoMode::Mean);
    assert!(matches!(after(&mut tao, &seen, &[100, 100], 0), Proposal::Claims(_)));
    assert!(matches!(after(&mut tao, &seen, &[130, 70], 10), Proposal::Claims(_)));
    // Ten seconds at 130, fifteen at 160, and, because learning ends at thirty, five at 190.
    assert!(matches!(after(&mut tao, &seen, &[160, 40], 25), Proposal::Claims(_)));
    let frozen = Proposal::Budgets(vec![155, 45]);
    assert_eq!(after(&mut tao, &seen, &[190, 10], 1_000), frozen);
    assert_eq!(after(&mut tao, &seen, &[100, 100], 2_000), frozen, "independent of the present budgets");
}

#[test]
fn tao_freezes_the_last_budgets_in_snapshot_mode() {
    let seen = counted(Band::TAIL, &[1, 0], vec![partition(0), partition(1)]);
    let mut tao = learning(TaoMode::Snapshot);
    assert!(matches!(after(&mut tao, &seen, &[100, 100], 0), Proposal::Claims(_)));
    assert_eq!(after(&mut tao, &seen, &[190, 10], 30), Proposal::Budgets(vec![190, 10]));
}

#[test]
fn tao_with_configured_budgets_does_not_learn() {
    let tao = TaoOptions { budgets_bytes: vec![1, 2], ..TaoOptions::default() };
    let mut tao = Tao::new(&Options { tao, ..Options::default() });
    let seen = counted(Band::TAIL, &[1, 0], vec![partition(0), partition(1)]);
    assert_eq!(after(&mut tao, &seen, &[100, 100], 0), Proposal::Budgets(vec![1, 2]));
}

#[test]
fn cliffhanger_shadow_hits_earn_bytes_paid_equally_by_the_others() {
    assert_eq!(cliffhanger::credits(&[Some(9), Some(3), Some(0)], 10), [75, -15, -60]);
    assert_eq!(
        cliffhanger::credits(&[Some(4), None, Some(0)], 10),
        [40, 0, -40],
        "a partition without a count is left out"
    );
    assert_eq!(cliffhanger::credits(&[Some(7)], 10), [0], "no other partition");
}

#[test]
fn cliffhanger_carries_over_at_most_a_page_of_unapplied_change() {
    let options = CliffhangerOptions { credit_bytes: MIB / 4, ..CliffhangerOptions::default() };
    let mut policy = Cliffhanger::new(&Options { cliffhanger: options, ..Options::default() });
    let found = |hits, backend| PartitionObservation { shadow_hits: hits, ..partition(backend) };
    let seen = |hits| Observation {
        partitions: vec![found(Some(hits), 0), found(Some(0), 1)],
        ..Observation::default()
    };
    let budgets = [10 * MIB, 10 * MIB];
    let mut wanted = |hits| match policy.propose(&view(&seen(hits), &budgets)) {
        Proposal::Toward(target) => target.budgets[0],
        other => panic!("{other:?}"),
    };
    assert_eq!([wanted(2), wanted(2)], [10 * MIB + MIB / 2, 11 * MIB]);
    assert_eq!([wanted(8), wanted(1)], [13 * MIB, 11 * MIB + MIB / 4], "at most a page is carried over");
    let none = Observation { partitions: vec![found(None, 0), found(Some(3), 1)], ..Observation::default() };
    assert_eq!(policy.propose(&view(&none, &budgets)), Proposal::Keep(Kept::NotMeasured));
    assert_eq!(policy.propose(&view(&seen(0), &budgets)), Proposal::Keep(Kept::NoClaim));
}

/// Checks two partitions whose hits grow with the logarithm of the size, as under Zipf's law; the
/// second has half of the first's look-ups.
#[test]
fn cliffhanger_converges_to_equal_shadow_hits() {
    let options = Options::default();
    let total = 1_000 * MIB;
    let ratio = |mib: u64| 1.0 - libm::log(1.0 + mib as f64) / libm::log(1_001.0);
    let curve = MissRatioCurve::new((0..=1_000).map(|mib| (mib * MIB, ratio(mib))));
    let policy = by_name("cliffhanger", &options).expect("known");
    let mut controller = Controller::new(policy, &options, Vec::new(), vec![total / 2; 2]);
    let mut finds = [0; 2];
    for round in 1..2_000 {
        let seen = |index: usize| {
            let look_ups = [2_000_000, 1_000_000][index];
            let shadow_hits = curve.shadow_hits(controller.budgets()[index], total / 100, look_ups);
            PartitionObservation {
                misses: look_ups,
                shadow_hits: Some(shadow_hits),
                ..partition(index as u16)
            }
        };
        let partitions = vec![seen(0), seen(1)];
        finds = [0, 1].map(|index: usize| partitions[index].shadow_hits.expect("set above"));
        let seen = Observation { total_bytes: total, partitions, ..Observation::default() };
        controller.decide(Instant::from_secs(5 * round), &seen);
    }
    assert!(finds[0].abs_diff(finds[1]) * 50 < finds[0], "{finds:?} differ by more than a fiftieth");
    let share = controller.budgets()[0] as f64 / total as f64;
    assert!((share - 2.0 / 3.0).abs() < 0.02, "sizes in proportion to look-ups: {share}");
}

#[test]
fn fair_waterfill_makes_reachable_miss_ratios_equal() {
    let line = |bytes, least| MissRatioCurve::new([(bytes, least)]);
    // Two curves reach a miss ratio of 0 at 100 and 300 bytes; the third never falls below 0.9.
    let (easy, hard, never) = (line(100, 0.0), line(300, 0.0), line(50, 0.9));
    let sizes = fair::levelled(&[&easy, &hard, &never], 250);
    assert!((easy.at(sizes[0]) - 0.5).abs() < 0.01 && (hard.at(sizes[1]) - 0.5).abs() < 0.01, "{sizes:?}");
    assert_eq!((sizes[2], sizes.iter().sum::<u64>()), (50, 250));
    assert_eq!(fair::levelled(&[&easy, &hard, &never], 510), [120, 320, 70], "the rest is shared equally");
    assert_eq!(fair::levelled(&[&never, &never], 0), [0, 0]);
}

#[test]
fn fair_feedback_ignores_whether_partitions_are_filled() {
    let hitting = |hits, backend| PartitionObservation {
        hits,
        misses: 100 - hits,
        used_bytes: 1,
        ..partition(backend)
    };
    let partitions = vec![hitting(20, 0), hitting(40, 1), hitting(90, 2)];
    let seen = Observation { partitions, ..Observation::default() };
    close(&weights(&mut Fair::new(&Options::default()), &seen, &[100; 3]), &[0.667, 0.333, 0.0]);
}

#[test]
fn fair_waterfill_keeps_budgets_of_partitions_without_a_curve() {
    let fair = FairOptions { mode: FairMode::Waterfill };
    let mut policy = Fair::new(&Options { fair, ..Options::default() });
    let known = |bytes, backend| {
        let miss_ratio_curve = Some(MissRatioCurve::new([(bytes, 0.0)]));
        PartitionObservation { miss_ratio_curve, ..partition(backend) }
    };
    let seen = Observation {
        partitions: vec![known(100, 0), partition(1), known(300, 2)],
        ..Observation::default()
    };
    let Proposal::Toward(target) = policy.propose(&view(&seen, &[100, 50, 100])) else { panic!("a target") };
    assert_eq!(target.budgets, [50, 50, 150]);
    let Reason::Aim(aim) = target.reasons[2] else { panic!("an aim") };
    assert_eq!((aim.now.round(), aim.then.round()), (67.0, 50.0));
    let unknown = Observation { partitions: vec![partition(0)], ..Observation::default() };
    assert_eq!(policy.propose(&view(&unknown, &[9])), Proposal::Keep(Kept::NotMeasured));
}
