//! `sherwood sim` as a program.

#![allow(clippy::disallowed_methods, reason = "writes a document to read")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;

fn sherwood() -> Command {
    Command::cargo_bin("sherwood").unwrap()
}

/// Arguments of a run of three simulated seconds.
const RUN: [&str; 8] =
    ["sim", "run", "--scenario", "onerf-spikes", "--policy", "robinhood", "--set", "minutes=0.025+0.025"];

fn run(flags: &[&str]) -> String {
    let output = sherwood().args(RUN).args(flags).assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

/// Returns the JSON document without fields that depend on the machine.
fn document(flags: &[&str]) -> Value {
    let mut document: Value = serde_json::from_str(&run(flags)).unwrap();
    for field in ["wall_s", "queries_per_s"] {
        assert!(document.as_object_mut().unwrap().remove(field).unwrap().is_number());
    }
    document
}

#[test]
fn runs_with_equal_seeds_print_equal_json() {
    let first = document(&["--json", "--set", "delta=0.5"]);
    assert_eq!(first, document(&["--json", "--set", "delta=0.5"]));
    assert_ne!(first, document(&["--json", "--seed", "2", "--set", "delta=0.5"]));
    assert_eq!((first["policy"].as_str(), first["seed"].as_u64()), (Some("robinhood"), Some(1)));
    assert_eq!(first["hit_ratio"].as_object().unwrap().len(), 20);
    assert!(first["queries"].as_u64().unwrap() > first["requests"].as_u64().unwrap());
}

#[test]
fn sim_run_prints_text_and_writes_a_series() {
    let directory = tempfile::tempdir().unwrap();
    let series = directory.path().join("series.csv");
    let text = run(&["--series", series.to_str().unwrap(), "--set", "minutes=0+0.1"]);
    assert!(text.starts_with("onerf-spikes under robinhood at scale 0.01, seed 1\n"), "{text}");
    let lines = std::fs::read_to_string(series).unwrap();
    assert_eq!(lines.lines().count(), 2, "one observation in six seconds");
}

#[test]
fn unknown_settings_and_scenarios_are_refused_with_the_known_ones() {
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
    assert!(text.contains("no scenario `calm` of backends; choose one of none, onerf-random"), "{text}");
}

/// Compares two policies, one with a learned allocation, over 25 simulated seconds of little load.
fn compare(results: &Path, flags: &[&str]) -> Command {
    let mut command = sherwood();
    command.args(["sim", "compare", "--scenario", "ramp-7-quick", "--policies", "shared-lru,tao"]);
    command
        .args(["--set", "minutes=0+0.42", "--set", "load=0.1", "--results", results.to_str().unwrap()])
        .args(flags);
    command
}

#[test]
fn comparison_resumes_where_it_was_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    let compared = || {
        let output = compare(&results, &["--seeds", "1,2", "--json"]).assert().success();
        let mut document: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
        let wall_s = document.as_object_mut().unwrap().remove("wall_s").unwrap().as_f64().unwrap();
        (document, wall_s, String::from_utf8(output.get_output().stderr.clone()).unwrap())
    };
    let (first, _, told) = compared();
    assert!(told.contains("4 of 4 finished"), "{told}");
    assert_eq!((first["runs"].as_array().unwrap().len(), first["summary"].as_array().unwrap().len()), (4, 2));
    assert!(first["summary"][1]["p99_ms"]["high"].as_f64() >= first["summary"][1]["p99_ms"]["mean"].as_f64());
    assert_eq!(compared().0, first, "nothing was left to do");
    // There are no claims about a scenario of another length.
    assert_eq!(first["claims"].as_array().map(Vec::len), Some(0));
    assert_eq!(first["claims_left_out"], serde_json::json!(["minutes=0+0.42", "load=0.1"]));

    let one = kept(&results, "ramp-7-quick_shared-lru_");
    std::fs::remove_file(&one).unwrap();
    let (again, _, told) = compared();
    assert!(told.contains("3 of 4 runs are kept") && told.contains("1 of 1 finished"), "{told}");
    let timeless = |document: &Value| {
        let runs = document["runs"].as_array().unwrap().iter().cloned().map(|mut run| {
            run.as_object_mut().unwrap().retain(|field, _| field != "wall_s" && field != "queries_per_s");
            run
        });
        runs.collect::<Vec<_>>()
    };
    assert_eq!(timeless(&again), timeless(&first));

    std::fs::copy("Cargo.toml", &one).unwrap();
    let (again, _, told) = compared();
    let note = format!("{} is of another build, or not what it should be: it is made anew", one.display());
    assert!(told.contains(&note) && told.contains("1 of 1 finished"), "{told}");
    assert_eq!(timeless(&again), timeless(&first));
}

/// Returns the kept file whose name has this prefix.
fn kept(results: &Path, name: &str) -> PathBuf {
    let mut files = std::fs::read_dir(results).unwrap().map(|file| file.unwrap().path());
    files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(name)).unwrap()
}

