//! `/v1/partitions`: who has how much, and setting it by hand.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sherwood_model::PartitionId;

use super::aside::aside;
use super::body::JsonBody;
use super::reply::Problem;
use crate::control::Room;
use crate::core::Core;

/// One partition as the API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct PartitionView {
    pub(crate) name: String,
    pub(crate) backend: String,
    pub(crate) tenant: String,
    pub(crate) allocated_bytes: u64,
    pub(crate) used_bytes: u64,
    pub(crate) items: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) evictions: u64,
}

pub(crate) fn views(core: &Core) -> Vec<PartitionView> {
    let view = |(index, partition): (usize, &crate::names::PartitionName)| {
        let usage = core.cache.usage(PartitionId::from_index(index));
        PartitionView {
            name: partition.name.clone(),
            backend: core.names.backend(partition.backend).to_owned(),
            tenant: core.names.tenant(partition.tenant).to_owned(),
            allocated_bytes: usage.budget_bytes,
            used_bytes: usage.used_bytes,
            items: usage.items,
            hits: usage.hits,
            misses: usage.misses,
            evictions: usage.evictions,
        }
    };
    core.names.partitions().iter().enumerate().map(view).collect()
}

pub(crate) async fn list(State(core): State<Arc<Core>>) -> Json<Vec<PartitionView>> {
    Json(views(&core))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resize {
    allocated_bytes: u64,
}

pub(crate) async fn resize(
    State(core): State<Arc<Core>>,
    Path(name): Path<String>,
    JsonBody(asked): JsonBody<Resize>,
) -> Result<Json<serde_json::Value>, Problem> {
    aside(core, move |core| set(core, &name, asked.allocated_bytes)).await?
}

fn set(core: &Core, name: &str, bytes: u64) -> Result<Json<serde_json::Value>, Problem> {
    let Some(partition) = core.names.partition_named(name) else {
        let known: Vec<_> = core.names.partitions().iter().map(|partition| partition.name.clone()).collect();
        return Err(Problem::not_found("partition", name, &known));
    };
    let mut control = core.control();
    if control.policy() != "static" {
        let error = format!(
            "the policy `{}` sizes the partitions; switch to `static` first: PUT /v1/control {{\"policy\":\"static\"}}",
            control.policy()
        );
        return Err(Problem::new(StatusCode::CONFLICT, error));
    }
    let before = core.cache.usage(partition).budget_bytes;
    check(name, bytes, control.room(core, partition))?;
    control.set_by_hand(core, partition, bytes).map_err(Problem::unprocessable)?;
    drop(control);
    let data = json!({"partition": name, "before_bytes": before, "after_bytes": bytes});
    core.say("resize", format!("{name} set by hand from {before} to {bytes} bytes"), data);
    Ok(Json(json!({"name": name, "allocated_bytes": bytes})))
}

/// Whether a partition may be set to `bytes`: what the others leave, and within its bounds, to which the next decision would
/// bring it back.
fn check(name: &str, bytes: u64, room: Room) -> Result<(), Problem> {
    let Room { min_bytes, max_bytes, free_bytes } = room;
    if bytes > free_bytes {
        let error = format!(
            "{bytes} bytes for `{name}` are more than the total allows: {free_bytes} bytes are free for it; shrink another \
             first"
        );
        return Err(Problem::unprocessable(error).with("free_bytes", free_bytes));
    }
    if !(min_bytes..=max_bytes).contains(&bytes) {
        let error = format!(
            "{bytes} bytes for `{name}` are out of its bounds of {min_bytes} to {max_bytes} bytes; stay within, or change \
             min or max in the configuration"
        );
        return Err(Problem::unprocessable(error)
            .with("min_bytes", min_bytes)
            .with("max_bytes", max_bytes)
            .with("free_bytes", free_bytes));
    }
    Ok(())
}
