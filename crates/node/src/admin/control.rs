//! `/v1/control`: shows and changes the policy.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use sherwood_ports::http::{JsonBody, Problem};

use super::aside::aside;
use crate::control::ControlView;
use crate::core::Core;

pub(crate) async fn show(State(core): State<Arc<Core>>) -> Result<Json<ControlView>, Problem> {
    aside(core, |core| Json(core.control().view())).await
}

/// A change of the control loop; absent fields stay as they are.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ControlChange")]
pub(crate) struct Change {
    policy: Option<String>,
    dry_run: Option<bool>,
    guard: Option<bool>,
}

pub(crate) async fn change(
    State(core): State<Arc<Core>>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Json<ControlView>, Problem> {
    aside(core, move |core| {
        let mut control = core.control();
        let Change { policy, dry_run, guard } = change;
        control.switch(policy.as_deref(), dry_run, guard).map_err(Problem::unprocessable)?;
        Ok(Json(control.view()))
    })
    .await?
}
