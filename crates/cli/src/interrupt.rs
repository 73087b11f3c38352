//! Ctrl-C, as a flag that long work looks at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

/// Sets `flag` at the first SIGINT or SIGTERM; a second one ends the process at once, as if nothing had been caught.
pub(crate) fn on_interrupt(flag: &Arc<AtomicBool>) -> io::Result<()> {
    let flag = Arc::clone(flag);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = runtime.block_on(async {
        Ok::<_, io::Error>((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    })?;
    let wait = move || {
        for status in [None, Some(130)] {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            if let Some(status) = status {
                std::process::exit(status);
            }
            flag.store(true, Relaxed);
        }
    };
    std::thread::Builder::new().name("sherwood-signals".to_owned()).spawn(wait)?;
    Ok(())
}
