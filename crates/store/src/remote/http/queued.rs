//! Requests in the queue of a connection.
//!
//! hyper passes a request to the task of its connection through a queue, which the task drains when
//! the connection ends. A request that is enqueued at that moment may come too late to be returned:
//! it stays in the queue as long as its sender waits for the answer, that is, forever. This module
//! recognizes such a request: its connection has ended without taking it from the queue.

use std::convert::Infallible;
use std::future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};

use super::resend::Link;

/// The body of a request, which notes when a connection takes the request from its queue.
pub(super) struct Outgoing {
    body: Full<Bytes>,
    is_taken: Arc<AtomicBool>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        // Every connection asks this first, to choose the form of the request's head.
        self.is_taken.store(true, Ordering::Release);
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request that was sent, and may still be in the queue of its connection.
pub(super) struct Queued {
    connection: CaptureConnection,
    is_taken: Arc<AtomicBool>,
}

impl Queued {
    /// Wraps `request`, so that its removal from the queue is noticed.
    pub(super) fn watch(mut request: Request<Full<Bytes>>) -> (Request<Outgoing>, Self) {
        let connection = capture_connection(&mut request);
        let is_taken = Arc::new(AtomicBool::new(false));
        let watched = Self { connection, is_taken: Arc::clone(&is_taken) };
        (request.map(|body| Outgoing { body, is_taken }), watched)
    }

    /// Waits until the request's connection has ended without taking the request from its queue.
    /// Waits forever if the connection has taken it, or if there is no connection.
    pub(super) async fn lost(mut self) {
        let link = self.connection.wait_for_connection_metadata().await.as_ref().and_then(Link::of);
        match link {
            Some(link) => ended_without(&link, &self.is_taken).await,
            None => future::pending().await,
        }
    }
}

async fn ended_without(link: &Link, is_taken: &AtomicBool) {
    link.ended().await;
    if is_taken.load(Ordering::Acquire) {
        // hyper reports the end.
        future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn request_counts_as_lost_if_its_connection_ends_before_dequeuing_it() {
        for is_taken in [false, true] {
            let (request, queued) = Queued::watch(Request::new(Full::default()));
            let link = Link::default();
            let mut lost = Box::pin(ended_without(&link, &queued.is_taken));
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(lost.as_mut().poll(cx).is_pending());
            if is_taken {
                request.body().is_end_stream();
            }
            assert!(lost.as_mut().poll(cx).is_pending());
            link.ends();
            assert_eq!(lost.as_mut().poll(cx).is_ready(), !is_taken);
        }
    }
}
