//! `sherwood sim` with a trace from a file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Writes a service with two backends whose requests are in `trace`.
fn scenario(directory: &Path, trace: &str, services: [&str; 2]) -> String {
    let backend = |id: usize, name: &str| {
        format!(r#"{{"id":{id},"name":"{name}","service":{{{},"workers":{{"shop":4}}}}}}"#, services[id - 1])
    };
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"shop","slo":{{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5}},
        "timeout_ms":1000,"hit_latency_ms":0.5,
        "profiles":{{"shop":{{"app_servers":2,"request_rate":20,"cache_bytes_per_server":1000000,
            "alloc_granularity_bytes":1000,"alloc_floor_bytes":0}}}},
        "backends":[{},{}],"trace":{trace},
        "scenarios":{{"calm":{{"warmup_min":0.1,"measure_min":0.4,"kind":"piecewise_linear","limits":{{}}}}}}}}"#,
        backend(1, "39f00c48"),
        backend(2, "b4fbebd8"),
    );
    let path = directory.join("shop.json");
    fs::write(&path, document).unwrap();
    path.display().to_string()
}

const LAWS: [&str; 2] =
    [r#""base_ms":2,"per_item_ms":1,"cv":0.5"#, r#""cumulative_ms":[[1,10],[5,90],[20,100]]"#];

fn run(scenario: &str, flags: &[&str]) -> Output {
    run_in_words(scenario, &[&["--json"], flags].concat())
}

fn run_in_words(scenario: &str, flags: &[&str]) -> Output {
    let args = ["sim", "run", "--policy", "robinhood", "--scenario", scenario];
    Command::new(env!("CARGO_BIN_EXE_sherwood")).args(args).args(flags).output().unwrap()
}

#[track_caller]
fn said(output: &Output, status: i32) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(status), "{text}");
    text
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Formats gets of 50 keys, 20 a second.
fn gets(seconds: u64) -> String {
    let line = |n: u64| format!("{},key{},20,{},1,get,0\n", n / 20, n * n % 50, 100 + n % 7);
    (0..seconds * 20).map(line).collect()
}

const CSV: &str = r#"{"file":"shop.csv","format":"twitter","value_bytes":100,"batch":2,
    "route":{"shares":{"1":0.5,"2":0.5}}}"#;

#[test]
fn accesses_of_a_trace_are_replayed_at_their_times() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shop.csv"), gets(40)).unwrap();
    let path = scenario(directory.path(), CSV, LAWS);
    let output = run(&path, &[]);
    assert_eq!(said(&output, 0), "");
    let found = document(&output);
    // Of 30 seconds, 24 are measured, with ten requests of two keys each.
    let (requests, queries) = (found["requests"].as_u64().unwrap(), found["queries"].as_u64().unwrap());
    assert!((236..=244).contains(&requests) && queries == 2 * requests, "{requests} {queries}");
    assert_eq!(found["complete"], true);
    let again = run(&path, &[]);
    assert_eq!(document(&again)["p99_ms"], found["p99_ms"], "equal seeds");
    let sampled = document(&run(&path, &["--sample", "1/5"]));
    assert!((10..120).contains(&sampled["requests"].as_u64().unwrap()), "{sampled}");
}

#[test]
fn ended_or_broken_trace_is_reported_with_partial_results() {
    let directory = tempfile::tempdir().unwrap();
    let (csv, path) = (directory.path().join("shop.csv"), scenario(directory.path(), CSV, LAWS));
    let name = csv.display();
    let cases = [
        (
            gets(12),
            format!(
                "sherwood: the trace {name} ends after 0.20 simulated minutes of 0.50: give the scenario less time, \
                 such as --set minutes=WARM-UP+MEASURED, or a longer trace\n"
            ),
        ),
        (
            gets(12) + "12,key1,20,get,0\n",
            format!(
                "sherwood: {name}: the trace at line 241 is not an operation `time,key,key bytes,value \
                 bytes,client,operation,ttl`: it has 5 fields\n"
            ),
        ),
        (
            gets(12) + "12,key",
            format!(
                "sherwood: {name}: the trace ends within an operation `time,key,key bytes,value \
                 bytes,client,operation,ttl` at line 241: the file is truncated, or of another format\n"
            ),
        ),
        (
            gets(12) + "5,key1,20,100,1,get,0\n12,key1,20,100,1,get,0\n",
            format!(
                "sherwood: {name}: the trace at line 241 is not in the order of time: its time is 5, after 11; sort the \
                 trace, or set `trace.times` to \"rate\"\n"
            ),
        ),
    ];
    for (text, expected) in &cases {
        fs::write(&csv, text).unwrap();
        let output = run(&path, &[]);
        assert_eq!(said(&output, 1), *expected);
        let found = document(&output);
        assert_eq!(found["complete"], false);
        assert!((50..=61).contains(&found["requests"].as_u64().unwrap()), "{found}");
    }
}

#[test]
fn trace_that_ends_early_writes_no_series() {
    let directory = tempfile::tempdir().unwrap();
    let (csv, path) = (directory.path().join("shop.csv"), scenario(directory.path(), CSV, LAWS));
    let series = directory.path().join("series.csv");
    let flags = ["--series", series.to_str().unwrap()];
    let note = format!("sherwood: {} is not written: the run ended before its time", series.display());
    for text in [gets(12), gets(12) + "12,key"] {
        fs::write(&csv, text).unwrap();
        let said = said(&run(&path, &flags), 1);
        assert!(said.starts_with(&note) && said.contains(" ends "), "{said}");
        assert!(!series.exists(), "half a series looks like a whole one");
    }
    fs::write(&csv, gets(40)).unwrap();
    assert_eq!(said(&run(&path, &flags), 0), "");
    assert_eq!(fs::read_to_string(&series).unwrap().lines().count(), 1 + 4, "24 s, observed every 5");
}

