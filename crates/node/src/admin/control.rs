//! `/v1/control`: which policy decides, and changing it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::JsonBody;
use super::reply::Problem;
use crate::core::Core;

pub(crate) async fn show(State(core): State<Arc<Core>>) -> Json<Value> {
    Json(core.control().view(&core))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    policy: Option<String>,
    dry_run: Option<bool>,
}

pub(crate) async fn change(
    State(core): State<Arc<Core>>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Json<Value>, Problem> {
    let mut control = core.control();
    if let Some(policy) = &change.policy {
        control.switch(&core, policy).map_err(Problem::unprocessable)?;
        core.say("policy", format!("policy switched to {policy}"), json!({ "policy": policy }));
    }
    if let Some(dry_run) = change.dry_run {
        control.set_dry_run(dry_run);
        let state = if dry_run { "on: decisions are reported and not applied" } else { "off" };
        core.say("policy", format!("dry run {state}"), json!({ "dry_run": dry_run }));
    }
    Ok(Json(control.view(&core)))
}
