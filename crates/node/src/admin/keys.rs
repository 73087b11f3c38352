//! `/v1/keys`: writes one key to its backend and then to the cache, or removes one key.

use std::sync::Arc;

use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use sherwood_model::query_times::{Operation, QueryKind, QueryOutcome};
use sherwood_model::{BackendId, PartitionId, Tags, TenantId};
use sherwood_path::{Change, ChangedKeys, Session, Write, WriteOptions, WriteOutcome, WriteRefused};
use sherwood_ports::http::{InPath, InQuery, KEY_BYTES_MAX, Problem, WholeBody, listed};
use sherwood_store::{Fault, Found};

use crate::backend::BackendDriver;
use crate::backend::write::{WriteEnd, WriteError};
use crate::core::Core;
use crate::gateway::{Sessions, refused};

/// Query parameters of a request that writes a key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Writer {
    /// Name of the writing tenant; the default tenant where absent.
    tenant: Option<String>,
}

/// Stores the body under a key. Replies 204 once the backend has it. From then on every read
/// through this node returns this value or a later one.
pub(crate) async fn put(
    State(core): State<Arc<Core>>,
    InPath((name, key)): InPath<(String, String)>,
    writer: Result<InQuery<Writer>, Problem>,
    request: Request,
) -> Result<Response, Problem> {
    let (id, backend) = backend_named(&core, &name)?;
    let tenant = tenant(&core, writer, request.uri().query())?;
    let Some(backend) = backend else {
        let error = format!("backend `{name}` has no store to write to; give it one in the configuration");
        return Err(Problem::unprocessable(error));
    };
    check(&key)?;
    let sessions = Sessions::of(&core, request.headers()).map_err(refused)?;
    let tags = tags(request.headers());
    let bytes_max = core.cache.options().item_bytes_max as usize;
    let WholeBody { bytes, hold } =
        WholeBody::of_value(request.into_body(), &core.buffers, bytes_max).await?;
    let value = Found { value: hold.guard(bytes), flags: 0, good_for: None, tags };
    let partition = core.partition(tenant, id);
    let options = WriteOptions { tenant, ..WriteOptions::default() };
    let write = Write { key: Bytes::from(key), change: Change::Put(value), partition, options };
    let made = write_timed(&core, backend, partition, write).await;
    let session = made.map_err(|error| problem(&name, &error))?;
    Ok(done(&core, id, sessions, session))
}

