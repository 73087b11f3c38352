//! Tracks the use of an HTTP connection, to detect idle ones.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counts of a connection's requests. Only a connection that speaks HTTP/2 or has sent no request
/// yet can be idle here, since HTTP/1 connections have other timeouts.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    is_http1: AtomicBool,
    /// Bytes that the client has sent, counted until there are enough to tell the version of HTTP.
    heard: AtomicUsize,
    /// Number of requests since the connection was opened.
    begun: AtomicU64,
    /// Number of requests in flight.
    running: AtomicUsize,
}

/// Length of the preface with which an HTTP/2 connection begins. The shortest HTTP/1 request with a
/// host is about as long.
const PREFACE_BYTES: usize = 24;

/// Counts a request as in flight until this is dropped.
pub(crate) struct Running(Arc<Activity>);

impl Activity {
    /// Counts a new request as in flight until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>, is_http2: bool) -> Running {
        self.is_http1.store(!is_http2, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        self.running.fetch_add(1, Relaxed);
        Running(Arc::clone(self))
    }

    /// Waits until the connection is idle: the client has sent no request and fewer bytes than an
    /// HTTP/2 preface when `first` is over, or the connection has had no request in flight for
    /// `timeout` to twice that time.
    pub(crate) async fn idle(&self, first: Duration, timeout: Duration) {
        tokio::time::sleep(first).await;
        if self.heard.load(Relaxed) < PREFACE_BYTES && self.begun.load(Relaxed) == 0 {
            return;
        }
        let mut seen = self.begun.load(Relaxed);
        loop {
            tokio::time::sleep(timeout).await;
            let begun = self.begun.load(Relaxed);
            if begun == seen && self.running.load(Relaxed) == 0 && !self.is_http1.load(Relaxed) {
                return;
            }
            seen = begun;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// A stream that counts the bytes read until an HTTP/2 preface is complete.
pub(crate) struct Heard<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Heard<S> {
    pub(crate) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let heard = self.activity.heard.load(Relaxed);
        if heard < PREFACE_BYTES {
            self.activity.heard.store(heard + buf.filled().len() - before, Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Returns true if the connection counts as idle, with a timeout that has already passed.
    async fn is_idle(activity: &Activity) -> bool {
        let timeout = Duration::from_millis(1);
        let mut idle = pin!(activity.idle(Duration::ZERO, timeout));
        let mut polled = |cx: &mut Context<'_>| idle.as_mut().poll(cx);
        for _ in 0..2 {
            if polled(&mut Context::from_waker(Waker::noop())).is_ready() {
                return true;
            }
            // Timers end in their order.
            tokio::time::sleep(2 * timeout).await;
        }
        matches!(polled(&mut Context::from_waker(Waker::noop())), Poll::Ready(()))
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(test)
    }

    #[test]
    fn http2_or_silent_connection_without_requests_is_idle_and_http1_connection_is_not() {
        run(async {
            let activity = Arc::new(Activity::default());
            assert!(is_idle(&activity).await, "nothing was sent");
            let (mut client, server) = tokio::io::duplex(8);
            let mut heard = Heard::new(server, Arc::clone(&activity));
            client.write_all(b"PRI * HT").await.expect("sent");
            heard.read_exact(&mut [0; 8]).await.expect("received");
            assert!(activity.heard.load(Relaxed) < PREFACE_BYTES);
            assert!(is_idle(&activity).await, "less than tells the version");
            for _ in 0..2 {
                client.write_all(b"TP/2.0\r\n").await.expect("sent");
                heard.read_exact(&mut [0; 8]).await.expect("received");
            }
            assert_eq!(activity.heard.load(Relaxed), PREFACE_BYTES);
            assert!(is_idle(&activity).await, "no request yet");
            let running = activity.begin(true);
            assert!(!is_idle(&activity).await);
            drop(running);
            assert!(is_idle(&activity).await);
            drop(activity.begin(false));
            assert!(!is_idle(&activity).await);
        });
    }
}
