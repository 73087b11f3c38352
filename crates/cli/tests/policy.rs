//! Decisions between tenants by the command line.

use assert_cmd::Command;
use serde_json::{Value, json};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tenants");

fn allocate(policy: &str) -> Command {
    let mut command = Command::cargo_bin("sherwood").unwrap();
    command.args(["policy", "allocate", "--policy", policy]);
    command
}

fn stdout(command: &mut Command) -> String {
    String::from_utf8(command.assert().success().get_output().stdout.clone()).unwrap()
}

fn example(policy: &str, name: &str) -> Value {
    let input = format!("{EXAMPLES}/{name}.json");
    serde_json::from_str(&stdout(allocate(policy).args(["--json", "--input", &input]))).unwrap()
}

type Change = fn(&mut Value);

/// Two equal tenants, with a change.
fn input(change: impl FnOnce(&mut Value)) -> String {
    let amounts =
        |cache_bytes: u64| json!({"cache_bytes": cache_bytes, "db_rcu": 10.0, "db_wcu": 10.0, "net_bw": 1e6});
    let tenant = json!({
        "base": amounts(100),
        "demand_if_miss": {"db_rcu": 1.0, "db_wcu": 0.1, "net_bw": 100.0},
        "net_alpha": 0.5,
        "mrc": {"ticks_bytes": [50, 150], "miss_ratio": [0.5, 0.1]},
    });
    let mut file = json!({
        "params": {"cache_delta_bytes": 10, "min_cache_size_bytes": 10},
        "totals": {"cache_bytes": 200, "db_rcu": 20.0, "db_wcu": 20.0, "net_bw": 2e6},
        "tenants": [tenant, tenant],
    });
    change(&mut file);
    file.to_string()
}

/// The error of an invalid input.
fn refusal(file: String) -> String {
    let mut command = allocate("hare");
    let refused = command.args(["--json", "--input", "-"]).write_stdin(file).assert().code(2);
    String::from_utf8(refused.get_output().stderr.clone()).unwrap()
}

#[test]
fn allocation_of_an_example_as_json_has_every_field() {
    let report = example("hare", "files");
    assert_eq!(report["allocation"][0]["cache_bytes"], 4_000_000_000_u64);
    assert_eq!(report["allocation"][1]["cache_bytes"], 0);
    for (tenant, (rate, throughput)) in [(600.0, 3_000.0), (2_400.0, 2_400.0)].into_iter().enumerate() {
        let near = |value: &Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near(&report["allocation"][tenant]["db_rcu"], rate), "{report}");
        assert!(near(&report["throughput"][tenant], throughput), "{report}");
        assert!(near(&report["normalized"][tenant], 1.2), "{report}");
    }
    assert!(report["bound"].as_f64() >= report["gain"].as_f64());
    assert!(report["decision_us"].as_f64().unwrap() > 0.0);
    assert_eq!(report["trades"][0]["donor"], "B");
}

#[test]
fn allocation_of_an_example_as_a_table_matches_its_snapshot() {
    let input = format!("{EXAMPLES}/working-set-4m.json");
    let table = stdout(allocate("hare").args(["--input", &input]));
    let (table, time) = table.trim_end().rsplit_once('\n').unwrap();
    assert!(time.starts_with("decided in "), "{time}");
    insta::assert_snapshot!(table);
}

#[test]
fn every_policy_divides_every_example() {
    for policy in ["hare", "hare-published", "drf", "memshare", "baseline"] {
        for name in ["files", "units", "working-set-4m", "working-set-16m", "skew-0"] {
            let report = example(policy, name);
            assert_eq!(report["normalized"].as_array().unwrap().len(), 2, "{policy} {name}");
        }
    }
}

#[test]
fn rates_in_reserve_are_those_that_raise_no_tenant() {
    let path = format!("{EXAMPLES}/units.json");
    let report = stdout(allocate("drf").args(["--reserve", "--json", "--input", &path]));
    let report: Value = serde_json::from_str(&report).unwrap();
    let writes = [0, 1].map(|tenant| report["allocation"][tenant]["db_wcu"].as_f64().unwrap());
    assert!((writes[0] - 800.0).abs() < 1e-6 && (writes[1] - 200.0).abs() < 1e-6, "{writes:?}");
}

