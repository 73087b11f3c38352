//! The connector to HTTP services: HTTP/1.1, and HTTP/2 if a server with TLS offers it.
//!
//! A key is mapped to a URL, and its value is the body. There is one request per key, several at a
//! time, or one request for many keys, answered by a JSON object, if the service supports it. A
//! response states its freshness lifetime and its tags ([`freshness`]). Redirects are not followed:
//! the template alone determines the server.
//!
//! hyper manages the connections. A dropped request closes its connection, or its stream over
//! HTTP/2.

mod answer;
mod client;
mod coding;
mod connector;
mod freshness;
mod options;
mod queued;
mod resend;
mod traceparent;
mod url;

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, CONTENT_TYPE, SERVER, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use tokio::sync::{Semaphore, watch};

pub(crate) use answer::settled;
pub(crate) use client::{Budget, Client, host};
pub use connector::{HttpConnector, NotConnected, Socket as HttpSocket};
pub use options::{HeaderValue, HttpOptions};
pub(crate) use resend::Effect;
pub use traceparent::with_traceparent;
pub(crate) use url::address;

use options::{Change, Headers, Urls};

use super::options::RemoteOptions;
use super::tls;
use super::{Each, all, named_each};
use crate::{
    Attempt, BoxFuture, Cause, Fault, Found, KeyAnswers, OpenCause, Report, Store, StoreError, StoreKind,
};

/// The store of an HTTP service.
pub(crate) struct Http {
    name: Arc<str>,
    client: Client,
    urls: Urls,
    headers: Headers,
    requests: Semaphore,
    calls: Semaphore,
    remote: RemoteOptions,
}

/// State shared by the requests of one call.
struct Call {
    budget: Budget,
    /// The cause for which the remaining requests of the call are not sent, once there is one: each
    /// would fail like the first, after the same time.
    stopped: watch::Sender<Option<Cause>>,
}

impl Call {
    fn new(bytes_max: u64) -> Self {
        Self { budget: Budget::new(bytes_max), stopped: watch::Sender::new(None) }
    }

    /// Stops the call if the failure of one request would affect all its requests: the service is
    /// unreachable, silent or overloaded, or refuses the credentials. A broken connection or an
    /// invalid response may be due to one key. The first cause is kept.
    fn stop_if_all(&self, cause: &Cause) {
        let silent = matches!(cause, Cause::Unanswered { .. });
        if !silent && !matches!(cause.fault(), Fault::Unreachable | Fault::Overloaded) {
            return;
        }
        self.stopped.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert_with(|| cause.clone());
            is_first
        });
    }

    /// Waits for `permit` to send a request, or fails as soon as the call is stopped.
    async fn unless_stopped<T>(&self, permit: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            biased;
            Ok(cause) = stopped.wait_for(Option::is_some) => Err(cause.clone().unwrap_or(Cause::Closed)),
            permit = permit => permit,
        }
    }
}

/// A response of the service; the body is empty if it is not needed.
struct Answer {
    status: StatusCode,
    version: Version,
    headers: HeaderMap,
    body: Bytes,
}

impl Http {
    pub(crate) fn open(name: &str, options: &HttpOptions) -> Result<Self, OpenCause> {
        let remote = &options.remote;
        options.validate()?;
        let urls = options.urls()?;
        Ok(Self {
            name: name.into(),
            client: Client::open(urls.are_secure(), remote)?,
            urls,
            headers: Headers::open(options)?,
            requests: Semaphore::new(remote.connections_max.into()),
            calls: Semaphore::new(remote.queued_calls_max as usize),
            remote: remote.clone(),
        })
    }

    async fn read(&self, keys: &[Bytes]) -> Result<Vec<Each>, Cause> {
        let _room = self.room()?;
        if keys.is_empty() {
            return self.report().await.map(|_| Vec::new());
        }
        let call = self.call();
        let each = match self.urls.read.is_batch() {
            true => self.read_together(keys, &call).await,
            false => join_all(keys.iter().map(|key| self.read_one(key, &call))).await,
        };
        settled(each)
    }

    /// Reads a key; none if the key has no URL and so cannot exist.
    async fn read_one(&self, key: &[u8], call: &Call) -> Option<Each> {
        let url = self.urls.read.of(key)?;
        let read = async {
            let (read, Answer { headers, body, .. }) = self.get(url, call).await?;
            Ok(match read {
                answer::Read::Body => Some(found(body, &headers)),
                answer::Read::Absent => None,
            })
        };
        Some(read.await)
    }

