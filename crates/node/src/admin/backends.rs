//! `/v1/backends`: lists the backends, and changes the limits of an embedded store at run time.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::extract::State;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sherwood_dispatch::{Counters, ReplicaStats, Stats};
use sherwood_ports::http::{InPath, JsonBody, Problem, json_at};
use sherwood_store::{Limit, Limits};

use crate::backend::BackendDriver;
use crate::core::Core;

/// A backend, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Backend")]
pub(crate) struct BackendView {
    pub(super) name: String,
    /// Kind of its stores; null if it has none.
    kind: Option<String>,
    pub(super) replicas: usize,
    /// The limits in force; null for a backend that cannot be limited.
    limits: Option<LimitsView>,
    /// Keys since the start, by what became of them.
    pub(super) keys: KeysView,
    /// The replicas, in the order of the configuration.
    pub(super) replica_states: Vec<ReplicaView>,
}

/// Keys that a backend was asked for since the start.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "BackendKeys")]
pub(super) struct KeysView {
    /// All keys that the cache did not have.
    pub(super) asked: u64,
    /// Keys whose call failed.
    pub(super) failed: u64,
    /// Keys that were not answered within the timeout.
    pub(super) timed_out: u64,
    /// Keys that a bound, a rate or an admission rule refused.
    pub(super) rejected: u64,
    /// Keys answered with a stale value.
    pub(super) stale: u64,
}

/// A replica of a backend at this moment.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Replica")]
pub(super) struct ReplicaView {
    /// False while the replica gets no calls because those before have failed.
    pub(super) up: bool,
    /// Calls that it works on.
    pub(super) in_flight: u32,
    /// Calls that wait for it.
    pub(super) waiting: u32,
}

impl KeysView {
    fn of(backend: &BackendDriver, stats: &Stats) -> Self {
        let Counters { asked, failed, timed_out, refused, ramped, .. } = stats.counters;
        Self {
            asked,
            failed,
            timed_out,
            rejected: refused + ramped,
            stale: backend.stale_answers.load(Relaxed),
        }
    }
}

impl From<&ReplicaStats> for ReplicaView {
    fn from(stats: &ReplicaStats) -> Self {
        Self { up: stats.up, in_flight: stats.in_flight_calls, waiting: stats.queued_calls }
    }
}

/// The limits of an embedded store; null where there is none.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Limits")]
pub(crate) struct LimitsView {
    /// Share of a core.
    cpu_ratio: Option<f64>,
    ops_per_s: Option<f64>,
    /// Calls at a time.
    slots: Option<u32>,
}

impl From<Limits> for LimitsView {
    fn from(limits: Limits) -> Self {
        let Limits { slots, ops_per_s, cpu_ratio } = limits;
        Self { cpu_ratio, ops_per_s, slots }
    }
}

/// The limits of a backend after a change.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LimitedBackend")]
pub(crate) struct LimitedView {
    backend: String,
    #[serde(flatten)]
    limits: LimitsView,
}

/// Schema of a change: one limit, or null to lift it.
pub(crate) struct LimitChange;

impl JsonSchema for LimitChange {
    fn schema_name() -> Cow<'static, str> {
        "LimitChange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "One limit to set; null lifts it.",
            "properties": {
                "slots": { "type": ["integer", "null"], "minimum": 1, "maximum": 65_536 },
                "ops_per_s": { "type": ["number", "null"], "minimum": 0.001, "maximum": 1e9 },
                "cpu_ratio": { "type": ["number", "null"], "minimum": 0.001, "maximum": 1024 },
            },
            "additionalProperties": false,
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}

pub(crate) async fn list(State(core): State<Arc<Core>>) -> Json<Vec<BackendView>> {
    Json(views(&core))
}

pub(super) fn views(core: &Core) -> Vec<BackendView> {
    let view = |(index, name): (usize, &String)| {
        let backend = core.backends[index].as_ref();
        let stats = backend.map(|backend| backend.stats());
        let replicas = backend.map_or(&[][..], |backend| &backend.replicas);
        let store = replicas.first();
        BackendView {
            name: name.clone(),
            kind: store.map(|store| store.kind().to_string()),
            replicas: replicas.len(),
            limits: store.filter(|store| store.kind().is_embedded()).map(|store| store.limits().into()),
            keys: backend
                .zip(stats.as_ref())
                .map(|(backend, stats)| KeysView::of(backend, stats))
                .unwrap_or_default(),
            replica_states: stats.iter().flat_map(|stats| &stats.replicas).map(ReplicaView::from).collect(),
        }
    };
    core.names.backends().iter().enumerate().map(view).collect()
}

pub(crate) async fn limit(
    State(core): State<Arc<Core>>,
    InPath(name): InPath<String>,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Result<Json<LimitedView>, Problem> {
    let limit = one_limit(body)?;
    let Some(id) = core.names.backend_id(&name) else {
        return Err(Problem::not_found("backend", &name, core.names.backends()));
    };
    let Some(backend) = core.backend(id) else {
        return Err(Problem::unprocessable(format!(
            "backend `{name}` has no store to limit; give it one in the configuration"
        )));
    };
    for replica in &backend.replicas {
        replica.set_limit(limit).map_err(Problem::unprocessable)?;
    }
    // All replicas have the same limits.
    let view = LimitedView { backend: name.clone(), limits: backend.replicas[0].limits().into() };
    core.events.say("backend", format!("{name} limited by hand: {}", words(limit)), json!(view));
    Ok(Json(view))
}

/// Returns the store's limit that a request's JSON body sets. The number of limits is checked
/// first: an error of the enum's reader says nothing about it.
fn one_limit(body: Map<String, Value>) -> Result<Limit, Problem> {
    if body.len() != 1 {
        let named = body.len();
        let error = format!(
            "reading the body: it names {named} limits; give one of `slots`, `ops_per_s` and `cpu_ratio`"
        );
        return Err(Problem::bad_request(error));
    }
    json_at(Value::Object(body).to_string().as_bytes(), "")
}

fn words(limit: Limit) -> String {
    match limit {
        Limit::Slots(Some(1)) => "1 call at a time".to_owned(),
        Limit::Slots(Some(slots)) => format!("{slots} calls at a time"),
        Limit::OpsPerS(Some(1.0)) => "1 operation a second".to_owned(),
        Limit::OpsPerS(Some(ops)) => format!("{ops} operations a second"),
        Limit::CpuRatio(Some(ratio)) => format!("{:.0}% of a core", ratio * 100.0),
        Limit::Slots(None) => "any number of calls at a time".to_owned(),
        Limit::OpsPerS(None) => "any number of operations a second".to_owned(),
        Limit::CpuRatio(None) => "all of a core".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_one_is_described_in_the_singular() {
        assert_eq!(words(Limit::Slots(Some(1))), "1 call at a time");
        assert_eq!(words(Limit::Slots(Some(4))), "4 calls at a time");
        assert_eq!(words(Limit::OpsPerS(Some(1.0))), "1 operation a second");
    }
}
