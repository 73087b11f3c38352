//! Fates of the spans of traces.

/// Counts of spans and traces since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Requests made of traces.
    pub requests: u64,
    /// Client spans that match no backend.
    pub unmatched: u64,
    /// Client spans that match several backends, and further roots of a trace.
    pub ambiguous: u64,
    /// Spans of requests that were counted otherwise.
    pub own: u64,
    /// Spans that arrived after their trace had ended.
    pub late: u64,
    /// Queries that ended before their root began or after it ended.
    pub outside: u64,
    /// Spans that end before they start, or in the future.
    pub misdated: u64,
    /// Queries beyond the bound of those kept.
    pub dropped: u64,
    /// Traces whose root did not arrive.
    pub rootless: u64,
    /// Traces that are kept at present.
    pub traces: u64,
}
