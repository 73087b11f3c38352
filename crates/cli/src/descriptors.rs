//! The limit on open files.

/// Raises this process's limit on open files to the maximum that the system allows, and returns the
/// resulting limit.
///
/// Shells usually start programs with a limit of 1,024, too low for thousands of connections, and
/// users do not expect to raise a limit that the program can raise itself.
pub(crate) fn raise_limit() -> u64 {
    // SAFETY: `rlimit` is two integers, for which zero is a valid value, and the calls read and
    // write nothing else.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
            return 0;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0 {
            raised.rlim_cur
        } else {
            limit.rlim_cur
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn limit_on_open_files_is_raised_to_the_maximum() {
        let raised = super::raise_limit();
        assert!(raised > 0);
        assert_eq!(super::raise_limit(), raised);
    }
}
