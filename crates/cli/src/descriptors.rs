//! Room for many connections.

/// Raises this process's limit on open files to what the system allows it, and says what it is
/// then.
///
/// Shells usually start programs with 1,024, which thousands of connections outgrow at once, and no
/// user expects to have to raise a limit that the program may raise itself.
pub(crate) fn raise_limit() -> u64 {
    // SAFETY: `rlimit` is two numbers, for which zero is a value, and the calls read and write
    // nothing else.
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
    fn the_limit_is_raised_to_what_is_allowed_and_stays_there() {
        let raised = super::raise_limit();
        assert!(raised > 0);
        assert_eq!(super::raise_limit(), raised);
    }
}
