//! Metrics of OpenTelemetry traces.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_model::SpanCounts;

use super::{counters, gauges, one};
use crate::core::Core;

/// Encodes what became of the spans.
pub(super) fn encode(core: &Arc<Core>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let SpanCounts { requests, unmatched, ambiguous, late, outside, misdated, dropped, rootless, traces } =
        core.traced.counts();
    let results = [
        ("unmatched", unmatched),
        ("ambiguous", ambiguous),
        ("late", late),
        ("outside", outside),
        ("misdated", misdated),
        ("dropped", dropped),
    ];
    let results = results.map(|(result, count)| (vec![("result", result.to_owned())], count));
    counters(encoder, "trace_requests", "Requests made of traces", one(requests))?;
    counters(encoder, "trace_spans_unused", "Client spans that count for no request", results.to_vec())?;
    counters(encoder, "traces_rootless", "Traces given up without their root", one(rootless))?;
    gauges(encoder, "traces_open", "Traces whose spans are collected", one(traces as f64))
}
