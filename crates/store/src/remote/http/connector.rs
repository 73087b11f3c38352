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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use super::resend::Link;
use crate::remote::socket::{Connected, Endpoint, Io};
use crate::remote::tls::{self, ClientTls, TlsOptions};
use crate::{Cause, OpenCause};

/// The connector of an HTTP client: connects to the host of a URL, by TLS for `https`.
#[derive(Clone)]
pub struct HttpConnector {
    tls: TlsOptions,
    /// TLS that offers versions of HTTP; none if no URL is `https`.
    client: Option<ClientTls>,
    timeout: Duration,
}

impl HttpConnector {
    /// Makes a connector, with TLS if any of its URLs `is_secure`, which then offers these
    /// `protocols` (`h2`, `http/1.1`), the preferred first. `timeout` limits each of resolving the
    /// name, connecting and the TLS handshake.
    ///
    /// # Errors
    /// As [`ClientTls::open`].
    pub fn open(
        is_secure: bool,
        tls: &TlsOptions,
        protocols: &[&str],
        timeout: Duration,
    ) -> Result<Self, OpenCause> {
        let client = is_secure.then(|| ClientTls::open(tls, protocols)).transpose()?;
        Ok(Self { tls: tls.clone(), client, timeout })
    }

    fn endpoint(&self, uri: &Uri) -> Result<Endpoint, Cause> {
        let wrong = |detail: &str| Cause::Statement { detail: detail.to_owned() };
        let address = super::url::address(uri).ok_or_else(|| wrong("its URL names no host"))?;
        let tls = match (uri.scheme_str(), &self.client) {
            (Some("https"), Some(client)) => {
                let name =
                    tls::server_name(&self.tls, &address.host).map_err(|error| wrong(&error.to_string()))?;
                Some((client.clone(), name))
            }
            _ => None,
        };
        Ok(Endpoint { address, tls, timeout: self.timeout })
    }
}

impl Service<Uri> for HttpConnector {
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
            Ok(Socket::new(connected))
        })
    }
}

/// An error that carries the cause of a failed connection through hyper.
#[derive(Debug)]
pub struct NotConnected(pub(super) Cause);

impl fmt::Display for NotConnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for NotConnected {}

/// A connection to an HTTP server, with the traits that hyper requires.
pub struct Socket {
    io: TokioIo<Watched>,
    http2: bool,
}

impl Socket {
    fn new(Connected { io, http2 }: Connected) -> Self {
        Self { io: TokioIo::new(Watched { io, link: Arc::default() }), http2 }
    }
}

impl Connection for Socket {
    fn connected(&self) -> connect::Connected {
        let connected = connect::Connected::new().extra(Arc::clone(&self.io.inner().link));
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

/// A connection that records in its [`Link`] when bytes are sent or received, and when it ends.
struct Watched {
    io: Box<dyn Io>,
    link: Arc<Link>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.link.ends();
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.link.received();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        // Noted before the attempt, which may fail.
        self.link.sends();
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
