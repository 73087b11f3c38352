//! Work that is too long for the threads that requests run on.
//!
//! Looking at the window of finished requests copies and sorts up to a million of them, and whoever
//! decides does that while holding the control loop. On a thread of the gateway every request there
//! would wait for it, and asking how the tail fares would make the tail longer. So it is done on a
//! thread for blocking work; one at a time, since scrapes that come faster than they are answered
//! would otherwise take every core.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::Semaphore;

use crate::core::Core;
use crate::http::Problem;

/// Does `work` beside the gateway's threads when it is its turn. Who waits holds a connection, and
/// those are bounded. Work that has begun goes on to its end when its client goes away, and keeps
/// its turn until then.
///
/// # Errors
/// When the node ends meanwhile.
pub(super) async fn aside<R: Send + 'static>(
    core: Arc<Core>,
    work: impl FnOnce(&Arc<Core>) -> R + Send + 'static,
) -> Result<R, Problem> {
    let turns = Arc::clone(&core.aside);
    in_turn(turns, core, work).await
}

/// As [`aside`], in turn with other work of the same kind only.
///
/// # Errors
/// When the node ends meanwhile.
pub(super) async fn in_turn<R: Send + 'static>(
    turns: Arc<Semaphore>,
    core: Arc<Core>,
    work: impl FnOnce(&Arc<Core>) -> R + Send + 'static,
) -> Result<R, Problem> {
    let turn = turns.acquire_owned().await.expect("never closed");
    let done = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work(&core)
    });
    done.await
        .map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node did not get to it; ask again"))
}
