//! `sherwood sim frontier` and `sherwood sim ablate` as programs.
#![allow(clippy::disallowed_methods, reason = "writes a scenario to read")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};

/// Writes a service in which every call takes 20 ms, or 40 ms in the scenario `halved`, without
/// queueing or hits. It meets an SLO of 150 ms while 0.5 + 20 (1 + depth) does: up to a depth of
/// 6.475, independent of caches and load.
fn service(directory: &Path, limit_ms: f64) -> PathBuf {
    let service = json!({
        "schema": "onerf-workload/1", "name": "service", "slo": {"percentile": 99, "limit_ms": limit_ms, "window_s": 60, "every_s": 5},
        "timeout_ms": 10_000, "hit_latency_ms": 0.5, "max_batch": 10, "empty_request_fraction": 0,
        "profiles": {"small": {"app_servers": 1, "request_rate": 4, "cache_bytes_per_server": 1 << 20,
            "alloc_granularity_bytes": 1, "alloc_floor_bytes": 0, "verified": false}},
        "backends": [{"id": 1, "name": "b01", "kind": "kv", "objects": {"small": 500}, "zipf_alpha": 0.8, "unique_fraction": 1,
            "size": {"dist": "lognormal", "mean_bytes": 1000, "ln_mu": 6.907_755, "ln_sigma": 0, "min": 1000, "max": 1000},
            "service": {"base_ms": 20, "per_item_ms": 0, "cv": 0, "workers": {"small": 1_000}}}],
        "request_types": [[1.0, [[1, 1]]]],
        "scenarios": {"halved": {"warmup_min": 0, "measure_min": 0.5, "kind": "piecewise_linear", "limits": {"1": [[0, 0.5]]}}},
    });
    let path = directory.join("service.json");
    std::fs::write(&path, service.to_string()).unwrap();
    path
}

/// Writes the service of [`service`] with a trace of this many accesses, replayed four times a
/// second for half a minute.
fn traced(directory: &Path, accesses: u32, odd: &[u8]) -> PathBuf {
    let service = json!({
        "schema": "onerf-workload/1", "name": "traced", "slo": {"percentile": 99, "limit_ms": 150, "window_s": 60, "every_s": 5},
        "timeout_ms": 10_000, "hit_latency_ms": 0.5,
        "profiles": {"small": {"app_servers": 1, "request_rate": 4, "cache_bytes_per_server": 1 << 20,
            "alloc_granularity_bytes": 1, "alloc_floor_bytes": 0}},
        "backends": [{"id": 1, "name": "b01",
            "service": {"base_ms": 20, "per_item_ms": 0, "cv": 0, "workers": {"small": 1_000}}}],
        "trace": {"file": "accesses", "format": "cache2k", "value_bytes": 500},
        "scenarios": {"halved": {"warmup_min": 0, "measure_min": 0.5, "kind": "piecewise_linear", "limits": {"1": [[0, 0.5]]}}},
    });
    // No key occurs twice, so there are no hits.
    let words = (0..accesses).flat_map(u32::to_be_bytes);
    std::fs::write(directory.join("accesses"), words.chain(odd.iter().copied()).collect::<Vec<_>>()).unwrap();
    let path = directory.join("traced.json");
    std::fs::write(&path, service.to_string()).unwrap();
    path
}

fn frontier(directory: &Path, service: &Path, flags: &[&str]) -> Command {
    let mut command = Command::cargo_bin("sherwood").unwrap();
    command.args(["sim", "frontier", "--policies", "robinhood,shared-lru", "--threads", "2"]);
    command.arg("--scenario").arg(service).arg("--results").arg(directory.join("results")).args(flags);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn frontier_finds_limits_and_keeps_the_tried_runs() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), 150.0);
    let output = frontier(directory.path(), &service, &["--json"]).assert().success();
    let found: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let seeds = |kept: f64, broken: Option<f64>| {
        Value::from([1, 2, 3].map(|seed| json!({"seed": seed, "kept": kept, "broken": broken})).to_vec())
    };
    let line = |policy: &str| {
        let (depth, cache, load) = (seeds(6.385, Some(6.705)), seeds(0.06507, None), seeds(15.37, None));
        json!({
            "policy": policy, "limit_depth": 6.385, "cache_ratio": 0.06507, "load_ratio": 15.37,
            "brackets": {"limit_depth": depth, "cache_ratio": cache, "load_ratio": load},
        })
    };
    assert_eq!(found, json!([line("robinhood"), line("shared-lru")]));
    let told = text(&output.get_output().stderr);
    assert!(
        told.contains("halved robinhood seed 1 depth=15.37: broken, 1 of 1 observations violated"),
        "{told}"
    );

    let plot = directory.path().join("plot.svg");
    let output = frontier(directory.path(), &service, &["--plot", plot.to_str().unwrap()]).assert().success();
    let told = text(&output.get_output().stderr);
    assert!(told.starts_with("46 verdicts were kept from before\n") && told.lines().count() == 1, "{told}");
    let table = text(&output.get_output().stdout);
    assert!(
        table.starts_with(
            "halved at scale 0.01, seeds 1, 2, 3: at most 0.3% of the observations above 150 ms, 0 of 6"
        ),
        "{table}"
    );
    let line = "\nrobinhood              6.385 .. 6.705         <= 0.06507           >= 15.37\n";
    assert!(table.contains(line), "{table}");
    let plot = std::fs::read_to_string(plot).unwrap();
    assert_eq!((plot.matches("<circle").count(), plot.ends_with("</svg>\n")), (6, true), "{plot}");
}