/// The answer to a write that was made, with the sessions of its client.
fn done(core: &Core, backend: BackendId, mut sessions: Sessions, made: Option<Session>) -> Response {
    if let Some(session) = made {
        sessions.join(backend, session);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    sessions.add_to(core, &mut response);
    response
}

/// Makes a write, and records its time as one of `partition`.
async fn write_timed(
    core: &Core,
    backend: &Arc<BackendDriver>,
    partition: Option<PartitionId>,
    write: Write<Bytes, Found>,
) -> WriteEnd {
    let operation = if let Change::Put(_) = &write.change { Operation::Set } else { Operation::Delete };
    let begun_at = core.clock.now();
    let written = backend.write_through(write).await;
    let outcome = match &written {
        Ok(_) => QueryOutcome::Written,
        Err(WriteError::Refused { .. }) => QueryOutcome::Rejected,
        Err(WriteError::Late(_)) => QueryOutcome::Timeout,
        Err(_) => QueryOutcome::Error,
    };
    let took = core.clock.now() - begun_at;
    core.request_times.record(partition.map(|of| (QueryKind::ended(of, operation, outcome), took, 1)));
    written
}

/// Returns the tenant that writes, whose name may follow the key.
fn tenant(
    core: &Core,
    writer: Result<InQuery<Writer>, Problem>,
    query: Option<&str>,
) -> Result<TenantId, Problem> {
    let InQuery(Writer { tenant }) = writer.map_err(|problem| unexpected_query(problem.error()))?;
    if tenant.is_none() && query.is_some() {
        return Err(unexpected_query("nothing that has a meaning follows the key's `?`"));
    }
    let id = core.names.tenant_or_default(tenant.as_deref());
    id.ok_or_else(|| no_tenant(core, tenant.as_deref()))
}

/// The reply to a write whose tenant is unknown, or missing where there is no default one.
pub(super) fn no_tenant(core: &Core, name: Option<&str>) -> Problem {
    match name {
        Some(name) => Problem::not_found("tenant", name, core.names.tenants()),
        None => {
            let known = listed(core.names.tenants());
            let error =
                format!("no tenant is named, and none is called default; add ?tenant= with one of: {known}");
            Problem::unprocessable(error)
        }
    }
}

/// Removes a key from every tenant's partition, and from the backend unless the backend is
/// read-only. Replies 204 even if the key did not exist. No fetch in flight brings it back. The
/// rate of the tenant that is named, or of the default one, pays for it.
pub(crate) async fn remove(
    State(core): State<Arc<Core>>,
    InPath((name, key)): InPath<(String, String)>,
    writer: Result<InQuery<Writer>, Problem>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (id, backend) = backend_named(&core, &name)?;
    let tenant = tenant(&core, writer, query.as_deref())?;
    let sessions = Sessions::of(&core, &headers).map_err(refused)?;
    // A write may fence its key, and a fence keeps a copy of the key.
    check(&key)?;
    let Some(backend) = backend else {
        core.remove_for_all(id, key.as_bytes());
        return Ok(done(&core, id, sessions, None));
    };
    let options = WriteOptions { tenant, ..WriteOptions::default() };
    let announced = Bytes::from(key);
    let write = Write { key: announced.clone(), change: Change::Delete, partition: None, options };
    match write_timed(&core, backend, core.partition(tenant, id), write).await {
        Ok(session) => Ok(done(&core, id, sessions, session)),
        // The cache has removed it, which is all there is to do for a read-only backend.
        Err(error) if error.is_read_only() => {
            core.announce(id, ChangedKeys::Key(announced));
            Ok(done(&core, id, sessions, None))
        }
        Err(error) => Err(problem(&name, &error)),
    }
}

/// Returns the id of the backend called `name`, and its driver if it has a store.
pub(super) fn backend_named<'a>(
    core: &'a Core,
    name: &str,
) -> Result<(BackendId, Option<&'a Arc<BackendDriver>>), Problem> {
    let id = core.names.backend_id(name);
    let id = id.ok_or_else(|| Problem::not_found("backend", name, core.names.backends()))?;
    Ok((id, core.backend(id)))
}

/// Reads the value's tags from the headers `Sherwood-Tags: a, b`, which may be repeated.
fn tags(headers: &HeaderMap) -> Tags {
    let lists = headers.get_all("sherwood-tags").into_iter().map(HeaderValue::as_bytes);
    lists
        .flat_map(|list| list.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|tag| !tag.is_empty())
        .collect()
}

/// The reply to a query string that is not understood. Ignoring it could write or remove another
/// key than the client meant: an unescaped `?` in a key starts a query string.
fn unexpected_query(why: &str) -> Problem {
    Problem::bad_request(format!("{why}; a question mark in a key is written %3F"))
}

/// Checks that a key has 1 to [`KEY_BYTES_MAX`] bytes.
pub(super) fn check(key: &str) -> Result<(), Problem> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        return Ok(());
    }
    let bytes = key.len();
    Err(Problem::unprocessable(format!("a key of {bytes} bytes; keys have 1 to {KEY_BYTES_MAX}: shorten it")))
}

/// The reply to a write that was not acknowledged, with the store's error text.
fn problem(backend: &str, error: &WriteError) -> Problem {
    let (status, cause) = match error {
        WriteError::Refused { error: WriteRefused::OverRate(_), .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "rate")
        }
        WriteError::Refused { .. } | WriteError::NoTurn(_) => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
        WriteError::Reserved => (StatusCode::UNPROCESSABLE_ENTITY, "reserved"),
        WriteError::Ended => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
        WriteError::Late(_) => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
        WriteError::Failed { error, .. } => {
            let status = match error.fault() {
                Fault::Overloaded | Fault::Throttled => StatusCode::SERVICE_UNAVAILABLE,
                Fault::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
                Fault::Unreachable | Fault::Broken => StatusCode::BAD_GATEWAY,
            };
            (status, error.cause().label())
        }
    };
    let outcome = if error.outcome() == WriteOutcome::NotDone { "not_done" } else { "unknown" };
    let problem = Problem::new(status, format!("writing to backend `{backend}`: {error}"));
    let problem = match error.over_rate() {
        Some(refusal) => problem.retry_in(refusal.retry_in()),
        None => problem,
    };
    problem.with("backend", backend).with("cause", cause).with("outcome", outcome)
}
