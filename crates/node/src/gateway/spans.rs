//! Spans of a sampled request and of its queries.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use opentelemetry::KeyValue;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::SpanData;
use sherwood_model::Instant;
use sherwood_path::{Query, Status};
use sherwood_process::clock::WallTime;

use super::body::AskedRequest;
use super::{Stage, finished, status};
use crate::core::Core;
use crate::spans::{Ended, QuerySpan, RequestTrace, Spans, failed};

/// The span of a sampled request in flight. It ends when it is dropped, also with a client that
/// has gone.
pub(super) struct RequestSpan {
    core: Arc<Core>,
    spans: Arc<Spans>,
    trace: Arc<RequestTrace>,
    arrival: Instant,
    wall: WallTime,
    /// The status of the answer; none while there is none.
    status: Option<StatusCode>,
    attributes: Vec<KeyValue>,
    queries: Vec<SpanData>,
}

/// A query that has ended.
struct EndedQuery<'a> {
    query: &'a Query<Bytes>,
    stage: usize,
    /// Start and end, after the request's arrival.
    times: (Duration, Duration),
    /// The worst outcome of its keys.
    outcome: Status,
    misses: usize,
}

impl RequestSpan {
    /// Starts the span of a request with these headers; none if the request is not sampled.
    pub(super) fn start(core: &Arc<Core>, headers: &HeaderMap) -> Option<Box<Self>> {
        let spans = core.spans.as_ref()?;
        let trace = spans.sample(headers)?;
        spans.note_request(true);
        Some(Box::new(Self {
            core: Arc::clone(core),
            spans: Arc::clone(spans),
            trace,
            arrival: core.clock.now(),
            wall: WallTime::now(&core.clock),
            status: None,
            attributes: Vec::new(),
            queries: Vec::new(),
        }))
    }

    /// Returns the request's arrival.
    pub(super) fn arrival(&self) -> Instant {
        self.arrival
    }

    /// Returns the span of the query with this number, for its attempts.
    pub(super) fn query_in_flight(&self, number: u32) -> Arc<QuerySpan> {
        Arc::new(QuerySpan::new(Arc::clone(&self.trace), number))
    }

    /// Notes what the request has named.
    pub(super) fn note_asked(&mut self, asked: &AskedRequest<'_>) {
        let named = [("sherwood.class", &asked.class), ("sherwood.tenant", &asked.tenant)];
        let named = named.into_iter().filter_map(|(key, name)| Some((key, name.as_deref()?)));
        self.attributes.extend(named.map(|(key, name)| KeyValue::new(key, name.to_owned())));
    }

    /// Notes the status of the answer.
    pub(super) fn note_status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// Adds the spans of the queries, which have ended.
    pub(super) fn add_queries(&mut self, stages: &[Stage]) {
        let begun = stages.iter().enumerate().filter(|(_, stage)| stage.request.has_begun());
        let ended: Vec<_> = begun.flat_map(|(at, stage)| ended_queries(at, stage)).collect();
        let finished = finished(stages).and_then(|finished| finished.blocking());
        let blocking =
            ended.iter().enumerate().filter(|(_, (_, query))| Some(query.query.backend) == finished);
        let blocking = blocking.max_by_key(|(_, (_, query))| query.counted()).map(|(at, _)| at);
        if let Some(backend) = finished {
            let name = self.core.names.backend(backend).to_owned();
            self.attributes.push(KeyValue::new("sherwood.blocking_backend", name));
        }
        self.attributes.push(KeyValue::new("sherwood.queries", ended.len() as i64));
        let spans = ended
            .iter()
            .enumerate()
            .map(|(at, (number, query))| self.query(*number, query, Some(at) == blocking));
        self.queries = spans.collect();
    }

    fn query(&self, number: u32, ended: &EndedQuery<'_>, is_blocking: bool) -> SpanData {
        let EndedQuery { query, stage, times: (from, to), outcome, misses } = *ended;
        let names = &self.core.names;
        let backend = names.backend(query.backend);
        let partition = &names.partitions()[query.partition.index()].name;
        let mut attributes = vec![
            KeyValue::new("sherwood.backend", backend.to_owned()),
            KeyValue::new("sherwood.partition", partition.clone()),
            KeyValue::new("sherwood.outcome", status(outcome)),
            KeyValue::new("sherwood.keys", query.keys.len() as i64),
            KeyValue::new("sherwood.keys.missed", misses as i64),
        ];
        if stage > 0 {
            attributes.push(KeyValue::new("sherwood.stage", stage as i64));
        }
        if is_blocking {
            attributes.push(KeyValue::new("sherwood.blocking", true));
        }
        if outcome.is_failure() {
            attributes.push(KeyValue::new("error.type", status(outcome)));
        }
        let ended = Ended {
            name: format!("get {backend}").into(),
            kind: SpanKind::Client,
            times: (self.wall.of(self.arrival + from), self.wall.of(self.arrival + to)),
            attributes,
            status: failed(ended.fails()),
        };
        self.trace.query(number, ended)
    }

    fn request(&mut self) -> SpanData {
        let mut attributes = vec![
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("http.route", "/v1/requests"),
            KeyValue::new("url.path", "/v1/requests"),
            KeyValue::new("url.scheme", self.spans.scheme()),
        ];
        attributes.append(&mut self.attributes);
        let error = match self.status {
            Some(status) => {
                attributes.push(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
                status.is_server_error().then(|| status.as_str().to_owned())
            }
            None => Some("client_disconnected".to_owned()),
        };
        let is_failed = error.is_some();
        attributes.extend(error.map(|error| KeyValue::new("error.type", error)));
        let ended = Ended {
            name: "POST /v1/requests".into(),
            kind: SpanKind::Server,
            times: (self.wall.of(self.arrival), self.wall.of(self.core.clock.now())),
            attributes,
            status: failed(is_failed),
        };
        self.trace.request(ended)
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let request = self.request();
        self.queries.push(request);
        self.spans.note_request(false);
        self.spans.add(std::mem::take(&mut self.queries));
    }
}

impl EndedQuery<'_> {
    /// True if the query counts as a failure of its request.
    fn fails(&self) -> bool {
        self.outcome.is_failure() && !self.query.demand.best_effort
    }

    /// The latency that counts for the request.
    fn counted(&self) -> Duration {
        let timeout = if self.fails() { self.query.timeout } else { Duration::ZERO };
        self.times.1.max(timeout)
    }
}

/// Returns the queries of a stage that have keys, with their numbers in the request.
fn ended_queries(at: usize, stage: &Stage) -> impl Iterator<Item = (u32, EndedQuery<'_>)> {
    let numbered = stage.request.queries().zip(stage.first_query..);
    numbered.filter_map(move |((query, answers), number)| {
        let answers: Vec<_> = answers.map(|(_, answer)| answer).collect();
        let outcome = answers.iter().map(|answer| answer.status).max_by_key(|status| severity(*status))?;
        let end = answers.iter().map(|answer| answer.latency).max().unwrap_or_default();
        let misses = answers.iter().filter(|answer| answer.waited).count();
        let times = (stage.begun_after.min(end), end);
        Some((number, EndedQuery { query, stage: at, times, outcome, misses }))
    })
}

/// The order of outcomes; the worst of its keys' is the query's.
fn severity(status: Status) -> u8 {
    match status {
        Status::Hit => 0,
        Status::NotFound => 1,
        Status::Miss => 2,
        Status::Stale => 3,
        Status::Rejected => 4,
        Status::Timeout => 5,
        Status::Error => 6,
    }
}
