//! `/v1/rbc`, `/v1/slo` and `/v1/reports`: latency of requests against their SLOs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sherwood_config::SloScope;
use sherwood_model::{FinishedRequest, Slo, SloStanding};
use sherwood_policy::Needs;
use sherwood_ports::http::{Problem, Text, WholeBody, json_at, listed};
use sherwood_process::clock::millis;

use super::aside::aside;
use crate::core::Core;
use crate::observe::telemetry::Rbc;
use crate::slos::{Counted, Outcomes};

/// Upper bound of reported requests in one body of `POST /v1/reports`.
const REPORTS_MAX: usize = 100_000;

/// Request blocking counts (RBC), as the admin API shows them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "BlockingCounts")]
pub(crate) struct RbcView {
    /// Percentiles of latency between which requests are counted, as ratios.
    band: [f64; 2],
    /// Number of requests that each backend blocked, by its slowest query; with `[cluster]`,
    /// requests of all `nodes`.
    counts: BTreeMap<String, u64>,
    /// Names of the nodes whose requests are counted; absent without `[cluster]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<String>>,
    /// Age of the oldest request that was counted, which may be beyond the window if requests are
    /// few.
    reached_s: f64,
    window_s: f64,
}

pub(crate) async fn rbc(State(core): State<Arc<Core>>) -> Result<Json<RbcView>, Problem> {
    aside(core, blocking_counts).await.map(Json)
}

fn blocking_counts(core: &Arc<Core>) -> RbcView {
    let band = core.control().band();
    let (now, backends) = (core.clock.now(), core.names.backends());
    let needs = Needs { requests: true, bands: vec![band], ..Needs::default() };
    let (nodes, known) = core.statistics.as_ref().map(|of| of.blocking(now, &needs)).unzip();
    let Rbc { reach, counts } = match known.flatten() {
        Some(known) => {
            let reach = known.reach();
            let seen = known.observations(&needs, backends.len());
            Rbc { reach, counts: seen.first().map(|seen| seen.blocking(band).to_vec()).unwrap_or_default() }
        }
        None => core.telemetry.rbc(now, band),
    };
    RbcView {
        band: [band.low / 100.0, band.high / 100.0],
        counts: backends.iter().cloned().zip(counts).collect(),
        nodes,
        reached_s: reach.as_secs_f64(),
        window_s: core.telemetry.rbc_window().as_secs_f64(),
    }
}

/// The SLO and its observations since the start, as the admin API shows them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Slo")]
pub(crate) struct SloView {
    bound_ms: f64,
    /// Share that is left of the requests that may exceed the bound, since the start: negative when
    /// more did; null before the first request.
    budget_left_ratio: Option<f64>,
    /// The SLOs of classes.
    classes: Vec<ScopedSloView>,
    /// The latest observation; null before the first.
    current_ms: Option<f64>,
    /// The largest observation.
    max_ms: Option<f64>,
    observations: u64,
    /// The percentile of request latency, in percent.
    percentile: f64,
    /// The SLOs of tenants.
    tenants: Vec<ScopedSloView>,
    violation_ratio: f64,
    violations: u64,
    window_s: f64,
}

/// The SLO of a class or of a tenant.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ScopedSlo")]
struct ScopedSloView {
    bound_ms: f64,
    /// Share that is left of the requests that may exceed the bound, as for all requests.
    budget_left_ratio: Option<f64>,
    current_ms: Option<f64>,
    max_ms: Option<f64>,
    name: String,
    observations: u64,
    percentile: f64,
    violation_ratio: f64,
    violations: u64,
}

pub(crate) async fn slo(State(core): State<Arc<Core>>) -> Json<SloView> {
    let (slo, standing) = core.telemetry.slo();
    Json(SloView {
        bound_ms: millis(slo.bound),
        budget_left_ratio: core.telemetry.outcomes().budget_left_ratio(slo.percentile),
        classes: slos(&core, |to| matches!(to, SloScope::Class(_))),
        current_ms: standing.current.map(millis),
        max_ms: standing.max.map(millis),
        observations: standing.observations,
        percentile: slo.percentile,
        tenants: slos(&core, |to| matches!(to, SloScope::Tenant(_))),
        violation_ratio: standing.violation_ratio(),
        violations: standing.violations,
        window_s: slo.window.as_secs_f64(),
    })
}

/// Returns the SLOs whose scope (a class or a tenant) is `wanted`.
fn slos(core: &Core, wanted: impl Fn(&SloScope) -> bool) -> Vec<ScopedSloView> {
    let view = |(to, slo, standing): (&SloScope, Slo, SloStanding), outcomes: Outcomes| ScopedSloView {
        bound_ms: millis(slo.bound),
        budget_left_ratio: outcomes.budget_left_ratio(slo.percentile),
        current_ms: standing.current.map(millis),
        max_ms: standing.max.map(millis),
        name: core.names.slo_scope(to).to_owned(),
        observations: standing.observations,
        percentile: slo.percentile,
        violation_ratio: standing.violation_ratio(),
        violations: standing.violations,
    };
    let slos = core.telemetry.slos();
    let wanted = slos.standings().zip(slos.outcomes()).filter(|((to, ..), _)| wanted(to));
    wanted.map(|(standing, (.., outcomes))| view(standing, outcomes)).collect()
}

