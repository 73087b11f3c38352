//! Connections to schedulers: HTTP/2, over TLS for `https`.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::uri::Scheme;
use axum::http::{HeaderValue, Request, Response, Uri, header};
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use sherwood_config::{SchedulerSource, SchedulerUrl};
use sherwood_store::{ClientTls, TlsOptions};
use sherwood_textfile::{Reader, Watched};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use sherwood_ports::access::{AccessError, Refusal, refused, secret_bytes};

/// Interval of pings to a silent node, and the timeout of its answers: a call that waits for its
/// scheduling turn at a node that has vanished fails after twice this time.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The address, TLS settings and token for connecting to a scheduler.
pub struct Endpoint {
    url: SchedulerUrl,
    tls: Option<(ClientTls, ServerName<'static>)>,
    token: Option<Arc<Watched<HeaderValue>>>,
}

impl Endpoint {
    /// Reads the files that `source` names; they are read again when they change.
    ///
    /// # Errors
    /// The error names the unusable file or TLS option.
    pub fn open(source: SchedulerSource) -> Result<Self, AccessError> {
        let SchedulerSource { url, token_file, tls } = source;
        let token = |path: PathBuf| Watched::open(move |reader: &mut Reader| token(&path, reader));
        let token = token_file.map(token).transpose()?.map(Arc::new);
        let tls = if url.is_secure() { Some(client_tls(&url, &tls)?) } else { None };
        Ok(Self { url, tls, token })
    }

    /// The name of the scheduler among those of its node.
    pub fn scheduler(&self) -> &str {
        self.url.scheduler()
    }

    /// The URL of the scheduler.
    pub fn url(&self) -> &SchedulerUrl {
        &self.url
    }

    /// The URL of the scheduler's node.
    pub fn origin(&self) -> Uri {
        let scheme = if self.url.is_secure() { Scheme::HTTPS } else { Scheme::HTTP };
        let uri = Uri::builder().scheme(scheme).authority(self.url.authority().clone()).path_and_query("/");
        uri.build().expect("its parts are those of a URL")
    }

    /// Reads the token's file again for the next calls, after the node has refused the token.
    pub(crate) fn reread_token(&self) {
        if let Some(token) = &self.token {
            token.newer_than(&token.current());
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the node cannot be reached, or does not speak HTTP/2.
    pub async fn connect(&self) -> io::Result<Connection> {
        let host = self.url.host();
        let stream = TcpStream::connect((host, self.url.port())).await?;
        // Messages are written whole, so the kernel need not wait for more.
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.greet(stream).await,
            Some((tls, name)) => {
                let config = tls.current();
                let connector = TlsConnector::from(Arc::clone(&config));
                let stream = connector.connect(name.clone(), stream).await.inspect_err(|_| {
                    // For the next connection.
                    tls.newer_than(&config);
                })?;
                self.greet(stream).await
            }
        }
    }

    async fn greet<S>(&self, stream: S) -> io::Result<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_INTERVAL);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection to a scheduler ended: {error}");
            }
        });
        Ok(Connection { sender, token: self.token.clone() })
    }
}

/// A connection, on which many calls may be in flight.
#[derive(Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
    token: Option<Arc<Watched<HeaderValue>>>,
}

impl Connection {
    /// Returns true once the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Response<Incoming>, hyper::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::clone(&token.current()));
        }
        Box::pin(self.sender.send_request(request))
    }
}

/// Returns true if the call failed because of its connection, and not by an answer of the
/// scheduler.
pub(crate) fn is_of_the_connection(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<hyper::Error>() || cause.is::<h2::Error>())
}

/// Returns true if the connection failed and the scheduler has not begun to carry out the call: it
/// was not sent, or the server reported that it has not processed it.
pub(crate) fn is_not_carried_out(status: &Status) -> bool {
    causes(status).any(|cause| {
        let is_unsent = cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        is_unsent || cause.downcast_ref::<h2::Error>().is_some_and(is_unprocessed)
    })
}

/// Returns true for an error of a stream that the server has not processed: the stream was refused,
/// or is above the last one that a GOAWAY frame names (RFC 9113, 6.8 and 8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    let is_last = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (is_last || error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// The chain of errors that caused a status; empty if the status is the server's answer.
fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&cause| cause.source())
}

fn client_tls(
    url: &SchedulerUrl,
    options: &TlsOptions,
) -> Result<(ClientTls, ServerName<'static>), AccessError> {
    let unusable = |why: String| refused("[[backend]] tickets.tls", &PathBuf::new(), Refusal::Unusable(why));
    let tls = ClientTls::open(options, &["h2"]).map_err(|error| unusable(error.to_string()))?;
    let name = options.server_name.as_deref().unwrap_or(url.host());
    let name = ServerName::try_from(name.to_owned()).map_err(|error| unusable(format!("{name}: {error}")))?;
    Ok((tls, name))
}

/// Reads the first token of a token file.
fn token(path: &Path, reader: &mut Reader) -> Result<HeaderValue, AccessError> {
    const WHAT: &str = "[[backend]] tickets.token_file";
    let bytes = secret_bytes(WHAT, path, reader)?;
    let mut lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let token = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"));
    let token =
        token.ok_or_else(|| refused(WHAT, path, Refusal::Empty("token: put one of the node's into it")))?;
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat())
        .map_err(|_| refused(WHAT, path, Refusal::Empty("token of printable characters")))?;
    value.set_sensitive(true);
    Ok(value)
}
