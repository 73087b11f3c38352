//! `POST /v1/requests`: one request, its queries looked up in parallel, each key answered on its
//! own.

mod body;
mod held;
mod json;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sherwood_cache::{Access, Item, Value};
use sherwood_model::{Demand, Instant, TenantId};
use sherwood_path::{Query, QueryFetch, Request, Slot, Staleness, Status};
use tokio::sync::mpsc;

use crate::backend::FetchKey;
use crate::clock::millis;
use crate::core::Core;
use crate::http::{Problem, WholeBody, listed};
use crate::slos::Counted;
use crate::waiter::{Arrival, Waiter};

use body::{AskedRequest, Form, KeyAnswer, Refusal, RequestAnswer, VALUES_BYTES_MAX};
use held::{Held, Lack, Room};

/// Answers `POST /v1/requests`.
pub(crate) async fn handle(
    State(core): State<Arc<Core>>,
    WholeBody { bytes: body, mut hold }: WholeBody,
) -> Result<Response, Problem> {
    let arrival = core.clock.now();
    let asked = AskedRequest::parse(&body).map_err(refused)?;
    let queries = resolve(&core, &asked).map_err(refused)?;
    if let Some(class) = &asked.class {
        core.classes.count(class);
    }
    if !hold.take(asked.bytes_max(body.len())) {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, core.buffers.spent()));
    }
    let values = asked.values.unwrap_or(true);
    let room = Room::new(if values { VALUES_BYTES_MAX } else { 0 }, core.buffers.hold());
    let request = Request::start(arrival, queries);
    let counted = counted(&core, &asked);
    let mut running = Running { request, core: &core, counted, slots: Vec::new(), room };
    running.run().await;
    let mut room = Room::new(VALUES_BYTES_MAX, hold);
    let text = json::encode(&answer(&core, &running.request, values, &mut room));
    // What the text takes is given back when it has been sent, or when there is nobody to send it
    // to.
    let text = room.into_hold().guard(text);
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

fn refused(refusal: Refusal) -> Problem {
    let error = refusal.to_string();
    match refusal {
        Refusal::Malformed { path, .. } => Problem::bad_request(error).with("path", path),
        Refusal::Unknown { path, .. } => Problem::unprocessable(error).with("path", path),
    }
}

/// A request under way. When its client goes away before the end, what is still open counts as
/// failed: a client that gave up waited too long, and its request must not be missing from the
/// tail.
struct Running<'a> {
    core: &'a Arc<Core>,
    request: Request<Bytes, Held>,
    /// The SLOs it counts for.
    counted: Counted,
    /// What is fetched, by the position its waiter tells.
    slots: Vec<Slot>,
    /// For values.
    room: Room,
}

impl Running<'_> {
    /// Looks every key up, fetches what is missing, and waits for the last answer.
    async fn run(&mut self) {
        let room = &mut self.room;
        let access = Access::at(self.core.clock.now());
        let read = |partition, key: &Bytes, item: Item<'_>| {
            // Another is fetched in the place of a stale one, and that is seen when it comes.
            if item.stale_since(access.now).is_none() {
                self.core.shadow.access(access.now, partition, key, item.value.len());
            }
            match item.value {
                Value::Bytes(bytes) => room.hold(bytes.len(), || Bytes::copy_from_slice(bytes)),
                Value::Declared(_) => Held::Withheld(Lack::Answer),
            }
        };
        let fetches = self.request.look_up(&self.core.cache, &access, read);
        self.note(access.now, fetches.iter().all(|fetch| !fetch.awaited));
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        for fetch in fetches {
            self.fetch(fetch, &sender);
        }
        drop(sender);
        while let Some((position, result)) = self.next(&mut arrivals).await {
            let room = &mut self.room;
            let held = result.map(|value| value.map(|found| room.hold(found.value.len(), || found.value)));
            self.request.handle_result(self.core.clock.now(), self.slots[position], held);
        }
        record(self.core, self.counted, &self.request);
    }

    /// The next arrival, or none when all keys have their answers. Where stale values are answers
    /// once their fetch is late, it sees to that meanwhile.
    async fn next(&mut self, arrivals: &mut mpsc::UnboundedReceiver<Arrival>) -> Option<Arrival> {
        while self.request.finished().is_none() {
            let Some(late) = self.request.next_timeout() else { return arrivals.recv().await };
            tokio::select! {
                biased;
                arrival = arrivals.recv() => return arrival,
                () = tokio::time::sleep(late.since(self.core.clock.now())) => {
                    self.request.handle_timeout(self.core.clock.now());
                }
            }
        }
        None
    }

    /// Notes what is asked while somebody records. It is due with the look-up, which the cache
    /// counts from then on: were it noted at its end, keys of a request under way would have been
    /// looked up and be nobody's.
    fn note(&self, now: Instant, all_hit: bool) {
        if self.core.recording.is_on() {
            let finished = self.request.finished().filter(|_| all_hit);
            let hit = finished.map(|finished| Duration::from_micros(finished.latency_us.into()));
            self.core.recording.request(now, hit, self.request.asked());
        }
    }

    /// Asks a query's backend for what missed. A backend without a store has nothing but what is
    /// cached.
    fn fetch(&mut self, fetch: QueryFetch<Bytes>, sender: &mpsc::UnboundedSender<Arrival>) {
        let QueryFetch { backend, partition, keys, demand, awaited, .. } = fetch;
        let Some(backend) = self.core.backend(backend) else {
            let now = self.core.clock.now();
            keys.into_iter().for_each(|(_, slot)| self.request.handle_result(now, slot, Ok(None)));
            return;
        };
        if !awaited {
            return backend.refresh(&demand, keys.into_iter().map(|(key, _)| FetchKey { partition, key }));
        }
        let first = self.slots.len();
        self.slots.extend(keys.iter().map(|(_, slot)| *slot));
        let waiter = |(i, (key, _))| (FetchKey { partition, key }, Waiter::new(sender.clone(), first + i));
        backend.fetch(&demand, keys.into_iter().enumerate().map(waiter));
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.request.finished().is_some() {
            return;
        }
        self.request.abandon(self.core.clock.now());
        record(self.core, self.counted, &self.request);
    }
}

