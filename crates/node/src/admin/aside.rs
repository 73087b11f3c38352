//! Runs long admin work off the gateway's threads.
//!
//! Reading the window of finished requests copies and sorts up to a million of them while the
//! control loop is locked. On a gateway thread it would delay every request of that thread. It
//! therefore runs on a blocking thread, one piece of work at a time: otherwise scrapes that arrive
//! faster than they are answered would take every core.

use std::sync::Arc;

use axum::http::StatusCode;
use sherwood_ports::http::Problem;
use tokio::sync::Semaphore;

use crate::core::Core;

/// Runs `work` on a blocking thread, when no other such work is running. The caller waits with its
/// connection open; the number of connections is bounded. Work that has started runs to its end
/// even if its client disconnects, and keeps its turn until then.
///
/// # Errors
/// When the node shuts down meanwhile.
pub(super) async fn aside<R: Send + 'static>(
    core: Arc<Core>,
    work: impl FnOnce(&Arc<Core>) -> R + Send + 'static,
) -> Result<R, Problem> {
    let turns = Arc::clone(&core.aside);
    in_turn(turns, core, work).await
}

/// Runs `work` like [`aside`], but waits only for other work that uses the same `turns`.
///
/// # Errors
/// When the node shuts down meanwhile.
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
