//! `sherwood sim` with Zoolander's scenario, as a program.

#![allow(clippy::disallowed_methods, reason = "reads the files that it writes")]

use assert_cmd::Command;
use serde_json::Value;

const SCENARIO: [&str; 2] = ["--scenario", "zoolander-diurnal"];

fn sim(command: &str, flags: &[&str]) -> Command {
    let mut sherwood = Command::cargo_bin("sherwood").unwrap();
    sherwood
        .args(["sim", command, "--set", "seconds=2+4", "--set", "stall=0.001"])
        .args(SCENARIO)
        .args(flags);
    sherwood
}

fn output(command: &mut Command) -> String {
    let output = command.assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

#[test]
fn zoolander_run_prints_json_with_the_promised_fields() {
    let document: Value =
        serde_json::from_str(&output(&mut sim("run", &["--policy", "zoolander", "--json"]))).unwrap();
    for phase in ["day", "night", "whole"] {
        for field in ["violations", "extra_load_ratio", "p99_ms"] {
            assert!(document[field][phase].is_number(), "{field} of {phase}: {document}");
        }
    }
    assert_eq!(document["extra_load_ratio"]["day"].as_f64(), Some(0.0));
    assert!(document["violations"]["day"].as_f64() > document["violations"]["night"].as_f64());
    assert!((document["node_hours"].as_f64().unwrap() - 144.0 * 6.0 / 3_600.0).abs() < 1e-9, "{document}");
}

#[test]
fn zoolander_run_prints_decisions_and_writes_a_series() {
    let directory = tempfile::tempdir().unwrap();
    let series = directory.path().join("series.csv");
    let text = output(&mut sim("run", &["--policy", "sherwood", "--series", series.to_str().unwrap()]));
    assert!(text.starts_with("zoolander-diurnal under sherwood, seed 1\n"), "{text}");
    assert!(text.contains("of the violations at night; 0.24 node-hours"), "{text}");
    assert!(text.contains("\n0 s: 144 partitions of 1 node → "), "{text}");
    let lines = std::fs::read_to_string(series).unwrap();
    assert!(lines.starts_with("second,requests,violated,partitions,duplicates,asked\n2,"), "{lines}");
}

#[test]
fn comparison_of_zoolander_shows_violations_and_their_change_against_idle() {
    let directory = tempfile::tempdir().unwrap();
    let (page, kept) = (directory.path().join("page.html"), directory.path().join("kept"));
    let flags = ["--policies", "idle,zoolander", "--results", kept.to_str().unwrap()];
    let text = output(sim("compare", &flags).args(["--report", page.to_str().unwrap()]));
    assert!(text.contains("of it at night, %") && text.contains("node-hours"), "{text}");
    let changes = text.split("violations ").nth(1).expect("the changes against idle");
    assert!(changes.contains("zoolander") && !changes.contains("idle"), "{text}");
    assert!(std::fs::read_to_string(page).unwrap().contains("<h2>zoolander-diurnal</h2>"));
    let document: Value = serde_json::from_str(&output(sim("compare", &flags).arg("--json"))).unwrap();
    assert_eq!(
        (&document["summary"][1]["policy"], &document["summary"][1]["seeds"]),
        (&"zoolander".into(), &1.into())
    );
    assert!(document["summary"][0]["night_share"]["mean"].as_f64() > Some(0.0));
}

fn model(command: &str, flags: &[&str]) -> Command {
    let mut sherwood = Command::cargo_bin("sherwood").unwrap();
    sherwood.args(["sim", command, "--scenario", "zoolander-model", "--set", "seconds=1+1"]).args(flags);
    sherwood
}

#[test]
fn zoolander_model_run_prints_measured_levels_beside_predicted_ones() {
    let flags = ["--policy", "mix", "--json"];
    let document: Value = serde_json::from_str(&output(&mut model("run", &flags))).unwrap();
    let levels = document["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 8);
    for field in ["bound_ms", "measured", "predicted", "by_mean"] {
        assert!(levels.iter().all(|level| level[field].is_number()), "{field}: {document}");
    }
    assert_eq!((&document["model_applies"], &document["correlation_max"]), (&true.into(), &0.1.into()));
    let text = output(&mut model("run", &["--policy", "hedge"]));
    assert!(text.contains("72 × 2, 1 asked, another after 8 ms"), "{text}");
    assert!(text.contains("the model applies; duplicates have a correlation of "), "{text}");
    let text = output(&mut model("run", &["--policy", "hedge", "--set", "balance=power-of-two"]));
    assert!(text.contains("the model does not apply: accesses choose a duplicate by its load"), "{text}");
    let correlated = ["--policy", "mix", "--set", "correlation=0.5", "--set", "stall=0.01"];
    let text = output(&mut model("run", &correlated));
    assert!(text.contains("the model does not apply: the correlation of duplicates is 0."), "{text}");
}

#[test]
fn comparison_with_the_zoolander_model_shows_the_best_policy_at_each_load() {
    let directory = tempfile::tempdir().unwrap();
    let (page, kept) = (directory.path().join("page.html"), directory.path().join("kept"));
    let flags =
        ["--policies", "divide,replicate", "--set", "load=0.02,0.4", "--results", kept.to_str().unwrap()];
    let text = output(model("compare", &flags).args(["--report", page.to_str().unwrap()]));
    let best = text.split("best within 15 ms").nth(1).expect("the best policies");
    assert!(best.contains("load 0.02") && best.contains("replicate") && best.contains("divide"), "{text}");
    assert!(text.contains("by mean wait"), "{text}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Percentiles of the same accesses in two runs"), "{page}");
    let document: Value = serde_json::from_str(&output(model("compare", &flags).arg("--json"))).unwrap();
    assert_eq!(document["summary"].as_array().unwrap().len(), 4);
}

#[test]
fn invalid_use_of_the_zoolander_scenario_is_refused_with_the_remedy() {
    for (command, flags, words) in [
        ("run", &["--policy", "robinhood"][..], "Zoolander have no policy \"robinhood\"; choose one of idle"),
        ("run", &["--policy", "idle", "--set", "stall=2"], "stall = 2: the accepted range is 0 to 1"),
        ("run", &["--policy", "idle", "--set", "seconds=8"], "it takes DAY+NIGHT, lengths of day and night"),
        ("run", &["--policy", "idle", "--scale", "1"], "change its length with --set seconds=N+N"),
        ("compare", &["--scenario", "none"], "simulate it in a command of its own"),
        ("compare", &["--plots", "plots"], "there are none of Zoolander; use --report"),
    ] {
        let output = sim(command, flags).assert().code(2);
        let said = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(said.contains(words), "{flags:?}: {said}");
    }
}