#[test]
fn tenants_without_a_base_share_the_totals_by_weight() {
    let file = input(|file| {
        file["tenants"].as_array_mut().unwrap().iter_mut().for_each(|tenant| tenant["base"] = Value::Null);
        file["tenants"][1]["weight"] = 3.into();
    });
    let report = stdout(allocate("baseline").args(["--json", "--input", "-"]).write_stdin(file));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        report["allocation"][1],
        json!({"cache_bytes": 150, "db_rcu": 15.0, "db_wcu": 15.0, "net_bw": 1.5e6})
    );
}

#[test]
fn unusual_curves_and_floors_get_a_division_and_a_note() {
    let file = input(|file| {
        file["params"]["min_cache_size_bytes"] = 150.into();
        file["tenants"][0]["mrc"] = json!({"ticks_bytes": [], "miss_ratio": []});
        file["tenants"][1]["mrc"] = json!({"ticks_bytes": [10, 20], "miss_ratio": [0.2, 0.9]});
    });
    let mut command = allocate("hare");
    let done = command.args(["--json", "--input", "-"]).write_stdin(file).assert().success();
    let report: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    let normalized = report["normalized"].as_array().unwrap();
    assert!(normalized.iter().all(|gain| gain.as_f64().unwrap() >= 1.0 - 1e-9), "{report}");
    let notes = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
    assert!(
        notes.contains("tenants[0].mrc has no points: every read of this tenant counts as a miss"),
        "{notes}"
    );
    assert!(notes.contains("takes 300 bytes for 2 tenants and totals.cache_bytes is 200"), "{notes}");
}

#[test]
fn invalid_input_is_refused_with_its_path_and_what_is_accepted() {
    let cases: [(Change, &str); 10] = [
        (|file| file["tenants"] = json!([]), "tenants: 0 are given; 1 to 1024 are accepted"),
        (
            |file| file["params"]["cache_delta_bytes"] = 0.into(),
            "params.cache_delta_bytes is 0: give at least 1",
        ),
        (|file| file["totals"]["db_rcu"] = 15.into(), "totals.db_rcu is 15 and the tenants' bases sum to 20"),
        (
            |file| file["totals"]["cache_bytes"] = 199.into(),
            "totals.cache_bytes is 199 and the tenants' bases",
        ),
        (
            |file| file["tenants"][1]["demand_if_miss"]["db_wcu"] = (-1).into(),
            "tenants[1].demand_if_miss.db_wcu is -1: a number of at least 0",
        ),
        (|file| file["tenants"][1]["net_alpha"] = 2.into(), "tenants[1].net_alpha is 2: 0 to 1"),
        (|file| file["tenants"][1]["mrc"]["miss_ratio"][1] = 1.5.into(), "mrc.miss_ratio[1] is 1.5: 0 to 1"),
        (|file| file["tenants"][1]["mrc"]["ticks_bytes"][1] = 50.into(), "ticks_bytes[1] is 50 after 50"),
        (|file| file["tenants"][1]["mrc"]["miss_ratio"] = json!([0.5]), "2 ticks_bytes and 1 of miss_ratio"),
        (
            |file| {
                file["tenants"][1] =
                    json!({"weight": 0, "demand_if_miss": {"db_rcu": 1, "db_wcu": 0, "net_bw": 0}})
            },
            "tenants[1].weight is 0: give a number above 0",
        ),
    ];
    for (change, expected) in cases {
        let error = refusal(input(change));
        assert!(error.starts_with("sherwood: -: ") && error.contains(expected), "{error}");
    }
    let not_a_number = input(|_| ()).replace("0.5,0.1", "0.5,NaN");
    let error = refusal(not_a_number);
    assert!(error.contains("this is not JSON, line 1, column"), "{error}");
    assert!(error.contains("`sherwood policy allocate --help` shows the format"), "{error}");
}

#[test]
fn unknown_policy_or_missing_file_is_refused() {
    allocate("hair").args(["--input", "-"]).assert().code(2);
    let mut missing = allocate("hare");
    let failed = missing.args(["--input", "no/such/file.json"]).assert().code(1);
    let error = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
    assert!(error.starts_with("sherwood: reading the input no/such/file.json: "), "{error}");
}
