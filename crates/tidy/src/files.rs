//! Limits on the sizes of files, so that they can be read and cloned.

/// Largest file that may be committed without being listed as an exception: 1 MiB.
pub const BYTES_MAX: u64 = 1 << 20;

/// Longest Rust file, in lines. A longer one covers more than one topic.
pub const LINES_MAX: usize = 900;

/// Returns a sentence when `path` is larger than [`BYTES_MAX`] and not one of `listed`.
#[must_use]
pub fn oversized(path: &str, bytes: u64, listed: &[&str]) -> Option<String> {
    let over = bytes > BYTES_MAX && !listed.contains(&path);
    over.then(|| format!("{path}: {bytes} bytes, at most {BYTES_MAX} unless listed with its reason"))
}

/// Returns a sentence when the Rust file at `path` is longer than [`LINES_MAX`].
#[must_use]
pub fn overlong(path: &str, source: &str) -> Option<String> {
    let lines = source.lines().count();
    (lines > LINES_MAX).then(|| format!("{path}: {lines} lines, at most {LINES_MAX}: cut it by topic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_above_one_mib_must_be_listed() {
        assert_eq!(oversized("a", BYTES_MAX, &[]), None);
        assert_eq!(oversized("a", BYTES_MAX + 1, &["a"]), None);
        assert!(oversized("a", BYTES_MAX + 1, &["b"]).is_some());
    }

    #[test]
    fn rust_file_with_too_many_lines_is_found() {
        assert_eq!(overlong("a.rs", &"x\n".repeat(LINES_MAX)), None);
        assert!(overlong("a.rs", &"x\n".repeat(LINES_MAX + 1)).is_some());
    }
}
