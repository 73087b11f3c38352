use proptest::prelude::*;

use super::*;
use crate::{BackendId, FinishedRequest, QueryEnd, RequestEnd};

const MS: u64 = 1_000_000;
/// The time of the first span, nanoseconds since 1970.
const START: u64 = 1_700_000_000_000 * MS;

fn query(trace: u128, backend: u16, from_ms: u64, to_ms: u64) -> TraceSpan<&'static str> {
    let role = SpanRole::Query { backend: BackendId(backend), failed: None };
    TraceSpan { trace, start_unix_ns: START + from_ms * MS, end_unix_ns: START + to_ms * MS, role }
}

fn failed(mut span: TraceSpan<&'static str>, timeout_ms: u64) -> TraceSpan<&'static str> {
    if let SpanRole::Query { failed, .. } = &mut span.role {
        *failed = Some(Duration::from_millis(timeout_ms));
    }
    span
}

fn root(trace: u128, to_ms: u64) -> TraceSpan<&'static str> {
    TraceSpan {
        trace,
        start_unix_ns: START,
        end_unix_ns: START + to_ms * MS,
        role: SpanRole::Request("page"),
    }
}

/// Adds the spans at their own ends, and returns what has ended `after_s` seconds later.
fn requests(
    traces: &mut Traces<&'static str>,
    spans: &[TraceSpan<&'static str>],
    after_s: u64,
) -> Vec<(u32, Option<u16>)> {
    let at = |unix_ns: u64| Instant::from_nanos(unix_ns - START);
    for span in spans {
        traces.add(at(span.end_unix_ns), span.end_unix_ns, *span);
    }
    let now = at(spans.last().map_or(START, |span| span.end_unix_ns)) + Duration::from_secs(after_s);
    let ended = std::iter::from_fn(|| traces.next_ended(now));
    ended
        .map(|TracedRequest { request, .. }| (request.latency_us / 1_000, request.blocking().map(|id| id.0)))
        .collect()
}

#[test]
fn last_query_to_end_within_the_root_blocks() {
    let mut traces = Traces::default();
    let spans = [query(1, 0, 0, 30), query(1, 1, 5, 20), root(1, 35), query(1, 2, 10, 40)];
    assert_eq!(requests(&mut traces, &spans, 5), [(35, Some(0))]);
    assert_eq!((traces.counts().requests, traces.counts().outside), (1, 1));
}

#[test]
fn memory_of_traces_grows_with_their_queries_and_shrinks_when_they_end() {
    let mut traces = Traces::default();
    assert_eq!(traces.memory(), 0);
    let spans: Vec<_> = (0..100).flat_map(|trace| [query(trace, 0, 0, 1), query(trace, 1, 0, 2)]).collect();
    let added = |traces: &mut Traces<_>| {
        spans.iter().for_each(|span| traces.add(Instant::from_nanos(0), span.end_unix_ns, *span));
        traces.memory()
    };
    let full = added(&mut traces);
    assert!((100 * 100..100 * 1000).contains(&full), "{full} bytes of 100 traces and 200 queries");
    while traces.next_ended(Instant::from_secs(60)).is_some() {}
    assert!(traces.memory() < full / 2, "{} of {full}", traces.memory());
    assert_eq!(added(&mut traces), full);
}

#[test]
fn failed_query_counts_at_its_timeout() {
    let mut traces = Traces::default();
    let spans = [failed(query(1, 0, 0, 2), 500), query(1, 1, 0, 30), root(1, 31)];
    assert_eq!(requests(&mut traces, &spans, 5), [(500, Some(0))]);
}

#[test]
fn trace_ends_five_seconds_after_its_root_and_later_spans_are_counted() {
    let mut traces = Traces::default();
    assert_eq!(requests(&mut traces, &[root(1, 10)], 4), []);
    assert_eq!(requests(&mut traces, &[query(1, 0, 0, 9)], 4), [], "a span may arrive after its root");
    assert_eq!(requests(&mut traces, &[], 6), [(10, Some(0))]);
    assert_eq!(requests(&mut traces, &[query(1, 1, 0, 10)], 6), []);
    assert_eq!(traces.counts().late, 1);
    assert_eq!(requests(&mut traces, &[], 11), []);
    assert_eq!((traces.counts().traces, traces.counts().rootless), (0, 0));
}

#[test]
fn trace_without_a_root_is_given_up() {
    let mut traces = Traces::default();
    assert_eq!(requests(&mut traces, &[query(1, 0, 0, 1)], 9), []);
    assert_eq!(traces.counts().traces, 1);
    assert_eq!(requests(&mut traces, &[], 11), []);
    let SpanCounts { traces: kept, rootless, .. } = traces.counts();
    assert_eq!((kept, rootless, traces.queries), (0, 1, 0));
}

#[test]
fn root_that_arrives_just_before_its_trace_is_given_up_counts() {
    let mut traces = Traces::default();
    assert_eq!(requests(&mut traces, &[query(1, 0, 0, 1)], 0), []);
    traces.add(Instant::from_secs(9), START, root(1, 2));
    assert_eq!(traces.next_ended(Instant::from_secs(12)), None);
    assert!(traces.next_ended(Instant::from_secs(14)).is_some());
    assert_eq!((traces.counts().traces, traces.queries), (0, 0));
}

#[test]
fn second_root_and_misdated_spans_change_nothing() {
    let mut traces = Traces::default();
    let backwards = TraceSpan { start_unix_ns: START + 2, end_unix_ns: START + 1, ..root(1, 0) };
    let future = TraceSpan { end_unix_ns: u64::MAX, ..query(1, 1, 0, 0) };
    for span in [root(1, 10), root(1, 20), backwards, future] {
        traces.add(Instant::ZERO, START, span);
    }
    assert_eq!(requests(&mut traces, &[], 6), [(10, None)]);
    assert_eq!((traces.counts().ambiguous, traces.counts().misdated), (1, 2));
}

#[test]
fn traces_and_queries_beyond_the_bounds_end_or_are_dropped() {
    let mut traces = Traces::with_bounds(3, 2);
    for trace in 0..5 {
        traces.add(Instant::ZERO, START, query(trace, 0, 0, 1));
        traces.add(Instant::ZERO, START, root(trace, 2));
    }
    assert_eq!(requests(&mut traces, &[], 0), [(2, Some(0)), (2, Some(0))], "the two oldest");
    assert_eq!(traces.counts().dropped, 3);
    assert!(traces.counts().traces <= 3 + 2);
    for trace in 10..20 {
        traces.add(Instant::ZERO, START, query(trace, 0, 0, 1));
    }
    let _ = requests(&mut traces, &[], 0);
    assert!(traces.counts().traces <= 3 && traces.queries <= 2, "{:?}", traces.counts());
}

proptest! {
    /// Whatever arrives in whatever order, every root makes one request, and queries of whole
    /// traces count as `RequestEnd` counts them.
    #[test]
    fn requests_do_not_depend_on_the_order_of_spans(
        made in prop::collection::vec(prop::collection::vec((0_u16..4, 0_u64..50, prop::bool::ANY), 0..6), 1..8),
        order in prop::collection::vec(any::<u32>(), 64),
    ) {
        let mut spans = Vec::new();
        let mut expected = Vec::new();
        for (trace, queries) in made.iter().enumerate() {
            let mut end = RequestEnd::default();
            let mut queries = queries.clone();
            queries.sort_by_key(|(_, to, _)| *to);
            // Equal ends have no order of their own.
            queries.dedup_by_key(|(_, to, _)| *to);
            for (backend, to, fails) in queries {
                let span = query(trace as u128, backend, 0, to);
                spans.push(if fails { failed(span, 45) } else { span });
                let failed = fails.then(|| Duration::from_millis(45));
                end.add(QueryEnd { backend: BackendId(backend), latency: Duration::from_millis(to), failed });
            }
            spans.push(root(trace as u128, 60));
            expected.push(end.finish(Duration::from_millis(60)));
        }
        let mut keyed: Vec<_> = spans.into_iter().zip(order.iter().cycle()).collect();
        keyed.sort_by_key(|(_, key)| **key);
        let mut traces = Traces::default();
        for (span, _) in keyed {
            traces.add(Instant::ZERO, START + 60 * MS, span);
        }
        let mut found: Vec<_> =
            std::iter::from_fn(|| traces.next_ended(Instant::from_secs(5))).map(|traced| traced.request).collect();
        let key = |request: &FinishedRequest| (request.latency_us, request.blocking());
        found.sort_by_key(key);
        expected.sort_by_key(key);
        prop_assert_eq!(found, expected);
        prop_assert_eq!(traces.queries, 0);
    }
}