    /// Reads keys by requests for several keys each. A failed request fails all its keys.
    async fn read_together(&self, keys: &[Bytes], call: &Call) -> Vec<Option<Each>> {
        // An empty key, or one that is not UTF-8, cannot be in a JSON object, so it does not exist.
        let texts = keys.iter().map(|key| std::str::from_utf8(key).ok().filter(|key| !key.is_empty()));
        let texts: Vec<Option<&str>> = texts.collect();
        let asked: Vec<&str> = texts.iter().flatten().copied().collect();
        let mut rest = &asked[..];
        let requests = self.urls.read.of_all(&asked).into_iter().map(|(url, count)| {
            let (these, others) = rest.split_at(count);
            rest = others;
            self.read_list(url, these, call)
        });
        let requests: Vec<_> = requests.collect();
        let mut found = join_all(requests).await.into_iter().flatten();
        texts.iter().map(|text| text.and_then(|_| found.next().flatten())).collect()
    }

    /// Reads `keys` by one request to `url`; returns one result per key.
    async fn read_list(&self, url: Option<Uri>, keys: &[&str], call: &Call) -> Vec<Option<Each>> {
        let Some(url) = url else { return vec![None; keys.len()] };
        let address = host(&url);
        let read = async {
            let (read, Answer { headers, body, .. }) = self.get(url, call).await?;
            match read {
                answer::Read::Body => answer::batch(&body, keys, &found(Bytes::new(), &headers), &address),
                answer::Read::Absent => Ok(vec![Ok(None); keys.len()]),
            }
        };
        match read.await {
            Ok(each) => each.into_iter().map(Some).collect(),
            Err(cause) => vec![Some(Err(cause)); keys.len()],
        }
    }

    async fn put_one(&self, key: &[u8], value: Bytes) -> Result<(), Cause> {
        let change = self.urls.write.as_ref().ok_or_else(|| {
            let reason = "it has no `write`; give one, such as \"PUT http://…/{key}\"";
            Cause::no_way(reason, self.urls.delete.is_some())
        })?;
        let (bytes, max) = (value.len(), usize::try_from(self.remote.value_bytes_max).unwrap_or(usize::MAX));
        if bytes > max {
            return Err(Cause::Refused { what: "value", bytes, min: 0, max });
        }
        let (status, headers, address) = self.change(change, key, Some(value)).await?;
        answer::written(status, &headers, &address)
    }

    async fn delete_one(&self, key: &[u8]) -> Result<(), Cause> {
        let change = self.urls.delete.as_ref().ok_or_else(|| {
            let reason = "it has no `delete`; give one, such as \"DELETE http://…/{key}\"";
            Cause::no_way(reason, self.urls.write.is_some())
        })?;
        let (status, headers, address) = self.change(change, key, None).await?;
        answer::removed(status, &headers, &address)
    }

    /// Sends a write or removal. The status alone determines the result; the body is read only to
    /// reuse the connection.
    async fn change(
        &self,
        Change { method, url }: &Change,
        key: &[u8],
        value: Option<Bytes>,
    ) -> Result<(StatusCode, HeaderMap, String), Cause> {
        let url = url.of(key).ok_or(NO_URL)?;
        let _room = self.room()?;
        let _permit = self.permit().await?;
        let address = host(&url);
        let (head, body) = self.send(Effect::Write, method, &url, value).await?.into_parts();
        self.client.drain(body, &address).await;
        Ok((head.status, head.headers, address))
    }

    /// Checks the service by reading a key, which need not exist.
    async fn report(&self) -> Result<Report, Cause> {
        let key = self.urls.read.check_key();
        let url = match self.urls.read.is_batch() {
            true => self.urls.read.of_all(&[&key]).into_iter().next().and_then(|(url, _)| url),
            false => self.urls.read.of(key.as_bytes()),
        };
        let url = url.ok_or(NO_URL)?;
        let (address, secure) = (host(&url), url.scheme_str() == Some("https"));
        let (_, Answer { status, version, headers, .. }) = self.get(url, &self.call()).await?;
        let server = headers
            .get(SERVER)
            .map(|name| String::from_utf8_lossy(name.as_bytes()).chars().take(64).collect());
        let security = match secure {
            true => format!("TLS, {}", tls::trust(&self.remote.tls.clone().unwrap_or_default())),
            false => "no TLS".to_owned(),
        };
        let details =
            vec![format!("{address}, {security}"), format!("{version:?}, status {status} for the key {key}")];
        Ok(Report {
            server: server.unwrap_or_else(|| "an HTTP service that does not say which".into()),
            details,
        })
    }

