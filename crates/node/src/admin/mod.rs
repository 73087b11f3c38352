//! The admin API and the gateway: one HTTP port.

mod aside;
mod backends;
mod control;
mod events;
mod history;
mod invalidate;
mod keys;
mod mrc;
mod operation;
mod partitions;
mod recording;
#[cfg(test)]
mod reference;
mod reload;
mod routes;
mod standing;
mod tenants;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use sherwood_ports::http::{Problem, form};

pub(crate) use events::STREAMS_MAX;

use crate::core::Core;
use crate::observe::metrics;

/// Builds the routes of the port.
pub(crate) fn router(core: Arc<Core>) -> Router {
    routes::all()
        .router
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "no such path; GET /status lists what there is")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this path takes other methods; see the Allow header",
            )
        })
        .layer(from_fn(form))
        .with_state(core)
}

/// The readiness probe: 200 from the start until the node drains. Every listener accepts
/// connections before this port is served.
async fn ready(State(core): State<Arc<Core>>) -> Result<&'static str, Problem> {
    if core.is_stopping() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node is shutting down; ask another"));
    }
    Ok("ok\n")
}

async fn exposition(State(core): State<Arc<Core>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    let format = metrics::Format::preferred(&headers);
    let body = aside::aside(core, move |core| metrics::exposition(core, format)).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")], body))
}
