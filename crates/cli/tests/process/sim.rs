//! Simulations that are interrupted.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use assert_cmd::Command;

use crate::support::{Program, TIMEOUT};

/// Writes a system with a scenario that ends at once and one that lasts a year.
fn scenarios(directory: &Path) -> String {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/two-backends.sim.json");
    let document = fs::read_to_string(example).unwrap();
    let (before, after) = document.split_once(r#""scenarios": {"#).unwrap();
    let scenario = |name: &str, minutes: f64| {
        format!(
            r#""{name}": {{ "warmup_min": 0, "measure_min": {minutes}, "kind": "piecewise_linear", "limits": {{}} }}"#
        )
    };
    let more =
        [("brief", 0.1), ("short", 0.1), ("endless", 5e5)].map(|(name, min)| scenario(name, min)).join(", ");
    let path = directory.join("two.json");
    fs::write(&path, format!(r#"{before}"scenarios": {{ {more}, {after}"#)).unwrap();
    path.display().to_string()
}

#[test]
fn interrupted_run_reports_progress_and_no_result() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenarios(directory.path());
    let series = directory.path().join("series.csv");
    for policy in ["robinhood", "tao"] {
        let run = Program::start(&[
            "sim",
            "run",
            "--scenario",
            &format!("{file}#endless"),
            "--policy",
            policy,
            "--series",
            series.to_str().unwrap(),
        ]);
        run.catches(libc::SIGINT);
        run.signal(libc::SIGINT);
        let (status, said) = run.end();
        assert_eq!(status.code(), Some(130), "{said}");
        assert!(said.starts_with("sherwood: stopped ") && said.ends_with("there is no result\n"), "{said}");
        assert!(!series.exists(), "half a series looks like a whole one");
    }
}

#[test]
fn interrupted_comparison_resumes_from_finished_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenarios(directory.path());
    let results = directory.path().join("results");
    let compare = |scenarios: &[&str]| {
        let scenarios: Vec<_> = scenarios.iter().map(|name| format!("{file}#{name}")).collect();
        let flags = ["sim", "compare", "--policies", "robinhood", "--results", results.to_str().unwrap()];
        [&flags.map(str::to_owned)[..], &["--scenario".to_owned(), scenarios.join(",")]].concat()
    };
    let mut args = compare(&["endless", "short"]);
    args.extend(["--threads", "2"].map(str::to_owned));
    let mut comparison = Program::start(&args.iter().map(String::as_str).collect::<Vec<_>>());
    comparison.read_until(|line| line.starts_with("short robinhood seed 1: "));
    comparison.signal(libc::SIGINT);
    let (status, said) = comparison.end();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("stopped with 1 of 2 runs finished; they are kept in "), "{said}");
    let kept = || fs::read_dir(&results).unwrap().count();
    assert_eq!(kept(), 1, "nothing is left of what was not finished");

    let output =
        Command::cargo_bin("sherwood").unwrap().args(compare(&["brief", "short"])).timeout(TIMEOUT).assert();
    let output = output.success();
    let said = String::from_utf8_lossy(&output.get_output().stderr);
    assert!(said.contains("1 of 2 runs are kept in ") && said.contains("1 of 1 finished"), "{said}");
    assert_eq!(kept(), 2);
}

