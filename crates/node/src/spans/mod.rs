//! Spans of the node's own requests, exported to a collector by OTLP.
//!
//! A sampled request has a span, its queries have one each below it, and so has each attempt (a
//! call to a replica) below the query that caused it. Whether a request is sampled is decided once,
//! at its arrival: by the caller if it sent a `traceparent`, else by a ratio. Nothing is built for
//! a request that is not. Ended spans wait in a bounded queue; what does not fit, or what the
//! collector does not accept in time, is dropped and counted. No request waits for any of this.
//!
//! | file | contents |
//! |---|---|
//! | `context` | W3C trace context |
//! | `trace` | ids of a sampled request's spans |
//! | `attempt` | spans of calls to replicas |
//! | `queue` | ended spans that wait |
//! | `exporter`, `client` | export of batches by the crate of OpenTelemetry, over our connections |

mod attempt;
mod client;
mod context;
mod exporter;
mod queue;
mod trace;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TraceState;
use opentelemetry::{SpanId, TraceId};
use opentelemetry_sdk::trace::SpanData;
use sherwood_config::SpanExport;
use sherwood_process::entropy::Entropy;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub(crate) use attempt::{AttemptEnd, AttemptSpan, AttemptSpans};
pub(crate) use context::request_id;
pub use exporter::SpanExportError;
pub(crate) use queue::{ExportCounts, SPANS_BYTES_MAX};
pub(crate) use trace::{Ended, QuerySpan, RequestTrace, failed};

use context::{Parent, TRACEPARENT, TRACESTATE};
use queue::SpanQueue;

/// Longest `tracestate` that is passed on, bytes: what W3C asks to propagate at least. Each span
/// and link has a copy.
const STATE_BYTES_MAX: usize = 512;
/// Longest time for which a stopping node exports the spans that wait.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The sampler of requests, and the exporter of their spans.
#[derive(Debug)]
pub(crate) struct Spans {
    /// A request without a parent is sampled if half of a random number is less than this.
    threshold: u64,
    /// Apart from the node's other draws, so that those are the same with and without spans.
    entropy: Entropy,
    queue: Arc<SpanQueue>,
    /// Number of sampled requests in flight.
    requests: AtomicUsize,
    /// The id of this process among the instances of the service.
    instance: String,
    /// The scheme of the HTTP port.
    scheme: &'static str,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

impl Spans {
    /// Starts the exporter on `runtime`, for a node whose HTTP port has this `scheme`.
    ///
    /// # Errors
    /// If the options or the files that they name are unusable. A collector that is away is none.
    pub(crate) fn start(
        export: &SpanExport,
        scheme: &'static str,
        runtime: &Handle,
    ) -> Result<Arc<Self>, SpanExportError> {
        let entropy = Entropy::from_system();
        let instance = instance_id(&entropy);
        let exporter = {
            let _within = runtime.enter();
            exporter::open(export, &instance)?
        };
        let queue = Arc::new(SpanQueue::default());
        let task = runtime.spawn(exporter::run(exporter, Arc::clone(&queue), export.timeout));
        let threshold = threshold(export.sample_ratio);
        Ok(Arc::new(Self {
            threshold,
            entropy,
            queue,
            requests: AtomicUsize::new(0),
            instance,
            scheme,
            exporter: Mutex::new(Some(task)),
        }))
    }

    /// Decides whether a request with these headers is sampled: as the caller's span is, or else by
    /// the ratio. Returns the trace of a sampled one.
    pub(crate) fn sample(&self, headers: &HeaderMap) -> Option<Arc<RequestTrace>> {
        let parent = headers.get(TRACEPARENT).and_then(|header| Parent::parse(header.as_bytes()));
        let (trace, parent) = match parent {
            Some(Parent { is_sampled: false, .. }) => return None,
            Some(Parent { trace, span, .. }) => (trace, Some(span)),
            None => {
                let low = self.entropy.draw();
                if low >> 1 >= self.threshold {
                    return None;
                }
                (TraceId::from(u128::from(self.entropy.draw()) << 64 | u128::from(low.max(1))), None)
            }
        };
        let is_short = |state: &&HeaderValue| state.len() <= STATE_BYTES_MAX;
        let state = headers.get(TRACESTATE).filter(|_| parent.is_some()).filter(is_short);
        let state = state.and_then(|header| header.to_str().ok()?.parse::<TraceState>().ok());
        let span = self.new_id();
        Some(Arc::new(RequestTrace {
            trace,
            span,
            parent,
            state: state.unwrap_or_default(),
            first_query: self.entropy.draw(),
        }))
    }

    /// Draws the id of a span.
    pub(crate) fn new_id(&self) -> SpanId {
        SpanId::from(self.entropy.draw().max(1))
    }

    /// Notes the start of a sampled request, and its end.
    pub(crate) fn note_request(&self, is_start: bool) {
        let change = if is_start { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
        change(&self.requests, 1, Relaxed);
    }

    /// Returns true while sampled requests are in flight.
    pub(crate) fn has_requests(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// Queues the spans of one request or attempt for their export.
    pub(crate) fn add(&self, spans: Vec<SpanData>) {
        self.queue.add(spans);
    }

    /// Returns the id of this process, which its spans carry as `service.instance.id`.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the scheme of the HTTP port, `http` or `https`.
    pub(crate) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Returns the counts of the spans since the start.
    pub(crate) fn counts(&self) -> ExportCounts {
        self.queue.counts()
    }

    /// Exports the spans that wait, for two seconds at most. Further ones are not exported.
    pub(crate) async fn flush(&self) {
        self.queue.close();
        let exporter = self.exporter.lock().expect("no panics while held").take();
        if let Some(exporter) = exporter
            && tokio::time::timeout(FLUSH_MAX, exporter).await.is_err()
        {
            tracing::warn!(
                "the last spans were dropped: the collector did not accept them within {FLUSH_MAX:?}"
            );
        }
    }
}

/// Returns the threshold of half a random number below which a `ratio` of requests is sampled, as
/// OpenTelemetry's sampler by the trace's id has it.
fn threshold(ratio: f64) -> u64 {
    (ratio * (1_u64 << 63) as f64) as u64
}

/// Draws a UUID of version 4.
fn instance_id(entropy: &Entropy) -> String {
    let (high, low) = (entropy.draw(), entropy.draw());
    let high = high & !0xf000 | 0x4000;
    let low = low & !(0b11 << 62) | 0b10 << 62;
    let (h, l) = (format!("{high:016x}"), format!("{low:016x}"));
    format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..], &l[..4], &l[4..])
}

#[cfg(test)]
mod tests;
