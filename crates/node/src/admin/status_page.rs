//! `/status`: the state of the node as a page of text, for terminals.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use sherwood_ports::http::Problem;
use sherwood_process::clock::millis;

use super::aside::aside;
use super::backends::{self, BackendView};
use super::partitions::{self, LatencyView};
use crate::core::Core;

/// Answers with the page.
pub(crate) async fn show(State(core): State<Arc<Core>>) -> Result<String, Problem> {
    aside(core, page_text).await
}

/// List of the HTTP port's paths, shown on the text page.
const PATHS: &str = "
GET     / /v1/partitions /v1/mrc/NAME /v1/slo /v1/rbc /v1/control /v1/history /v1/backends
GET     /v1/tenants /v1/replication /v1/cluster /v1/hot-keys /v1/keys/BACKEND/KEY /v1/events
GET     /v1/openapi.json /metrics
POST    /v1/requests /v1/reports /v1/traces /v1/invalidate /v1/recording /v1/reload
PUT     /v1/keys/BACKEND/KEY /v1/partitions/NAME /v1/tenants/NAME /v1/control /v1/backends/NAME/limit
DELETE  /v1/keys/BACKEND/KEY
";

/// Appends the partitions: sizes, hit ratios since the start, and latency of reads lately.
fn partitions_text(core: &Core, text: &mut String) {
    let heads = ["partition", "allocated", "used", "items", "hits", "P50", "P99"];
    let [name, allocated, used, items, hits, p50, p99] = heads;
    let _ = writeln!(text, "{name:<24}{allocated:>16}{used:>16}{items:>12}{hits:>10}{p50:>11}{p99:>11}");
    for view in partitions::views(core) {
        let look_ups = view.hits + view.misses;
        let ratio = if look_ups == 0 {
            "-".to_owned()
        } else {
            format!("{:.1}%", 100.0 * view.hits as f64 / look_ups as f64)
        };
        let latency = |of: fn(&LatencyView) -> f64| match &view.latency_ms {
            Some(latency) => format!("{:.2} ms", of(latency)),
            None => "-".to_owned(),
        };
        let (p50, p99) = (latency(|of| of.p50), latency(|of| of.p99));
        let _ = writeln!(
            text,
            "{:<24}{:>16}{:>16}{:>12}{ratio:>10}{p50:>11}{p99:>11}",
            view.name, view.allocated_bytes, view.used_bytes, view.items
        );
    }
}

/// Appends the backends that have replicas: what these do now, and what became of the keys asked
/// for since the start.
fn backends_text(core: &Core, text: &mut String) {
    let asked: Vec<_> =
        backends::views(core).into_iter().filter(|view| !view.replica_states.is_empty()).collect();
    if asked.is_empty() {
        return;
    }
    let heads = ["backend", "replicas up", "in flight", "waiting", "asked", "failed", "rejected", "stale"];
    let [name, up, in_flight, waiting, keys, failed, rejected, stale] = heads;
    let _ = writeln!(
        text,
        "\n{name:<24}{up:>16}{in_flight:>11}{waiting:>11}{keys:>12}{failed:>10}{rejected:>10}{stale:>10}"
    );
    for BackendView { name, replicas, keys, replica_states, .. } in asked {
        let up = replica_states.iter().filter(|replica| replica.up).count();
        let sum = |of: fn(&backends::ReplicaView) -> u32| replica_states.iter().map(of).sum::<u32>();
        let _ = writeln!(
            text,
            "{name:<24}{:>16}{:>11}{:>11}{:>12}{:>10}{:>10}{:>10}",
            format!("{up} of {replicas}"),
            sum(|replica| replica.in_flight),
            sum(|replica| replica.waiting),
            keys.asked,
            keys.failed + keys.timed_out,
            keys.rejected,
            keys.stale
        );
    }
}

fn page_text(core: &Arc<Core>) -> String {
    let (slo, standing) = core.telemetry.slo();
    let mut text =
        format!("Sherwood {}, up {} s\n\n", env!("CARGO_PKG_VERSION"), core.clock.uptime().as_secs());
    let none = || "none seen yet, from listeners, /v1/requests, /v1/reports or /v1/traces".to_owned();
    let current = standing.current.map_or_else(none, |p| format!("{:.1} ms", millis(p)));
    let _ = writeln!(
        text,
        "request P{}: {current}; bound {} ms; violated in {} of {} observations",
        slo.percentile,
        millis(slo.bound),
        standing.violations,
        standing.observations
    );
    let total = core.cache.total();
    let _ = writeln!(text, "policy: {}", core.control().policy());
    let _ = writeln!(
        text,
        "cache: {} of {} bytes, {} items\n",
        total.used_bytes, total.budget_bytes, total.items
    );
    partitions_text(core, &mut text);
    backends_text(core, &mut text);
    for backend in core.backends.iter().flatten() {
        let failed: Vec<_> =
            backend.errors.counts().iter().map(|(cause, count)| format!("{count} {cause}")).collect();
        if !failed.is_empty() {
            let _ = writeln!(text, "failed at {} since the start: {}", backend.name, failed.join(", "));
        }
    }
    text.push_str("\nlately:\n");
    for event in core.events.latest().iter().rev().take(20) {
        let _ = writeln!(text, "  {}", event.message);
    }
    text.push_str(PATHS);
    text
}
