//! What the allocator does with memory that was freed.
//!
//! It gives it back to the system after a moment, which is right for a node: it runs for months,
//! beside others. A simulation runs at full speed and ends. What it frees, such as an index that
//! was outgrown, it soon needs again, and would get back as small pages where huge ones had been.

use libmimalloc_sys::{mi_option_get, mi_option_set_default, mi_option_t};

/// `mi_option_purge_delay`, which the bindings leave out: milliseconds until freed memory is given
/// back; -1 for never.
const PURGE_DELAY: mi_option_t = 15;

/// Keeps what is freed until the process ends, unless `MIMALLOC_PURGE_DELAY` in the environment
/// says otherwise.
pub(crate) fn keep_freed_memory() {
    // SAFETY: both work on one number of mimalloc's table of options, and may be called at any
    // time.
    unsafe {
        // Once it was read, the environment cannot change it any more.
        mi_option_get(PURGE_DELAY);
        mi_option_set_default(PURGE_DELAY, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another version of mimalloc may number its options otherwise.
    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: as above.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
            return;
        }
        assert_eq!(delay(), 10, "what mimalloc itself sets");
        keep_freed_memory();
        assert_eq!(delay(), -1);
    }
}
