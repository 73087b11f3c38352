//! Ctrl-C, for work that ends early and still says what it found.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::INTERRUPTED;

/// Calls `stop` at the first SIGINT or SIGTERM; a second one ends the process at once, as if
/// nothing had been caught.
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
