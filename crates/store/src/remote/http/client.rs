//! The HTTP client of connectors: bounded connections by hyper, decoded bodies, and a cause for
//! each kind of failure.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::{HeaderMap, Request, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::coding::{self, Coding, Undecodable};
use super::connector::{HttpConnector, NotConnected};
use super::queued::{Outgoing, Queued};
use super::resend::{self, Effect, Link, Over, Resends};
use super::url;
use crate::remote::options::RemoteOptions;
use crate::remote::tls;
use crate::{Cause, OpenCause};

/// Time after which an idle connection to the service is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Maximum number of bytes read of a response body that is read only to reuse its connection.
const DISCARDED_BODY_BYTES: u64 = 64 << 10;

/// Most time to read a body only to reuse its connection. It nearly always arrives with its head.
/// The request keeps its permit meanwhile, so that a service whose error pages hang would delay
/// every other key; a new connection costs less.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(10);

/// Largest body, received or decoded, that is decoded within a task of the runtime; this takes
/// about a millisecond. Larger bodies are decoded by a thread that may block.
const DECODED_IN_TASK_BYTES: u64 = 256 << 10;

/// The bytes of response bodies that one call may still read, over all its requests.
pub(crate) struct Budget {
    left: AtomicU64,
    bytes_max: u64,
}

