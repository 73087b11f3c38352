//! Plans of replicated stores by the command line.

#![allow(clippy::disallowed_methods, reason = "writes service times to read")]

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::NamedTempFile;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// 98% of the accesses take 1 to 3 ms, the others up to 40 ms.
const TIMES: &str = "latency_ms,cumulative\n1,0\n3,0.98\n40,1\n";

fn slo(input: &Path, options: &str) -> Command {
    let mut command = Command::cargo_bin("sherwood").unwrap();
    command.args(["plan", "slo", "--cdf"]).arg(input).args(options.split_whitespace());
    command
}

fn times(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    file
}

fn text(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn json(options: &str) -> Value {
    let input = times(TIMES);
    serde_json::from_str(&text(slo(input.path(), options).arg("--json"))).unwrap()
}

#[test]
fn plans_as_json_have_every_field_and_begin_with_the_best() {
    let report = json("--rate 400 --bound 12ms --percentile 99.5 --nodes 4 --idle-cost 0.5");
    let plans = report["plans"].as_array().unwrap();
    assert_eq!(report["best"], plans[0]);
    let fields =
        ["asked", "cost", "duplicates", "extra_load_ratio", "hedge_ms", "meets", "nodes", "partitions"];
    let has: Vec<_> = plans[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(has, [&fields[..], &["service_level", "utilisation"]].concat());
    let levels: Vec<f64> = plans.iter().map(|plan| plan["service_level"].as_f64().unwrap()).collect();
    assert!(levels.is_sorted_by(|a, b| a >= b) && levels.iter().all(|level| (0.0..=1.0).contains(level)));
    // Three duplicates leave one of four nodes idle.
    let of_three = plans.iter().find(|plan| plan["duplicates"] == 3).unwrap();
    assert_eq!((&of_three["nodes"], &of_three["cost"]), (&Value::from(3), &Value::from(3.5)));
}

#[test]
fn best_level_never_falls_with_more_nodes() {
    let level = |nodes: u32| {
        let report = json(&format!("--rate 900 --bound 12ms --percentile 99.9 --nodes {nodes}"));
        report["best"]["service_level"].as_f64().unwrap()
    };
    let levels: Vec<f64> = (1..=16).map(level).collect();
    assert!(levels.is_sorted(), "{levels:?}");
    assert_eq!((levels[0], levels[15] > 0.99), (0.0, true), "{levels:?}");
}

#[test]
fn objective_that_no_plan_meets_is_said_with_the_reason() {
    let input = times(TIMES);
    let of = |options: &str| text(&mut slo(input.path(), options));
    let overloaded = of("--rate 9000 --bound 12ms --percentile 99 --nodes 4");
    assert!(
        overloaded.contains("no plan can follow 9000 accesses a second of 2.390 ms each"),
        "{overloaded}"
    );
    let short = of("--rate 1 --bound 500us --percentile 99 --find-cheapest");
    assert!(short.contains("no number of nodes has 99% of the requests within 0.5 ms"), "{short}");
}

#[test]
fn inputs_that_make_no_sense_are_refused_with_the_bound() {
    let refusal = |input: &str, options: &str| {
        let refused = slo(times(input).path(), options).assert().code(2);
        String::from_utf8(refused.get_output().stderr.clone()).unwrap()
    };
    let options = "--rate 9 --bound 12ms --percentile 99 --nodes 4";
    for (input, reason) in [
        ("", "there are no points"),
        ("1,0.5\n2,0.4\n", "point 2 is (2, 0.4), not later"),
        ("1,0.5\n2,0.9\n", "the last share is 0.9; it has to be 1"),
        ("1,NaN\n", "shares 0 to 1"),
        ("1;0.5\n", "line 1 is \"1;0.5\""),
    ] {
        assert!(refusal(input, options).contains(reason), "{}", refusal(input, options));
    }
    for (changed, reason) in [
        ("--rate 9 --bound 12ms --percentile 100 --nodes 4", "100 is not above 0 and below 100"),
        ("--rate NaN --bound 12ms --percentile 99 --nodes 4", "NaN is not above 0"),
        ("--rate 9 --bound 12ms --percentile 99 --nodes 0", "0 is not in 1..=100000"),
        ("--rate 9 --bound 12ms --percentile 99", "--nodes <N>"),
    ] {
        assert!(refusal(TIMES, changed).contains(reason), "{}", refusal(TIMES, changed));
    }
}

#[test]
fn documented_example_shows_what_the_command_prints() {
    let page = fs::read_to_string(PathBuf::from(ROOT).join("docs/src/planning.md")).unwrap();
    let (_, rest) = page.split_once("```console\n$ sherwood plan slo --cdf ").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let (command, shown) = example.split_once('\n').expect("its output");
    let (file, options) = command.split_once(' ').expect("options");
    assert_eq!(text(&mut slo(&Path::new(ROOT).join(file), options)), shown);
}
