//! Programs that a test needs and that are not installed.
//!
//! The test is skipped then, except in continuous integration (`CI` is set), where it fails with
//! the package to install.

/// Reports that a program is missing, with the remedy.
pub(crate) fn missing(program: &str, remedy: &str) {
    assert!(std::env::var_os("CI").is_none(), "{program} is not installed: {remedy}");
    eprintln!("skipped: {program} is not installed: {remedy}");
}
