//! The traits of a protocol that a listener speaks.
//!
//! Sockets, buffers, patience and fairness are the same for every protocol, and what commands mean
//! has nothing to do with them. So a [`Conversation`] is bytes to bytes: it is shown what has
//! arrived, appends its answers and says what it waits for. It never waits itself, owns no socket
//! and reads no clock; the driver does all of that, and can be replaced.

use std::sync::Arc;

use crate::backends::FetchedValue;
use bytes::Bytes;
use sherwood_model::PartitionId;

use super::shared::Shared;
use crate::clock::Moment;

/// A protocol, as all threads of a listener see it.
pub(super) trait Protocol: Send + Sync + 'static {
    /// The state of one client.
    type Conversation: Conversation;

    /// For people: `memcached`.
    const NAME: &'static str;
    /// The name of the listener's threads, before their number; at most 11 bytes, so that the
    /// system shows the number.
    const THREADS: &'static str;
    /// The answer to a client over the limit on connections, before it is closed.
    const TOO_MANY: &'static [u8];

    /// A conversation at its beginning, on the thread of that number.
    fn open(&self, shared: &Arc<Shared>, thread: usize) -> Self::Conversation;
}

/// The state of one client of a protocol.
///
/// The driver calls [`advance`](Self::advance) with all bytes that are not used up and does what is
/// returned. After [`Next::Fetch`] it calls [`resume`](Self::resume) once before it advances again.
/// After [`Next::Close`] and [`Next::HangUp`] it calls nothing.
pub(super) trait Conversation: Send + 'static {
    /// Executes the commands at the start of `input` until one is incomplete, `output` holds
    /// `output_bytes_max` of the listener's options, or something is to be fetched. Appends the
    /// answers to `output`, which is below that bound now and must exceed it by one answer at most.
    fn advance(&mut self, moment: Moment, input: &[u8], output: &mut Vec<u8>) -> Advance;

    /// The keys that the commands at the start of `input` are about, as far as a glance can tell:
    /// only to have them [prefetched](super::ahead).
    fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]>
    where
        Self: Sized;

    /// Returns whether the client has to log in and has not.
    fn is_outside(&self) -> bool;

    /// Takes what was fetched, in the order in which it was wanted. `output` is as
    /// [`advance`](Self::advance) left it: an answer may be put where it belongs.
    fn resume(&mut self, moment: Moment, fetched: Fetched, output: &mut Vec<u8>);
}

/// The result of [`Conversation::advance`].
#[derive(Debug)]
pub(super) struct Advance {
    /// The number of bytes at the start of the input that are consumed. The others are offered
    /// again, from the first on.
    pub(super) consumed: usize,
    /// The next step of the connection.
    pub(super) next: Next,
}

/// The next step of a connection.
#[derive(Debug)]
pub(super) enum Next {
    /// Send the output, and advance again once this many bytes are there that are not used up:
    /// always more than there are, at least 1, and never more than the protocol's longest command.
    Need(usize),
    /// Send the output, let others have their turn and advance again: there is more to do than
    /// fits.
    Send,
    /// Fetch these, at least 1 and at most [`FETCH_KEYS_MAX`](super::FETCH_KEYS_MAX), and
    /// [resume](Conversation::resume).
    Fetch(Vec<Wanted>),
    /// Send the output and close: the client has said that it sends nothing more.
    Close,
    /// Send the output and hang up: nothing that the client still sends will be understood, but it
    /// may read why.
    HangUp,
}

/// A key to fetch from its partition's backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The partition.
    pub(super) partition: PartitionId,
    /// The key, as the partition calls it.
    pub(super) key: Bytes,
}

/// The results of the wanted keys, in their order. An error is a message.
pub(super) type Fetched = Vec<Result<Option<FetchedValue>, String>>;
