//! `/v1/stores`: the replicated stores, with their duplicates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sherwood_control::StoreStanding;
use sherwood_dispatch::Layout;
use sherwood_model::StoreLayout;
use sherwood_path::{DuplicateStanding, LayoutError, LogsStanding};
use sherwood_ports::http::{InPath, JsonBody, Problem};
use sherwood_process::clock::millis;

use super::aside::aside;
use crate::control::Control;
use crate::core::Core;

/// A replicated store.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReplicatedStore")]
pub(crate) struct StoreView {
    /// Name of its backend.
    backend: String,
    /// Number of partitions of its keys.
    partitions: u16,
    /// Number of duplicates of each partition.
    duplicates: u8,
    /// False while the store is on its way to these numbers: duplicates are still to be filled, or
    /// to leave.
    settled: bool,
    /// Duplicates that an access asks at once.
    asked: u8,
    /// Time after which another one is asked; null if none is, or while too few latencies are
    /// known.
    hedge_ms: Option<f64>,
    /// The latest decision of the manager in words; null before the first, or without a manager.
    plan: Option<String>,
    /// Share of accesses within the SLO's bound that the model predicts for the latest window; null
    /// if unknown.
    predicted: Option<f64>,
    /// Share of accesses that were within the bound in that window; null if unknown.
    measured: Option<f64>,
    /// Correlation of the duplicates' slow periods, -1 to 1; null if unknown.
    correlation: Option<f64>,
    /// Changes in the logs of all partitions.
    log_entries: usize,
    /// Bytes of their keys and values.
    log_bytes: u64,
    /// The duplicates of each configured partition.
    nodes: Vec<DuplicateView>,
}

/// A duplicate of a partition.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Duplicate")]
struct DuplicateView {
    /// Number of the replica, from 0 on.
    replica: usize,
    /// Number of the configured partition, from 0 on.
    partition: usize,
    /// Number of the last change that it has applied, with all before.
    applied: u64,
    /// Number of changes that it lacks.
    lag: u64,
    /// `current`: read and written; `joining`, `behind`: written, and read when it has everything;
    /// `copying`: filled from another one, or waiting for that; `lost`: not reached; `inspected`,
    /// `landing`, `found`: answers again, and is asked what it has; `leaving`: not a duplicate any
    /// more, and cleared soon.
    state: &'static str,
}

/// Lists the replicated stores.
pub(super) async fn list(State(core): State<Arc<Core>>) -> Result<Json<Vec<StoreView>>, Problem> {
    aside(core, |core| {
        let control = core.control();
        Json(core.names.backends().iter().filter_map(|name| view(core, &control, name)).collect())
    })
    .await
}

/// Returns the view of a store; none for a backend that is not replicated.
fn view(core: &Core, control: &Control, name: &str) -> Option<StoreView> {
    let id = core.names.backend_id(name)?;
    let backend = core.backend(id)?;
    let standing = control.store_standings().find(|standing| standing.backend == id);
    Some(store(name, &backend.logs()?, &backend.layout()?, standing))
}

/// Schema of a change: the layout that a store is to have.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "StoreChange")]
pub(crate) struct Change {
    /// Number of partitions; a divisor of the configured one.
    partitions: u16,
    /// Number of duplicates of each partition.
    duplicates: u8,
}

/// Has a store begin to change its layout.
pub(super) async fn change(
    State(core): State<Arc<Core>>,
    InPath(name): InPath<String>,
    JsonBody(Change { partitions, duplicates }): JsonBody<Change>,
) -> Result<Json<StoreView>, Problem> {
    let id = core.names.backend_id(&name);
    let id = id.ok_or_else(|| Problem::not_found("backend", &name, core.names.backends()))?;
    let layout = Layout { partitions, duplicates };
    let unreplicated = || Problem::unprocessable(LayoutError::NotReplicated);
    let backend = core.backend(id).ok_or_else(unreplicated)?;
    backend.set_layout(layout).map_err(Problem::unprocessable)?;
    core.events.say("stores", format!("{name} set by hand to {layout}"), json!({"backend": name}));
    aside(core, move |core| view(core, &core.control(), &name).map(Json).ok_or_else(unreplicated)).await?
}

fn store(
    backend: &str,
    logs: &LogsStanding,
    layout: &StoreLayout,
    managed: Option<StoreStanding>,
) -> StoreView {
    let level = |of: fn(&StoreStanding) -> Option<f64>| managed.as_ref().and_then(of);
    let node = |one: &DuplicateStanding| DuplicateView {
        replica: one.replica.index(),
        partition: one.partition,
        applied: one.last.saturating_sub(one.lag),
        lag: one.lag,
        state: one.state.name(),
    };
    StoreView {
        backend: backend.to_owned(),
        partitions: logs.layout.map_or(0, |layout| layout.partitions),
        duplicates: logs.layout.map_or(0, |layout| layout.duplicates),
        settled: logs.is_settled,
        asked: layout.asked,
        hedge_ms: layout.hedge.map(millis),
        predicted: level(|managed| managed.predicted),
        measured: level(|managed| managed.measured),
        correlation: level(|managed| managed.correlation),
        plan: managed.and_then(|managed| managed.reason),
        log_entries: logs.entries,
        log_bytes: logs.bytes,
        nodes: logs.duplicates.iter().map(node).collect(),
    }
}