#[test]
fn interrupted_ablation_resumes_from_finished_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenarios(directory.path());
    let results = directory.path().join("results");
    let ablate = |scenarios: &[&str]| {
        let scenarios: Vec<_> = scenarios.iter().map(|name| format!("{file}#{name}")).collect();
        let (results, scenarios) = (results.display().to_string(), scenarios.join(","));
        let flags =
            ["--change", "unfilled", "--threads", "3", "--results", &results, "--scenario", &scenarios];
        ["sim", "ablate"].into_iter().chain(flags).map(str::to_owned).collect::<Vec<_>>()
    };
    let args = ablate(&["endless", "short"]);
    let mut ablation = Program::start(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let heard = Cell::new(0);
    ablation.read_until(|line| {
        heard.set(heard.get() + u32::from(line.starts_with("short ")));
        heard.get() == 2
    });
    ablation.signal(libc::SIGINT);
    let (status, said) = ablation.end();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("stopped with 2 of 4 runs finished; they are kept in "), "{said}");

    let args = ablate(&["brief", "short"]);
    let output = Command::cargo_bin("sherwood").unwrap().args(args).timeout(TIMEOUT).assert().success();
    let said = String::from_utf8_lossy(&output.get_output().stderr);
    assert!(said.contains("2 of 4 runs are kept in ") && said.contains("2 of 2 finished"), "{said}");
}

/// A service in which every call takes 20 ms, or 40 ms in its scenario, which lasts two years. It
/// violates an SLO of 30 ms with its first observation whatever its caches and load, and meets it
/// for long where limits are a third as deep.
const SERVICE: &str = r#"{
    "schema": "onerf-workload/1", "name": "service", "timeout_ms": 10000, "hit_latency_ms": 0.5, "max_batch": 10,
    "slo": {"percentile": 99, "limit_ms": 30, "window_s": 60, "every_s": 5}, "empty_request_fraction": 0,
    "profiles": {"small": {"app_servers": 1, "request_rate": 4, "cache_bytes_per_server": 1048576,
        "alloc_granularity_bytes": 1, "alloc_floor_bytes": 0, "verified": false}},
    "backends": [{"id": 1, "name": "b01", "kind": "kv", "objects": {"small": 500}, "zipf_alpha": 0.8, "unique_fraction": 1,
        "size": {"dist": "lognormal", "mean_bytes": 1000, "ln_mu": 6.907755, "ln_sigma": 0, "min": 1000, "max": 1000},
        "service": {"base_ms": 20, "per_item_ms": 0, "cv": 0, "workers": {"small": 1000}}}],
    "request_types": [[1.0, [[1, 1]]]],
    "scenarios": {"halved": {"warmup_min": 0, "measure_min": 1e6, "kind": "piecewise_linear", "limits": {"1": [[0, 0.5]]}}}
}"#;

#[test]
fn interrupted_search_reports_results_and_keeps_verdicts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("service.json");
    fs::write(&file, SERVICE).unwrap();
    let results = directory.path().join("results");
    let search = |policies: &str, awaited: usize| {
        let flags = ["--violation", "0", "--seeds", "1", "--threads", "2", "--policies", policies];
        let paths = ["--scenario", file.to_str().unwrap(), "--results", results.to_str().unwrap()];
        let mut search = Program::start(&[&["sim", "frontier"], &flags[..], &paths].concat());
        let heard = Cell::new(0);
        search.read_until(|line| {
            heard.set(heard.get() + usize::from(line.contains(": broken, ")));
            heard.get() == awaited
        });
        search.signal(libc::SIGINT);
        let (status, said) = search.end();
        assert_eq!(status.code(), Some(130), "{said}");
        said
    };
    // The SLO is violated at depths of 1 and 0.68, and a thread tries 0.31; the others finish the
    // remaining six runs.
    let said = search("robinhood", 8);
    assert!(
        said.contains("stopped with 2 of 3 searches finished")
            && said.contains("robinhood cache: > 15.37")
            && said.contains("robinhood load: < 0.06507"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&results).unwrap().count(), 8, "nothing is left of what was not finished");
    // A fast thread may be at the second policy's runs while another still reads results of the
    // first, so the number of results read by then varies. None of those runs is repeated.
    let said = search("robinhood,shared-lru", 2);
    assert!(said.contains(" of 6 searches finished"), "{said}");
    assert!(
        !said.lines().any(|line| line.contains("robinhood") && line.contains(" observations violated")),
        "{said}"
    );
    assert!(fs::read_dir(&results).unwrap().count() >= 10, "{said}");
}
