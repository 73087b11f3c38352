//! Metrics of requests against the bounds of SLOs.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;

use sherwood_model::history::Percentiles;

use super::samples::{counters, gauges, one};
use crate::core::Core;
use crate::slos::Outcomes;

/// Encodes the latency of requests at three percentiles, once there were requests.
pub(super) fn encode_percentiles(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Percentiles { p50, p90, p99 } = core.telemetry.observed().latency;
    let all = [("p50", p50), ("p90", p90), ("p99", p99)];
    for (name, latency) in all {
        let help = format!("{} of requests in the SLO's window at the last observation", name.to_uppercase());
        let sample = latency.map(|latency| one(latency.as_secs_f64())).unwrap_or_default();
        gauges(encoder, &format!("request_{name}_seconds"), &help, sample)?;
    }
    Ok(())
}

/// Encodes every request by its outcome under the global SLO, which has no class, and under that
/// of its class; and the share that should meet each.
pub(super) fn encode_requests(core: &Arc<Core>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let telemetry = &core.telemetry;
    let global = ("", telemetry.slo().0, telemetry.outcomes());
    let all: Vec<_> = std::iter::once(global).chain(telemetry.slos().classes()).collect();
    let class = |class: &str| ("class", class.to_owned());
    let requests = all.iter().flat_map(|(name, _, Outcomes { met, missed })| {
        let outcomes = [("met", *met), ("missed", *missed)];
        outcomes.map(|(result, count)| (vec![class(name), ("result", result.to_owned())], count))
    });
    counters(
        encoder,
        "slo_requests",
        "Requests by whether they met the SLO's bound; without a class, all under the global SLO",
        requests.collect(),
    )?;
    let objectives = all.iter().map(|(name, slo, _)| (vec![class(name)], slo.percentile / 100.0));
    gauges(
        encoder,
        "slo_objective_ratio",
        "Share of requests that should meet the SLO's bound",
        objectives.collect(),
    )
}
