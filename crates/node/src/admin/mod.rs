//! The admin API and the gateway: one HTTP port.

mod aside;
mod backends;
mod cluster;
mod control;
mod events;
mod history;
mod hot_keys;
mod invalidate;
mod key_view;
mod keys;
mod mrc;
mod operation;
mod partitions;
mod recording;
#[cfg(test)]
mod reference;
mod reload;
mod replication;
mod routes;
mod standing;
mod status_page;
mod stores;
mod tenants;

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use sherwood_model::nearest;
use sherwood_model::units::quoted;
use sherwood_ports::http::{Problem, form};

pub(crate) use events::STREAMS_MAX;
pub(crate) use hot_keys::tells_keys;
pub(crate) use invalidate::Selection;

use crate::core::Core;
use crate::observe::metrics;
use operation::Route;

/// Builds the routes of the port.
pub(crate) fn router(core: Arc<Core>) -> Router {
    let routes::Routes { router, described } = routes::all();
    let described = Arc::new(described);
    let paths = Arc::clone(&described);
    router
        .fallback(async move |uri: Uri| no_path(&paths, uri.path()))
        .method_not_allowed_fallback(async move |method: Method, path: MatchedPath| {
            no_method(&described, &method, path.as_str())
        })
        .layer(from_fn(form))
        .with_state(core)
}

/// The reply to a request for a path that is none of `routes`.
fn no_path(routes: &[Route], path: &str) -> Problem {
    let known: Vec<&str> = routes.iter().map(|route| route.path).collect();
    let hint = nearest(path, &known).map_or(String::new(), |near| format!("did you mean {near}? "));
    let path = quoted(path);
    let error = format!("there is no path {path}; {hint}GET /v1/openapi.json describes all of them");
    Problem::new(StatusCode::NOT_FOUND, error)
}

/// The reply to a request with a method that the path of one of `routes` does not have.
fn no_method(routes: &[Route], method: &Method, path: &str) -> Problem {
    let methods = routes.iter().filter(|route| route.path == path).map(|route| route.method);
    let methods: Vec<&str> = methods.collect();
    let error = format!("{path} does not accept {method}; send {}", methods.join(" or "));
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, error).with("accepted", methods)
}

/// The readiness probe: 200 from the start until the node drains. Every listener accepts
/// connections before this port is served.
async fn ready(State(core): State<Arc<Core>>) -> Result<&'static str, Problem> {
    if core.is_stopping() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the node is shutting down; ask another"));
    }
    if core.rates.as_ref().is_some_and(|rates| rates.is_starting()) {
        let error = "the rates of tenants are not known yet; try again in 2 s, or ask another node";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, error));
    }
    Ok("ok\n")
}

async fn exposition(State(core): State<Arc<Core>>, headers: HeaderMap) -> Result<impl IntoResponse, Problem> {
    let format = metrics::Format::preferred(&headers);
    let body = aside::aside(core, move |core| metrics::exposition(core, format)).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")], body))
}