#[test]
fn frontier_of_an_slo_that_is_never_met_has_no_limits() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), 10.0);
    let flags = ["--seeds", "5"];
    let output = frontier(directory.path(), &service, &flags).args(["--json"]).assert().success();
    let found: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let none = ["limit_depth", "cache_ratio", "load_ratio"].map(|field| found[0][field].is_null());
    assert_eq!((none, found[0]["brackets"]["load_ratio"][0]["broken"].as_f64()), ([true; 3], Some(0.06507)));
    let output = frontier(directory.path(), &service, &flags).assert().success();
    let table = text(&output.get_output().stdout);
    assert!(
        table.contains("\nshared-lru                  < 0.06507            > 15.37          < 0.06507\n"),
        "{table}"
    );
}

#[test]
fn unchanged_conditions_of_a_frontier_follow_the_settings() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), 150.0);
    let flags = ["--seeds", "1", "--set", "depth=10", "--json"];
    let output = frontier(directory.path(), &service, &flags).assert().success();
    let found: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let depth = found[0]["limit_depth"].as_f64().unwrap();
    assert!((6.475 / 1.05..=6.475).contains(&depth), "{depth}");
    assert!(found[0]["cache_ratio"].is_null(), "no cache helps at this depth: {found}");
}

#[test]
fn trace_that_ends_early_affects_the_search_for_the_highest_load_only() {
    let directory = tempfile::tempdir().unwrap();
    let traced = traced(directory.path(), 300, &[]);
    let flags = ["--policies", "tao", "--seeds", "1,2"];
    let output = frontier(directory.path(), &traced, &flags).args(["--json"]).assert().success();
    let told = text(&output.get_output().stderr);
    let ended = "load=3.225: no verdict, the trace ";
    assert!(
        told.contains(ended) && told.contains(" simulated minutes of 0.50: give the scenario less time"),
        "{told}"
    );
    let found: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let found = &found[2];
    assert_eq!(found["policy"], "tao");
    assert_eq!((found["limit_depth"].as_f64(), found["cache_ratio"].as_f64()), (Some(6.385), Some(0.065_07)));
    // About 120 requests are needed, and the trace has 300.
    let load = found["load_ratio"].as_f64().unwrap();
    assert!((1.9..3.2).contains(&load), "{load}");
    for seed in found["brackets"]["load_ratio"].as_array().unwrap() {
        let (kept, unjudged) = (seed["kept"].as_f64().unwrap(), seed["unjudged"].as_f64().unwrap());
        assert!(seed["broken"].is_null() && (1.04..1.06).contains(&(unjudged / kept)), "{seed}");
    }
    let output = frontier(directory.path(), &traced, &flags).assert().success();
    let told = text(&output.get_output().stderr);
    assert!(told.ends_with(" verdicts were kept from before\n") && told.lines().count() == 1, "{told}");
    let table = text(&output.get_output().stdout);
    assert!(table.contains(" .. ?\n") && table.contains("\n?: the trace ends before"), "{table}");
}

#[test]
fn unreadable_trace_fails_and_names_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let traced = traced(directory.path(), 300, &[1, 2, 3]);
    let output = frontier(directory.path(), &traced, &["--seeds", "7"]).assert().code(1);
    let told = text(&output.get_output().stderr);
    let run = "sherwood: the run of halved under ";
    let settings = " with seed 7 at scale 0.01, settings load=3.225: ";
    assert!(told.contains(run) && told.contains(settings) && told.contains("at byte 1200"), "{told}");

    for command in ["compare", "ablate"] {
        let mut sherwood = Command::cargo_bin("sherwood").unwrap();
        sherwood.args([
            "sim",
            command,
            "--seeds",
            "7",
            "--set",
            "load=5",
            "--set",
            "minutes=0+2",
            "--scenario",
        ]);
        let output =
            sherwood.arg(&traced).arg("--results").arg(directory.path().join("results")).assert().code(1);
        let told = text(&output.get_output().stderr);
        let run = "sherwood: the run of halved under ";
        let settings = " with seed 7 at scale 0.01, settings load=5 minutes=0+2";
        assert!(told.contains(run) && told.contains(settings) && told.contains("at byte 1200"), "{told}");
    }
}

#[test]
fn frontier_of_a_sample_of_the_keys_equals_that_of_all_keys() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), 150.0);
    let flags = ["--seeds", "1", "--sample", "1/2", "--json"];
    let output = frontier(directory.path(), &service, &flags).assert().success();
    let found: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(found[0]["limit_depth"].as_f64(), Some(6.385));
    let again = frontier(directory.path(), &service, &flags[..2]).args(["--json"]).assert().success();
    let told = text(&again.get_output().stderr);
    assert!(!told.contains("kept from before"), "all keys are another system: {told}");
}

