//! The Helm chart of `deploy/helm`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::page::can_type;

/// The Python that `make` prepares, whose environment has helm.
fn python() -> PathBuf {
    let prepared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/venv/bin/python");
    std::env::var_os("SHERWOOD_PYTHON").map_or_else(|| PathBuf::from(prepared), PathBuf::from)
}

#[test]
fn kubernetes_and_the_node_accept_what_the_chart_renders_and_wrong_values_are_refused() {
    let python = python();
    let helm = python.with_file_name("helm");
    if !can_type(&[(helm.to_str().unwrap(), "python3-venv, then make target/venv/ready")]) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/dist/helm_check.py");
    let output =
        Command::new(python).arg("-B").arg(script).arg(env!("CARGO_BIN_EXE_sherwood")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
}
