//! `/v1/recording`: the measurements that a simulation of this node needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sherwood_model::BackendId;
use sherwood_ports::http::{InQuery, Problem};
use sherwood_process::clock::millis;

use super::aside::aside;
use crate::core::Core;
use crate::observe::recording::{Calls, Recorded, RecordedRequestKind};

/// A recording of requests and calls, as the admin API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Recording")]
pub(crate) struct RecordingView {
    recorded_s: f64,
    /// Total size of the cache.
    total_bytes: u64,
    slo_observe_s: f64,
    /// Median latency of requests with only cache hits; null if there was none.
    hit_latency_ms: Option<f64>,
    requests: Vec<KindView>,
    /// Requests of kinds (sets of queried backends) beyond the maximum number of kinds.
    other_requests: u64,
    backends: Vec<BackendView>,
}

/// Requests of one kind: those that query the same set of backends.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RecordedRequests")]
struct KindView {
    requests: u64,
    /// Mean and standard deviation of the number of keys that a request queries, by backend.
    keys: BTreeMap<String, KeysView>,
}

/// Number of keys that a request queries.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RecordedKeys")]
struct KeysView {
    /// Standard deviation.
    deviation: f64,
    mean: f64,
}

/// Calls to a backend.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RecordedBackend")]
struct BackendView {
    name: String,
    /// Timeout of a fetch; null if the backend has no store.
    timeout_ms: Option<f64>,
    /// Number of replicas; null if the backend has no store.
    replicas: Option<usize>,
    /// Upper bound of calls in flight to all replicas of the backend together; null if it has no
    /// store.
    calls_at_once_max: Option<u64>,
    calls: u64,
    call_keys: u64,
    /// Quantiles of call durations, `[share, ms]`; empty without calls.
    call_ms: Vec<(f64, f64)>,
}

/// The options of a new recording.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Begin {
    /// Seconds after which the recording ends by itself.
    for_s: Option<f64>,
}

/// Longest recording, and the default: the longest time of `sherwood sim record` and an hour more.
const TIME_MAX: Duration = Duration::from_secs(25 * 3_600);

pub(crate) async fn begin(
    State(core): State<Arc<Core>>,
    InQuery(Begin { for_s }): InQuery<Begin>,
) -> Result<StatusCode, Problem> {
    let time = match for_s {
        None => TIME_MAX,
        Some(seconds) if seconds > 0.0 && seconds <= TIME_MAX.as_secs_f64() => {
            Duration::from_secs_f64(seconds)
        }
        Some(seconds) => {
            return Err(Problem::bad_request(format!(
                "cannot record for_s = {seconds}: the accepted range is above 0 and up to {} seconds",
                TIME_MAX.as_secs()
            )));
        }
    };
    core.recording.begin(core.clock.now(), time, core.backends.len());
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn end(State(core): State<Arc<Core>>) -> Result<StatusCode, Problem> {
    if core.recording.end(core.clock.now()) { Ok(StatusCode::NO_CONTENT) } else { Err(none()) }
}

pub(crate) async fn show(State(core): State<Arc<Core>>) -> Result<Json<RecordingView>, Problem> {
    aside(core, |core| view(core).map(Json)).await?
}

fn none() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "nothing is being recorded, or its time is over; POST /v1/recording begins",
    )
}

fn view(core: &Arc<Core>) -> Result<RecordingView, Problem> {
    let now = core.clock.now();
    let recorded = core.recording.read(now).ok_or_else(none)?;
    let Recorded { since, kinds, others, hits, calls, .. } = recorded;
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|(a, _), (b, _)| a.cmp(b));
    let kind = |(backends, kind): (Vec<BackendId>, RecordedRequestKind)| {
        let count = kind.requests as f64;
        let keys = backends.iter().zip(kind.keys).map(|(&backend, (sum, squares))| {
            let mean = sum / count;
            let deviation = (squares / count - mean * mean).max(0.0).sqrt();
            (core.names.backend(backend).to_owned(), KeysView { deviation, mean })
        });
        KindView { requests: kind.requests, keys: keys.collect() }
    };
    let backends = calls.iter().enumerate().map(|(index, calls)| backend(core, index, calls));
    Ok(RecordingView {
        recorded_s: (now - since).as_secs_f64(),
        total_bytes: core.cache.total_bytes(),
        slo_observe_s: core.telemetry.slo().0.observe.as_secs_f64(),
        hit_latency_ms: hits.quantile(0.5).map(millis),
        requests: kinds.into_iter().map(kind).collect(),
        other_requests: others,
        backends: backends.collect(),
    })
}

/// Returns the shares whose quantiles are reported: percentiles, then ever finer shares near the
/// maximum.
fn shares() -> impl Iterator<Item = f64> {
    (0..100).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.999, 0.999_5, 0.999_9, 1.0])
}

fn backend(core: &Core, index: usize, calls: &Calls) -> BackendView {
    let times = calls.latencies.quantiles(shares());
    let store = core.backends[index].as_ref();
    BackendView {
        name: core.names.backends()[index].clone(),
        timeout_ms: store.map(|store| millis(store.timeout)),
        replicas: store.map(|store| store.replicas.len()),
        calls_at_once_max: store.map(|store| store.calls_at_once_max),
        calls: calls.latencies.count(),
        call_keys: calls.keys,
        call_ms: shares().zip(times.into_iter().map(millis)).collect(),
    }
}
