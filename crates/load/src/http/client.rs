//! Requests over kept-alive connections, and their answers.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode, body::Incoming, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Bearer, Options};
use crate::{LoadError, Tls};

/// Connections to one gateway. Idle ones are reused last in, first out, so that few are in use; as
/// many are open as requests were ever in flight at once.
pub(super) struct Client {
    address: String,
    uri: String,
    tls: Option<Tls>,
    bearer: Option<Bearer>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// The reason why a request to the gateway has no answer.
#[derive(Debug, Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Connect(#[from] Opening),
    #[error("talking to the gateway: {0}")]
    Http(#[from] hyper::Error),
    #[error("reading the answer: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the gateway answered {status}: {body}")]
    Status { status: StatusCode, body: String },
    #[error("the answer is not what `POST /v1/requests` answers: {0}")]
    Shape(#[from] serde_json::Error),
}

/// The reason why a connection was not made.
#[derive(Debug, Error)]
pub(super) enum Opening {
    #[error("connecting: {0}")]
    Connect(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
}

/// The largest answer that is read, in bytes: 300 values of 256 KiB.
const ANSWER_BYTES_MAX: usize = 80 << 20;

/// Most bytes of a refusal's text that an error keeps.
const REFUSAL_BYTES: usize = 200;

impl Client {
    /// Makes a client and its first connection, so that an unreachable target is detected at once.
    pub(super) async fn connect(options: &Options) -> Result<Arc<Self>, LoadError> {
        let Options { address, tls, bearer, .. } = options;
        let client = Self {
            address: address.clone(),
            uri: "/v1/requests".to_owned(),
            tls: tls.clone(),
            bearer: bearer.clone(),
            idle: Mutex::default(),
        };
        let address = address.clone();
        let first = match client.open().await {
            Ok(first) => first,
            Err(Opening::Tls(source)) => return Err(LoadError::Tls { address, source }),
            Err(Opening::Connect(source)) => return Err(LoadError::Connect { address, source }),
        };
        client.put_back(first);
        Ok(Arc::new(client))
    }

    /// Sends a request and reads its complete answer.
    pub(super) async fn post(&self, body: Bytes) -> Result<Bytes, RequestError> {
        let (response, sender) = self.send(body).await?;
        let status = response.status();
        let collected = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let answer = collected.map_err(RequestError::Body)?.to_bytes();
        self.put_back(sender);
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let text = String::from_utf8_lossy(&answer[..answer.len().min(REFUSAL_BYTES)]).into_owned();
        Err(RequestError::Status { status, body: text })
    }

    /// Sends a request. An idle connection may have been closed by the gateway; a request that was
    /// not sent on it is sent on a new one.
    async fn send(
        &self,
        body: Bytes,
    ) -> Result<(Response<Incoming>, SendRequest<Full<Bytes>>), RequestError> {
        if let Some(mut kept) = self.take_idle() {
            let sent = match kept.ready().await {
                Ok(()) => kept.try_send_request(self.request(body.clone())).await.map_err(|mut error| {
                    let unsent = error.take_message().is_some();
                    (error.into_error(), unsent)
                }),
                Err(error) => Err((error, true)),
            };
            match sent {
                Ok(response) => return Ok((response, kept)),
                Err((error, false)) => return Err(error.into()),
                Err((_, true)) => {}
            }
        }
        let mut new = self.open().await?;
        let response = new.send_request(self.request(body)).await?;
        Ok((response, new))
    }

    fn request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::post(&self.uri)
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .expect("the path and an address that was connected to are valid");
        if let Some(Bearer(value)) = &self.bearer {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
        }
        request
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, Opening> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(speak(stream).await?),
            Some(Tls { config, name }) => {
                let stream = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream);
                Ok(speak(stream.await.map_err(Opening::Tls)?).await?)
            }
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    fn put_back(&self, sender: SendRequest<Full<Bytes>>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
    }
}

/// Speaks HTTP/1.1 on a connection, in a task of its own.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // An error of the connection is also returned by the requests sent on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// The part of a gateway's answer that is counted.
#[derive(Deserialize)]
pub(super) struct Answer<'a> {
    #[serde(borrow)]
    pub(super) results: Vec<KeyResult<'a>>,
}

#[derive(Deserialize)]
pub(super) struct KeyResult<'a> {
    #[serde(borrow)]
    pub(super) backend: Cow<'a, str>,
    pub(super) status: Status,
    /// True if the gateway answered the key after its deadline.
    #[serde(default)]
    pub(super) late: bool,
    /// The latency measured by the gateway; none if the answer does not contain it.
    pub(super) latency_ms: Option<f64>,
}

/// The result of a key in a gateway's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Hit,
    Miss,
    Stale,
    Rejected,
    Timeout,
    Error,
    NotFound,
}

impl<'a> Answer<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, RequestError> {
        Ok(serde_json::from_slice(body)?)
    }
}
