//! The reporters of `clients/`: their own tests, which report to a node as well.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sherwood_node::Node;

use crate::programs::{python, run};
use crate::support::{Fake, Http, setup};

fn directory(client: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(client)
}

/// Runs the tests of a client against a node; they report a hundred requests. Does nothing if the
/// program is not installed.
#[track_caller]
fn assert_reports(command: &mut Command, remedy: &str) {
    let node = Node::start(setup(vec![("a", vec![Fake::new([])])])).expect("starts");
    command.env("SHERWOOD_URL", node.admin_url().expect("an admin port"));
    let Some(output) = run(command, remedy) else { return };
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complaint}");
    let http = Http::of(&node);
    assert_eq!(http.metric("sherwood_requests_total"), 100.0, "{said}\n{complaint}");
}

#[test]
fn reports_of_the_python_client_arrive() {
    let mut command = Command::new(python());
    command.args(["-B", "-m", "unittest"]).current_dir(directory("python"));
    assert_reports(&mut command, "python3");
}

#[test]
fn reports_of_the_go_client_arrive() {
    // Without -count=1 Go would not run tests again that have passed.
    assert_reports(
        Command::new("go").args(["test", "-count=1", "./..."]).current_dir(directory("go")),
        "golang-go",
    );
}

#[test]
fn reports_of_the_typescript_client_arrive() {
    let there = tempfile::tempdir().unwrap();
    for name in ["package.json", "package-lock.json", "tsconfig.json", "reporter.ts", "reporter.test.ts"] {
        fs::copy(directory("typescript").join(name), there.path().join(name)).unwrap();
    }
    let install = Command::new("npm").args(["ci", "--silent"]).current_dir(there.path()).output();
    if let Ok(installed) = install {
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    }
    assert_reports(Command::new("npm").arg("test").current_dir(there.path()), "npm");
}
