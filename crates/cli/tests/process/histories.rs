//! Histories of clients of a replicated store, whose servers are killed and paused in turn.

use std::path::Path;
use std::process::Command;

use crate::page::can_type;

/// Runs a script of `scripts/zoolander`, and returns its output. It must succeed.
fn run(script: &str, args: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/zoolander").join(script);
    let output = Command::new("python3").arg("-B").arg(script).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn histories_under_faults_are_as_the_stores_declare_and_bad_ones_are_found() {
    let programs = [("python3", "python3"), ("go", "golang-go"), ("redis-server", "redis-server")];
    if !can_type(&programs) {
        return;
    }
    run("test_history.py", &[]);
    let said = run("bench.py", &["faults", "--seconds", "0", "--node", env!("CARGO_BIN_EXE_sherwood")]);
    assert!(said.starts_with("faults: 3 kills, 3 pauses; "), "{said}");
}
