//! Runs the programs of `tests/conformance` in other languages than Python, with client libraries
//! from packages.
//!
//! A program whose client library is not installed is skipped like in
//! [`programs`](crate::programs); the function then returns false.

use std::path::Path;
use std::process::Command;

use crate::missing::missing;
use crate::programs::{ask, conformance, run};

/// Runs a program of `tests/conformance/php` with PHP's client of memcached.
#[track_caller]
pub(crate) fn php_program(name: &str, port: u16, further: &[&str]) -> bool {
    let remedy = "apt-get install php-cli php-memcached libsasl2-modules";
    let probe = ["-r", "exit(extension_loaded('memcached') ? 0 : 1);"];
    let Some(found) = run(Command::new("php").args(probe), remedy) else { return false };
    if !found.status.success() {
        missing("php-memcached", remedy);
        return false;
    }
    ask(Command::new("php").arg(conformance().join("php").join(name)), port, further);
    true
}

/// Runs a program of `tests/conformance/ruby` with Dalli.
#[track_caller]
pub(crate) fn ruby_program(name: &str, port: u16, further: &[&str]) -> bool {
    ruby_program_with("dalli", "ruby-dalli", (name, port, further))
}

/// Runs a program of `tests/conformance/ruby` with the cache store of Rails.
#[track_caller]
pub(crate) fn rails_program(name: &str, port: u16, further: &[&str]) -> bool {
    ruby_program_with("active_support", "ruby-activesupport", (name, port, further))
}

/// Runs a program that needs this library, which a Debian package contains.
#[track_caller]
fn ruby_program_with(library: &str, package: &str, (name, port, further): (&str, u16, &[&str])) -> bool {
    let remedy = format!("apt-get install ruby ruby-dalli {package}");
    let require = format!("require 'dalli'; require '{library}'");
    let Some(found) = run(Command::new("ruby").args(["-e", &require]), &remedy) else {
        return false;
    };
    if !found.status.success() {
        missing(package, &remedy);
        return false;
    }
    ask(Command::new("ruby").arg(conformance().join("ruby").join(name)), port, further);
    true
}

/// Runs a program of `tests/conformance/node` with the packages in `target/clients`.
#[track_caller]
pub(crate) fn node_program(name: &str, port: u16, further: &[&str]) -> bool {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/node_modules");
    if !packages.exists() {
        missing("memjs", "make target/clients/ready");
        return false;
    }
    // A module finds its packages in a folder above it.
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(packages.canonicalize().unwrap(), folder.path().join("node_modules")).unwrap();
    for file in ["check.mjs", name] {
        std::fs::copy(conformance().join("node").join(file), folder.path().join(file)).unwrap();
    }
    ask(Command::new("node").arg(folder.path().join(name)), port, further);
    true
}