impl Budget {
    /// A budget of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { left: AtomicU64::new(bytes_max), bytes_max }
    }

    /// Takes `bytes` from the budget; false if fewer are left.
    fn take(&self, bytes: usize) -> bool {
        let left = |left: u64| left.checked_sub(bytes as u64);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Returns the bytes that are left.
    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns the `bytes` that were taken for a body that is not kept.
    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// An HTTP client whose connections and waiting times have the bounds of the options.
pub(crate) struct Client {
    /// A client that keeps connections for later requests.
    shared: legacy::Client<HttpConnector, Outgoing>,
    /// A client that opens a connection for each request.
    own: legacy::Client<HttpConnector, Outgoing>,
    answer_timeout: Duration,
}

impl Client {
    /// Makes a client, with TLS if any of its URLs `is_secure`.
    pub(crate) fn open(is_secure: bool, remote: &RemoteOptions) -> Result<Self, OpenCause> {
        let tls = remote.tls.clone().unwrap_or_default();
        let connector = HttpConnector::open(is_secure, &tls, &["h2", "http/1.1"], remote.connect_timeout())?;
        let answer_timeout = remote.answer_timeout();
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // So that each request has one connection, by which it is judged.
            .retry_canceled_requests(false)
            // An HTTP/2 connection carries many requests: new ones must not be sent on one that
            // hangs.
            .http2_keep_alive_interval(answer_timeout)
            .http2_keep_alive_timeout(answer_timeout);
        let own = builder.clone().pool_max_idle_per_host(0).build(connector.clone());
        let shared = builder.pool_max_idle_per_host(remote.connections_max.into()).build(connector);
        Ok(Self { shared, own, answer_timeout })
    }

    /// Sends a request, which `request` creates, and reads the head of the response. If the server
    /// ended the connection, the request is sent again if the server has not processed it, or if it
    /// has no effect and the server may have processed it.
    pub(crate) async fn send(
        &self,
        effect: Effect,
        request: impl Fn() -> Result<Request<Full<Bytes>>, Cause>,
    ) -> Result<Response<Incoming>, Cause> {
        let mut resends = Resends::new(effect);
        let mut client = &self.shared;
        loop {
            let (request, queued) = Queued::watch(request()?);
            let url = request.uri().clone();
            let sent = async {
                tokio::select! {
                    biased;
                    answer = client.request(request) => Some(answer),
                    () = queued.lost() => None,
                }
            };
            let error = match timeout(self.answer_timeout, sent).await {
                Ok(Some(Ok(response))) => {
                    Link::answered(response.extensions());
                    return Ok(response);
                }
                Ok(Some(Err(error))) => Some(error),
                Ok(None) => None,
                Err(_) => return Err(Cause::unanswered(host(&url), self.answer_timeout)),
            };
            let over = match &error {
                Some(error) => resends.after(error),
                None => resends.after_loss(),
            };
            client = match over {
                Some(Over::Shared) => &self.shared,
                Some(Over::Own) => &self.own,
                None => return Err(unsent(error, host(&url))),
            };
        }
    }

    /// Reads a body that is not needed, if it is short and arrives soon, so that its connection can
    /// be reused.
    pub(crate) async fn drain(&self, body: Incoming, address: &str) {
        let budget = Budget::new(DISCARDED_BODY_BYTES);
        let _ = timeout(DRAIN_TIMEOUT, self.coded_body(body, address, &budget)).await;
    }

    /// Reads the body of a response with these `headers` and decodes it. The bytes read are charged
    /// to `budget`, then those of the decoded body instead; if reading fails, they are returned to
    /// the budget.
    pub(crate) async fn body(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        address: &str,
        budget: &Budget,
    ) -> Result<Bytes, Cause> {
        let undecodable = |undecodable| match undecodable {
            Undecodable::TooLarge => Cause::TooLarge { bytes_max: budget.bytes_max },
            Undecodable::Coding(detail) => {
                Cause::Protocol { address: address.to_owned(), expected: "the request", detail }
            }
        };
        let codings = coding::codings(headers).map_err(undecodable)?;
        let coded = self.coded_body(body, address, budget).await?;
        if codings.is_empty() {
            return Ok(coded);
        }
        let received = coded.len();
        let bytes_max = budget.left() + received as u64;
        let decoded = decode(codings, coded, bytes_max).await;
        budget.give_back(received);
        let decoded = decoded.map_err(undecodable)?;
        if budget.take(decoded.len()) { Ok(decoded) } else { Err(undecodable(Undecodable::TooLarge)) }
    }

    /// Reads a body without decoding it.
    async fn coded_body(&self, body: Incoming, address: &str, budget: &Budget) -> Result<Bytes, Cause> {
        let mut read = BytesMut::new();
        match self.read_body(body, &mut read, address, budget).await {
            Ok(()) => Ok(read.freeze()),
            Err(cause) => {
                budget.give_back(read.len());
                Err(cause)
            }
        }
    }

    async fn read_body(
        &self,
        mut body: Incoming,
        read: &mut BytesMut,
        address: &str,
        budget: &Budget,
    ) -> Result<(), Cause> {
        let bytes_max = budget.bytes_max;
        let too_large = || Err(Cause::TooLarge { bytes_max });
        if body.size_hint().lower() > bytes_max {
            return too_large();
        }
        loop {
            let frame = match timeout(self.answer_timeout, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(failure(&error, address)),
                Err(_) => return Err(Cause::unanswered(address, self.answer_timeout)),
            };
            if let Ok(data) = frame.into_data() {
                if !budget.take(data.len()) {
                    return too_large();
                }
                read.extend_from_slice(&data);
            }
        }
    }
}

/// Host and port of a URL, for errors.
pub(crate) fn host(url: &Uri) -> String {
    url::address(url).map(|address| address.to_string()).unwrap_or_default()
}

/// Decodes a body to at most `bytes_max` bytes, without blocking a thread of the runtime for long.
async fn decode(codings: Vec<Coding>, coded: Bytes, bytes_max: u64) -> Result<Bytes, Undecodable> {
    if coded.len() as u64 <= DECODED_IN_TASK_BYTES {
        match coding::decode(&codings, &coded, bytes_max.min(DECODED_IN_TASK_BYTES)) {
            Err(Undecodable::TooLarge) if bytes_max > DECODED_IN_TASK_BYTES => {}
            decoded => return decoded.map(Bytes::from),
        }
    }
    let decoding = spawn_blocking(move || coding::decode(&codings, &coded, bytes_max));
    // It fails only if the decoder panics, or if the runtime is shutting down.
    let decoded = decoding.await.map_err(|error| Undecodable::Coding(format!("content coding: {error}")))?;
    decoded.map(Bytes::from)
}

/// Returns the cause of a request that failed with `error`, or whose connection ended before it
/// took the request.
fn unsent(error: Option<legacy::Error>, address: String) -> Cause {
    match error {
        Some(error) => resend::refusal(&error).unwrap_or_else(|| failure(&error, &address)),
        None => Cause::Reset { address, detail: "the connection ended before the request".to_owned() },
    }
}

/// The cause of a failed request, from the innermost specific error.
fn failure(error: &(dyn Error + 'static), address: &str) -> Cause {
    let address = address.to_owned();
    let mut innermost = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(NotConnected(cause)) = error.downcast_ref() {
            return cause.clone();
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>().filter(|error| error.is_parse()) {
            return Cause::Protocol { address, expected: "HTTP", detail: error.to_string() };
        }
        if let Some(known) = error.downcast_ref().filter(|error| tls::is_refusal(error)) {
            return Cause::Certificate { address, detail: known.to_string() };
        }
        innermost = error;
        next = source(error);
    }
    let unsaid = error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
    match unsaid {
        true => Cause::Unreachable { address, detail: innermost.to_string() },
        false => Cause::Reset { address, detail: innermost.to_string() },
    }
}

/// The first error of type `T` among `error` and the errors that caused it.
pub(super) fn source_of<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    error.downcast_ref().or_else(|| source_of(source(error)?))
}

/// The error that caused `error`.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // The inner error of an `io::Error` is not among its sources.
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.source().or(inner.map(|inner| inner as &(dyn Error + 'static)))
}
