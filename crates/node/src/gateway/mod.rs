//! `POST /v1/requests`: one request whose queries are looked up in parallel, or stage by stage.

mod body;
mod deadline;
mod held;
mod json;
mod sessions;
mod spans;
mod times;
mod traffic;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sherwood_cache::{Access, Item, Value};
use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, FinishedRequest, Instant, RequestId};
use sherwood_path::{Answer, Query, QueryFetch, Request, Slot, Staleness, Status};
use sherwood_ports::http::{EndsLine, Problem, WholeBody, listed};
use sherwood_process::clock::millis;
use tokio::sync::mpsc;

use crate::backend::FetchKey;
use crate::backend::waiter::{Arrival, Waiter};
use crate::core::Core;
use crate::deadlines::DeadlineOutcomes;
use crate::slos::Counted;
use crate::spans::request_id;

pub(crate) use body::{AskedRequest, Form, Refusal, RequestAnswer};
use body::{KeyAnswer, VALUES_BYTES_MAX};
use held::{Held, Lack, Room};
pub(crate) use sessions::Sessions;
use spans::RequestSpan;
use traffic::Traffic;

/// Answers `POST /v1/requests`.
pub(crate) async fn handle(
    State(core): State<Arc<Core>>,
    headers: HeaderMap,
    body: WholeBody,
) -> Result<Response, Problem> {
    let mut span = RequestSpan::start(&core, &headers);
    let answer = respond(&core, &headers, body, &mut span).await;
    if let Some(span) = &mut span {
        span.note_status(answer.as_ref().map_or_else(Problem::status, Response::status));
    }
    answer
}

async fn respond(
    core: &Arc<Core>,
    headers: &HeaderMap,
    WholeBody { bytes: body, mut hold }: WholeBody,
    span: &mut Option<Box<RequestSpan>>,
) -> Result<Response, Problem> {
    let arrival = span.as_ref().map_or_else(|| core.clock.now(), |span| span.arrival());
    let asked = AskedRequest::parse(&body).map_err(refused)?;
    let within = deadline::within(headers, asked.deadline_ms).map_err(refused)?;
    let sessions = Sessions::of(core, headers).map_err(refused)?;
    let stages = resolve(core, &asked, (arrival, within), request_id(headers)).map_err(refused)?;
    // Known names only: those of a refused request are of any length.
    if let Some(span) = span {
        span.note_asked(&asked);
    }
    if let Some(class) = &asked.class {
        core.telemetry
            .slos()
            .check_class(Some(class))
            .map_err(|known| refused(unknown_class(class, &known)))?;
        core.classes.count(class);
    }
    if !hold.take(asked.bytes_max(body.len())) {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, core.buffers.spent()));
    }
    let traffic = Traffic { core, tenant: core.names.tenant_or_default(asked.tenant.as_deref()) };
    traffic.admit(arrival, body.len(), &stages).await?;
    let values = asked.values.unwrap_or(true);
    let room = Room::new(if values { VALUES_BYTES_MAX } else { 0 }, core.buffers.hold());
    // All of them count from the arrival of the request.
    let mut first_query = 0;
    let stage = |queries: Vec<_>| {
        let stage = Stage { first_query, ..Stage::new(arrival, queries) };
        first_query += stage.request.queries().count() as u32;
        stage
    };
    let stages: Vec<_> = stages.into_iter().map(stage).collect();
    let counted = counted(core, &asked);
    let slots = Vec::new();
    let mut running = Running { stages, core, counted, recorded: false, slots, room, sessions, span };
    running.run().await;
    let mut room = Room::new(VALUES_BYTES_MAX, hold);
    let text = json::encode(&answer(core, &running.stages, values, &mut room));
    traffic.charge(text.len());
    // The memory of the text is returned to the budget when the text was sent or its client has
    // gone.
    let text = room.into_hold().guard(text);
    let mut response = (Extension(EndsLine), [(CONTENT_TYPE, "application/json")], text).into_response();
    running.sessions.add_to(core, &mut response);
    Ok(response)
}

/// Returns the answer to a request that is not understood, or names what is not there.
pub(crate) fn refused(refusal: Refusal) -> Problem {
    let error = refusal.to_string();
    match refusal {
        Refusal::Malformed { path, .. } => Problem::bad_request(error).with("path", path),
        Refusal::Header { name, .. } => Problem::bad_request(error).with("header", name),
        Refusal::Unknown { path, .. } => Problem::unprocessable(error).with("path", path),
        Refusal::NoTenant { .. } => Problem::unprocessable(error).with("path", "tenant"),
    }
}

/// A key of a request that has ended, with its backend and its answer.
type Ended<'a> = (BackendId, &'a Bytes, Answer<'a, Held>);

