//! Requests from OpenTelemetry traces: `POST /v1/traces`, and gRPC at `[otlp] bind`.
//!
//! An instrumented application needs no change: its exporter, or a collector, sends the spans here
//! as well. The root of a trace is a request, and its client spans to backends are the queries
//! ([`sherwood_model::Traces`]); requests count like those of `POST /v1/reports`.
//!
//! | file | contents |
//! |---|---|
//! | `rule` | rules by which client spans belong to backends |
//! | `export` | an export, of which malformed spans are left out; OTLP's protobuf |
//! | `json` | OTLP's JSON |
//! | `intake` | spans of an export as spans of requests |
//! | `http` | the HTTP call: media types, compression, answers |
//! | `grpc` | the gRPC call, on a port of its own |

mod export;
mod grpc;
mod http;
mod intake;
mod json;
mod rule;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::SpanRule;
use sherwood_model::{SpanCounts, TracedRequest, Traces};
use sherwood_process::buffers::{Buffers, Uncounted};

pub(crate) use grpc::routers;
pub(crate) use http::export;

use crate::core::Core;
use crate::slos::Counted;
use rule::Rules;

/// Interval at which ended traces become requests without further exports.
const TICK: Duration = Duration::from_secs(1);

/// The traces whose spans are being collected, and the rules of the backends.
#[derive(Debug)]
pub(crate) struct TraceIntake {
    rules: Rules,
    traces: Mutex<Traces<Counted>>,
    /// The memory used by the traces, which depends on the senders of spans.
    memory: Uncounted,
}

impl TraceIntake {
    /// Creates it with the rule and the timeout of each backend, in the order of their ids.
    pub(crate) fn new(
        backends: impl IntoIterator<Item = (SpanRule, Duration)>,
        buffers: &Arc<Buffers>,
    ) -> Self {
        let traces = Mutex::new(Traces::default());
        Self { rules: Rules::new(backends), traces, memory: buffers.uncounted(0) }
    }

    /// Counts of what became of the spans.
    pub(crate) fn counts(&self) -> SpanCounts {
        self.traces().counts()
    }

    fn traces(&self) -> MutexGuard<'_, Traces<Counted>> {
        self.traces.lock().expect("no panics while held")
    }
}

/// Records the requests of traces that have ended, now and then, until the node stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut ticks = tokio::time::interval(TICK);
    while !*core.stopping.borrow() {
        ticks.tick().await;
        record_ended(&core, &mut core.traced.traces());
    }
}

/// Records the requests of traces that have ended.
fn record_ended(core: &Core, traces: &mut Traces<Counted>) {
    let now = core.clock.now();
    core.traced.memory.set(traces.memory());
    while let Some(TracedRequest { label, end_unix_ns, request }) = traces.next_ended(now) {
        let end = core.clock.at_unix(Duration::from_nanos(end_unix_ns)).min(now);
        core.telemetry.request(now, end, label, request);
    }
}
