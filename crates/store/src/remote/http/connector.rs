//! The connector of hyper's client: opens connections, and maps failures to this crate's causes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{self, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tower_service::Service;

use crate::Cause;
use crate::remote::socket::{Endpoint, Io};
use crate::remote::tls::{self, TlsOptions};

/// Connects to the host of a URL.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsOptions,
    /// TLS that offers HTTP/2 and HTTP/1.1; none if no URL is `https`.
    pub(super) config: Option<Arc<ClientConfig>>,
    pub(super) timeout: Duration,
}

impl Connector {
    fn endpoint(&self, uri: &Uri) -> Result<Endpoint, Cause> {
        let wrong = |detail: &str| Cause::Statement { detail: detail.to_owned() };
        let address = super::url::address(uri).ok_or_else(|| wrong("its URL names no host"))?;
        let tls = match (uri.scheme_str(), &self.config) {
            (Some("https"), Some(config)) => {
                let name =
                    tls::server_name(&self.tls, &address.host).map_err(|error| wrong(&error.to_string()))?;
                Some((Arc::clone(config), name))
            }
            _ => None,
        };
        Ok(Endpoint { address, tls, timeout: self.timeout })
    }
}

impl Service<Uri> for Connector {
    type Response = Socket;
    type Error = NotConnected;
    type Future = Pin<Box<dyn Future<Output = Result<Socket, NotConnected>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NotConnected>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let endpoint = self.endpoint(&uri);
        Box::pin(async move {
            let connected = endpoint.map_err(NotConnected)?.connect().await.map_err(NotConnected)?;
            Ok(Socket { io: TokioIo::new(connected.io), http2: connected.http2 })
        })
    }
}

/// An error that carries the cause of a failed connection through hyper.
#[derive(Debug)]
pub(super) struct NotConnected(pub(super) Cause);

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotConnected {}

/// A connection to an HTTP server, with the traits that hyper requires.
pub(super) struct Socket {
    io: TokioIo<Box<dyn Io>>,
    http2: bool,
}

impl Connection for Socket {
    fn connected(&self) -> connect::Connected {
        let connected = connect::Connected::new();
        if self.http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
