//! Metrics of OpenTelemetry traces.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::DescriptorEncoder;
use sherwood_model::SpanCounts;

use super::samples::{counters, gauges, one};
use crate::core::Core;
use crate::spans::ExportCounts;

/// Encodes what became of the spans.
pub(super) fn encode(core: &Arc<Core>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let counts = core.traced.counts();
    let SpanCounts {
        requests,
        unmatched,
        ambiguous,
        own,
        late,
        outside,
        misdated,
        dropped,
        rootless,
        traces,
    } = counts;
    let results = [
        ("unmatched", unmatched),
        ("ambiguous", ambiguous),
        ("own", own),
        ("late", late),
        ("outside", outside),
        ("misdated", misdated),
        ("dropped", dropped),
    ];
    let results = results.map(|(result, count)| (vec![("result", result.to_owned())], count));
    counters(encoder, "trace_requests", "Requests made of traces", one(requests))?;
    counters(encoder, "trace_spans_unused", "Client spans that count for no request", results.to_vec())?;
    counters(encoder, "traces_rootless", "Traces given up without their root", one(rootless))?;
    gauges(encoder, "traces_open", "Traces whose spans are collected", one(traces as f64))?;
    let ExportCounts { exported, overflowed, failed } =
        core.spans.as_ref().map(|spans| spans.counts()).unwrap_or_default();
    let reasons = [("queue", overflowed), ("export", failed)];
    let dropped = reasons.map(|(reason, count)| (vec![("reason", reason.to_owned())], count)).to_vec();
    counters(encoder, "spans_exported", "Spans of own requests that a collector accepted", one(exported))?;
    counters(encoder, "spans_dropped", "Spans of own requests that were not exported", dropped)
}
