//! `sherwood sim` with sPARE's scenarios, as a program.

#![allow(clippy::disallowed_methods, reason = "reads the files that it writes")]

use assert_cmd::Command;
use serde_json::Value;

fn sim(command: &str, flags: &[&str]) -> Command {
    let mut sherwood = Command::cargo_bin("sherwood").unwrap();
    sherwood.args(["sim", command, "--set", "seconds=5+25"]).args(flags);
    sherwood
}

fn output(command: &mut Command) -> String {
    let output = command.assert().success();
    String::from_utf8(output.get_output().stdout.clone()).unwrap()
}

/// Runs a command that keeps its runs in a directory, without those of others, and returns what it
/// prints.
fn kept(command: &str, policies: &str, flags: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = sim(command, flags);
    output(command.args(["--policies", policies, "--results", directory.path().to_str().unwrap()]))
}

#[test]
fn spare_runs_with_equal_seeds_print_equal_json_with_the_promised_fields() {
    let document = |seed: &str| {
        let flags = ["--scenario", "spare-solr", "--policy", "none", "--json", "--seed", seed];
        let mut document: Value = serde_json::from_str(&output(&mut sim("run", &flags))).unwrap();
        for field in ["wall_s", "queries_per_s"] {
            assert!(document.as_object_mut().unwrap().remove(field).unwrap().is_number());
        }
        document
    };
    let first = document("1");
    assert_eq!(first, document("1"));
    assert_ne!(first, document("2"));
    for field in ["page_mean_ms", "page_p95_ms", "page_p99_ms", "query_mean_ms", "query_p95_ms"] {
        assert!(first[field].as_f64().unwrap() > 1.0, "{field} of {first}");
    }
    assert_eq!((&first["factors"], &first["tries"]), (&serde_json::json!([1, 1]), &serde_json::json!(0)));
    assert_eq!(first["extra_load_ratio"].as_f64(), Some(0.0));
}

#[test]
fn spare_run_prints_text_and_writes_a_series() {
    let directory = tempfile::tempdir().unwrap();
    let series = directory.path().join("series.csv");
    let flags = ["--scenario", "spare-mediawiki", "--policy", "quiet", "--series", series.to_str().unwrap()];
    let text = output(&mut sim("run", &flags));
    assert!(text.starts_with("spare-mediawiki under quiet, seed 1\n"), "{text}");
    let lines = std::fs::read_to_string(series).unwrap();
    assert!(lines.starts_with("second,page_mean_ms,query_mean_ms,page_copies,query_copies\n10,"), "{lines}");
    assert_eq!(lines.lines().count(), 4, "a line for each ten seconds");
}

#[test]
fn comparison_of_spare_scenarios_has_a_line_for_each_policy_and_value() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let flags = ["--scenario", "spare-solr,spare-mediawiki", "--set", "pattern=1,2", "--json", "--report"];
    let text = kept("compare", "none,quiet", &[&flags[..], &[page.to_str().unwrap()]].concat());
    let document: Value = serde_json::from_str(&text).unwrap();
    let summary = document["summary"].as_array().unwrap();
    assert_eq!((summary.len(), document["runs"].as_array().unwrap().len()), (8, 8));
    assert!(summary[0]["page_p99_ms"]["mean"].as_f64() > summary[1]["page_p99_ms"]["mean"].as_f64());
    assert!(std::fs::read_to_string(page).unwrap().contains("<h2>spare-mediawiki</h2>"));
}

#[test]
fn comparison_of_searched_copies_has_a_table_of_them_and_figures() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    let flags = ["--scenario", "spare-solr", "--set", "window=10", "--report", page.to_str().unwrap()];
    let text = kept("compare", "none,spare-tad,exhaustive", &flags);
    let found = text.split("copies found").nth(1).expect("a table of the copies");
    assert!(found.contains("spare-tad") && found.contains("exhaustive") && !found.contains("none"), "{text}");
    let page = std::fs::read_to_string(page).unwrap();
    for title in ["Pages: factor of improvement", "Queries: factor of improvement", "P99 of pages against"] {
        assert!(page.contains(title), "{title}");
    }
}

#[test]
fn copies_of_both_tiers_are_one_value_of_a_comparison() {
    let flags = ["--scenario", "spare-solr", "--set", "r=1,2", "--set", "lookups=1,0", "--json"];
    let document: Value = serde_json::from_str(&kept("compare", "spare-tad", &flags)).unwrap();
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run["factors"] == serde_json::json!([1, 2])), "{runs:?}");
}

#[test]
fn frontier_of_a_spare_scenario_is_the_highest_rate_within_the_bound() {
    let flags = ["--scenario", "spare-solr", "--seeds", "1", "--p99-over-quiet", "1.5", "--json"];
    let found: Value = serde_json::from_str(&kept("frontier", "none,quiet", &flags)).unwrap();
    let rate = |index: usize| found[index]["rate"].as_f64();
    assert_eq!(
        (rate(0), &found[1]["policy"]),
        (None, &serde_json::json!("quiet")),
        "neighbours are always there"
    );
    // The second tier could serve 3,200 pages a second; random servers take a part of that.
    assert!(rate(1).is_some_and(|rate| (1_000.0..2_000.0).contains(&rate)), "{found}");
}

#[test]
fn invalid_use_of_spare_scenarios_is_refused_with_the_remedy() {
    let solr = ["--scenario", "spare-solr"];
    for (command, flags, words) in [
        (
            "run",
            &["--policy", "robinhood"][..],
            "sPARE have no policy \"robinhood\"; choose one of none, quiet",
        ),
        ("run", &["--policy", "none", "--set", "rate=0"], "rate = 0: the accepted range is 0.001 to 10000"),
        ("run", &["--policy", "none", "--set", "servers=8"], "it takes N+N, servers of the first and"),
        ("run", &["--policy", "none", "--scale", "1"], "--set servers=N+N and --set rate=RATE"),
        ("compare", &["--scenario", "microfuge"], "simulate it in a command of its own"),
        ("compare", &["--scenario", "none"], "simulate them in a command of their own"),
        ("run", &["--policy", "spare-tad", "--set", "r=2,9"], "r = 9: the accepted range is 1 to 8"),
        ("run", &["--policy", "spare-tad", "--set", "tokens=0+1"], "tokens = 0: the accepted range is 1"),
        ("run", &["--policy", "spare-tad", "--set", "arbiters=tad+lru"], "it takes tad|rr+tad|rr"),
        ("frontier", &["--set", "rate=5"], "frontier looks for the rate by itself"),
        ("frontier", &["--missed", "0.1"], "scenarios of sPARE have --p99-over-quiet"),
        ("frontier", &["--p99-over-quiet", "0.5"], "the accepted range is 1 to 1000"),
        ("frontier", &["--set", "seconds=0+0.001"], "no page of quiet ends in the run"),
        ("compare", &["--plots", "plots"], "there are none of sPARE; use --report"),
    ] {
        let output = sim(command, &solr).args(flags).assert().code(2);
        let said = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        assert!(said.contains(words), "{flags:?}: {said}");
    }
}
