//! Runs with a shared warm-up equal runs with a warm-up of their own.

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// Compares two policies, one with a learned allocation, in `scenarios`: a short warm-up and 20
/// seconds with little load. Returns the runs without fields that depend on the machine.
fn runs(scenarios: &str, results: &Path, flags: &[&str]) -> Vec<Value> {
    let mut command = Command::cargo_bin("sherwood").unwrap();
    command.args(["sim", "compare", "--json", "--policies", "robinhood,tao", "--scenario", scenarios]);
    command.args(["--set", "minutes=0.2+0.42", "--set", "load=0.05", "--set", "cache=0.05"]);
    let output = command.args(["--results", results.to_str().unwrap()]).args(flags).assert().success();
    let mut document: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let runs = document["runs"].as_array_mut().unwrap();
    for run in runs.iter_mut() {
        run.as_object_mut().unwrap().retain(|field, _| field != "wall_s" && field != "queries_per_s");
    }
    runs.clone()
}

#[test]
fn shared_warm_up_gives_the_results_of_separate_ones() {
    let directory = tempfile::tempdir().unwrap();
    let results = |name| directory.path().join(name);
    let names = ["ramp-7-quick", "onerf-random"];
    let together = runs(&names.join(","), &results("together"), &["--threads", "2"]);
    let alone: Vec<Value> =
        names.iter().flat_map(|name| runs(name, &results("alone"), &["--threads", "1"])).collect();
    assert_eq!(together, alone);
    assert_ne!(together[0]["p99_ms"], together[2]["p99_ms"], "scenarios make a difference");
}