/// Returns the SLOs that a request counts for.
fn counted(core: &Core, asked: &AskedRequest<'_>) -> Counted {
    let tenant = asked.tenant.as_ref().and_then(|name| core.names.tenant_id(name)).unwrap_or(TenantId(0));
    core.telemetry.slos().counted(asked.class.as_deref(), tenant)
}

/// Names to ids, or the first name that is not known.
fn resolve(core: &Core, asked: &AskedRequest<'_>) -> Result<Vec<Query<Bytes>>, Refusal> {
    let tenant = match &asked.tenant {
        Some(name) => core.names.tenant_id(name).ok_or_else(|| Refusal::Unknown {
            path: "tenant".to_owned(),
            what: "tenant",
            name: name.to_string(),
            known: listed(core.names.tenants()),
        })?,
        None => TenantId(0),
    };
    let query = |(i, query): (usize, &body::AskedQuery<'_>)| {
        let place = core.names.backend_id(&query.backend);
        let place = place.and_then(|backend| Some((backend, core.partition(tenant, backend)?)));
        let Some((backend, partition)) = place else {
            return Err(Refusal::Unknown {
                path: format!("queries[{i}].backend"),
                what: "backend",
                name: query.backend.to_string(),
                known: listed(core.names.backends()),
            });
        };
        Ok(Query {
            backend,
            partition,
            keys: query.keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect(),
            demand: Demand { tenant, best_effort: query.best_effort.unwrap_or(false), ..Demand::default() },
            timeout: core.backend(backend).map_or(Duration::ZERO, |backend| backend.timeout),
            staleness: core.backend(backend).map_or(Staleness::default(), |backend| {
                backend.rules.staleness(query.stale_ok(), backend.late_after)
            }),
        })
    };
    asked.queries.iter().enumerate().map(query).collect()
}

/// Takes note of how the request and its queries ended.
fn record(core: &Core, counted: Counted, request: &Request<Bytes, Held>) {
    let Some(finished) = request.finished() else { return };
    if finished.blocking.is_none() {
        // Nobody was asked for anything: a client that only tries the port would make the tail look
        // better.
        return;
    }
    let now = core.clock.now();
    core.telemetry.request(now, now, counted, finished);
    for answers in request.answers().collect::<Vec<_>>().chunk_by(|a, b| a.0 == b.0) {
        // Keys of a query end together, hits at the look-up and misses with their call: few
        // different latencies.
        for equal in answers.chunk_by(|a, b| a.2.latency == b.2.latency) {
            let (backend, latency) = (equal[0].0, equal[0].2.latency);
            core.telemetry.query(now, backend, latency, equal.len() as u64);
            let missed = equal.iter().filter(|(_, _, answer)| answer.waited).count();
            if missed > 0 {
                core.telemetry.miss(now, backend, latency, missed as u64);
            }
        }
        let stale = answers.iter().filter(|(_, _, answer)| answer.status == Status::Stale).count();
        if let (true, Some(backend)) = (stale > 0, core.backend(answers[0].0)) {
            backend.stale_answers.fetch_add(stale as u64, Relaxed);
        }
    }
}

/// What the request is answered; `room` is for the texts of values. Keys that were asked for twice
/// share what is held, but not what is written.
fn answer<'a>(
    core: &'a Core,
    request: &'a Request<Bytes, Held>,
    values: bool,
    room: &mut Room,
) -> RequestAnswer<'a> {
    let finished = request.finished();
    let results = request.answers().map(|(backend, key, answer)| {
        let blank = KeyAnswer {
            backend: core.names.backend(backend),
            // Keys were text when they were asked for.
            key: std::str::from_utf8(key).unwrap_or_default(),
            status: status(answer.status),
            value: None,
            value_bytes: 0,
            encoding: None,
            latency_ms: millis(answer.latency),
            age_ms: answer.stale_for.map(millis),
            error: answer.error.as_ref().map(ToString::to_string),
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
    // What was waited for, which is less than what a failure counts as.
    let latency = request.answers().map(|(_, _, answer)| answer.latency).max().unwrap_or_default();
    RequestAnswer {
        latency_ms: millis(latency),
        blocking_backend: finished
            .and_then(|finished| finished.blocking)
            .map(|backend| core.names.backend(backend)),
        results: results.collect(),
    }
}

/// Why a value that is there is not in the answer.
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
