//! Decides whether a request is sent again after its connection has ended.
//!
//! A server may end a kept-alive connection at the moment when it is used again, and HTTP/2 servers
//! announce by GOAWAY which requests they have not processed (RFC 9113, 6.8). Neither is a failure
//! of the server, so these requests are sent again here, which the dispatcher does not notice: any
//! request that was not processed, and a read that may have been processed, which costs the server
//! at most the same work again. A write that may have been processed is not sent again; its outcome
//! is unknown.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::http::Extensions;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::Connected;
use tokio::sync::watch;

use super::client::source_of;
use super::connector::NotConnected;
use crate::Cause;

/// Maximum number of times that a request is sent again because the server has not processed it.
/// The last time it is sent on a connection of its own.
const UNPROCESSED_RESENDS_MAX: u32 = 3;

/// Maximum number of times, in addition to [`UNPROCESSED_RESENDS_MAX`], that a request is sent
/// again because its connection has not taken it from the queue. This has cost the server nothing.
const UNTAKEN_RESENDS_MAX: u32 = 8;

/// The effect of a request on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No effect: the server may execute the request twice.
    Read,
    /// A change, which must not be made twice.
    Write,
}

/// The state of a connection, which determines whether a request that failed on it is sent again.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// True once a request on the connection was answered.
    is_used: AtomicBool,
    /// True if nothing has been received since bytes were sent.
    is_unanswered: AtomicBool,
    /// True once it has ended, so that nothing is sent on it any more.
    has_ended: watch::Sender<bool>,
}

impl Link {
    /// Returns the state of a connection, if this crate has opened it.
    pub(super) fn of(connection: &Connected) -> Option<Arc<Self>> {
        let mut extensions = Extensions::new();
        connection.get_extras(&mut extensions);
        extensions.remove()
    }

    /// Notes that the head of a response with these `extensions`, which name its connection, has
    /// arrived.
    pub(super) fn answered(extensions: &Extensions) {
        if let Some(link) = extensions.get::<Arc<Self>>() {
            link.is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that bytes are about to be sent.
    pub(super) fn sends(&self) {
        self.is_unanswered.store(true, Ordering::Relaxed);
    }

    /// Notes that bytes were received.
    pub(super) fn received(&self) {
        self.is_unanswered.store(false, Ordering::Relaxed);
    }

    /// Notes that the connection ends.
    pub(super) fn ends(&self) {
        self.has_ended.send_replace(true);
    }

    /// Waits until the connection has ended.
    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.has_ended.subscribe().wait_for(|&has_ended| has_ended).await;
    }
}

/// The connection on which a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// A connection shared with other requests. With HTTP/2 a server has one: once that has ended,
    /// it is discarded, so that the request meets no other connection that has ended unnoticed.
    Shared,
    /// A new connection for this request alone.
    Own,
}

/// The attempts to send one request.
pub(super) struct Resends {
    effect: Effect,
    /// Number of times that the request was sent again because the server had not processed it.
    unprocessed: u32,
    /// Number of times that the request was sent again because its connection had not taken it from
    /// the queue.
    untaken: u32,
    /// True if the request was sent again because its kept-alive connection had ended.
    has_met_end: bool,
}

impl Resends {
    pub(super) fn new(effect: Effect) -> Self {
        Self { effect, unprocessed: 0, untaken: 0, has_met_end: false }
    }

    /// Returns the connection on which a request that failed with `error` is sent again; none if
    /// the request has failed.
    pub(super) fn after(&mut self, error: &legacy::Error) -> Option<Over> {
        self.after_ending(ending(error))
    }

    /// Returns the connection on which a request is sent again whose connection ended without
    /// taking it from the queue.
    pub(super) fn after_loss(&mut self) -> Option<Over> {
        self.after_ending(Ending::Untaken)
    }

