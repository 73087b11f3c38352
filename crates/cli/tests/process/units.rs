//! The units of `deploy/systemd`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::page::can_type;

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(unit(name)).unwrap()
}

#[test]
fn systemd_accepts_the_units() {
    if !can_type(&[("systemd-analyze", "systemd")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_sherwood");
    let installed = |name: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text(name).replace("/usr/bin/sherwood", program)).unwrap();
        path
    };
    let units = ["sherwood.service", "sherwood.socket"].map(installed);
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output().unwrap();
    // Settings that it does not know are warnings.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn configuration_of_the_units_is_valid_and_listens_where_the_sockets_do() {
    let checked = Command::new(env!("CARGO_BIN_EXE_sherwood"))
        .arg("check-config")
        .arg(unit("sherwood.toml"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let values = |name: &str, key: &str| {
        let of = |line: &str| Some(line.trim().strip_prefix(key)?.trim_matches('"').to_owned());
        text(name).lines().filter_map(of).collect::<Vec<_>>()
    };
    let sockets = values("sherwood.socket", "ListenStream=");
    assert!(!sockets.is_empty());
    assert_eq!(sockets, values("sherwood.toml", "bind = "));
}
