//! Spans of traces, as far as requests are concerned, and the requests made of them.

use std::time::Duration;

use crate::{BackendId, FinishedRequest};

/// A span of a trace, as far as requests are concerned. Times are nanoseconds since 1970 by the
/// clock of the process that made the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSpan<L> {
    /// The trace it belongs to.
    pub trace: u128,
    /// Start.
    pub start_unix_ns: u64,
    /// End, not before the start.
    pub end_unix_ns: u64,
    /// Meaning of the span for requests.
    pub role: SpanRole<L>,
}

/// Meaning of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanRole<L> {
    /// The root of a trace: a request. The label is returned with it.
    Request(L),
    /// A client span to a known backend: a query.
    Query {
        /// The backend.
        backend: BackendId,
        /// The backend's timeout if the span failed; none otherwise.
        failed: Option<Duration>,
    },
}

/// A request made of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedRequest<L> {
    /// The label of the root.
    pub label: L,
    /// End of the root, nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// Latency and blocking backend.
    pub request: FinishedRequest,
}
