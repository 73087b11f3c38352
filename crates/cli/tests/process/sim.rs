//! Simulations that somebody stops.

use std::fs;
use std::path::Path;

use assert_cmd::Command;

use crate::support::{PATIENCE, Program};

/// A system of somebody's own, with a scenario that is over at once and one that is over in two years.
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
        [("brief", 0.1), ("short", 0.1), ("endless", 1e6)].map(|(name, min)| scenario(name, min)).join(", ");
    let path = directory.join("two.json");
    fs::write(&path, format!(r#"{before}"scenarios": {{ {more}, {after}"#)).unwrap();
    path.display().to_string()
}

#[test]
fn a_run_that_is_stopped_says_how_far_it_came_and_shows_no_result() {
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
fn a_comparison_that_is_stopped_keeps_what_was_finished_and_goes_on_with_it() {
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
    comparison.hear(|line| line.starts_with("short robinhood seed 1: "));
    comparison.signal(libc::SIGINT);
    let (status, said) = comparison.end();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("stopped with 1 of 2 runs finished; they are kept in "), "{said}");
    let kept = || fs::read_dir(&results).unwrap().count();
    assert_eq!(kept(), 1, "nothing is left of what was not finished");

    let output =
        Command::cargo_bin("sherwood").unwrap().args(compare(&["brief", "short"])).timeout(PATIENCE).assert();
    let output = output.success();
    let said = String::from_utf8_lossy(&output.get_output().stderr);
    assert!(said.contains("1 of 2 runs are kept in ") && said.contains("1 of 1 finished"), "{said}");
    assert_eq!(kept(), 2);
}
