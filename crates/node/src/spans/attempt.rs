//! Spans of attempts: calls to replicas that sampled requests wait for.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use axum::http::HeaderValue;
use opentelemetry::trace::{Link, SpanKind};
use opentelemetry::{KeyValue, SpanId};
use sherwood_dispatch::CallOrigin;
use sherwood_model::{Instant, ReplicaId};
use sherwood_process::clock::{Clock, WallTime, millis};
use sherwood_store::{ServerAddress, Store, StoreKind};

use super::trace::{Ended, QuerySpan, failed};
use super::{Spans, context};

/// Most further queries that a span of an attempt refers to, beside the first that waits for it.
const LINKS_MAX: usize = 31;

/// The spans of a backend's attempts.
#[derive(Debug)]
pub(crate) struct AttemptSpans {
    spans: Arc<Spans>,
    clock: Clock,
    name: String,
    kind: SpanKind,
    /// Attributes of calls to each replica.
    replicas: Vec<Vec<KeyValue>>,
}

/// The span of an attempt in flight.
#[derive(Debug)]
pub(crate) struct AttemptSpan {
    of: Arc<AttemptSpans>,
    id: SpanId,
    /// The query that caused the call, and others that wait for it.
    parent: Arc<QuerySpan>,
    others: Vec<Arc<QuerySpan>>,
    origin: CallOrigin,
    keys: usize,
    /// The replica of the call, and the time at which it was sent or else decided.
    sent: Mutex<(ReplicaId, Instant)>,
    has_ended: AtomicBool,
}

/// Ends of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    /// The replica answered.
    Answered,
    /// The call failed, for the reason with this label.
    Failed(&'static str),
    /// The replica's scheduler refused the call, which would have come too late.
    Rejected,
    /// The timeout ended first.
    TimedOut,
    /// Another attempt answered first.
    Cancelled,
}

impl AttemptSpans {
    /// Creates the spans of a backend with these stores, whose servers have these addresses.
    pub(crate) fn new(
        spans: Arc<Spans>,
        clock: Clock,
        backend: &str,
        stores: &[Arc<dyn Store>],
        servers: &[Option<ServerAddress>],
    ) -> Self {
        let kind = stores.first().map(|store| store.kind());
        let server = |replica: usize| servers.get(replica).and_then(Option::as_ref);
        let replicas = stores.iter().enumerate();
        let replicas =
            replicas.map(|(replica, store)| attributes(backend, replica, store.kind(), server(replica)));
        Self {
            spans,
            clock,
            name: if kind == Some(StoreKind::Http) { "GET".to_owned() } else { format!("get {backend}") },
            // An engine in this process is called by no protocol.
            kind: if kind.and_then(system).is_some() { SpanKind::Client } else { SpanKind::Internal },
            replicas: replicas.collect(),
        }
    }

    /// Starts the span of a call that was decided at `now`, if a sampled request waits for one of
    /// its keys. `observe` shows the spans of the queries that wait. It is not called, and nothing
    /// is allocated, while no sampled request is in flight.
    pub(crate) fn start(
        self: &Arc<Self>,
        now: Instant,
        replica: ReplicaId,
        keys: usize,
        observe: impl FnOnce(&mut dyn FnMut(Option<&Arc<QuerySpan>>)) -> Option<CallOrigin>,
    ) -> Option<Arc<AttemptSpan>> {
        if !self.spans.has_requests() {
            return None;
        }
        let mut queries: Vec<Arc<QuerySpan>> = Vec::new();
        let origin = observe(&mut |query| {
            if let Some(query) = query
                && queries.len() <= LINKS_MAX
                && !queries.iter().any(|other| Arc::ptr_eq(other, query))
            {
                queries.push(Arc::clone(query));
            }
        })?;
        let mut queries = queries.into_iter();
        Some(Arc::new(AttemptSpan {
            of: Arc::clone(self),
            id: self.spans.new_id(),
            parent: queries.next()?,
            others: queries.collect(),
            origin,
            keys,
            sent: Mutex::new((replica, now)),
            has_ended: AtomicBool::new(false),
        }))
    }
}

impl AttemptSpan {
    /// Notes that the call is sent, to `replica`. Returns the `traceparent` for its server.
    pub(crate) fn note_sent(&self, now: Instant, replica: ReplicaId) -> HeaderValue {
        *self.sent.lock().expect("no panics while held") = (replica, now);
        let header = context::header(self.parent.trace.trace, self.id);
        HeaderValue::try_from(header).expect("hexadecimal digits and dashes")
    }

    /// Ends the span and queues it for its export; the first end counts.
    pub(crate) fn end(&self, end: AttemptEnd) {
        if self.has_ended.swap(true, Relaxed) {
            return;
        }
        let AttemptSpans { spans, clock, name, kind, replicas } = &*self.of;
        let (replica, sent) = *self.sent.lock().expect("no panics while held");
        let (outcome, error) = match end {
            AttemptEnd::Answered => ("answered", None),
            AttemptEnd::Failed(label) => ("failed", Some(label)),
            AttemptEnd::Rejected => ("rejected", Some("rejected")),
            AttemptEnd::TimedOut => ("timeout", Some("timeout")),
            AttemptEnd::Cancelled => ("cancelled", None),
        };
        let mut attributes = replicas[replica.index()].clone();
        let queue_ms = millis(sent.since(self.origin.asked_at));
        attributes.extend([
            KeyValue::new("sherwood.attempt", i64::from(self.origin.earlier) + 1),
            KeyValue::new("sherwood.outcome", outcome),
            KeyValue::new("sherwood.keys", self.keys as i64),
            KeyValue::new("sherwood.queue_ms", queue_ms),
        ]);
        attributes.extend(error.map(|error| KeyValue::new("error.type", error)));
        let wall = WallTime::now(clock);
        let ended = Ended {
            name: name.clone().into(),
            kind: kind.clone(),
            times: (wall.of(sent), wall.of(clock.now())),
            attributes,
            status: failed(error.is_some()),
        };
        let mut span = self.parent.attempt(self.id, ended);
        span.links.links = self.others.iter().map(|other| Link::with_context(other.context())).collect();
        spans.add(vec![span]);
    }
}

/// Returns the attributes of calls to a replica, by OpenTelemetry's conventions for its kind.
fn attributes(
    backend: &str,
    replica: usize,
    kind: StoreKind,
    server: Option<&ServerAddress>,
) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("sherwood.backend", backend.to_owned()),
        KeyValue::new("sherwood.replica", replica as i64),
    ];
    match (kind, system(kind)) {
        (StoreKind::Http, _) => attributes.push(KeyValue::new("http.request.method", "GET")),
        (_, Some(system)) => attributes
            .extend([KeyValue::new("db.system.name", system), KeyValue::new("db.operation.name", "get")]),
        (_, None) => {}
    }
    if let Some(ServerAddress { host, port }) = server {
        attributes.push(KeyValue::new("server.address", host.clone()));
        attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
    }
    attributes
}

/// Returns the name of a store's database or protocol; none for an engine in this process that is
/// no database by OpenTelemetry's conventions.
fn system(kind: StoreKind) -> Option<&'static str> {
    Some(match kind {
        StoreKind::Memcached => "memcached",
        StoreKind::Redis => "redis",
        StoreKind::MySql => "mysql",
        StoreKind::Postgres => "postgresql",
        StoreKind::DynamoDb => "aws.dynamodb",
        StoreKind::Cassandra => "cassandra",
        StoreKind::Zookeeper => "zookeeper",
        StoreKind::Sqlite => "sqlite",
        StoreKind::Http => "http",
        _ => return None,
    })
}