    fn call(&self) -> Call {
        Call::new(self.remote.value_bytes_max)
    }

    fn room(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Cause> {
        let queued_calls_max = self.remote.queued_calls_max as usize;
        self.calls.try_acquire().map_err(|_| Cause::Overloaded { queued_calls_max })
    }

    /// Waits for a permit for one of the concurrent requests.
    async fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Cause> {
        self.requests.acquire().await.map_err(|_| Cause::Closed)
    }

    /// Sends a read once it has a permit; returns the meaning of the status and the response, whose
    /// body is kept only if it is a value. A failure that would affect the whole call stops it.
    async fn get(&self, url: Uri, call: &Call) -> Result<(answer::Read, Answer), Cause> {
        let _permit = call.unless_stopped(self.permit()).await?;
        let address = host(&url);
        let sent = self.send(Effect::Read, &Method::GET, &url, None).await;
        let (head, body) = sent.inspect_err(|cause| call.stop_if_all(cause))?.into_parts();
        let read = answer::read(head.status, &head.headers, &address);
        let read = read.inspect_err(|cause| call.stop_if_all(cause));
        let body = match read {
            Ok(answer::Read::Body) => {
                let body = self.client.body(&head.headers, body, &address, &call.budget).await;
                body.inspect_err(|cause| call.stop_if_all(cause))?
            }
            Ok(answer::Read::Absent) | Err(_) => {
                self.client.drain(body, &address).await;
                Bytes::new()
            }
        };
        Ok((read?, Answer { status: head.status, version: head.version, headers: head.headers, body }))
    }

    /// Sends a request and reads the head of the response. If the service refuses a token and the
    /// token's file has changed, sends the request once more with the new token; the first request
    /// was not executed.
    async fn send(
        &self,
        effect: Effect,
        method: &Method,
        url: &Uri,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>, Cause> {
        let headers = self.headers.current();
        let sent = self.send_with(&headers, effect, (method, url), body.as_ref()).await?;
        match self.headers.newer_than(&headers, sent.status()) {
            Some(newer) => self.send_with(&newer, effect, (method, url), body.as_ref()).await,
            None => Ok(sent),
        }
    }

    async fn send_with(
        &self,
        headers: &HeaderMap,
        effect: Effect,
        (method, url): (&Method, &Uri),
        body: Option<&Bytes>,
    ) -> Result<Response<Incoming>, Cause> {
        let request = || {
            let mut request = Request::new(Full::new(body.cloned().unwrap_or_default()));
            (*request.method_mut(), *request.uri_mut()) = (method.clone(), url.clone());
            *request.headers_mut() = headers.clone();
            let headers = request.headers_mut();
            headers.extend(traceparent::header());
            let text = hyper::header::HeaderValue::from_static;
            headers.entry(USER_AGENT).or_insert(text("sherwood"));
            headers.entry(ACCEPT_ENCODING).or_insert(text("identity"));
            if body.is_some() {
                headers.entry(CONTENT_TYPE).or_insert(text("application/octet-stream"));
            }
            Ok(request)
        };
        self.client.send(effect, request).await
    }

    fn named<T>(&self, attempt: Attempt, result: Result<T, Cause>) -> Result<T, StoreError> {
        result.map_err(|cause| StoreError::new(Arc::clone(&self.name), StoreKind::Http, attempt, cause))
    }
}

impl Store for Http {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Http
    }

    /// False: a service may change a written value, and states its freshness lifetime only in the
    /// response to a read.
    fn answers_as_written(&self) -> bool {
        false
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move { self.named(attempt, self.read(&keys).await.and_then(all)) })
    }

    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move {
            Ok(named_each(&self.name, StoreKind::Http, self.named(attempt, self.read(&keys).await)?))
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Put, self.put_one(&key, value).await) })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Delete, self.delete_one(&key).await) })
    }

    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        Box::pin(async move { self.named(Attempt::Check, self.report().await) })
    }
}

/// The cause of a failed write or removal of a key that the URL template maps to no URL.
const NO_URL: Cause = Cause::Unsupported {
    reason: "the key makes no URL by the backend's template: it is empty or a way up, or lacks a part that {key.N} names",
};

fn found(value: Bytes, headers: &HeaderMap) -> Found {
    let good_for = freshness::good_for(headers, SystemTime::now());
    Found { value, flags: 0, good_for, tags: freshness::tags(headers) }
}
