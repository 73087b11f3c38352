use sherwood_sim::{DominantRbc, Results};

use super::*;
use crate::sim::compare::keep::Outcome;
use crate::sim::compare::series::Series;

/// A run with P99 as given, a value for each minute.
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
    Kept { inputs, outcome: Outcome { results, wall_s: 1.0, queries_per_s: 1.0 }, series }
}

/// Limited from minute 1 to 2, and at minute 4.
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
fn rows_are_golden() {
    insta::assert_snapshot!(text(&of(&every_policy(), &limits())));
}

#[test]
fn a_row_needs_all_runs_it_speaks_of() {
    let runs = every_policy();
    let of_two = of(&runs[..2], &limits());
    assert!(of_two.iter().all(|claim| ["robinhood", "shared-lru"].contains(&claim.policy)));
    assert!(of_two.iter().all(|claim| !claim.next_best) && of_two.len() == 8, "{of_two:?}");
    let without_robinhood = of(&runs[1..2], &limits());
    assert!(without_robinhood.iter().all(|claim| claim.measure != Measure::P99AgainstRobinhood));
    assert!(of(&[], &limits()).is_empty() && text(&[]).is_empty());
}

#[test]
fn a_claim_holds_with_all_seeds_or_says_with_how_many() {
    let runs = [run("robinhood", 1, 0.0, &[100.0]), run("robinhood", 2, 0.004, &[100.0])];
    let claims = of(&runs, &limits());
    let Claim { by_seed, ours, seeds_held, holds, .. } = &claims[0];
    assert_eq!((by_seed.as_slice(), *ours, *seeds_held, *holds), (&[0.0, 0.004][..], 0.002, 1, false));
    assert_eq!(claims[0].verdict(), "with 1 of 2 seeds");
    assert_eq!(claims[0].ours_words(), "0.20% (0.00% to 0.40%)");
}

#[test]
fn of_a_scenario_that_was_changed_nothing_is_claimed() {
    let mut changed = run("robinhood", 1, 0.0, &[100.0]);
    changed.inputs.settings = vec!["walk=3".to_owned()];
    assert!(!of(&[changed.clone()], &limits()).is_empty());
    changed.inputs.settings.push("depth=0.5".to_owned());
    assert!(of(&[changed.clone()], &limits()).is_empty());
    changed.inputs.settings.clear();
    changed.inputs.document = Some("1".to_owned());
    assert!(of(&[changed], &limits()).is_empty());
}

#[test]
fn spikes_are_where_something_is_limited() {
    assert_eq!(measure::spikes(&limits()["onerf-spikes"]), [(1.0, 2.0), (4.0, 4.0)]);
    assert!(measure::spikes(&[]).is_empty());
}
