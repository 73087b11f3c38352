//! A client without a socket, for tests and fuzz targets.
//!
//! A listener's answers must not depend on how the network splits the bytes, and hostile input is
//! best tested by the million. Neither needs sockets or threads: a conversation maps bytes to
//! bytes. This module drives a conversation as a connection does and checks its contract.

use std::sync::Arc;

use futures_util::FutureExt;

use super::conversation::{Conversation, Conversations, Fetched, NextStep, Wanted};
use super::fetch::FETCH_KEYS_MAX;
use super::fetch::fetch;
use super::memcached::Memcached;
use super::options::ListenerOptions;
use super::output::Output;
use super::protocols::Protocol;
use super::redis::Redis;
use super::shared::{Service, Shared};
use super::store::store;
use super::work::{COMMAND_MAX, TURN_MAX, Work};
use crate::clock::{Clock, Moment};

/// Most turns that one call of `send` may take; a conversation that takes more is stuck. Chosen:
/// each turn sends an answer or visits some hundred keys.
const TURNS_MAX: usize = 1 << 20;

/// A client of a listener, without a socket: bytes in, answers out.
pub struct InMemoryClient {
    pub(super) shared: Arc<Shared>,
    conversation: Box<dyn Conversation>,
    /// Input that the conversation has not consumed.
    input: Vec<u8>,
    /// Bytes of input that are required before the conversation is called again.
    need: usize,
    /// Most bytes that the buffers of a connection may hold.
    bytes_max: usize,
    closed: bool,
    /// The work done in the last scheduling turn.
    pub(super) work: Work,
}

impl InMemoryClient {
    /// Creates the only client of a memcached listener.
    #[must_use]
    pub fn memcached(options: ListenerOptions, service: Service, clock: Arc<dyn Clock>) -> Self {
        let bytes_max = Protocol::Memcached.connection_bytes_max(&options);
        Self::open(&Memcached, Arc::new(Shared::new(options, service, clock)), bytes_max)
    }

    /// Creates the only client of a Redis listener; `seed` starts the random sequence of
    /// `RANDOMKEY`.
    #[must_use]
    pub fn redis(options: ListenerOptions, service: Service, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let bytes_max = Protocol::Redis.connection_bytes_max(&options);
        Self::open(&Redis::new(seed), Arc::new(Shared::new(options, service, clock)), bytes_max)
    }

    /// Creates a client of the listener given by `protocol` and `shared`, whose buffers may hold at
    /// most `bytes_max`.
    pub(super) fn open<P: Conversations>(protocol: &P, shared: Arc<Shared>, bytes_max: usize) -> Self {
        let conversation = Box::new(protocol.open(&shared, 0));
        Self {
            shared,
            conversation,
            input: Vec::new(),
            need: 1,
            bytes_max,
            closed: false,
            work: Work::default(),
        }
    }

    /// Sends `bytes` after all earlier input and returns the complete answer. Backends have to
    /// answer at once.
    ///
    /// # Panics
    /// When the conversation breaks its contract: it consumes more than the input, needs a number
    /// of bytes that is already present or exceeds the bound, appends more output than its bound,
    /// fetches no or too many keys, or does not end.
    pub fn send(&mut self, moment: Moment, bytes: &[u8]) -> Vec<u8> {
        let backends = self.shared.service.backends.clone();
        self.send_with(moment, bytes, |wanted| {
            fetch(backends.as_ref(), wanted).now_or_never().expect("backends answer at once").results
        })
    }

    /// Sends `bytes` like [`send`](Self::send), and calls `fetch` for the keys that are fetched
    /// from backends.
    pub(super) fn send_with(
        &mut self,
        moment: Moment,
        bytes: &[u8],
        mut fetch: impl FnMut(Vec<Wanted>) -> Fetched,
    ) -> Vec<u8> {
        self.receive(bytes);
        let (mut said, mut turns) = (Vec::new(), 0);
        while self.has_turn() {
            said.append(&mut self.turn(moment, &mut fetch));
            turns += 1;
            assert!(turns < TURNS_MAX, "{} bytes keep it busy for ever", self.input.len());
        }
        said
    }

    /// Adds `bytes` to the input that is executed by the next [`turn`](Self::turn)s.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns true if the client can go on without further input.
    pub(super) fn has_turn(&self) -> bool {
        !self.closed && self.input.len() >= self.need
    }

    /// Gives the client one scheduling turn and returns the answers produced in it. `fetch` returns
    /// the results for keys to be fetched from backends.
    pub(super) fn turn(&mut self, moment: Moment, fetch: &mut impl FnMut(Vec<Wanted>) -> Fetched) -> Vec<u8> {
        let mut output = Output::default();
        let advance = self.conversation.advance(moment, self.input[..].into(), &mut output);
        self.input.drain(..advance.consumed);
        assert!(output.len() <= self.bytes_max, "{} bytes at once", output.len());
        self.work = output.work;
        // Answers that the client does not want count as work, too.
        let work_max = TURN_MAX + COMMAND_MAX + self.bytes_max as u64;
        assert!(self.work.units() <= work_max, "{:?} in one turn", self.work);
        let (mut output, _) = output.into_pending(0);
        self.need = 0;
        match advance.next {
            NextStep::Need(need) => {
                let held = self.input.len();
                assert!(need > held && need <= self.bytes_max, "{need} bytes asked for with {held}");
                self.need = need;
            }
            NextStep::Send => {}
            NextStep::Fetch(wanted) => {
                assert!((1..=FETCH_KEYS_MAX).contains(&wanted.len()), "{} keys", wanted.len());
                self.conversation.resume(moment, fetch(wanted), &mut output);
            }
            NextStep::Store(writes) => {
                assert!(!writes.is_empty(), "no writes");
                let stored = store(self.shared.service.backends.as_ref(), writes);
                let stored = stored.now_or_never().expect("backends answer at once");
                self.conversation.resume_stored(stored, &mut output);
            }
            NextStep::Close | NextStep::HangUp => self.closed = true,
        }
        output
    }

    /// Returns true if the listener has closed the connection and gives no more answers.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}