/// A request in flight. If its client disconnects, keys without an answer count as failed: the
/// client waited too long, and its request must count in the tail latency.
struct Running<'a> {
    core: &'a Arc<Core>,
    stages: Vec<Stage>,
    /// The SLOs that the request counts for.
    counted: Counted,
    /// True once the outcome was recorded.
    recorded: bool,
    /// The state of each fetched key of the running stage, by the position that its waiter carries.
    slots: Vec<Slot>,
    /// Room for values in the answer.
    room: Room,
    /// Sessions of the client at replicated stores.
    sessions: Sessions,
    /// The span of the request, if it is sampled.
    span: &'a mut Option<Box<RequestSpan>>,
}

/// Queries of a request that are looked up in parallel, after those of the stage before.
struct Stage {
    /// Queries, whose latencies count from the arrival of the whole request.
    request: Request<Bytes, Held>,
    /// Time from the request's arrival to the start of the stage.
    begun_after: Duration,
    /// Number of queries in the stages before.
    first_query: u32,
}

impl Stage {
    fn new(arrival: Instant, queries: Vec<Query<Bytes>>) -> Self {
        Self { request: Request::start(arrival, queries), begun_after: Duration::ZERO, first_query: 0 }
    }
}

impl Running<'_> {
    /// Runs one stage after the other.
    async fn run(&mut self) {
        for stage in 0..self.stages.len() {
            self.run_stage(stage).await;
        }
        self.record();
    }

    /// Looks up every key of a stage, fetches the missing ones, and waits for the last answer.
    async fn run_stage(&mut self, stage: usize) {
        self.slots.clear();
        let Stage { request, begun_after, .. } = &mut self.stages[stage];
        let room = &mut self.room;
        let access = Access::at(self.core.clock.now());
        if stage > 0 {
            *begun_after = access.now - request.started();
        }
        let read = |partition, key: &Bytes, item: Item<'_>| {
            // A stale value may be replaced by a fetched one, which is counted when it arrives.
            if item.stale_since(access.now).is_none() {
                self.core.shadow.access(access.now, partition, key, item.value.len());
            }
            match item.value {
                Value::Bytes(bytes) => room.hold(bytes.len(), || Bytes::copy_from_slice(bytes)),
                Value::Declared(_) => Held::Withheld(Lack::Answer),
            }
        };
        let fetches = request.look_up(&self.core.cache, &access, read);
        self.note(stage, access.now, fetches.iter().all(|fetch| !fetch.awaited));
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        for fetch in fetches {
            self.fetch(stage, fetch, &sender);
        }
        drop(sender);
        while let Some((position, result)) = self.next(stage, &mut arrivals).await {
            let room = &mut self.room;
            let held = result.map(|value| value.map(|found| room.hold(found.value.len(), || found.value)));
            self.stages[stage].request.handle_result(self.core.clock.now(), self.slots[position], held);
        }
        let asked = self.stages[stage].request.queries().map(|(query, _)| query.backend);
        self.sessions.join_reads(self.core, asked);
    }

    /// Records the outcome of the request and its queries, once.
    fn record(&mut self) {
        // A request without keys is not counted: it would make the tail latency look better.
        let Some(finished) = finished(&self.stages).filter(|_| !self.recorded) else { return };
        self.recorded = true;
        let now = self.core.clock.now();
        self.core.telemetry.request(now, now, self.counted, finished);
        let is_sampled = self.core.request_times.samples();
        for stage in &self.stages {
            record_queries(self.core, now, stage);
            times::record(self.core, stage, is_sampled);
        }
        if let Some(span) = &mut *self.span {
            span.add_queries(&self.stages);
        }
    }

    /// Returns the next result of a fetch, or none when all keys have their answers. Meanwhile
    /// answers with stale values once a fetch that allows them is late.
    async fn next(
        &mut self,
        stage: usize,
        arrivals: &mut mpsc::UnboundedReceiver<Arrival>,
    ) -> Option<Arrival> {
        let request = &mut self.stages[stage].request;
        while request.finished().is_none() {
            let Some(late) = request.next_timeout() else { return arrivals.recv().await };
            tokio::select! {
                biased;
                arrival = arrivals.recv() => return arrival,
                () = tokio::time::sleep(late.since(self.core.clock.now())) => {
                    request.handle_timeout(self.core.clock.now());
                }
            }
        }
        None
    }

    /// Records the request in the recording for a simulation while one is active. Called at the
    /// look-up, when the cache counts the keys: if it were called at the end, look-ups of requests
    /// in flight would be counted without their request. A recording has no stages: each is a
    /// request.
    fn note(&self, stage: usize, now: Instant, all_hit: bool) {
        if self.core.recording.is_on() {
            let Stage { request, begun_after, .. } = &self.stages[stage];
            let finished = request.finished().filter(|_| all_hit);
            let latency = |us: u32| Duration::from_micros(us.into()).saturating_sub(*begun_after);
            let hit = finished.map(|finished| latency(finished.latency_us));
            self.core.recording.request(now, hit, request.keys_by_query());
        }
    }

    /// Fetches the missing keys of a query from its backend. A backend without a store answers from
    /// the cache only.
    fn fetch(&mut self, stage: usize, fetch: QueryFetch<Bytes>, sender: &mpsc::UnboundedSender<Arrival>) {
        let QueryFetch { query, backend, partition, keys, demand, awaited } = fetch;
        let Some(backend) = self.core.backend(backend) else {
            let now = self.core.clock.now();
            let request = &mut self.stages[stage].request;
            keys.into_iter().for_each(|(_, slot)| request.handle_result(now, slot, Ok(None)));
            return;
        };
        if !awaited {
            return backend.refresh(&demand, keys.into_iter().map(|(key, _)| FetchKey { partition, key }));
        }
        let first = self.slots.len();
        self.slots.extend(keys.iter().map(|(_, slot)| *slot));
        let number = self.stages[stage].first_query + query as u32;
        let span = self.span.as_ref().map(|span| span.query_in_flight(number));
        let waiter = |(i, (key, _))| {
            (FetchKey { partition, key }, Waiter::new(sender.clone(), first + i).below(span.clone()))
        };
        let session = self.sessions.at(backend.id);
        backend.fetch(&demand, session, keys.into_iter().enumerate().map(waiter));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Keys of stages that have not begun were not asked for.
        for Stage { request, .. } in self.stages.iter_mut().filter(|stage| stage.request.has_begun()) {
            if request.finished().is_none() {
                request.abandon(self.core.clock.now());
            }
        }
        self.record();
    }
}

