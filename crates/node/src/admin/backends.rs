//! `/v1/backends`: lists the backends, and changes the limits of an embedded store at run time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sherwood_store::{Limit, Limits};

use crate::core::Core;
use crate::http::JsonBody;
use crate::http::{InPath, Problem};

/// A backend, as the admin API shows it.
#[derive(Debug, Serialize)]
pub(crate) struct BackendView {
    name: String,
    /// Kind of its stores; null if it has none.
    kind: Option<String>,
    replicas: usize,
    /// The limits in force; null for a backend that cannot be limited.
    limits: Option<Limits>,
}

pub(crate) async fn list(State(core): State<Arc<Core>>) -> Json<Vec<BackendView>> {
    let view = |(index, name): (usize, &String)| {
        let replicas = core.backends[index].as_ref().map_or(&[][..], |backend| &backend.replicas);
        let store = replicas.first();
        BackendView {
            name: name.clone(),
            kind: store.map(|store| store.kind().to_string()),
            replicas: replicas.len(),
            limits: store.filter(|store| store.kind().is_embedded()).map(|store| store.limits()),
        }
    };
    Json(core.names.backends().iter().enumerate().map(view).collect())
}

pub(crate) async fn limit(
    State(core): State<Arc<Core>>,
    InPath(name): InPath<String>,
    JsonBody(body): JsonBody<Map<String, Value>>,
) -> Result<Json<Value>, Problem> {
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
    let Limits { slots, ops_per_s, cpu_ratio } = backend.replicas[0].limits();
    let view = json!({ "backend": name, "slots": slots, "ops_per_s": ops_per_s, "cpu_ratio": cpu_ratio });
    core.events.say("backend", format!("{name} limited by hand: {}", words(limit)), view.clone());
    Ok(Json(view))
}

/// Returns the store's limit that a request's JSON body sets. Parsed by hand: for a body with no
/// limit or with two, serde's error gives the position and not the reason.
fn one_limit(body: Map<String, Value>) -> Result<Limit, Problem> {
    if body.len() != 1 {
        let named = body.len();
        let error = format!(
            "reading the body: it names {named} limits; give one of `slots`, `ops_per_s` and `cpu_ratio`"
        );
        return Err(Problem::bad_request(error));
    }
    serde_json::from_value(Value::Object(body))
        .map_err(|error| Problem::bad_request(format!("reading the body: {error}")))
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
