//! Ends the process when essential work fails.

use std::thread;

/// Aborts the process when the thread that holds it panics. Without its control loop or
/// housekeeper, a node would keep an old plan and its memory would grow, while a restart repairs
/// it.
pub struct Vital;

impl Drop for Vital {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a thread that the node cannot do without has panicked; ending");
            std::process::exit(1);
        }
    }
}
