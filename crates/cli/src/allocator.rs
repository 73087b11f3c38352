//! What the allocator does with memory that was freed.
//!
//! It gives it back to the system after a moment, which is right for a node: it runs for months, beside others. A simulation runs at
//! full speed and ends. What it frees, such as an index that was outgrown, it soon needs again, and would get back as small pages
//! where huge ones had been.

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

/// `mi_option_purge_delay`, which the bindings leave out: milliseconds until freed memory is given back; -1 for never.
const PURGE_DELAY: mi_option_t = 15;

/// What mimalloc itself sets.
const PURGE_DELAY_DEFAULT_MS: std::ffi::c_long = 10;

/// Keeps what is freed until the process ends, unless `MIMALLOC_PURGE_DELAY` in the environment says otherwise.
pub(crate) fn keep_freed_memory() {
    // SAFETY: both read and write one number of mimalloc's table of options, and may be called at any time.
    unsafe {
        if mi_option_get(PURGE_DELAY) == PURGE_DELAY_DEFAULT_MS {
            mi_option_set(PURGE_DELAY, -1);
        }
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
        assert_eq!(delay(), PURGE_DELAY_DEFAULT_MS);
        keep_freed_memory();
        assert_eq!(delay(), -1);
    }
}
