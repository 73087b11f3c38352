//! The help of every command as snapshots: it is the first documentation that users read.

use assert_cmd::Command;

fn help(command: &[&str]) -> String {
    let mut sherwood = Command::cargo_bin("sherwood").unwrap();
    // Without a terminal, the environment sets the width.
    let output = sherwood.args(command).arg("--help").env("COLUMNS", "100").assert().success();
    let help = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(help.contains("\nExamples:\n  sherwood "), "{command:?} shows no examples");
    help
}

#[test]
fn help_of_every_command_matches_its_snapshot() {
    insta::assert_snapshot!("sherwood", help(&[]));
    insta::assert_snapshot!("serve", help(&["serve"]));
    insta::assert_snapshot!("demo", help(&["demo"]));
    insta::assert_snapshot!("load", help(&["load"]));
    insta::assert_snapshot!("mrc", help(&["mrc"]));
    insta::assert_snapshot!("plan", help(&["plan"]));
    insta::assert_snapshot!("plan-slo", help(&["plan", "slo"]));
    insta::assert_snapshot!("policy", help(&["policy"]));
    insta::assert_snapshot!("policy-allocate", help(&["policy", "allocate"]));
    insta::assert_snapshot!("tenants", help(&["tenants"]));
    insta::assert_snapshot!("tenants-what-if", help(&["tenants", "what-if"]));
    insta::assert_snapshot!("sim", help(&["sim"]));
    insta::assert_snapshot!("sim-list", help(&["sim", "list"]));
    insta::assert_snapshot!("sim-run", help(&["sim", "run"]));
    insta::assert_snapshot!("sim-compare", help(&["sim", "compare"]));
    insta::assert_snapshot!("sim-frontier", help(&["sim", "frontier"]));
    insta::assert_snapshot!("sim-ablate", help(&["sim", "ablate"]));
    insta::assert_snapshot!("sim-record", help(&["sim", "record"]));
    insta::assert_snapshot!("check-config", help(&["check-config"]));
    insta::assert_snapshot!("config-schema", help(&["config-schema"]));
    insta::assert_snapshot!("backend", help(&["backend"]));
    insta::assert_snapshot!("backend-check", help(&["backend", "check"]));
    insta::assert_snapshot!("ready", help(&["ready"]));
    insta::assert_snapshot!("completions", help(&["completions"]));
    insta::assert_snapshot!("man", help(&["man"]));
}
