//! `/v1/events`: streams events as they happen (server-sent events).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use futures_util::{Stream, StreamExt};
use sherwood_ports::http::{self, Problem};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use crate::core::Core;

/// Upper bound of open streams. Streams do not end by themselves and must leave connections of the
/// port to other requests.
pub(crate) const STREAMS_MAX: usize = 64;

pub(crate) async fn stream(
    State(core): State<Arc<Core>>,
) -> Result<Sse<impl Stream<Item = Result<Sent, Infallible>>>, Problem> {
    let Ok(permit) = Arc::clone(&core.event_streams).try_acquire_owned() else {
        let error =
            format!("{STREAMS_MAX} streams of events are read already, the most there may be; close one");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, error));
    };
    let mut stopping = core.stopping.clone();
    let events = BroadcastStream::new(core.events.subscribe()).map(|event| {
        Ok(match event {
            Ok(event) => Sent::default().event(event.kind).data(serde_json::json!(event).to_string()),
            Err(BroadcastStreamRecvError::Lagged(missed)) => {
                Sent::default().event("missed").data(missed.to_string())
            }
        })
    });
    // An open stream would keep a draining node from shutting down.
    let events = events.take_until(async move {
        let _permit = permit;
        http::stopped(&mut stopping).await;
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}