#[test]
fn comparison_finishes_scenarios_with_complete_traces() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str, text: String| {
        let own = directory.path().join(name);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("shop.csv"), text).unwrap();
        let path = scenario(&own, CSV, LAWS);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("calm", name)).unwrap();
        path
    };
    let (cut, whole) = (of("cut", gets(12)), of("whole", gets(40)));
    let results = directory.path().join("results");
    let compare = |scenarios: &str| {
        let flags = ["--policies", "robinhood,shared-lru", "--threads", "1", "--json", "--results"];
        let command = ["sim", "compare", "--scenario", scenarios];
        let mut sherwood = Command::new(env!("CARGO_BIN_EXE_sherwood"));
        sherwood.args(command).args(flags).arg(&results).output().unwrap()
    };
    let output = compare(&format!("{cut},{whole}"));
    let text = said(&output, 1);
    assert_eq!(output.stdout, b"", "half a comparison is no result");
    assert_eq!(text.matches("failed, as told at the end").count(), 1, "one run of it is enough: {text}");
    assert_eq!(text.matches("ends after 0.20 simulated minutes of 0.50").count(), 1, "{text}");
    let end = format!(
        "so there is no result of all: 2 of 4 runs finished; they are kept in {}, and the same command goes on with the \
         others\n",
        results.display()
    );
    assert!(text.ends_with(&end) && text.contains("of cut under robinhood with seed 1"), "{text}");
    assert_eq!(fs::read_dir(&results).unwrap().count(), 2);
    let output = compare(&whole);
    assert_eq!((said(&output, 0).as_str(), document(&output)["runs"].as_array().unwrap().len()), ("", 2));
}

#[test]
fn text_of_a_comparison_distinguishes_ended_from_unreadable_traces() {
    let directory = tempfile::tempdir().unwrap();
    let (csv, path) = (directory.path().join("shop.csv"), scenario(directory.path(), CSV, LAWS));
    for (text, beginning) in [
        (gets(12), "INCOMPLETE: the trace ended before the run did\n\ncalm under robinhood"),
        (
            gets(12) + "12,key",
            "INCOMPLETE: the trace could not be read to the end of the run\n\ncalm under robinhood",
        ),
        (gets(40), "calm under robinhood"),
    ] {
        fs::write(&csv, text).unwrap();
        let output = run_in_words(&path, &[]);
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.starts_with(beginning), "{found}");
    }
}

#[test]
fn requests_of_a_trace_are_replayed_at_the_rate_and_unknown_backends_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../workload/data/robinhood/trace-200.json");
    let trace = format!(r#"{{"file":"{sample}","format":"robinhood"}}"#);
    let path = scenario(directory.path(), &trace, LAWS);
    let output = run(&path, &["--set", "minutes=0.02+0.1"]);
    assert_eq!(said(&output, 0), "");
    let found = document(&output);
    assert_eq!(found["queries"].as_u64().unwrap(), 3 * found["requests"].as_u64().unwrap());
    let other = fs::read_to_string(&path).unwrap().replace("b4fbebd8", "prices");
    fs::write(&path, other).unwrap();
    let refusal = format!(
        "sherwood: {sample}: the trace at line 1 is not a request to the backends of the scenario: it asks `b4fbebd8`; \
         there are: 39f00c48, prices\n"
    );
    assert_eq!(said(&run(&path, &[]), 1), refusal);
    assert!(
        said(&run(&path, &["--sample", "1/2"]), 2)
            .contains("a trace of whole requests: they would lose keys")
    );
}

#[test]
fn invalid_declaration_of_a_trace_is_refused_with_its_position() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |trace: &str, services: [&str; 2], expected: &str| {
        let path = scenario(directory.path(), trace, services);
        let text = said(&run(&path, &[]), 2);
        assert!(text.starts_with(&format!("sherwood: {path}: ")) && text.contains(expected), "{text}");
    };
    refused(CSV, LAWS, "shop.csv: No such file or directory (os error 2); built in are: orm-busy, orm-night");
    let route = CSV.replace("0.5,", "0.7,");
    refused(
        &route,
        LAWS,
        "workload model: sum of trace.route.shares is 1.2; it must be 0.9999999 to 1.0000001",
    );
    let buckets = [LAWS[0], r#""histogram_ms":[[5,10],[2,4]]"#];
    refused(
        CSV,
        buckets,
        "workload model: backends[1].service.histogram_ms[1][0] is 2; it must be above 5, the time before it",
    );
    let both = [LAWS[0], r#""histogram_ms":[[5,10]],"cv":1"#];
    refused(CSV, both, "`service` takes either `base_ms`, `per_item_ms` and `cv`, or one of `histogram_ms`");
}

#[test]
fn example_scenarios_are_valid() {
    for (file, name) in [("orm-busy", "prices-slow-down"), ("two-backends", "reviews-slow-down")] {
        let path = format!("{}/../../examples/{file}.sim.json", env!("CARGO_MANIFEST_DIR"));
        let model = sherwood_workload::onerf::Model::from_json(&fs::read_to_string(path).unwrap()).unwrap();
        assert!(model.scenario(name).is_ok());
    }
}
