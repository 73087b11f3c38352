use sherwood_sim::{DominantRbc, Results};

use super::stated::COMPETITORS;
use super::*;
use crate::sim::onerf::plotted::Series;
use crate::sim::study::Outcome;

/// A run with the given P99 for each minute.
fn run(policy: &str, seed: u64, violations: f64, p99_ms: &[f64]) -> Kept {
    let results = Results {
        scenario: "onerf-spikes".to_owned(),
        policy: policy.to_owned(),
        seed,
        slo_bound_ms: 150.0,
        slo_violation_ratio: violations,
        p99_max_ms: p99_ms.iter().copied().fold(0.0, f64::max),
        dominant_rbc: DominantRbc { at: vec![0.5, 0.25, 0.54], mean: 0.7, max: 0.849 },
        static_equivalent_ratio: 1.94,
        complete: true,
        ..Results::default()
    };
    let inputs = serde_json::json!({
        "version": "0", "scenario": "onerf-spikes", "document": null, "policy": policy, "seed": seed,
        "scale": "0.01", "settings": [],
    });
    let inputs = serde_json::from_value(inputs).unwrap();
    let series = Series {
        minute: (1..=p99_ms.len()).map(|minute| minute as f64).collect(),
        p90_ms: p99_ms.iter().map(|&ms| Some(ms / 3.0)).collect(),
        p99_ms: p99_ms.iter().copied().map(Some).collect(),
        ..Series::default()
    };
    Kept { inputs, outcome: Outcome { results, wall_s: 1.0, queries_per_s: 1.0 }, observed: series }
}

/// Returns limits of a backend from minute 1 to 2, and at minute 4, by scenario.
fn limits() -> BTreeMap<String, Vec<LimitLine>> {
    let points = [1.0, 0.9, 0.5, 1.0, 0.4].into_iter().enumerate();
    let line = LimitLine {
        backend: 5,
        name: "b06".to_owned(),
        points: points.map(|(minute, limit)| (minute as f64, limit)).collect(),
    };
    BTreeMap::from([("onerf-spikes".to_owned(), vec![line])])
}

fn every_policy() -> Vec<Kept> {
    let mut runs = vec![run("robinhood", 1, 0.003, &[100.0, 110.0, 90.0, 100.0])];
    for (policy, violations) in COMPETITORS.into_iter().zip([0.305, 0.38, 0.9, 0.91, 0.294]) {
        runs.push(run(policy, 1, violations, &[120.0, 300.0, 140.0, 330.0]));
    }
    runs
}

#[test]
fn claims_of_the_paper_match_the_snapshot() {
    insta::assert_snapshot!(text(&of(&every_policy(), &limits()), &[]));
}

#[test]
fn claim_requires_all_runs_it_refers_to() {
    let runs = every_policy();
    let of_two = of(&runs[..2], &limits());
    assert!(of_two.iter().all(|claim| ["robinhood", "shared-lru"].contains(&claim.policy)));
    assert_eq!(of_two.len(), 9, "{of_two:?}");
    let without_robinhood = of(&runs[1..2], &limits());
    assert!(without_robinhood.iter().all(|claim| claim.measure != Measure::P99AgainstRobinhood));
    assert!(of(&[], &limits()).is_empty() && text(&[], &[]).is_empty());
}

#[test]
fn partly_held_claim_gives_the_number_of_seeds() {
    let runs = [run("robinhood", 1, 0.0, &[100.0]), run("robinhood", 2, 0.004, &[100.0])];
    let claims = of(&runs, &limits());
    let Claim { by_seed, ours, seeds_held, holds, .. } = &claims[0];
    assert_eq!((by_seed.as_slice(), *ours, *seeds_held, *holds), (&[0.0, 0.004][..], 0.002, 1, false));
    assert_eq!(claims[0].verdict(), "with 1 of 2 seeds");
    assert_eq!(claims[0].ours_words(), "0.20% (0.00% to 0.40%)");
}

#[test]
fn next_best_policy_is_that_of_the_paper() {
    let claims = of(&every_policy(), &limits());
    let next_best: Vec<_> = claims.iter().filter(|claim| claim.next_best).collect();
    assert_eq!(next_best.len(), 1);
    assert_eq!((next_best[0].policy, next_best[0].ours, next_best[0].holds), ("shared-lru", 0.305, true));
    // The row of another policy with a better result does not hold.
    let lama = claims.iter().find(|claim| (claim.policy, claim.measure) == ("lama", Measure::SloViolation));
    assert!(lama.is_some_and(|claim| !claim.holds && claim.paper == 0.30));
    let all = stated::all();
    let whom: Vec<_> =
        all.iter().filter(|stated| stated.next_best).map(|stated| (stated.scenario, stated.policy)).collect();
    assert_eq!(
        whom,
        [
            ("onerf-spikes", "shared-lru"),
            ("ramp-7-slow", "lama"),
            ("ramp-7-quick", "lama"),
            ("ramp-1-slow", "cliffhanger"),
            ("ramp-1-quick", "shared-lru"),
            ("onerf-random", "tao"),
        ]
    );
}

#[test]
fn settings_unlike_the_papers_suppress_claims_and_are_named() {
    let with = |settings: &[&str]| {
        let mut changed = run("robinhood", 1, 0.0, &[100.0]);
        changed.inputs.settings = settings.iter().copied().map(str::to_owned).collect();
        let unlike = unlike(&changed.inputs.settings);
        assert_eq!(unlike.is_empty(), !of(&[changed], &limits()).is_empty(), "{settings:?}");
        unlike
    };
    for setting in [
        "minutes=5+30",
        "depth=0.5",
        "load=2",
        "cache=0.5",
        "sample=1/8",
        "servers=2",
        "eviction=s3-fifo",
        "resize=1000",
        "stale=3",
        "delta=1",
        "tax=0.02",
        "unfilled=off",
        "rounding=first",
        "tao=snapshot",
        "ghost=1",
    ] {
        assert_eq!(with(&[setting]), [setting]);
    }
    // A default value, another walk, and a setting that a later one reverts.
    let none: [&str; 0] = [];
    assert_eq!(with(&["walk=3", "cache=1", "delta=5", "sample=1/1", "resize=at-once"]), none);
    assert_eq!(with(&["load=2", "cache=0.5", "load=1"]), ["cache=0.5"]);
    assert_eq!(
        text(&[], &with(&["servers=2", "sample=1/8"])),
        "RobinHood's paper has other settings, so nothing is compared with it: servers=2, sample=1/8\n\n"
    );
}

#[test]
fn scenario_of_a_file_has_no_claims() {
    let mut changed = run("robinhood", 1, 0.0, &[100.0]);
    changed.inputs.document = Some("1".to_owned());
    changed.inputs.settings = vec!["servers=2".to_owned()];
    let runs = [changed, run("robinhood", 1, 0.0, &[100.0])];
    assert!(of(&runs[..1], &limits()).is_empty() && left_out(&runs[..1]).is_empty());
    assert!(!of(&runs, &limits()).is_empty() && left_out(&runs).is_empty());
    let mut other = runs[1].clone();
    other.inputs.settings.clone_from(&runs[0].inputs.settings);
    assert_eq!(left_out(&[runs[0].clone(), other]), ["servers=2"]);
}

#[test]
fn spikes_are_the_periods_with_a_limit() {
    assert_eq!(measure::spikes(&limits()["onerf-spikes"]), [(1.0, 2.0), (4.0, 4.0)]);
    assert!(measure::spikes(&[]).is_empty());
}
