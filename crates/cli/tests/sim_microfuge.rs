//! `sherwood sim` with scenario `microfuge`, as a program.

#![allow(clippy::disallowed_methods, reason = "reads the files that it writes")]

use std::fmt::Write;
use std::path::Path;

use assert_cmd::Command;
use serde_json::{Value, json};

/// Arguments of a small simulation: 2,000 records for six simulated seconds.
const SMALL: [&str; 6] = ["--scenario", "microfuge", "--set", "records=2000", "--set", "seconds=2+4"];

fn sim(command: &str, flags: &[&str]) -> Command {
    let mut sherwood = Command::cargo_bin("sherwood").unwrap();
    sherwood.args(["sim", command]).args(SMALL).args(flags);
    sherwood
}

fn output(command: &mut Command) -> String {
    let output = command.assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

/// Returns the JSON document of a run without fields that depend on the machine.
fn document(flags: &[&str]) -> Value {
    let text = output(sim("run", &["--json"]).args(flags));
    let mut document: Value = serde_json::from_str(&text).unwrap();
    for field in ["wall_s", "queries_per_s"] {
        assert!(document.as_object_mut().unwrap().remove(field).unwrap().is_number());
    }
    document
}

#[test]
fn microfuge_runs_with_equal_seeds_print_equal_json() {
    let first = document(&["--policy", "sherwood"]);
    assert_eq!(first, document(&["--policy", "sherwood"]));
    assert_ne!(first, document(&["--policy", "sherwood", "--seed", "2"]));
    assert_eq!(first["by_deadline"].as_array().unwrap().len(), 18);
    assert_eq!(first["tenants"], json!([]));
    for field in ["deadline_miss_ratio", "rejection_ratio", "hit_ratio_overall"] {
        assert!((0.0..1.0).contains(&first[field].as_f64().unwrap()), "{field} of {first}");
    }
}

#[test]
fn microfuge_run_prints_text_and_writes_a_series() {
    let directory = tempfile::tempdir().unwrap();
    let series = directory.path().join("series.csv");
    let flags = ["--policy", "dlc+dls+ac", "--set", "tenants=2", "--series", series.to_str().unwrap()];
    let text = output(&mut sim("run", &flags));
    assert!(text.starts_with("microfuge under dlc+dls+ac, seed 1\n"), "{text}");
    assert!(text.contains("\nsteady ") && text.contains("\nbursting "), "{text}");
    let lines = std::fs::read_to_string(series).unwrap();
    let mut lines = lines.lines();
    let head = lines.next().unwrap();
    assert!(
        head.starts_with("second,deadline_miss_ratio,rejection_ratio,hit_ratio,beta,multiplier_0"),
        "{head}"
    );
    assert!(lines.next().unwrap().contains(",88,"));
    assert_eq!(lines.count(), 5, "a line for each of six seconds");
}

fn compare(results: &Path, flags: &[&str]) -> Command {
    let mut command = sim("compare", flags);
    command.args(["--results", results.to_str().unwrap()]);
    command
}

#[test]
fn comparison_sweeps_a_setting_keeps_its_runs_and_writes_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let (results, page) = (directory.path().join("results"), directory.path().join("page.html"));
    let flags = ["--policies", "dlc+dls+ac", "--set", "beta=50,95", "--seeds", "1,2"];
    let compared = |more: &[&str]| output(compare(&results, &flags).args(more));
    let mut first: Value = serde_json::from_str(&compared(&["--json"])).unwrap();
    first.as_object_mut().unwrap().remove("wall_s");
    assert_eq!((first["runs"].as_array().unwrap().len(), first["summary"].as_array().unwrap().len()), (4, 2));
    assert_eq!((&first["claims"], &first["isolation"]), (&json!([]), &json!([])));
    let mut again: Value = serde_json::from_str(&compared(&["--json"])).unwrap();
    again.as_object_mut().unwrap().remove("wall_s");
    assert_eq!(again, first);
    let text = compared(&["--report", page.to_str().unwrap()]);
    assert!(text.contains("beta=50") && text.contains("beta=95"), "{text}");
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["<h2>Totals</h2>", "<h2>Sweep of beta</h2>", "<svg"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("href=\"http") && !page.contains("src="), "the page needs no other file");
}

#[test]
fn comparison_of_two_tenants_has_the_steady_one_alone_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let (results, page) = (directory.path().join("results"), directory.path().join("page.html"));
    let flags = ["--policies", "memcached,sherwood", "--set", "tenants=2"];
    let mut command = compare(&results, &flags);
    let text = output(command.args(["--json", "--report", page.to_str().unwrap()]));
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 4);
    let isolation = document["isolation"].as_array().unwrap();
    assert_eq!(isolation.iter().map(|line| &line["policy"]).collect::<Vec<_>>(), ["memcached", "sherwood"]);
    for line in isolation {
        let failed = |tenant: &str| {
            let mean = |ratio: &str| line[tenant][ratio]["mean"].as_f64().unwrap();
            mean("miss_ratio") + mean("rejection_ratio")
        };
        let at_most = 1.5 * failed("alone") + 0.005;
        assert!((line["at_most"].as_f64().unwrap() - at_most).abs() < 1e-12);
        assert_eq!(line["holds"], json!(failed("steady") <= at_most));
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("A steady tenant beside one that bursts"));
    let text = output(&mut compare(&results, &flags));
    assert!(text.contains("steady tenant alone"), "{text}");
}

#[test]
fn frontier_of_microfuge_is_the_highest_rate_within_the_bounds() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = sim("frontier", &["--policies", "memcached,clairvoyant", "--seeds", "1", "--json"]);
    command.args(["--results", directory.path().to_str().unwrap()]);
    let found: Value = serde_json::from_str(&output(&mut command)).unwrap();
    let rates: Vec<_> = found.as_array().unwrap().iter().map(|one| one["rate"].as_f64().unwrap()).collect();
    assert!(rates[0] < rates[1], "{found}");
    assert!(found[1]["rejection_ratio"].as_f64().unwrap() <= 0.05, "{found}");
}

#[test]
fn invalid_use_of_microfuge_is_refused_with_the_remedy() {
    let mut said = String::new();
    for (command, flags) in [
        ("run", &["--policy", "lru"][..]),
        ("run", &["--policy", "robinhood"]),
        ("run", &["--policy", "memcached", "--set", "tax=1"]),
        ("run", &["--policy", "memcached", "--set", "tenants=3"]),
        ("run", &["--policy", "memcached", "--set", "clients=0"]),
        ("run", &["--policy", "memcached", "--set", "rate=-5"]),
        ("run", &["--policy", "sherwood", "--set", "target=0"]),
        ("run", &["--policy", "sherwood", "--set", "beta=100"]),
        ("run", &["--policy", "sherwood", "--set", "alpha=nan"]),
        ("run", &["--policy", "clairvoyant", "--set", "writes=0.1"]),
        ("run", &["--policy", "memcached", "--scale", "0.1"]),
        ("compare", &["--scenario", "none"]),
        ("compare", &["--set", "beta=50,60", "--set", "alpha=1,2"]),
        ("compare", &["--set", "tenants=2", "--set", "alpha=1,2"]),
        ("frontier", &["--set", "rate=100"]),
        ("frontier", &["--missed", "2"]),
        ("frontier", &["--violation", "0.1"]),
    ] {
        let output = sim(command, flags).assert().code(2);
        assert_eq!(output.get_output().stdout, b"", "refusals go to standard error");
        let words = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        let _ = writeln!(said, "{command} {}\n{words}", flags.join(" "));
    }
    insta::assert_snapshot!("refusals", said);
}