    fn after_ending(&mut self, ending: Ending) -> Option<Over> {
        match ending {
            Ending::Untaken if self.untaken < UNTAKEN_RESENDS_MAX => {
                self.untaken += 1;
                Some(Over::Shared)
            }
            Ending::Untaken => self.after_ending(Ending::Unprocessed(Over::Own)),
            Ending::Unprocessed(over) if self.unprocessed < UNPROCESSED_RESENDS_MAX => {
                self.unprocessed += 1;
                Some(if self.unprocessed < UNPROCESSED_RESENDS_MAX { over } else { Over::Own })
            }
            Ending::OfKept(over) if self.effect == Effect::Read && !self.has_met_end => {
                self.has_met_end = true;
                Some(over)
            }
            Ending::Unprocessed(_) | Ending::OfKept(_) | Ending::Other => None,
        }
    }
}

/// The way in which a request ended without an answer.
enum Ending {
    /// The connection has not taken the request from its queue.
    Untaken,
    /// The server has certainly not processed the request.
    Unprocessed(Over),
    /// The connection ended before the first byte of the answer, and other requests had been, or
    /// may have been, answered on it.
    OfKept(Over),
    /// Any other failure.
    Other,
}

fn ending(error: &legacy::Error) -> Ending {
    let Some(connection) = error.connect_info() else { return without_connection(error) };
    let Some(link) = Link::of(connection) else { return Ending::Other };
    let is_used = link.is_used.load(Ordering::Relaxed);
    let hyper = source_of::<hyper::Error>(error);
    if hyper.is_some_and(hyper::Error::is_canceled) && (is_used || connection.is_negotiated_h2()) {
        return Ending::Untaken;
    }
    if !connection.is_negotiated_h2() {
        // A connection of HTTP/1.1 has one request at a time.
        return match is_used && link.is_unanswered.load(Ordering::Relaxed) {
            true => Ending::OfKept(Over::Own),
            false => Ending::Other,
        };
    }
    match source_of::<h2::Error>(error) {
        Some(error) if is_past_last_stream(error) => Ending::Unprocessed(Over::Shared),
        Some(error) if is_refused(error) => Ending::Unprocessed(Over::Own),
        Some(_) => Ending::Other,
        // Many requests share it: answers to others may have arrived unnoted, or been lost with it.
        None if source_of::<io::Error>(error).is_some() => {
            Ending::OfKept(if is_used { Over::Shared } else { Over::Own })
        }
        // It waited for others to end, so that its stream could be opened, and the connection
        // ended.
        None if hyper.is_some_and(hyper::Error::is_user) && is_used => Ending::OfKept(Over::Shared),
        None => Ending::Other,
    }
}

/// Classifies the end of a request that had no connection. A request that was about to use another
/// request's connection, which ended first, fails without an error of the connector or of the
/// protocol; its own error has no type.
fn without_connection(error: &legacy::Error) -> Ending {
    match source_of::<NotConnected>(error).is_some() || source_of::<hyper::Error>(error).is_some() {
        true => Ending::Other,
        false => Ending::Unprocessed(Over::Own),
    }
}

/// Returns the cause if a working server has refused to process the request, even when it was sent
/// again; none for any other failure.
pub(super) fn refusal(error: &(dyn Error + 'static)) -> Option<Cause> {
    let error = source_of::<h2::Error>(error)?;
    let is_graceful = matches!(error.reason(), Some(h2::Reason::NO_ERROR | h2::Reason::ENHANCE_YOUR_CALM));
    let is_refusal = is_refused(error) || (is_past_last_stream(error) && is_graceful);
    is_refusal.then(|| Cause::Busy { detail: format!("it did not process the request: {error}") })
}

/// True if the server has announced by GOAWAY that it does not process the request's stream.
fn is_past_last_stream(error: &h2::Error) -> bool {
    error.is_go_away() && error.is_remote()
}

/// True if the server has refused the request's stream before processing it.
fn is_refused(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM)
}
