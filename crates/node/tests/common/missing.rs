//! Programs that others wrote and that are not there.
//!
//! A test that needs one does nothing then, except in continuous integration (`CI` is set): there
//! it fails and says what to install.

/// Says that a program is missing, and what brings it.
pub(crate) fn missing(program: &str, remedy: &str) {
    assert!(std::env::var_os("CI").is_none(), "{program} is not installed: {remedy}");
    eprintln!("skipped: {program} is not installed: {remedy}");
}
