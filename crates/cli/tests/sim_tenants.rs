//! `sherwood sim` with scenarios of tenants, as a program.

#![allow(clippy::disallowed_methods, reason = "reads the files that it writes")]

use assert_cmd::Command;
use serde_json::Value;

/// Arguments of a small simulation: two tenants of some 40,000 keys for two minutes.
const SMALL: [&str; 9] = [
    "sim",
    "run",
    "--scenario",
    "hare-working-set",
    "--policy",
    "hare",
    "--scale=0.01",
    "--set",
    "seconds=100+20",
];

fn output(flags: &[&str]) -> String {
    let output = Command::cargo_bin("sherwood").unwrap().args(SMALL).args(flags).assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

/// Compares the results with a golden file: equal seeds give equal results on every machine. A
/// change that is meant to change them is reviewed as a difference of the file.
#[test]
fn results_of_tenants_are_unchanged() {
    let mut document: Value = serde_json::from_str(&output(&["--json"])).unwrap();
    for field in ["wall_s", "queries_per_s"] {
        assert!(document.as_object_mut().unwrap().remove(field).unwrap().is_number());
    }
    let names: Vec<&Value> = document["tenants"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    insta::assert_snapshot!("hare", format!("{document:#}"));
}

#[test]
fn run_of_tenants_prints_a_row_for_each_and_writes_a_series() {
    let directory = tempfile::tempdir().unwrap();
    let series = directory.path().join("series.csv");
    let text = output(&["--series", series.to_str().unwrap()]);
    assert!(text.starts_with("hare-working-set under hare at scale 0.01, seed 1\n"), "{text}");
    assert!(
        text.contains("\nT1 ") && text.contains("\nT2 ") && text.contains("is possible; 1 decision"),
        "{text}"
    );
    let series = std::fs::read_to_string(series).unwrap();
    let mut lines = series.lines();
    assert_eq!(
        lines.next().unwrap(),
        "second,tenant,throughput,hit_ratio,cache_bytes,reads,writes,network,gain,bound"
    );
    assert_eq!(lines.count(), 24, "a line for each tenant and ten seconds");
}
