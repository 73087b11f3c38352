//! The admin API and the gateway: one HTTP port.

mod aside;
mod backends;
mod control;
mod events;
mod history;
mod invalidate;
mod keys;
mod mrc;
mod partitions;
mod recording;
mod reload;
mod standing;
mod tenants;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, delete, get, post, put};

pub(crate) use events::STREAMS_MAX;

use crate::core::Core;
use crate::dashboard;
use crate::http::{Problem, form};
use crate::{metrics, traces};

/// Builds the routes of the port; `requests` is the gateway.
pub(crate) fn router(core: Arc<Core>, requests: MethodRouter<Arc<Core>>) -> Router {
    Router::new()
        .route("/", get(dashboard::page))
        .route("/dashboard/{file}", get(dashboard::file))
        .route("/status", get(standing::page))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition))
        .route("/v1/requests", requests)
        .route("/v1/reports", post(standing::reports))
        .route("/v1/traces", post(traces::export))
        .route("/v1/partitions", get(partitions::list))
        .route("/v1/partitions/{name}", put(partitions::change))
        .route("/v1/mrc/{partition}", get(mrc::show))
        .route("/v1/tenants", get(tenants::list))
        .route("/v1/tenants/trades", get(tenants::trades))
        .route("/v1/tenants/what-if", post(tenants::what_if))
        .route("/v1/tenants/{name}", put(tenants::change))
        .route("/v1/rbc", get(standing::rbc))
        .route("/v1/slo", get(standing::slo))
        .route("/v1/control", get(control::show).put(control::change))
        .route("/v1/history", get(history::show))
        .route("/v1/backends", get(backends::list))
        .route("/v1/backends/{name}/limit", put(backends::limit))
        .route("/v1/keys/{backend}/{*key}", delete(keys::remove).put(keys::put))
        .route("/v1/invalidate", post(invalidate::handle))
        .route("/v1/recording", get(recording::show).post(recording::begin).delete(recording::end))
        .route("/v1/reload", post(reload::reload))
        .route("/v1/events", get(events::stream))
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
