//! `POST /v1/reload`: reads the configuration again.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::core::Core;
use crate::http::Problem;
use crate::reload::ReloadError;

/// The result of a reload.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reloaded")]
pub(crate) struct ReloadedView {
    /// The settings that were changed.
    changed: Vec<String>,
}

pub(crate) async fn reload(State(core): State<Arc<Core>>) -> Result<Json<ReloadedView>, Problem> {
    match core.reloads.ask().await {
        Some(Ok(changed)) => Ok(Json(ReloadedView { changed })),
        Some(Err(ReloadError::NeedsRestart(settings))) => {
            let error = ReloadError::NeedsRestart(settings.clone());
            Err(Problem::unprocessable(error).with("needs_restart", settings))
        }
        Some(Err(error)) => Err(Problem::unprocessable(error)),
        None => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the node has no configuration file, or is busy with other reloads; ask again, or use PUT /v1/control",
        )),
    }
}
