//! `/v1/history`: the last five minutes or the last hour of the node, in columns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sherwood_config::SloScope;
use sherwood_model::history::{
    BackendPoint, COARSE_STEP, DeadlineCounters, FINE_STEP, Largest, Point, SERIES_MAX, SloPoint, chosen,
};
use sherwood_model::{BackendId, Instant, Slo, TenantId};
use sherwood_ports::http::{InQuery, Problem};
use sherwood_process::clock::millis;

use super::aside::aside;
use crate::core::Core;

/// A column of numbers, one for each point; null where there is none.
type Column = Vec<Option<f64>>;

/// The options of a request for the history.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Seconds between the points: 1 or 5, by default 5.
    step_s: Option<u64>,
    /// Only points and events after this time, milliseconds since 1970.
    after_ms: Option<u64>,
    /// The parameter `pretty`, which [`sherwood_ports::http::form`] reads.
    #[serde(rename = "pretty")]
    #[schemars(skip)]
    _pretty: Option<IgnoredAny>,
}

/// A part of the history, as the admin API shows it. Every column has a value for each time in
/// `at_ms`, and covers the time since the point before.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HistoryView {
    version: &'static str,
    /// Present time of the node, milliseconds since 1970.
    now_ms: u64,
    /// Start of the node, milliseconds since 1970.
    started_ms: u64,
    step_s: u64,
    /// Most points that are kept with this step.
    points_max: usize,
    cache_total_bytes: u64,
    /// Ends of the points, milliseconds since 1970.
    at_ms: Vec<u64>,
    requests: RequestColumns,
    decisions: Vec<u64>,
    /// The global SLO, then those of classes and tenants.
    slos: Vec<SloColumns>,
    /// The backends with most blocked requests and look-ups, at most 32.
    backends: Vec<BackendColumns>,
    /// The sum of all other backends.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_backends: Option<BackendColumns>,
    /// The largest partitions, at most 32.
    partitions: Vec<PartitionColumns>,
    /// The sum of all other partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_partitions: Option<PartitionColumns>,
    deadlines: Vec<DeadlineColumns>,
    /// The tenants with least throughput, at most 32.
    tenants: Vec<TenantColumns>,
    events: Vec<EventView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct RequestColumns {
    p50_ms: Column,
    p90_ms: Column,
    p99_ms: Column,
    per_s: Column,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SloColumns {
    /// The requests that it covers: `all`, `class` or `tenant`.
    scope: &'static str,
    name: Option<String>,
    percentile: f64,
    bound_ms: f64,
    current_ms: Column,
    observations: Vec<u64>,
    violations: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct BackendColumns {
    name: String,
    blocking: Column,
    look_ups: Column,
    hit_ratio: Column,
    query_p99_ms: Column,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PartitionColumns {
    name: String,
    bytes: Column,
}

#[derive(Debug, Serialize, JsonSchema)]
struct DeadlineColumns {
    /// Upper bound of the class; null where deadlines are not divided into classes.
    upto_ms: Option<f64>,
    met: Vec<u64>,
    missed: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TenantColumns {
    name: String,
    normalized: Column,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EventView {
    unix_ms: u64,
    kind: &'static str,
    message: String,
}

pub(crate) async fn show(
    State(core): State<Arc<Core>>,
    InQuery(Asked { step_s, after_ms, .. }): InQuery<Asked>,
) -> Result<Json<HistoryView>, Problem> {
    let step = match step_s.map_or(COARSE_STEP, Duration::from_secs) {
        step if step == FINE_STEP || step == COARSE_STEP => step,
        other => {
            let error = format!("there is no history with step_s = {}; ask for 1 or 5", other.as_secs());
            return Err(Problem::bad_request(error).with("accepted", vec![1, 5]));
        }
    };
    aside(core, move |core| Json(view(core, step, after_ms.unwrap_or(0)))).await
}

fn view(core: &Core, step: Duration, after_ms: u64) -> HistoryView {
    // A point's time is shown in whole milliseconds, rounded down.
    let after = match after_ms {
        0 => Instant::ZERO,
        after => core.clock.at_unix(Duration::from_millis(after.saturating_add(1))),
    };
    let (points, points_max): (Vec<Point>, usize) = {
        let history = core.history.lock();
        let timeline = if step == FINE_STEP { history.fine() } else { history.coarse() };
        (timeline.after(after).cloned().collect(), timeline.points_max())
    };
    let now = core.clock.now();
    let (backends, other_backends) = backends(core, &points);
    let (partitions, other_partitions) = partitions(core, &points);
    let events = core.events.latest().into_iter().filter(|event| event.unix_ms > after_ms);
    HistoryView {
        version: env!("CARGO_PKG_VERSION"),
        now_ms: unix_ms(core, now),
        started_ms: unix_ms(core, now).saturating_sub(core.clock.uptime().as_millis() as u64),
        step_s: step.as_secs(),
        points_max,
        cache_total_bytes: core.control().total_bytes(),
        at_ms: points.iter().map(|point| unix_ms(core, point.at)).collect(),
        requests: requests(&points),
        decisions: points.iter().map(|point| point.decisions).collect(),
        slos: slos(core, &points),
        backends,
        other_backends,
        partitions,
        other_partitions,
        deadlines: deadlines(core, &points),
        tenants: tenants(core, &points),
        events: events
            .map(|event| EventView { unix_ms: event.unix_ms, kind: event.kind, message: event.message })
            .collect(),
    }
}

fn unix_ms(core: &Core, at: Instant) -> u64 {
    u64::try_from(core.clock.unix(at).as_millis()).unwrap_or(u64::MAX)
}

fn requests(points: &[Point]) -> RequestColumns {
    let each = |value: fn(&Point) -> Option<Duration>| -> Column {
        points.iter().map(|point| value(point).map(millis)).collect()
    };
    let per_s = |point: &Point| Some(rounded(point.requests as f64 / point.span.as_secs_f64().max(1e-9), 1));
    RequestColumns {
        p50_ms: each(|point| point.latency.p50),
        p90_ms: each(|point| point.latency.p90),
        p99_ms: each(|point| point.latency.p99),
        per_s: points.iter().map(per_s).collect(),
    }
}

fn slos(core: &Core, points: &[Point]) -> Vec<SloColumns> {
    let columns = |(index, (scope, name, slo)): (usize, (&'static str, Option<String>, Slo))| {
        let each = |point: &Point| point.slos.get(index).copied().unwrap_or_default();
        let count = |value: fn(&SloPoint) -> u64| points.iter().map(|point| value(&each(point))).collect();
        SloColumns {
            scope,
            name,
            percentile: slo.percentile,
            bound_ms: millis(slo.bound),
            current_ms: points.iter().map(|point| each(point).current.map(millis)).collect(),
            observations: count(|of| of.observations),
            violations: count(|of| of.violations),
        }
    };
    let own = core.telemetry.slos().standings().map(|(to, slo, _)| {
        let scope = if matches!(to, SloScope::Class(_)) { "class" } else { "tenant" };
        (scope, Some(core.names.slo_scope(to).to_owned()), slo)
    });
    let all = std::iter::once(("all", None, core.telemetry.slo().0)).chain(own);
    all.take(SERIES_MAX).enumerate().map(columns).collect()
}

fn backends(core: &Core, points: &[Point]) -> (Vec<BackendColumns>, Option<BackendColumns>) {
    let weight = |of: &BackendPoint| of.blocking * 1_000 + of.hits + of.misses;
    let (series, others) = chosen(points.iter().map(|point| &point.backends), weight);
    let columns = |name: String, values: Vec<Option<BackendPoint>>| {
        let each = |value: fn(&BackendPoint) -> Option<f64>| -> Column {
            values.iter().map(|of| of.as_ref().and_then(value)).collect()
        };
        BackendColumns {
            name,
            blocking: each(|of| Some(of.blocking as f64)),
            look_ups: each(|of| Some((of.hits + of.misses) as f64)),
            hit_ratio: each(|of| {
                let look_ups = of.hits + of.misses;
                (look_ups > 0).then(|| rounded(of.hits as f64 / look_ups as f64, 4))
            }),
            query_p99_ms: each(|of| of.query_p99.map(millis)),
        }
    };
    let named = |(id, values)| columns(core.names.backend(BackendId(id)).to_owned(), values);
    let others = others.map(|values| columns("other".to_owned(), values));
    (series.into_iter().map(named).collect(), others)
}

fn partitions(core: &Core, points: &[Point]) -> (Vec<PartitionColumns>, Option<PartitionColumns>) {
    let held: Vec<&Largest<u64>> = points.iter().map(|point| &point.partitions).collect();
    let (series, others) = chosen(held.iter().copied(), |&bytes| bytes);
    let columns = |name: String, values: Vec<Option<u64>>| PartitionColumns {
        name,
        bytes: values.into_iter().map(|bytes| bytes.map(|bytes| bytes as f64)).collect(),
    };
    let named =
        |(id, values): (u16, _)| columns(core.names.partitions()[usize::from(id)].name.clone(), values);
    let others = others.map(|values| columns("other".to_owned(), values));
    (series.into_iter().map(named).collect(), others)
}

fn deadlines(core: &Core, points: &[Point]) -> Vec<DeadlineColumns> {
    let columns = |(index, upto): (usize, &Option<Duration>)| {
        let count = |value: fn(&DeadlineCounters) -> u64| -> Vec<u64> {
            points.iter().map(|point| point.deadlines.get(index).map_or(0, value)).collect()
        };
        DeadlineColumns { upto_ms: upto.map(millis), met: count(|of| of.met), missed: count(|of| of.missed) }
    };
    core.history.classes().iter().enumerate().map(columns).collect()
}

fn tenants(core: &Core, points: &[Point]) -> Vec<TenantColumns> {
    let mut least: BTreeMap<u16, f64> = BTreeMap::new();
    for (id, normalized) in points.iter().flat_map(|point| &point.tenants) {
        let least = least.entry(*id).or_insert(f64::INFINITY);
        *least = least.min(*normalized);
    }
    let mut ids: Vec<u16> = least.keys().copied().collect();
    if ids.len() > SERIES_MAX {
        ids.sort_by(|a, b| least[a].total_cmp(&least[b]));
        ids.truncate(SERIES_MAX);
        ids.sort_unstable();
    }
    let columns = |id: u16| {
        let value = |point: &Point| {
            let place = point.tenants.binary_search_by_key(&id, |(id, _)| *id).ok()?;
            Some(rounded(point.tenants[place].1, 3))
        };
        let name = core.names.tenant(TenantId::from_index(usize::from(id))).to_owned();
        TenantColumns { name, normalized: points.iter().map(value).collect() }
    };
    ids.into_iter().map(columns).collect()
}

/// Returns `value` with some digits after the point, which is enough for a chart.
fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}
