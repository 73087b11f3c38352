//! `/v1/events`: what happens, as it happens (server-sent events).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use futures_util::{Stream, StreamExt};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use crate::core::Core;
use crate::http;

pub(crate) async fn stream(
    State(core): State<Arc<Core>>,
) -> Sse<impl Stream<Item = Result<Sent, Infallible>>> {
    let mut stopping = core.stopping.clone();
    let events = BroadcastStream::new(core.events.subscribe()).map(|event| {
        Ok(match event {
            Ok(event) => Sent::default().event(event.kind).data(serde_json::json!(event).to_string()),
            Err(BroadcastStreamRecvError::Lagged(missed)) => {
                Sent::default().event("missed").data(missed.to_string())
            }
        })
    });
    // A stream has no end of its own, and would hold up a node that drains.
    let events = events.take_until(async move { http::stopped(&mut stopping).await });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}