/// Returns the latency and the blocking backend of a request whose stages have these: those of the
/// last query to end, at its timeout if it failed.
fn finished(stages: &[Stage]) -> Option<FinishedRequest> {
    let finished = stages.iter().filter_map(|stage| stage.request.finished());
    let finished = finished.filter(|finished| finished.blocking().is_some());
    // The last of equals: it began when the others had ended.
    finished.max_by_key(|finished| finished.latency_us)
}

/// Returns the SLOs that a request counts for.
fn counted(core: &Core, asked: &AskedRequest<'_>) -> Counted {
    let tenant = core.names.tenant_or_default(asked.tenant.as_deref());
    core.telemetry.slos().counted(asked.class.as_deref(), tenant.unwrap_or(core.names.nobody()))
}

fn unknown_class(class: &str, known: &[String]) -> Refusal {
    Refusal::Unknown { path: "class".to_owned(), what: "class", name: class.to_owned(), known: listed(known) }
}

/// The refusal of a request whose tenant is unknown, or missing where it is needed.
fn no_tenant(core: &Core, asked: &AskedRequest<'_>) -> Refusal {
    let known = listed(core.names.tenants());
    match &asked.tenant {
        Some(name) => {
            Refusal::Unknown { path: "tenant".to_owned(), what: "tenant", name: name.to_string(), known }
        }
        None => Refusal::NoTenant { known },
    }
}

