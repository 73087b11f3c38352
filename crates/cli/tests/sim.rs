//! `sherwood sim` as a program.

use assert_cmd::Command;
use serde_json::Value;

fn sherwood() -> Command {
    Command::cargo_bin("sherwood").unwrap()
}

/// Three simulated seconds.
const RUN: [&str; 8] =
    ["sim", "run", "--scenario", "onerf-spikes", "--policy", "robinhood", "--set", "minutes=0.025+0.025"];

fn run(flags: &[&str]) -> String {
    let output = sherwood().args(RUN).args(flags).assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

/// The document without what depends on the machine.
fn document(flags: &[&str]) -> Value {
    let mut document: Value = serde_json::from_str(&run(flags)).unwrap();
    for field in ["wall_s", "queries_per_s"] {
        assert!(document.as_object_mut().unwrap().remove(field).unwrap().is_number());
    }
    document
}

#[test]
fn a_seed_gives_the_same_document_again_and_another_seed_another() {
    let first = document(&["--json", "--set", "delta=0.5"]);
    assert_eq!(first, document(&["--json", "--set", "delta=0.5"]));
    assert_ne!(first, document(&["--json", "--seed", "2", "--set", "delta=0.5"]));
    assert_eq!((first["policy"].as_str(), first["seed"].as_u64()), (Some("robinhood"), Some(1)));
    assert_eq!(first["hit_ratio"].as_object().unwrap().len(), 20);
    assert!(first["queries"].as_u64().unwrap() > first["requests"].as_u64().unwrap());
}

#[test]
fn a_run_is_told_in_words_and_over_time() {
    let directory = tempfile::tempdir().unwrap();
    let series = directory.path().join("series.csv");
    let text = run(&["--series", series.to_str().unwrap(), "--set", "minutes=0+0.1"]);
    assert!(text.starts_with("onerf-spikes under robinhood at scale 0.01, seed 1\n"), "{text}");
    let lines = std::fs::read_to_string(series).unwrap();
    assert_eq!(lines.lines().count(), 2, "one observation in six seconds");
}

#[test]
fn what_there_is_not_is_refused_naming_what_there_is() {
    let refused = |flags: &[&str], words: &str| {
        let output = sherwood().args(RUN).args(flags).assert().code(2);
        let text = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(text.contains(words), "{flags:?}: {text}");
    };
    refused(&["--set", "taxes=1"], "choose one of walk, delta");
    refused(&["--set", "tax"], "write it as KEY=VALUE");
    refused(&["--set", "tax=0.9"], "0.5");
    refused(&["--scale", "0.5"], "[possible values: 0.01, 0.1, 1]");
    let output = sherwood().args(["sim", "run", "--scenario", "calm", "--policy", "equal"]).assert().code(2);
    let text = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(text.contains("no scenario `calm`; it has: none, onerf-random"), "{text}");
}

#[test]
fn everything_there_is_is_listed() {
    let output = sherwood().args(["sim", "list", "--json"]).assert().success();
    let list: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let names: Vec<_> = list["scenarios"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let output = sherwood().args(["sim", "list"]).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    for scenario in names {
        assert!(text.contains(scenario.as_str().unwrap()), "{scenario} is not in {text}");
    }
}
