//! Interface between a protocol and the connections of a listener.
//!
//! Sockets, buffers, timeouts and fairness are the same for every protocol and independent of what
//! commands mean. So a [`Conversation`] maps bytes to bytes: it receives the input, appends its
//! answers and returns what it waits for. It never blocks, owns no socket and reads no clock; a
//! replaceable driver does all of that.

use std::sync::Arc;
use std::time::Duration;

use crate::backends::{FetchResult, StoreFailure};
use bytes::Bytes;
use sherwood_model::PartitionId;

use super::fetch::FetchEnd;
use super::input::Input;
use super::output::Output;
use super::shared::Shared;
use super::sockets::Peer;
use super::store::StoreWrite;
use super::tenants::TenantSlot;
use crate::clock::Moment;

/// Creates the conversations of a protocol; shared by all threads of a listener.
pub(super) trait Conversations: Send + Sync + 'static {
    /// The state of one client of the protocol.
    type Conversation: Conversation;

    /// The protocol's name in messages and in the configuration, such as `memcached`.
    const NAME: &'static str;
    /// Prefix of the names of the listener's threads, before the number; at most 11 bytes, so that
    /// the system's limit leaves room for the number.
    const THREADS: &'static str;
    /// The answer to a client over the limit on connections, before its connection is closed.
    const TOO_MANY: &'static [u8];

    /// Maximum size of a client's state that [`Conversation::kept_bytes`] does not include, bytes;
    /// without the conversation value itself.
    const UNCOUNTED_BYTES_MAX: usize = 0;

    /// Starts the conversation of a new client on thread number `thread`.
    fn open(&self, shared: &Arc<Shared>, thread: usize) -> Self::Conversation;
}

/// The state of one client of a protocol.
///
/// The driver calls [`advance`](Self::advance) with all bytes that are not consumed and carries out
/// the returned step. Before it advances again, it calls [`resume`](Self::resume) once after
/// [`NextStep::Fetch`], and [`resume_stored`](Self::resume_stored) after [`NextStep::Store`]. After
/// [`NextStep::Close`] and [`NextStep::HangUp`] it calls nothing.
pub(super) trait Conversation: Send + 'static {
    /// Executes the commands at the start of `input` until one is incomplete, `output` is
    /// [full](Output::is_full), or keys have to be fetched. Appends the answers to `output`, which
    /// is not full at the call and may exceed its bound by one answer.
    fn advance(&mut self, moment: Moment, input: Input<'_>, output: &mut Output) -> Advance;

    /// Receives the addresses of the connection; called once, before every other method.
    fn introduce(&mut self, _peer: Peer) {}

    /// Returns the keys of the commands at the start of `input` that a quick scan finds: only for
    /// [prefetching](super::ahead).
    fn keys_ahead(input: &[u8]) -> impl Iterator<Item = &[u8]>
    where
        Self: Sized;

    /// Returns the slot of the client's tenant among those of the listener.
    fn slot(&self) -> TenantSlot;

    /// Returns the bytes that the conversation keeps for unfinished or queued commands, without
    /// those taken from the budget of [kept memory](super::kept).
    fn kept_bytes(&self) -> usize {
        0
    }

    /// Returns true if the client has to log in and has not.
    fn is_outside(&self) -> bool;

    /// Receives the fetched values, in the order of the requested keys. `output` is as
    /// [`advance`](Self::advance) left it, so a value can be inserted at its position.
    fn resume(&mut self, moment: Moment, fetched: Fetched, output: &mut Vec<u8>);

    /// Receives the outcome of the writes.
    fn resume_stored(&mut self, stored: Stored, output: &mut Vec<u8>);
}

/// The result of [`Conversation::advance`].
#[derive(Debug)]
pub(super) struct Advance {
    /// Bytes consumed from the start of the input. The rest is passed again to the next call.
    pub(super) consumed: usize,
    /// The next step of the connection.
    pub(super) next: NextStep,
}

/// The next step of a connection.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Send the output, and advance again once this many unconsumed bytes of input are present:
    /// always more than there are, at least 1, and never more than the protocol's longest command.
    Need(usize),
    /// Send the output, let other connections run and advance again: the output was full.
    Send,
    /// Fetch these keys, at least 1 and at most [`FETCH_KEYS_MAX`](super::FETCH_KEYS_MAX), and
    /// [resume](Conversation::resume).
    Fetch(Vec<Wanted>),
    /// Make these writes, at least 1, and [resume](Conversation::resume_stored).
    Store(Vec<StoreWrite>),
    /// Send the output and close: the client has ended the conversation.
    Close,
    /// Send the output and close the sending side: further input cannot be parsed, but the client
    /// may still read the answer.
    HangUp,
}

/// A key to fetch from the backend of its partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The partition that holds the key.
    pub(super) partition: PartitionId,
    /// The key without the prefix that selects its partition, as the partition stores it.
    pub(super) key: Bytes,
    /// The time within which the client wants the value, if it has said so.
    pub(super) within: Option<Duration>,
}

/// Results of a fetch, in the order of its keys.
pub(super) type Fetched = Vec<FetchResult>;

/// The result of writes: the failure of the first that the store has not acknowledged.
pub(super) type Stored = Result<(), StoreFailure>;

/// An answer of the backends, which a conversation waits for.
#[derive(Debug)]
pub(super) enum Answered {
    /// The keys of a [`NextStep::Fetch`].
    Fetched(FetchEnd),
    /// The writes of a [`NextStep::Store`].
    Stored(Stored),
}
