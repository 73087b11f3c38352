//! Configuration of the memory allocator.
//!
//! By default it returns freed memory to the system after a short delay. That suits a node, which
//! runs for months beside other processes. A simulation runs at full speed and ends: it soon needs
//! the memory it freed, such as an outgrown index, and would get it back as small pages instead of
//! huge ones.

use libmimalloc_sys::{mi_option_get, mi_option_set_default, mi_option_t};

/// Number of `mi_option_purge_delay`, which the bindings leave out: milliseconds until freed memory
/// is returned to the system; -1 for never.
const PURGE_DELAY: mi_option_t = 15;

/// Keeps freed memory until the process ends, unless the environment variable
/// `MIMALLOC_PURGE_DELAY` is set.
pub(crate) fn keep_freed_memory() {
    // SAFETY: both functions access one number in mimalloc's table of options and may be called at
    // any time.
    unsafe {
        // Reading the option applies the environment variable, which then takes precedence.
        mi_option_get(PURGE_DELAY);
        mi_option_set_default(PURGE_DELAY, -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another version of mimalloc may number its options differently.
    #[test]
    fn purge_delay_option_of_mimalloc_has_the_expected_number() {
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
