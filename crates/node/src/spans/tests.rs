use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use axum::http::{HeaderMap, HeaderValue};

use super::context::TRACEPARENT;
use super::*;

/// An allocator that counts the blocks that a thread has asked for.
struct Counting;

#[global_allocator]
static HEAP: Counting = Counting;

thread_local! {
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = BLOCKS.try_with(|blocks| blocks.set(blocks.get() + 1));
        // SAFETY: the caller guarantees `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees `block` and `layout`.
        unsafe { System.dealloc(block, layout) }
    }
}

fn sampler(ratio: f64) -> Spans {
    Spans {
        threshold: threshold(ratio),
        entropy: Entropy::seeded(7),
        queue: Arc::default(),
        requests: AtomicUsize::new(0),
        instance: String::new(),
        scheme: "http",
        exporter: Mutex::default(),
    }
}

fn sampled(spans: &Spans, headers: &HeaderMap, times: usize) -> usize {
    (0..times).filter(|_| spans.sample(headers).is_some()).count()
}

#[test]
fn requests_without_a_parent_are_sampled_by_the_ratio() {
    let none = HeaderMap::new();
    assert_eq!((sampled(&sampler(0.0), &none, 1_000), sampled(&sampler(1.0), &none, 1_000)), (0, 1_000));
    // Draws of a fixed seed; a deviation of five standard deviations.
    let tenth = sampled(&sampler(0.1), &none, 10_000);
    assert!((850..1_150).contains(&tenth), "{tenth}");
}

#[test]
fn parent_decides_whatever_the_ratio() {
    let parent = |flags: &str| {
        let header = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(&header).expect("ASCII"))])
    };
    assert_eq!(sampled(&sampler(0.0), &parent("01"), 10), 10);
    assert_eq!(sampled(&sampler(1.0), &parent("00"), 10), 0);
    assert_eq!(sampled(&sampler(1.0), &parent("zz"), 10), 10, "a malformed header is none");
}

#[test]
fn request_that_is_not_sampled_allocates_nothing() {
    let blocks = |spans: &Spans, headers: &HeaderMap| {
        let before = BLOCKS.get();
        let trace = spans.sample(headers);
        (trace.is_some(), BLOCKS.get() - before)
    };
    let unsampled = HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
    let unsampled = HeaderMap::from_iter([(TRACEPARENT, unsampled)]);
    assert_eq!(blocks(&sampler(1.0), &unsampled), (false, 0));
    assert_eq!(blocks(&sampler(0.0), &HeaderMap::new()), (false, 0));
    assert!(matches!(blocks(&sampler(1.0), &HeaderMap::new()), (true, 1..)), "they are counted");
}

#[test]
fn instance_id_is_a_random_uuid() {
    let id = instance_id(&Entropy::seeded(1));
    let parts: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    assert!(id[14..].starts_with('4') && "89ab".contains(&id[19..20]), "{id}");
    assert_ne!(id, instance_id(&Entropy::seeded(2)));
}

#[test]
fn spans_of_a_request_that_do_not_fit_are_dropped_together() {
    let spans = sampler(1.0);
    let trace = spans.sample(&HeaderMap::new()).expect("sampled");
    let span = || {
        trace.request(Ended {
            name: "a".into(),
            kind: opentelemetry::trace::SpanKind::Server,
            times: (std::time::UNIX_EPOCH, std::time::UNIX_EPOCH),
            attributes: Vec::new(),
            status: failed(false),
        })
    };
    spans.add((1..queue::QUEUE_MAX).map(|_| span()).collect());
    spans.add(vec![span(), span()]);
    assert_eq!(spans.counts(), ExportCounts { exported: 0, overflowed: 2, failed: 0 });
    spans.add(vec![span()]);
    assert_eq!(spans.counts().overflowed, 2, "the queue had room for one");
}
