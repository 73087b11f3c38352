//! Spans of an export as spans of requests.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use sherwood_model::{SpanRole, TraceSpan, Traces};

use super::export::{Export, Refused, ResourceSpans};
use super::record_ended;
use super::rule::Owner;
use crate::core::Core;
use crate::slos::Counted;

/// The attribute of a root that names the request's class.
const CLASS: &str = "sherwood.class";
/// The attribute of a root that names the request's tenant.
const TENANT: &str = "sherwood.tenant";
/// The attribute of a query that names its backend, before any rule.
const BACKEND: &str = "sherwood.backend";
/// The attribute of a call to a replica, which is a part of the query above it.
const ATTEMPT: &str = "sherwood.attempt";
/// The attribute of a resource that tells processes of a service apart.
const INSTANCE: &str = "service.instance.id";

/// Adds the spans of an export to their traces, records the traces that have ended, and returns the
/// refused malformed spans.
pub(super) fn take(core: &Core, export: Export) -> Refused {
    let Export { resources, mut refused } = export;
    let own = core.spans.as_ref().map(|spans| spans.instance());
    let is_own = |resource: &&ResourceSpans| own.is_some() && text(&resource.attributes, INSTANCE) == own;
    let (own, others): (Vec<_>, Vec<_>) = resources.iter().partition(is_own);
    let now = core.clock.now();
    let now_unix_ns = u64::try_from(core.clock.unix(now).as_nanos()).unwrap_or(u64::MAX);
    let mut traces = core.traced.traces();
    traces.count_own(own.iter().map(|resource| resource.spans.len() as u64).sum());
    for span in others.iter().flat_map(|resource| &resource.spans) {
        let Some(trace) = trace_id(&span.trace_id) else {
            refused.count("a span's trace id is not of 16 bytes, or zero");
            continue;
        };
        if let Some(role) = role(core, span, &mut traces) {
            let (start_unix_ns, end_unix_ns) = (span.start_time_unix_nano, span.end_time_unix_nano);
            traces.add(now, now_unix_ns, TraceSpan { trace, start_unix_ns, end_unix_ns, role });
        }
    }
    record_ended(core, &mut traces);
    refused
}

/// Sixteen bytes that are not all zero.
fn trace_id(bytes: &[u8]) -> Option<u128> {
    let id = u128::from_be_bytes(bytes.try_into().ok()?);
    (id != 0).then_some(id)
}

/// Returns what a span stands for; none for one that is neither a root nor a query.
fn role(core: &Core, span: &Span, traces: &mut Traces<Counted>) -> Option<SpanRole<Counted>> {
    if span.parent_span_id.iter().all(|byte| *byte == 0) {
        return Some(SpanRole::Request(counted(core, &span.attributes)));
    }
    let is_attempt = || span.attributes.iter().any(|attribute| attribute.key == ATTEMPT);
    if span.kind != SpanKind::Client as i32 || is_attempt() {
        return None;
    }
    let named = text(&span.attributes, BACKEND).and_then(|name| core.names.backend_id(name));
    match core.traced.rules.owner(named, &span.attributes) {
        Owner::One(backend, timeout) => {
            let is_error = span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32);
            Some(SpanRole::Query { backend, failed: is_error.then_some(timeout) })
        }
        Owner::None => {
            traces.count_unmatched();
            None
        }
        Owner::Several => {
            traces.count_ambiguous();
            None
        }
    }
}

/// Returns the SLOs that a request with these attributes counts for. A tenant or class that is not
/// known counts for none.
fn counted(core: &Core, attributes: &[KeyValue]) -> Counted {
    let named = text(attributes, TENANT);
    let tenant = match named {
        Some(name) => core.names.tenant_id(name),
        None => core.names.default_tenant(),
    };
    core.telemetry.slos().counted(text(attributes, CLASS), tenant.unwrap_or(core.names.nobody()))
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}
