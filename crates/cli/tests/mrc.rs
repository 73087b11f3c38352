//! Output of `sherwood mrc` as text, JSON and pictures.

#![allow(clippy::disallowed_methods, reason = "writes traces to read")]

use assert_cmd::Command;
use serde_json::Value;

/// Trace of 200 requests of RobinHood's test bed, three objects each.
const ROBINHOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workload/data/robinhood/trace-200.json");
/// Trace of 95,607 accesses to web pages, xz-packed.
const WEB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../workload/data/cache2k/web12.trace.xz");

fn mrc(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("sherwood").unwrap();
    command.arg("mrc").args(arguments);
    command
}

fn stdout(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn refusal(command: &mut Command, status: i32) -> String {
    String::from_utf8(command.assert().code(status).get_output().stderr.clone()).unwrap()
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&stdout(command)).unwrap()
}

#[test]
fn miss_ratio_curve_as_json_matches_its_snapshot() {
    insta::assert_snapshot!(stdout(&mut mrc(&[ROBINHOOD, "--json"])));
}

#[test]
fn miss_ratio_curve_as_table_and_picture_matches_its_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = folder.path().join("curve.svg");
    let table = stdout(
        mrc(&["trace-200.json", "--weigh", "one", "--plot"])
            .arg(&drawn)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../workload/data/robinhood")),
    );
    insta::assert_snapshot!(table);
    insta::assert_snapshot!(std::fs::read_to_string(drawn).unwrap());
}

#[test]
fn sampled_miss_ratio_curve_is_close_to_the_exact_one() {
    let exact = json(&mut mrc(&[WEB, "--json", "--weigh", "one"]));
    let sampled = json(&mut mrc(&[WEB, "--json", "--weigh", "one", "--sample", "0.25"]));
    assert_eq!(exact["accesses"], sampled["accesses"]);
    assert_eq!((&exact["sample"], &sampled["sample"]), (&Value::from(1.0), &Value::from(0.25)));
    let [few, all] = [&sampled, &exact].map(|curve| curve["unique"].as_f64().unwrap());
    assert!((few / all - 1.0).abs() < 0.05, "{few} {all}");
    let end = |curve: &Value| curve["miss_ratio"].as_array().unwrap().last().unwrap().as_f64().unwrap();
    // The first get of an object misses at every size.
    assert!((end(&exact) - all / exact["accesses"].as_f64().unwrap()).abs() < 1e-9);
    assert!((end(&exact) - end(&sampled)).abs() < 0.02);
}

#[test]
fn twitter_trace_is_read_from_standard_input() {
    let text = "0,a,1,0,1,get,0\n0,a,1,9,1,set,0\n1,a,1,9,1,get,0\n2,a,1,0,1,delete,0\n3,a,1,9,1,get,0\n";
    let found = json(mrc(&["-", "--format", "twitter", "--json", "--weigh", "size"]).write_stdin(text));
    let third = 1.0 - 1.0 / 3.0;
    assert_eq!(
        found,
        serde_json::json!({"bytes": [0, 9, 10], "miss_ratio": [1.0, 1.0, third], "accesses": 3, "unique": 1,
            "writes": 2, "sample": 1.0, "weigh": "size"})
    );
}

#[test]
fn deleted_and_never_stored_objects_are_counted() {
    let text = "0,a,1,9,1,set,0\n1,a,1,9,1,get,0\n2,a,1,0,1,delete,0\n3,b,1,0,1,get,0\n";
    let found = json(mrc(&["-", "--format", "twitter", "--json"]).write_stdin(text));
    assert_eq!((&found["unique"], &found["accesses"]), (&Value::from(2), &Value::from(2)));
}

#[test]
fn oracle_general_format_is_recognised_by_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.oracleGeneral.bin");
    let record =
        |object: u64| [&[0; 4][..], &object.to_le_bytes(), &7_u32.to_le_bytes(), &[0xFF; 8]].concat();
    std::fs::write(&file, [1, 2, 1, 2].map(record).concat()).unwrap();
    let found = json(mrc(&["--json", "--weigh", "size"]).arg(&file));
    assert_eq!(
        (&found["bytes"], &found["miss_ratio"]),
        (&serde_json::json!([0, 13, 14]), &serde_json::json!([1.0, 1.0, 0.5]))
    );
    std::fs::write(&file, &record(1)[..20]).unwrap();
    let error = refusal(mrc(&[]).arg(&file), 1);
    assert!(
        error.contains("a.oracleGeneral.bin: the trace ends within a 24-byte access at byte 0"),
        "{error}"
    );
}

#[test]
fn invalid_arguments_of_mrc_are_refused_with_a_remedy() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../workload/data/README.md");
    let error = refusal(&mut mrc(&[readme]), 2);
    assert!(error.contains("which format is the trace") && error.contains("? add --format"), "{error}");
    assert!(refusal(&mut mrc(&["orm-busy", "--format", "twitter"]), 2).contains("leave --format out"));
    assert!(refusal(&mut mrc(&["orm-busy", "--sample", "0"]), 2).contains("above 0 and up to 1"));
    assert!(refusal(&mut mrc(&["orm-busy", "--sample", "-1"]), 2).contains("above 0 and up to 1"));
    assert!(refusal(&mut mrc(&["orm-busy", "--plot", "-"]), 2).contains("give its name"));
    assert!(refusal(&mut mrc(&["no.csv"]), 1).contains("opening the trace no.csv"));
    // A misspelt name of a built-in trace.
    let error = refusal(&mut mrc(&["orm-bsy"]), 1);
    assert!(error.contains("built in are: orm-busy, orm-night"), "{error}");
    let error = refusal(mrc(&["-", "--format", "twitter"]).write_stdin("0,a,1,9,1,set,0\n"), 1);
    assert!(error.contains("no get"), "{error}");
    let error = refusal(&mut mrc(&[ROBINHOOD, "--value-size", "5"]), 2);
    assert!(error.contains("--value-size is for cache2k traces"), "{error}");
    let error = refusal(&mut mrc(&[ROBINHOOD, "--sample", "1e-9"]), 1);
    assert!(error.contains("no object of the trace is in the sample: raise --sample"), "{error}");
}

#[test]
fn trace_without_repeated_keys_is_reported() {
    let table = stdout(mrc(&["-", "--format", "twitter"]).write_stdin("0,a,1,9,1,get,0\n1,b,1,9,1,get,0\n"));
    assert_eq!(
        table,
        "2 gets of 2 objects, exact\n\nEvery get misses, whatever the size: none found an object there that was looked at.\n"
    );
}
