//! Handling of Ctrl-C in commands that end early and still report results.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Failure, INTERRUPTED};

/// Returns a flag that the first SIGINT or SIGTERM sets; see [`on_interrupt`].
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopper = Arc::clone(&stop);
    on_interrupt(move || stopper.store(true, Relaxed)).map_err(Failure::failed)?;
    Ok(stop)
}

/// Calls `stop` at the first SIGINT or SIGTERM. A second signal ends the process at once.
pub(crate) fn on_interrupt(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = runtime.block_on(async {
        Ok::<_, io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    })?;
    let mut wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
    };
    let watch = move || {
        wait();
        stop();
        wait();
        std::process::exit(INTERRUPTED.into());
    };
    std::thread::Builder::new().name("sherwood-signals".to_owned()).spawn(watch)?;
    Ok(())
}
