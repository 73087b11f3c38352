//! The trace of a sampled request: the ids of its spans, and the spans made of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

/// The ids of a sampled request's spans.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    pub(super) trace: TraceId,
    /// The span of the request itself.
    pub(super) span: SpanId,
    /// The caller's span; none if the request begins the trace.
    pub(super) parent: Option<SpanId>,
    pub(super) state: TraceState,
    /// A random number. The query with number n has the n-th id after it.
    pub(super) first_query: u64,
}

/// A span that has ended, except for its ids.
pub(crate) struct Ended {
    pub(crate) name: Cow<'static, str>,
    pub(crate) kind: SpanKind,
    /// Start and end.
    pub(crate) times: (SystemTime, SystemTime),
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) status: Status,
}

/// The status of a span that failed; `error.type` has the reason.
pub(crate) fn failed(is_failed: bool) -> Status {
    if is_failed { Status::error("") } else { Status::Unset }
}

impl RequestTrace {
    /// The span of the request.
    pub(crate) fn request(&self, ended: Ended) -> SpanData {
        let parent = self.parent.unwrap_or(SpanId::INVALID);
        self.data(self.span, (parent, self.parent.is_some()), ended)
    }

    /// The span of the query with this number.
    pub(crate) fn query(&self, number: u32, ended: Ended) -> SpanData {
        self.data(self.query_id(number), (self.span, false), ended)
    }

    /// The id of the span of the query with this number; zero is no id.
    fn query_id(&self, number: u32) -> SpanId {
        SpanId::from(self.first_query.wrapping_add(number.into()).max(1))
    }

    fn context(&self, span: SpanId) -> SpanContext {
        SpanContext::new(self.trace, span, TraceFlags::SAMPLED, false, self.state.clone())
    }

    fn data(&self, span: SpanId, (parent, is_remote): (SpanId, bool), ended: Ended) -> SpanData {
        let Ended { name, kind, times: (start_time, end_time), attributes, status } = ended;
        SpanData {
            span_context: self.context(span),
            parent_span_id: parent,
            parent_span_is_remote: is_remote,
            span_kind: kind,
            name,
            start_time,
            end_time,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: scope(),
        }
    }
}

/// The span of a query in flight, below which attempts have theirs.
#[derive(Debug)]
pub(crate) struct QuerySpan {
    pub(super) trace: Arc<RequestTrace>,
    /// The query's number in the request.
    number: u32,
}

impl QuerySpan {
    pub(crate) fn new(trace: Arc<RequestTrace>, number: u32) -> Self {
        Self { trace, number }
    }

    /// The span of an attempt with this id.
    pub(super) fn attempt(&self, id: SpanId, ended: Ended) -> SpanData {
        self.trace.data(id, (self.trace.query_id(self.number), false), ended)
    }

    pub(super) fn context(&self) -> SpanContext {
        self.trace.context(self.trace.query_id(self.number))
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("sherwood").with_version(env!("CARGO_PKG_VERSION")).build()
}
