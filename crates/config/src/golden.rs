//! Files made of the code that are committed, such as references.

use std::path::Path;

/// Checks that the file at `path` within the repository has this `text`; with `REWRITE` in the
/// environment, writes it.
#[track_caller]
pub(crate) fn assert_current(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == text, "{path} is not what the code makes: run this test with REWRITE=1");
}

/// Returns JSON as it is committed: indented, with a line end.
pub(crate) fn indented(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}
