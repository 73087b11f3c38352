//! Metrics of requests against the bounds of SLOs.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;

use super::{counters, gauges};
use crate::core::Core;
use crate::slos::Outcomes;

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
