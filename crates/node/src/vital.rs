//! Work without which a node only looks healthy.

use std::thread;

/// Ends the process when the thread that holds it panics: a node whose loop or housekeeping is gone
/// would keep an old plan and grow, where a restart mends all of it.
pub(crate) struct Vital;

impl Drop for Vital {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a thread that the node cannot do without has panicked; ending");
            std::process::exit(1);
        }
    }
}