#[test]
fn resumed_comparison_reuses_the_learned_allocation() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path();
    compare(results, &["--seeds", "1"]).assert().success();
    let sizes = kept(results, "sizes_onerf-spikes_robinhood_");
    // A value that no learning would produce; if it stays, learning was not repeated.
    let mut learned: Value = serde_json::from_slice(&std::fs::read(&sizes).unwrap()).unwrap();
    let size = |backend: usize| learned["sizes"][backend].as_u64().unwrap();
    let (first, second) = (size(0), size(1));
    learned["sizes"][0] = (first / 2).into();
    learned["sizes"][1] = (second + first - first / 2).into();
    std::fs::write(&sizes, learned.to_string()).unwrap();
    let run = kept(results, "ramp-7-quick_tao_");
    let allocated = || {
        let run: Value = serde_json::from_slice(&std::fs::read(&run).unwrap()).unwrap();
        run["outcome"]["allocation_bytes"].clone()
    };
    let before = allocated();
    std::fs::remove_file(&run).unwrap();
    compare(results, &["--seeds", "1"]).assert().success();
    assert_ne!(allocated(), before, "it is given what is kept");
    let after: Value = serde_json::from_slice(&std::fs::read(&sizes).unwrap()).unwrap();
    assert_eq!(after, learned);
}

#[test]
fn comparison_writes_a_self_contained_page() {
    let directory = tempfile::tempdir().unwrap();
    let [page, plots] = ["report.html", "plots"].map(|name| directory.path().join(name));
    let hits = directory.path().join("hits.json");
    std::fs::write(&hits, r#"{"runs":[{"policy":"robinhood","hit_p99_ms":{"b01":0.5}}]}"#).unwrap();
    let [to_page, to_plots, from_hits] = [&page, &plots, &hits].map(|path| path.to_str().unwrap());
    let flags = ["--policies", "robinhood", "--report", to_page, "--plots", to_plots, "--hits", from_hits];
    let output = compare(directory.path(), &flags).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.starts_with("ramp-7-quick ") && text.contains("  robinhood "), "{text}");
    let page = std::fs::read_to_string(&page).unwrap();
    assert_eq!((page.matches("<svg").count(), page.matches("</svg>").count()), (8, 8));
    assert!(!page.contains("src=") && !page.contains("href=\"http") && page.ends_with("</html>\n"));
    let files = std::fs::read_dir(&plots).unwrap().map(|file| file.unwrap().path());
    let drawn: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert!(drawn.len() == 8 && drawn.iter().all(|svg| page.contains(svg)), "the page's own pictures");

    std::fs::write(&hits, r#"{"runs":[{"policy":"robinhood"}]}"#).unwrap();
    let output = compare(directory.path(), &flags).assert().code(2);
    let text = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(
        text.contains("hits.json: line 1, column 31: the key `hit_p99_ms` is missing")
            && text.contains("demo --json"),
        "{text}"
    );
}

#[test]
fn scenario_file_describes_another_system() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/two-backends.sim.json");
    let run = |scenario: &str| {
        let mut command = sherwood();
        command.args(["sim", "run", "--policy", "robinhood", "--set", "minutes=0.1+0.2", "--json"]);
        command.args(["--scenario", scenario]).assert()
    };
    let output = run(file).success();
    let document: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(
        (document["scenario"].as_str(), document["scale"].as_f64()),
        (Some("reviews-slow-down"), Some(1.0))
    );
    assert_eq!(
        document["hit_ratio"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["catalogue", "reviews"]
    );
    let refused = |scenario: &str, words: &str| {
        let output = run(scenario).code(2);
        let text = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(text.contains(words), "{scenario}: {text}");
    };
    refused(&format!("{file}#night"), "no scenario `night`; it has: reviews-slow-down");
    refused("nowhere.json", "reading the scenario file nowhere.json");
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong.json");
    std::fs::copy("Cargo.toml", &wrong).unwrap();
    refused(wrong.to_str().unwrap(), "line 1");
    let several = "../workload/data/onerf.json";
    refused(several, "say which one, such as ../workload/data/onerf.json#none");
}

#[test]
fn sim_list_has_scenarios_policies_and_settings() {
    let output = sherwood().args(["sim", "list", "--json"]).assert().success();
    let list: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let names: Vec<_> = list["scenarios"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names.len(), 18, "{names:?}");
    let own = &list["microfuge"];
    assert_eq!(own["policies"].as_array().unwrap().len(), 11, "{own}");
    assert!(own["settings"].as_array().unwrap().iter().any(|setting| setting["key"] == "beta"), "{own}");
    let output = sherwood().args(["sim", "list"]).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    for scenario in names {
        assert!(text.contains(scenario.as_str().unwrap()), "{scenario} is not in {text}");
    }
}
