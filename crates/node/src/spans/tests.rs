use axum::http::{HeaderMap, HeaderValue};

use super::context::TRACEPARENT;
use super::*;

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
