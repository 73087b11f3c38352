//! `/v1/replication`: the copies of calls in the tiers of an application.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sherwood_ports::http::Problem;

use super::aside::aside;
use crate::control::ReplicationView;
use crate::core::Core;

pub(crate) async fn show(State(core): State<Arc<Core>>) -> Result<Json<ReplicationView>, Problem> {
    aside(core, |core| core.control().replication().map(Json).ok_or_else(no_tiers)).await?
}

fn no_tiers() -> Problem {
    let error = "this node has no [replication]; name the tiers in its configuration, and restart it";
    Problem::new(StatusCode::NOT_FOUND, error)
}
