//! `/v1/backends`: limiting an embedded store while it runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::json;
use sherwood_store::Limit;

use super::body::JsonBody;
use super::reply::Problem;
use crate::core::Core;

/// One limit to set; `null` lifts it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum Asked {
    Slots(Option<u32>),
    OpsPerS(Option<f64>),
    CpuRatio(Option<f64>),
}

pub(crate) async fn limit(
    State(core): State<Arc<Core>>,
    Path(name): Path<String>,
    JsonBody(asked): JsonBody<Asked>,
) -> Result<Json<serde_json::Value>, Problem> {
    let Some(id) = core.names.backend_id(&name) else {
        return Err(Problem::not_found("backend", &name, core.names.backends()));
    };
    let Some(backend) = core.backend(id) else {
        return Err(Problem::unprocessable(format!(
            "backend `{name}` has no store to limit; give it one in the configuration"
        )));
    };
    let limit = match asked {
        Asked::Slots(slots) => Limit::Slots(slots),
        Asked::OpsPerS(ops) => Limit::OpsPerS(ops),
        Asked::CpuRatio(ratio) => Limit::CpuRatio(ratio),
    };
    for replica in &backend.replicas {
        replica.set_limit(limit).map_err(Problem::unprocessable)?;
    }
    core.say("backend", format!("{name} limited by hand: {limit:?}"), json!({ "backend": name }));
    Ok(Json(json!({ "backend": name })))
}
