//! The bytes of a connection in clear, above TLS.
//!
//! Only there it is known if any byte of an answer has come.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

/// State that a connection shares with its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    has_come: AtomicBool,
}

impl Watch {
    /// Starts to wait for the first byte of an answer.
    pub(super) fn expect(&self) {
        self.0.has_come.store(false, Ordering::Relaxed);
    }

    /// True if a byte has come since the last [`expect`](Self::expect).
    pub(super) fn has_come(&self) -> bool {
        self.0.has_come.load(Ordering::Relaxed)
    }
}

/// A stream of messages in clear.
pub(super) struct Clear<S> {
    stream: S,
    watch: Watch,
}

impl<S> Clear<S> {
    pub(super) fn new(stream: S, watch: Watch) -> Self {
        Self { stream, watch }
    }
}

/// No channel binding: TLS already protects the password exchange.
impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Clear<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Clear<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.watch.0.has_come.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Clear<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn first_byte_of_an_answer_is_noticed() {
        let watch = Watch::default();
        let mut stream = Clear::new(&b"ab"[..], watch.clone());
        watch.expect();
        assert!(!watch.has_come());
        stream.read_u8().await.unwrap();
        assert!(watch.has_come());
        watch.expect();
        stream.read_u8().await.unwrap();
        watch.expect();
        assert!(stream.read_u8().await.is_err() && !watch.has_come());
    }
}