/// Resolves names to ids. Fails with the first unknown name. `within` is the time that the request
/// as a whole leaves for its answers, from `arrival` on.
fn resolve(
    core: &Core,
    asked: &AskedRequest<'_>,
    (arrival, within): (Instant, Option<Duration>),
    request: Option<RequestId>,
) -> Result<Vec<Vec<Query<Bytes>>>, Refusal> {
    let tenant =
        core.names.tenant_or_default(asked.tenant.as_deref()).ok_or_else(|| no_tenant(core, asked))?;
    let query = |stage: usize, (at, query): (usize, &body::AskedQuery<'_>)| {
        let place = core.names.backend_id(&query.backend);
        let place = place.and_then(|backend| Some((backend, core.partition(tenant, backend)?)));
        let Some((backend, partition)) = place else {
            return Err(Refusal::Unknown {
                path: format!("{}.backend", asked.path(stage, at)),
                what: "backend",
                name: query.backend.to_string(),
                known: listed(core.names.backends()),
            });
        };
        let of_rule = || {
            let keys = query.keys.iter().map(|key| key.as_bytes());
            core.deadline_rules.within_all(tenant, backend, keys)
        };
        Ok(Query {
            backend,
            partition,
            keys: query.keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect(),
            demand: Demand {
                tenant,
                deadline: deadline::earlier(within, query.deadline_ms)
                    .or_else(of_rule)
                    .map(|within| arrival + within),
                best_effort: query.best_effort.unwrap_or(false),
                request,
                ..Demand::default()
            },
            timeout: core.backend(backend).map_or(Duration::ZERO, |backend| backend.timeout),
            staleness: core.backend(backend).map_or(Staleness::default(), |backend| {
                backend.rules.staleness(query.stale_ok(), backend.late_after)
            }),
            shared: core.shared(backend).cloned(),
        })
    };
    let stage = |(stage, queries): (usize, &[body::AskedQuery<'_>])| {
        queries.iter().enumerate().map(|asked| query(stage, asked)).collect()
    };
    asked.stages().enumerate().map(stage).collect()
}

/// Records the outcome of a stage's queries, whose latencies count from the start of the stage.
fn record_queries(core: &Core, now: Instant, Stage { request, begun_after, .. }: &Stage) {
    for answers in request.answers().collect::<Vec<_>>().chunk_by(|a, b| a.0 == b.0) {
        // Keys of a query end together, hits at the look-up and misses with their call, so there
        // are few different latencies.
        for equal in answers.chunk_by(|a, b| a.2.latency == b.2.latency) {
            let (backend, latency) = (equal[0].0, equal[0].2.latency.saturating_sub(*begun_after));
            if let Some(partition) = core.partition(equal[0].2.demand.tenant, backend) {
                core.telemetry.query(now, partition, latency, equal.len() as u64);
            }
            let missed = equal.iter().filter(|(_, _, answer)| answer.waited).count();
            if missed > 0 {
                core.telemetry.miss(now, backend, latency, missed as u64);
            }
        }
        note_deadlines(core, answers);
        let stale = answers.iter().filter(|(_, _, answer)| answer.status == Status::Stale).count();
        if let (true, Some(backend)) = (stale > 0, core.backend(answers[0].0)) {
            backend.stale_answers.fetch_add(stale as u64, Relaxed);
        }
    }
}

/// Counts the keys of one backend whose queries have a deadline, by deadlines met and missed.
fn note_deadlines(core: &Core, answers: &[Ended<'_>]) {
    for query in answers.chunk_by(|a, b| a.2.demand == b.2.demand) {
        let (backend, _, Answer { demand, .. }) = query[0];
        if demand.deadline.is_some() {
            let mut kept = DeadlineOutcomes::default();
            query.iter().for_each(|(.., answer)| kept.count(answer.status, answer.late));
            core.deadlines.add(backend, demand, kept);
        }
    }
}

/// Returns the answer to the request; `room` is for the texts of values. Repeated keys share the
/// held value, but each writes its own text.
fn answer<'a>(core: &'a Core, stages: &'a [Stage], values: bool, room: &mut Room) -> RequestAnswer<'a> {
    let answers = || stages.iter().flat_map(|stage| stage.request.answers());
    let results = answers().map(|(backend, key, answer)| {
        let blank = KeyAnswer {
            backend: core.names.backend(backend),
            // Keys were parsed from text.
            key: std::str::from_utf8(key).unwrap_or_default(),
            status: status(answer.status),
            value: None,
            value_bytes: 0,
            encoding: None,
            latency_ms: millis(answer.latency),
            age_ms: answer.stale_for.map(millis),
            late: answer.late,
            expected_ms: answer.error.and_then(FetchError::expected).map(millis),
            error: answer.error.map(|error| core.reason(backend, error)),
        };
        let text = match &answer.value {
            Some(Held::Bytes(value)) if values => {
                let form = Form::of(value);
                let bytes = form.bytes();
                room.take(value.len(), form.memory_bytes(bytes)).map(|()| (form.text(), bytes))
            }
            Some(Held::Withheld(lack)) if values => Err(*lack),
            _ => return blank,
        };
        match text {
            Ok(((value, encoding), value_bytes)) => {
                KeyAnswer { value: Some(value), value_bytes, encoding: Some(encoding), ..blank }
            }
            Err(lack) => {
                KeyAnswer { status: "rejected", age_ms: None, error: Some(no_room(core, lack)), ..blank }
            }
        }
    });
    // The time actually waited, which is less than the latency counted for a failure.
    let latency = answers().map(|(_, _, answer)| answer.latency).max().unwrap_or_default();
    RequestAnswer {
        latency_ms: millis(latency),
        blocking_backend: finished(stages)
            .and_then(FinishedRequest::blocking)
            .map(|backend| core.names.backend(backend)),
        results: results.collect(),
    }
}

/// The error for a value that is not in the answer for lack of room.
fn no_room(core: &Core, lack: Lack) -> String {
    match lack {
        Lack::Answer => {
            "the values of one answer are at most 16 MiB together; ask for this key in another request"
                .to_owned()
        }
        Lack::Node => core.buffers.spent(),
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Hit => "hit",
        Status::Stale => "stale",
        Status::Miss => "miss",
        Status::NotFound => "not_found",
        Status::Rejected => "rejected",
        Status::Timeout => "timeout",
        Status::Error => "error",
    }
}
