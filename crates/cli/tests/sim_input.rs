//! Error messages of `sherwood sim` for invalid input, as snapshots: position, and what was
//! expected.
#![allow(clippy::disallowed_methods, reason = "writes files to refuse")]

use std::fmt::Write;
use std::path::Path;

use assert_cmd::Command;

const GOOD: &str = include_str!("../../../examples/two-backends.sim.json");

/// Returns the error of a run of `scenario`, which must be refused before the simulation starts.
fn refusal(directory: &Path, scenario: &str, flags: &[&str]) -> String {
    let mut command = Command::cargo_bin("sherwood").unwrap();
    command.current_dir(directory).args(["sim", "run", "--policy", "robinhood", "--scenario", scenario]);
    let output = command.args(flags).assert().code(2);
    let output = output.get_output();
    assert_eq!(output.stdout, b"", "refusals go to standard error");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn invalid_scenario_file_is_refused_with_position() {
    let changes = [
        ("a limit of a backend there is not", r#""limits": { "2""#, r#""limits": { "9""#),
        ("a limit of a backend by its name", r#""limits": { "2""#, r#""limits": { "reviews""#),
        ("a limit of a replica there is not", r#""limits": { "2""#, r#""limits": { "2/1""#),
        ("a limit of no replica", r#""limits": { "2""#, r#""limits": { "2/first""#),
        ("a limit of nothing", "[10, 0.5]", "[10, 0]"),
        ("a limit that is none", "[10, 0.5]", "[10, 1.5]"),
        ("limits out of order", "[10, 0.5]", "[35, 0.5]"),
        ("no limits", "[[0, 1], [10, 0.5], [30, 0.5], [40, 1]]", "[]"),
        ("a negative rate", r#""request_rate": 150"#, r#""request_rate": -150"#),
        ("probabilities that sum to 0.9", "[0.7, [[", "[0.6, [["),
        ("a negative probability", "[0.7, [[", "[-0.7, [["),
        ("more objects than a call may have", "[1, 24]", "[1, 240]"),
        ("a request to a backend there is not", "[1, 24]", "[3, 24]"),
        ("a comma that is missing", r#""max_batch": 100,"#, r#""max_batch": 100"#),
        ("a number no computer has", r#""timeout_ms": 2000"#, r#""timeout_ms": 2e999"#),
        ("a cache no computer has", "268435456", "268435456268435456268435456"),
        ("a cache of half a byte", "268435456", "0.5"),
        ("more servers than can be simulated", r#""app_servers": 2"#, r#""app_servers": 5000"#),
        ("a number that is text", r#""hit_latency_ms": 0.5"#, r#""hit_latency_ms": "0.5""#),
        ("a field of another name", r#""warmup_min""#, r#""warm_up_min""#),
        ("a profile without workers", r#""workers": { "shop": 8 }"#, r#""workers": {}"#),
        ("no replica", r#""workers": { "shop": 8 }"#, r#""workers": { "shop": 8 }, "replicas": 0"#),
        (
            "too many replicas",
            r#""workers": { "shop": 8 }"#,
            r#""workers": { "shop": 8 }, "replicas": { "shop": 65 }"#,
        ),
        (
            "replicas that are no number",
            r#""workers": { "shop": 8 }"#,
            r#""workers": { "shop": 8 }, "replicas": "two""#,
        ),
        (
            "a profile without replicas",
            r#""workers": { "shop": 8 }"#,
            r#""workers": { "shop": 8 }, "replicas": {}"#,
        ),
        ("a scenario that is over at once", r#""measure_min": 40"#, r#""measure_min": 0"#),
        ("a depth at a scale there is not", r#""warmup_min""#, r#""depth": { "full": 1.1 }, "warmup_min""#),
        ("a depth below none", r#""warmup_min""#, r#""depth": { "shop": -1 }, "warmup_min""#),
        ("a scenario of another kind", "piecewise_linear", "spikes"),
        ("two backends of one name", r#""name": "reviews""#, r#""name": "catalogue""#),
        ("a limit that is repeated", r#""limits": { "2""#, r#""limits": { "2": [[0, 1]], "2""#),
        (
            "two scenarios of one name",
            r#""scenarios": {"#,
            r#""scenarios": { "reviews-slow-down": { "warmup_min": 20, "measure_min": 40,
                "kind": "piecewise_linear", "limits": {} },"#,
        ),
        (
            "workers that are repeated",
            r#""workers": { "shop": 8 }"#,
            r#""workers": { "shop": 8, "shop": 9 }"#,
        ),
        ("another schema", "onerf-workload/1", "onerf-workload/2"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut said = String::new();
    let mut refuse = |what: &str, document: &[u8]| {
        std::fs::write(directory.path().join("wrong.json"), document).unwrap();
        let _ = write!(said, "{what}\n{}\n", refusal(directory.path(), "wrong.json", &[]));
    };
    for (what, good, wrong) in changes {
        assert!(GOOD.contains(good), "{what}: the example has no {good}");
        refuse(what, GOOD.replacen(good, wrong, 1).as_bytes());
    }
    let (before, _) = GOOD.split_once(r#""scenarios""#).unwrap();
    refuse("no scenario", format!(r#"{before}"scenarios": {{}}}}"#).as_bytes());
    refuse("half a file", before.as_bytes());
    refuse("an empty file", b"");
    refuse("no text", b"\xff\xfe{}");
    refuse("no text from the second line on", b"{\n  \"name\": \"caf\xe9\"}");
    insta::assert_snapshot!("scenario_files", said);
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let mut said = String::new();
    for setting in [
        "load=0",
        "load=-1",
        "load=1e9",
        "load=nan",
        "cache=0",
        "depth=-1",
        "servers=0",
        "servers=99999999999",
        "minutes=1+0",
        "minutes=-1+1",
        "minutes=1+1e400",
        "delta=0",
        "delta=1e30",
        "band=99-98",
        "tax=0.6",
        "ghost=2",
        "resize=-1",
        "walk=1.5",
    ] {
        let words = refusal(Path::new("."), "onerf-spikes", &["--set", setting]);
        let _ = write!(said, "{setting}\n{words}\n");
    }
    insta::assert_snapshot!("settings", said);
}