#[test]
fn frontier_verdicts_are_independent_of_the_number_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    let find = |name: &str, flags: &[&str]| {
        let mut command = Command::cargo_bin("sherwood").unwrap();
        command.args([
            "sim",
            "frontier",
            "--scenario",
            "ramp-7-quick",
            "--policies",
            "robinhood,tao",
            "--seeds",
            "1",
        ]);
        command.args([
            "--set",
            "minutes=0.05+0.42",
            "--set",
            "load=0.02",
            "--set",
            "cache=0.02",
            "--violation",
            "0",
        ]);
        command.args(flags).arg("--results").arg(directory.path().join(name)).assert().success();
        let files = std::fs::read_dir(directory.path().join(name)).unwrap().map(|file| file.unwrap());
        let mut kept: Vec<_> =
            files.map(|file| (file.file_name(), std::fs::read_to_string(file.path()).unwrap())).collect();
        kept.sort();
        kept
    };
    let one = find("one", &["--threads", "1"]);
    assert!(one.iter().any(|(name, _)| name.to_string_lossy().starts_with("sizes_")), "{one:?}");
    assert_eq!(find("three", &["--threads", "3"]), one);
}

#[test]
fn frontier_search_with_invalid_options_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), 150.0);
    let refused = |flags: &[&str], words: &str| {
        let output = frontier(directory.path(), &service, flags).assert().code(2);
        let told = text(&output.get_output().stderr);
        assert!(told.contains(words), "{flags:?}: {told}");
    };
    refused(&["--violation", "2"], "--violation 2: it is a share of the observations");
    refused(&["--violation", "1"], "the accepted range is 0 up to");
    refused(&["--policies", "robin"], "invalid value 'robin'");
    refused(&["--set", "depth=0"], "nothing that could be made harder");
    refused(&["--set", "load=100"], "load=1537: cannot simulate with load = ");
    refused(&["--set", "minutes=0+0.05"], "no observation of the SLO falls into the measurement");
    refused(&["--seeds", ""], "invalid value ''");
}

#[test]
fn ablation_compares_changes_with_robinhood_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path(), 150.0);
    let page = directory.path().join("page.html");
    let ablate = |flags: &[&str]| {
        let mut command = Command::cargo_bin("sherwood").unwrap();
        command.args(["sim", "ablate", "--change", "unfilled,stale", "--seeds", "1,2"]);
        command
            .arg("--scenario")
            .arg(&service)
            .arg("--results")
            .arg(directory.path().join("results"))
            .args(flags);
        command.assert()
    };
    let output = ablate(&["--report", page.to_str().unwrap()]).success();
    let told = text(&output.get_output().stderr);
    assert!(
        told.contains("halved stale=60 seed 2: 0.00% violations") && told.contains("10 of 10 finished"),
        "{told}"
    );
    let table = text(&output.get_output().stdout);
    assert!(table.starts_with("halved ") && table.contains("\n  unchanged "), "{table}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<td class=\"word\">unfilled=off</td>") && page.ends_with("</html>\n"), "{page}");

    let output = ablate(&["--json"]).success();
    assert!(output.get_output().stderr.is_empty(), "nothing was left to do");
    let document: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let changes: Vec<_> = document["rows"].as_array().unwrap().iter().map(|row| &row["change"]).collect();
    assert_eq!(changes, ["unchanged", "unfilled=off", "stale=3", "stale=15", "stale=60"]);
    let row = &document["rows"][1];
    // Limits halve the service: 0.5 + 40 ms with every policy.
    assert!((row["p99_max_ms"]["mean"].as_f64().unwrap() - 40.5).abs() < 0.4, "{row}");
    assert_eq!(
        (row["p99_max_ms_more"]["mean"].as_f64(), row["policy"].as_str()),
        (Some(0.0), Some("robinhood"))
    );
    ablate(&["--change", "windows"]).code(2);
}

#[test]
fn ablation_applies_changes_to_traces_and_samples() {
    let directory = tempfile::tempdir().unwrap();
    let sampled: [&str; 2] = ["--sample", "1/2"];
    for (scenario, flags) in
        [(traced(directory.path(), 300, &[]), &[][..]), (service(directory.path(), 150.0), &sampled)]
    {
        let mut command = Command::cargo_bin("sherwood").unwrap();
        command.args(["sim", "ablate", "--change", "unfilled", "--json", "--scenario"]).arg(scenario);
        let output =
            command.args(flags).arg("--results").arg(directory.path().join("results")).assert().success();
        let document: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
        let settings: Vec<_> =
            document["settings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(settings, if flags.is_empty() { vec![] } else { vec!["sample=1/2"] });
        for row in document["rows"].as_array().unwrap() {
            assert!((row["p99_max_ms"]["mean"].as_f64().unwrap() - 40.5).abs() < 0.4, "{row}");
        }
    }
}
