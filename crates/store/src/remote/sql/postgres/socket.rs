//! The socket that the PostgreSQL client library uses: connected here, limited in the bytes read,
//! and optionally encrypted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_postgres::tls::TlsConnect;
use tokio_rustls::{TlsConnector, client};

use super::clear::{Clear, Watch};
use crate::Cause;
use crate::remote::host::Deadline;
use crate::remote::sql::address::Address;

/// A TCP or UNIX connection to the server.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// Connects to the server at `address`.
///
/// # Errors
/// When the name cannot be resolved, or the server accepts no connection before the deadline.
pub(super) async fn dial(address: &Address, deadline: Deadline) -> Result<Box<dyn Socket>, Cause> {
    let path = match address {
        Address::Unix(path) => path,
        Address::Tcp(host) => {
            let found = host.look_up(deadline).await?;
            return Ok(Box::new(host.reach(&found, deadline).await?));
        }
    };
    match deadline.wait(UnixStream::connect(path)).await {
        Some(Ok(socket)) => Ok(Box::new(socket)),
        Some(Err(error)) => Err(address.unreachable(error)),
        None => Err(address.unreachable(deadline.spent("no connection"))),
    }
}

/// The bytes of answers that may still be read from a socket, set before each statement.
#[derive(Clone, Debug)]
pub(super) struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Sets the bytes that may be read from now on.
    pub(super) fn allow(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// A socket that fails when more is read than its [`Meter`] allows.
pub(super) struct Metered {
    socket: Box<dyn Socket>,
    left: Meter,
}

/// The error of a socket from which more was read than allowed.
#[derive(Debug, thiserror::Error)]
#[error("the answer is too large")]
pub(super) struct Exceeded;

impl Metered {
    pub(super) fn new(socket: Box<dyn Socket>) -> (Self, Meter) {
        let left = Meter(Arc::new(AtomicU64::new(0)));
        (Self { socket, left: left.clone() }, left)
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(cx, buf);
        let read = (buf.filled().len() - before) as u64;
        // Only this task decreases the count; a statement sets it while no answer is in progress.
        let left = self.left.0.load(Ordering::Relaxed);
        match left.checked_sub(read) {
            Some(left) => {
                self.left.0.store(left, Ordering::Relaxed);
                polled
            }
            None => Poll::Ready(Err(io::Error::other(Exceeded))),
        }
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Adds TLS to a connection, as the client library requires.
#[derive(Clone)]
pub(super) struct Encrypt {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server_name: ServerName<'static>,
    pub(super) watch: Watch,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Encrypt {
    type Stream = Clear<client::TlsStream<S>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let handshake = TlsConnector::from(self.config).connect(self.server_name, stream);
        Box::pin(async move { Ok(Clear::new(handshake.await?, self.watch)) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn postgres_socket_fails_when_more_is_read_than_allowed() {
        let sent: &'static [u8] = &[7; 100];
        let (mut socket, meter) = Metered::new(Box::new(tokio::io::join(sent, tokio::io::sink())));
        let mut buffer = [0; 40];
        meter.allow(40);
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 40);
        let error = socket.read(&mut buffer).await.unwrap_err();
        assert!(error.get_ref().is_some_and(|inner| inner.is::<Exceeded>()), "{error}");
    }
}
