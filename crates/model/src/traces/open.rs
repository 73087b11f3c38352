//! A trace whose spans are being collected.

use std::mem;
use std::time::Duration;

use super::span::{SpanRole, TraceSpan, TracedRequest};
use crate::{BackendId, QueryEnd, RequestEnd};

/// The state of a trace.
#[derive(Clone, Debug)]
pub(super) struct OpenTrace<L> {
    queries: Vec<Query>,
    root: Root<L>,
    /// True if nothing else refers to the trace, so that it is to be removed when it ends.
    pub(super) is_last: bool,
}

#[derive(Clone, Debug)]
enum Root<L> {
    Awaited,
    Arrived {
        start_unix_ns: u64,
        end_unix_ns: u64,
        label: L,
    },
    /// The request was returned; the trace is kept so that late spans are known as such.
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Query {
    end_unix_ns: u64,
    backend: BackendId,
    failed: Option<Duration>,
}

/// Fate of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is kept as a query.
    Query,
    /// It is the root.
    Root,
    /// It is a second root.
    SecondRoot,
    /// The trace had ended.
    Late,
}

/// The end of a trace.
pub(super) struct Ended<L> {
    pub(super) request: TracedRequest<L>,
    /// Queries that are no longer kept.
    pub(super) queries: usize,
    /// Queries among them that ended outside the root.
    pub(super) outside: u64,
}

impl<L> Default for OpenTrace<L> {
    fn default() -> Self {
        Self { queries: Vec::new(), root: Root::Awaited, is_last: false }
    }
}

impl<L> OpenTrace<L> {
    /// Bytes of a query.
    pub(super) const QUERY_BYTES: usize = size_of::<Query>();

    pub(super) fn add(&mut self, span: TraceSpan<L>) -> Added {
        let TraceSpan { start_unix_ns, end_unix_ns, role, .. } = span;
        match (&self.root, role) {
            (Root::Ended, _) => Added::Late,
            (_, SpanRole::Query { backend, failed }) => {
                self.queries.push(Query { end_unix_ns, backend, failed });
                Added::Query
            }
            (Root::Awaited, SpanRole::Request(label)) => {
                self.root = Root::Arrived { start_unix_ns, end_unix_ns, label };
                Added::Root
            }
            (Root::Arrived { .. }, SpanRole::Request(_)) => Added::SecondRoot,
        }
    }

    /// True if the root has not arrived.
    pub(super) fn is_rootless(&self) -> bool {
        matches!(self.root, Root::Awaited)
    }

    /// True if the root has arrived and the trace has not ended.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.root, Root::Arrived { .. })
    }

    pub(super) fn queries(&self) -> usize {
        self.queries.len()
    }

    /// Ends a trace that waits.
    pub(super) fn finish(&mut self) -> Option<Ended<L>> {
        if !self.is_waiting() {
            return None;
        }
        let Root::Arrived { start_unix_ns, end_unix_ns, label } = mem::replace(&mut self.root, Root::Ended)
        else {
            return None;
        };
        let mut queries = mem::take(&mut self.queries);
        queries.sort_by_key(|query| query.end_unix_ns);
        let mut end = RequestEnd::default();
        let mut outside = 0;
        for Query { end_unix_ns: at, backend, failed } in &queries {
            if (start_unix_ns..=end_unix_ns).contains(at) {
                let latency = Duration::from_nanos(at - start_unix_ns);
                end.add(QueryEnd { backend: *backend, latency, failed: *failed });
            } else {
                outside += 1;
            }
        }
        let request = end.finish(Duration::from_nanos(end_unix_ns - start_unix_ns));
        let request = TracedRequest { label, end_unix_ns, request };
        Some(Ended { request, queries: queries.len(), outside })
    }
}
