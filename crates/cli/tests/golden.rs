//! Compares small runs of every scenario of the simulator with every policy byte for byte.
//!
//! Equal seeds give equal results on every machine, also after every change that is not meant to
//! change them. There is one file for each scenario, with one document in each line, in the order
//! of `sherwood sim list`, without the fields that depend on the machine.

use std::sync::Mutex;

use assert_cmd::Command;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let output =
        Command::cargo_bin("sherwood").unwrap().arg("sim").args(args).arg("--json").assert().success();
    serde_json::from_slice(&output.get_output().stdout).unwrap()
}

/// Returns the results of a scenario with a policy and `settings`, as a line.
fn line(scenario: &str, policy: &str, settings: &[&str]) -> String {
    let mut document = json(&[&["run", "--scenario", scenario, "--policy", policy], settings].concat());
    for field in ["wall_s", "queries_per_s"] {
        assert!(document.as_object_mut().unwrap().remove(field).unwrap().is_number());
    }
    format!("{document}\n")
}

/// Compares a scenario's results with all `policies`, and those of further runs, with the stored
/// results.
fn check(scenario: &str, policies: &[String], settings: &[&str], further: &[(&str, &[&str])]) {
    let mut runs: Vec<_> = policies.iter().map(|policy| (policy.as_str(), settings.to_vec())).collect();
    runs.extend(further.iter().map(|(policy, more)| (*policy, [settings, more].concat())));
    let lines = Mutex::new(vec![String::new(); runs.len()]);
    let next = Mutex::new(runs.iter().enumerate());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((at, (policy, settings))) = next.lock().unwrap().next() else { break };
                    let line = line(scenario, policy, settings);
                    lines.lock().unwrap()[at] = line;
                }
            });
        }
    });
    insta::assert_snapshot!(scenario, lines.into_inner().unwrap().concat());
}

/// Returns the names in a list of `sherwood sim list`.
fn names(list: &Value) -> Vec<String> {
    let name = |of: &Value| of.as_str().or(of["name"].as_str()).expect("a name").to_owned();
    list.as_array().unwrap().iter().map(name).collect()
}

/// Settings with which the caches fill and decisions are made within seconds.
const ONERF: [&str; 7] = [
    "--set=minutes=0.05+0.5",
    "--set=delta=1",
    "--set=unfilled=off",
    "--set=ghost=0.5",
    "--set=cache=0.02",
    "--set=load=0.5",
    "--set=depth=4",
];

#[test]
fn results_of_backend_scenarios_are_unchanged() {
    let list = json(&["list"]);
    let scenarios = names(&list["scenarios"]).into_iter();
    let is_other =
        |name: &str| ["microfuge", "spare-", "zoolander-", "hare-"].iter().any(|kind| name.starts_with(kind));
    for scenario in scenarios.filter(|name| !is_other(name)) {
        let mut further: Vec<(&str, &[&str])> = vec![
            ("robinhood", &["--set=resize=100000", "--set=stale=2", "--set=eviction=s3-fifo"]),
            ("robinhood", &["--sample=1/4", "--set=servers=2"]),
        ];
        if scenario == "onerf-random" {
            further.push(("robinhood", &["--set=walk=3"]));
        }
        check(&scenario, &names(&list["policies"]), &ONERF, &further);
    }
}

#[test]
fn results_of_scenario_microfuge_are_unchanged() {
    let settings = ["--set=records=2000", "--set=seconds=2+4"];
    let further: [(&str, &[&str]); 4] = [
        ("sherwood", &["--set=tenants=2", "--set=writes=0.2", "--set=target=0.05"]),
        ("dlc+dls+ac", &["--set=rate=2000", "--set=beta=80"]),
        ("dlc", &["--set=keys=uniform", "--set=eviction=s3-fifo"]),
        ("memcached+p2c", &["--seed=2", "--set=slots=2"]),
    ];
    check("microfuge", &names(&json(&["list"])["microfuge"]["policies"]), &settings, &further);
}

#[test]
fn results_of_spare_scenarios_are_unchanged() {
    let policies = names(&json(&["list"])["spare"]["policies"]);
    let copies = ["--set=r=2,2", "--set=arbiters=tad+rr", "--set=tokens=2+12", "--set=lookups=4"];
    let further: [(&str, &[&str]); 3] = [
        ("none", &["--set=pattern=1", "--set=servers=8+8"]),
        ("none", &["--set=pattern=3", "--seed=2"]),
        ("spare-tad", &copies),
    ];
    for scenario in ["spare-mediawiki", "spare-solr"] {
        check(scenario, &policies, &["--set=seconds=5+15", "--set=window=10"], &further);
    }
}

#[test]
fn results_of_scenario_zoolander_are_unchanged() {
    let policies = names(&json(&["list"])["zoolander"]["policies"]);
    let further: [(&str, &[&str]); 3] = [
        ("sherwood", &["--set=stall=0.001", "--set=seconds=1+3"]),
        ("zoolander", &["--set=correlation=0.5", "--seed=2"]),
        ("hedge", &["--set=sigma=1", "--set=stall=0"]),
    ];
    check("zoolander-diurnal", &policies, &["--set=seconds=2+2"], &further);
}

#[test]
fn results_of_scenario_zoolander_model_are_unchanged() {
    let policies = names(&json(&["list"])["zoolander_model"]["policies"]);
    let further: [(&str, &[&str]); 3] = [
        ("mix", &["--set=correlation=0.5", "--set=stall=0.002", "--seed=2"]),
        ("replicate", &["--set=load=0.3", "--set=sigma=1"]),
        ("hedge", &["--set=balance=power-of-two"]),
    ];
    check("zoolander-model", &policies, &["--set=seconds=1+1"], &further);
}

#[test]
fn results_of_tenant_scenarios_are_unchanged() {
    let list = json(&["list"]);
    let policies = names(&list["tenants"]["policies"]);
    for scenario in names(&list["scenarios"]).iter().filter(|name| name.starts_with("hare-")) {
        let mut settings = vec!["--scale=0.01", "--set=seconds=20+10", "--set=period=5", "--set=window=10"];
        let live: [(&str, &[&str]); 2] =
            [("hare", &["--set=decide=live", "--set=lend=true"]), ("drf", &["--set=decide=live"])];
        if matches!(scenario.as_str(), "hare-ycsb16" | "hare-twitter6") {
            // A single decision fills these large caches three times, for 15 s in all.
            settings.push("--set=decide=live");
            check(scenario, &policies, &settings, &[]);
        } else {
            check(scenario, &policies, &settings, &live);
        }
    }
}
