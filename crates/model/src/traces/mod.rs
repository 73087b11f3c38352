//! Assembly of the spans of traces into finished requests.
//!
//! A request is the root of a trace, and its queries are the client spans of that trace to known
//! backends. Spans of a trace arrive in any order, from several processes, and some never do, so a
//! trace is kept for five seconds after its root arrived. The queries that ended within the root
//! then count as in [`RequestEnd`](crate::RequestEnd): a failed one at its backend's timeout, and
//! the last to end blocks.
//!
//! | file | contents |
//! |---|---|
//! | `open` | a trace whose spans are being collected |
//! | `counts` | fates of the spans |
//! | `span` | spans, and the requests made of them |

mod counts;
mod open;
mod span;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use counts::SpanCounts;
use open::{Added, OpenTrace};
pub use span::{SpanRole, TraceSpan, TracedRequest};

use crate::Instant;

/// Time for which a trace is kept after its root arrived.
const LINGER: Duration = Duration::from_secs(5);
/// Time for which a trace is kept whose root has not arrived. Chosen: twice the delay with which
/// exporters send batches by default.
const ROOTLESS: Duration = Duration::from_secs(10);
/// Maximum of traces kept. At this bound the oldest ends.
const TRACES_MAX: usize = 1 << 17;
/// Maximum of queries kept of all traces whose root has not arrived; further ones are dropped.
const QUERIES_MAX: usize = 1 << 20;
/// Most by which a span's end may be ahead of the clock of this machine.
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// Collects spans and returns the requests that they make.
///
/// Memory: 131,072 traces of some 150 bytes and a million queries of 32 bytes, and those that are
/// added before [`next_ended`](Self::next_ended) is called.
#[derive(Clone, Debug)]
pub struct Traces<L> {
    open: BTreeMap<u128, OpenTrace<L>>,
    /// Traces by the time at which they are given up if their root has not arrived.
    rootless: VecDeque<(Instant, u128)>,
    /// Traces whose root has arrived, by their end.
    rooted: VecDeque<(Instant, u128)>,
    /// Queries kept in `open`.
    queries: usize,
    traces_max: usize,
    queries_max: usize,
    counts: SpanCounts,
}

impl<L> Default for Traces<L> {
    fn default() -> Self {
        Self::with_bounds(TRACES_MAX, QUERIES_MAX)
    }
}

impl<L> Traces<L> {
    /// Creates one with bounds of its own on traces and on queries, at least 1 each.
    #[must_use]
    pub fn with_bounds(traces_max: usize, queries_max: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            rootless: VecDeque::new(),
            rooted: VecDeque::new(),
            queries: 0,
            traces_max: traces_max.max(1),
            queries_max: queries_max.max(1),
            counts: SpanCounts::default(),
        }
    }

    /// Adds a span that arrived at `now`; `now_unix_ns` is the same time since 1970. O(log traces).
    pub fn add(&mut self, now: Instant, now_unix_ns: u64, span: TraceSpan<L>) {
        let ahead_max = u64::try_from(AHEAD_MAX.as_nanos()).unwrap_or(u64::MAX);
        if span.start_unix_ns > span.end_unix_ns || span.end_unix_ns > now_unix_ns.saturating_add(ahead_max) {
            self.counts.misdated += 1;
            return;
        }
        let is_query = matches!(span.role, SpanRole::Query { .. });
        if is_query && self.queries >= self.queries_max {
            self.counts.dropped += 1;
            return;
        }
        let id = span.trace;
        let rootless = &mut self.rootless;
        let trace = self.open.entry(id).or_insert_with(|| {
            rootless.push_back((now + ROOTLESS, id));
            OpenTrace::default()
        });
        match trace.add(span) {
            Added::Query => self.queries += 1,
            Added::Root => self.rooted.push_back((now + LINGER, id)),
            Added::SecondRoot => self.counts.ambiguous += 1,
            Added::Late => self.counts.late += 1,
        }
    }

    /// Returns a request whose trace has ended by `now`, if there is one; call until none is left.
    ///
    /// Traces beyond the bound end as well, the oldest first. O(log traces).
    pub fn next_ended(&mut self, now: Instant) -> Option<TracedRequest<L>> {
        loop {
            let is_full = self.rooted.len() > self.traces_max;
            let Some(&(_, trace)) = self.rooted.front().filter(|(end, _)| is_full || *end <= now) else {
                break;
            };
            self.rooted.pop_front();
            if let Some(request) = self.finish(trace) {
                return Some(request);
            }
        }
        loop {
            let is_full = self.open.len() > self.traces_max;
            let &(_, trace) = self.rootless.front().filter(|(end, _)| is_full || *end <= now)?;
            self.rootless.pop_front();
            if let Some(request) = self.forget(trace, is_full) {
                return Some(request);
            }
        }
    }

    /// Upper bound of the memory that the traces and their queries take now, bytes. O(1).
    #[must_use]
    pub fn memory(&self) -> usize {
        // Vectors of queries double, and each trace is in one of the two queues, or in both.
        let queries = 2 * self.queries * OpenTrace::<L>::QUERY_BYTES;
        let queued = self.rootless.capacity() + self.rooted.capacity();
        // Nodes of the map are at least half full.
        let open = 2 * self.open.len() * size_of::<(u128, OpenTrace<L>)>();
        queries + queued * size_of::<(Instant, u128)>() + open
    }

    /// Counts of what became of the spans.
    #[must_use]
    pub fn counts(&self) -> SpanCounts {
        SpanCounts { traces: self.open.len() as u64, ..self.counts }
    }

    /// Counts a client span that belongs to no known backend.
    pub fn count_unmatched(&mut self) {
        self.counts.unmatched += 1;
    }

    /// Counts spans of requests that were counted otherwise.
    pub fn count_own(&mut self, spans: u64) {
        self.counts.own += spans;
    }

    /// Counts a client span that belongs to several backends.
    pub fn count_ambiguous(&mut self) {
        self.counts.ambiguous += 1;
    }

    /// Ends a trace that waits. It is kept, so that late spans are known as such, until its time as
    /// one without a root would be over.
    fn finish(&mut self, id: u128) -> Option<TracedRequest<L>> {
        let trace = self.open.get_mut(&id)?;
        let ended = trace.finish()?;
        if trace.is_last {
            self.open.remove(&id);
        }
        self.queries -= ended.queries;
        self.counts.outside += ended.outside;
        self.counts.requests += 1;
        Some(ended.request)
    }

    /// Removes a trace whose time as one without a root is over, or the oldest if `is_full`. One
    /// whose root arrived meanwhile ends at its own time, or at once if `is_full`.
    fn forget(&mut self, id: u128, is_full: bool) -> Option<TracedRequest<L>> {
        let trace = self.open.get_mut(&id)?;
        if trace.is_waiting() {
            trace.is_last = true;
            return if is_full { self.finish(id) } else { None };
        }
        self.queries -= trace.queries();
        self.counts.rootless += u64::from(trace.is_rootless());
        self.open.remove(&id);
        None
    }
}
