use super::super::{NODES, Scenario};
use super::*;

/// Returns the results of a run of three seconds by day and six at night.
fn results(policy: &str, seed: u64, settings: &[(&str, &str)]) -> Results {
    let mut setup = Setup::new(Scenario::Diurnal, policy, seed);
    for (key, value) in [("seconds", "3+6")].iter().chain(settings) {
        setup.set(key, value).expect("a setting");
    }
    let mut world = World::new(&setup).expect("a setup");
    world.advance(world.end()).expect("counters balance");
    assert_eq!(world.model_results(), None);
    world.results()
}

#[test]
fn policies_use_the_nodes_and_make_the_copies_that_they_name() {
    let all = f64::from(NODES) / 400.0;
    for (policy, node_hours, day, night) in [
        ("idle", all, 0.0, 0.0),
        ("switch-off", all * 2.0 / 3.0, 0.0, 0.0),
        ("zoolander", all, 0.0, 1.0),
        ("hedge", all, 0.05, 0.05),
    ] {
        let results = results(policy, 1, &[]);
        assert!((results.node_hours - node_hours).abs() < 1e-9, "{results:?}");
        let extra = results.extra_load_ratio;
        assert!((extra.day - day).abs() < 0.02 && (extra.night - night).abs() < 0.02, "{results:?}");
        assert_eq!((results.errors, results.complete), (0, true));
    }
}

#[test]
fn duplicates_at_night_prevent_nearly_all_violations() {
    // Stalls are so frequent that a few seconds suffice.
    let violations = |policy| results(policy, 1, &[("stall", "0.001")]).violations;
    let [idle, off, zoolander, hedge] = ["idle", "switch-off", "zoolander", "hedge"].map(violations);
    assert!(idle.day > idle.night && off.night > idle.night, "{idle:?} {off:?}");
    // Some requests of the day end at night.
    assert!((zoolander.day - idle.day).abs() < 0.005, "{zoolander:?} {idle:?}");
    assert!(zoolander.night < idle.night * 0.1, "{zoolander:?} for {idle:?}");
    assert!(hedge.whole < idle.whole * 0.3, "{hedge:?} for {idle:?}");
}

#[test]
fn stalls_of_both_duplicates_leave_little_to_gain() {
    let night = |correlation| {
        results("zoolander", 1, &[("stall", "0.001"), ("correlation", correlation)]).violations.night
    };
    assert!(night("1") > 10.0 * night("0"));
}

#[test]
fn manager_uses_all_nodes_and_says_the_expected_and_the_measured_effect() {
    let idle = results("idle", 1, &[("stall", "0.001")]);
    let managed = results("sherwood", 1, &[("stall", "0.001")]);
    assert!(managed.violations.whole < idle.violations.whole * 0.3, "{managed:?}");
    assert!(managed.node_hours <= idle.node_hours && managed.extra_load_ratio.day < 0.05, "{managed:?}");
    let decisions = &managed.decisions;
    assert!(decisions[0].starts_with("0 s: 144 partitions of 1 node → "), "{decisions:?}");
    assert!(decisions.iter().any(|said| said.contains("measured")), "{decisions:?}");
}

#[test]
fn equal_seeds_give_equal_results_and_equal_requests_under_all_policies() {
    let settings = [("seconds", "1+1")];
    assert_eq!(results("hedge", 1, &settings), results("hedge", 1, &settings));
    assert_ne!(results("hedge", 1, &settings), results("hedge", 2, &settings));
    let requests = |policy: &Policy| results(policy.name, 1, &[("seconds", "1+1"), ("stall", "0")]).requests;
    let counts: Vec<u64> = Scenario::Diurnal.policies().iter().map(requests).collect();
    let [least, most] = [counts.iter().min(), counts.iter().max()].map(|count| *count.expect("policies"));
    // Of the same requests, a few more have ended by the end of the run.
    assert!(least > 700 && most - least < 30, "{counts:?}");
}
