//! `POST /v1/reload`: reads the configuration again.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::core::Core;
use crate::http::Problem;
use crate::reload::ReloadError;

pub(crate) async fn reload(State(core): State<Arc<Core>>) -> Result<Json<Value>, Problem> {
    match core.reloads.ask().await {
        Some(Ok(changed)) => Ok(Json(json!({ "changed": changed }))),
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