/// A finished request reported by an application that looks up its caches itself.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Report<'a> {
    latency_us: u64,
    /// Name of the backend of the request's slowest query; null if the request made no query.
    #[serde(borrow)]
    blocking: Option<Text<'a>>,
    /// The request's class, for the SLO of that class.
    #[serde(borrow)]
    class: Option<Text<'a>>,
    /// The request's tenant, for that tenant's SLO and for decisions within it; the default tenant
    /// where absent.
    #[serde(borrow)]
    tenant: Option<Text<'a>>,
    /// Time at which the request ended, milliseconds since 1970; now where absent.
    t: Option<u64>,
}

/// The number of reports that were taken.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reported")]
pub(crate) struct ReportedView {
    accepted: usize,
    /// Reports that were older than the window.
    dropped: usize,
    /// Reports that were refused because they are malformed or name something unknown; absent if
    /// none was.
    #[serde(skip_serializing_if = "is_zero")]
    refused: usize,
    /// The reason for the first report that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Records the valid reports of a body. Malformed reports and those with unknown names are left
/// out; if no report is valid, the whole body is refused with the reason for the first one.
pub(crate) async fn reports(
    State(core): State<Arc<Core>>,
    body: WholeBody,
) -> Result<Json<ReportedView>, Problem> {
    let reports = each_report(&body)?;
    if reports.len() > REPORTS_MAX {
        return Err(Problem::bad_request(format!(
            "{} reports; a body has at most {REPORTS_MAX}",
            reports.len()
        )));
    }
    let (mut finished, mut first, total) = (Vec::with_capacity(reports.len()), None, reports.len());
    for (index, report) in reports.into_iter().enumerate() {
        match report.and_then(|report| finish(&core, index, &report)) {
            Ok(one) => finished.push(one),
            Err(problem) => _ = first.get_or_insert(problem),
        }
    }
    let error = match first {
        Some(problem) if finished.is_empty() => return Err(problem),
        first => first.map(|problem| problem.error().to_owned()),
    };
    let now = core.clock.now();
    let ended = |t: Option<u64>| t.map_or(now, |t| core.clock.at_unix(Duration::from_millis(t)));
    let taken = finished.len();
    let accepted = finished
        .into_iter()
        .filter(|&(t, counted, request)| core.telemetry.request(now, ended(t), counted, request))
        .count();
    Ok(Json(ReportedView { accepted, dropped: taken - accepted, refused: total - taken, error }))
}

/// Parses the reports of a body. They are parsed one by one only if the body as a whole is invalid,
/// because that takes twice the time.
fn each_report(body: &WholeBody) -> Result<Vec<Result<Report<'_>, Problem>>, Problem> {
    let whole = match body.json::<Vec<Report<'_>>>() {
        Ok(reports) => return Ok(reports.into_iter().map(Ok).collect()),
        Err(whole) => whole,
    };
    let Ok(unread) = body.json::<Vec<&RawValue>>() else { return Err(whole) };
    let mut reports = Vec::with_capacity(unread.len());
    for (index, raw) in unread.into_iter().enumerate() {
        reports.push(json_at(raw.get().as_bytes(), &format!("[{index}]")));
    }
    Ok(reports)
}

/// Converts the report at `index` of a body, and checks its names.
fn finish(
    core: &Core,
    index: usize,
    report: &Report<'_>,
) -> Result<(Option<u64>, Counted, FinishedRequest), Problem> {
    let unknown = |field: &str, error: String| {
        Problem::unprocessable(format!("report {index}: {error}")).with("path", format!("[{index}].{field}"))
    };
    let blocking = match &report.blocking {
        Some(name) => Some(core.names.backend_id(name).ok_or_else(|| {
            let known = listed(core.names.backends());
            unknown("blocking", format!("no backend is called {name:?}; known: {known}"))
        })?),
        None => None,
    };
    let tenant = match &report.tenant {
        Some(name) => core.names.tenant_id(name).ok_or_else(|| {
            let known = listed(core.names.tenants());
            unknown("tenant", format!("no tenant is called {name:?}; known: {known}"))
        })?,
        None => core.names.default_tenant().unwrap_or(core.names.nobody()),
    };
    let slos = core.telemetry.slos();
    slos.check_class(report.class.as_deref()).map_err(|known| {
        let class = report.class.as_deref().unwrap_or_default();
        unknown("class", format!("no class with an SLO is called {class:?}; known: {}", listed(&known)))
    })?;
    let latency = Duration::from_micros(report.latency_us);
    let counted = slos.counted(report.class.as_deref(), tenant);
    Ok((report.t, counted, FinishedRequest::new(latency, blocking).of(tenant)))
}
