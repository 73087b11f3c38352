//! `POST /v1/reload`: reads the configuration again.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sherwood_ports::http::{InQuery, Problem};

use crate::core::Core;
use crate::reload::{ReloadError, ReloadOptions};

/// The result of a reload.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reloaded")]
pub(crate) struct ReloadedView {
    /// The settings that were changed.
    changed: Vec<String>,
}

/// Query parameters of a reload.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// True removes all listeners if the file has none; refused otherwise.
    remove_all_listeners: Option<bool>,
    /// The parameter `pretty`, which [`sherwood_ports::http::form`] reads.
    #[serde(rename = "pretty")]
    #[schemars(skip)]
    _pretty: Option<IgnoredAny>,
}

pub(crate) async fn reload(
    State(core): State<Arc<Core>>,
    InQuery(Asked { remove_all_listeners, .. }): InQuery<Asked>,
) -> Result<Json<ReloadedView>, Problem> {
    let options = ReloadOptions { may_remove_all_listeners: remove_all_listeners.unwrap_or(false) };
    match core.reloads.ask(options).await {
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
