//! The unencrypted bytes of a connection, above TLS.
//!
//! Two things can only be observed there: whether any byte of an answer has arrived, and whether a
//! statement with a name is about to be sent. The client library names its statements `s0`, `s1`
//! and so on in every process, and also prepares some of its own to look up types. Behind a pooler
//! such a name may belong to another client's statement, so there it must not be sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

/// State shared by a connection and its stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    has_come: AtomicBool,
    refuses_names: AtomicBool,
}

impl Watch {
    /// Starts to wait for the first byte of an answer.
    pub(super) fn expect(&self) {
        self.0.has_come.store(false, Ordering::Relaxed);
    }

    /// True if a byte has arrived since the last [`expect`](Self::expect).
    pub(super) fn has_come(&self) -> bool {
        self.0.has_come.load(Ordering::Relaxed)
    }

    /// Sets whether the stream fails instead of sending a statement with a name. Called between
    /// messages.
    pub(super) fn refuse_names(&self, refuses: bool) {
        self.0.refuses_names.store(refuses, Ordering::Relaxed);
    }
}

/// The error of a stream that refuses to send a statement with a name.
#[derive(Debug, thiserror::Error)]
#[error("a statement with a name is not sent through a pooler")]
pub(super) struct Named;

/// A stream of unencrypted messages.
pub(super) struct Clear<S> {
    stream: S,
    watch: Watch,
    sent: Messages,
}

impl<S> Clear<S> {
    pub(super) fn new(stream: S, watch: Watch) -> Self {
        Self { stream, watch, sent: Messages::default() }
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
        if !self.watch.0.refuses_names.load(Ordering::Relaxed) {
            return Pin::new(&mut self.stream).poll_write(cx, buf);
        }
        if self.sent.clone().has_name(buf) {
            return Poll::Ready(Err(io::Error::other(Named)));
        }
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(bytes)) = polled {
            self.sent.has_name(&buf[..bytes]);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Size in bytes of what precedes the body of a message: its kind and its length.
const HEADER: usize = 5;

/// The position in a sequence of messages to the server.
#[derive(Clone, Debug, Default)]
struct Messages {
    /// The header of the current message, with the first two bytes of its body.
    start: [u8; HEADER + 2],
    /// Number of bytes of `start` that are known.
    come: usize,
    /// Number of bytes of the current message, after `start`, that are still to follow.
    rest: usize,
}

impl Messages {
    /// Processes the next `bytes`; true if a message in them contains the name of a statement.
    fn has_name(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
        loop {
            let rest = self.rest.min(bytes.len());
            self.rest -= rest;
            let Some((next, left)) = bytes[rest..].split_first() else { return found };
            bytes = left;
            self.start[self.come] = *next;
            self.come += 1;
            let [_, length @ .., _, _] = self.start;
            // The length counts its own four bytes.
            let body = (u32::from_be_bytes(length) as usize).saturating_sub(length.len());
            if self.come >= HEADER && self.come == HEADER + body.min(2) {
                found |= is_named(&self.start[..self.come]);
                (self.come, self.rest) = (0, body.saturating_sub(2));
            }
        }
    }
}

/// True if the message that starts with `start` contains the name of a statement, or of a portal
/// before it. Names end with a zero byte.
fn is_named(start: &[u8]) -> bool {
    match *start {
        // Parse: the statement.
        [b'P', _, _, _, _, name, ..] => name != 0,
        // Bind: the portal and the statement.
        [b'B', _, _, _, _, portal, name, ..] => portal != 0 || name != 0,
        // Describe and close: a letter, which is S for a statement, and its name.
        [b'D' | b'C', _, _, _, _, b'S', name, ..] => name != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    fn unnamed() -> Vec<u8> {
        let statement = [
            message(b'P', b"\0SELECT $1\0\0\0"),
            message(b'B', b"\0\0\0\0\0\0"),
            message(b'D', b"S\0"),
            message(b'E', b"\0\0\0\0\0"),
            message(b'S', b""),
        ];
        [statement.concat(), message(b'Q', b"PREPARE s1 AS SELECT 1\0")].concat()
    }

    #[test]
    fn statement_name_is_detected_wherever_the_message_bytes_are_split() {
        for named in [
            message(b'P', b"s1\0SELECT 1\0\0\0"),
            message(b'B', b"\0s1\0\0\0\0\0\0\0"),
            message(b'B', b"p1\0s1\0"),
            message(b'D', b"Ss1\0"),
            message(b'C', b"Ss1\0"),
        ] {
            let bytes = [unnamed(), named].concat();
            for at in 0..bytes.len() {
                let mut messages = Messages::default();
                let found = messages.has_name(&bytes[..at]) | messages.has_name(&bytes[at..]);
                assert!(found, "divided at {at}");
            }
        }
        let mut messages = Messages::default();
        assert!(unnamed().iter().all(|byte| !messages.has_name(&[*byte])));
        assert!(!messages.has_name(&message(b'D', b"P\0")));
    }

    #[tokio::test]
    async fn stream_that_refuses_statement_names_sends_no_byte_of_a_named_statement() {
        let watch = Watch::default();
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut stream = Clear::new(ours, watch.clone());
        let named = message(b'P', b"s1\0SELECT 1\0\0\0");
        stream.write_all(&named).await.unwrap();
        watch.refuse_names(true);
        stream.write_all(&unnamed()).await.unwrap();
        let error = stream.write_all(&named).await.unwrap_err();
        assert!(error.get_ref().is_some_and(|inner| inner.is::<Named>()), "{error}");
        drop(stream);
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, [named, unnamed()].concat());
    }

    #[tokio::test]
    async fn watch_reports_whether_the_first_byte_of_an_answer_has_arrived() {
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
