//! Input of a client that was received and not consumed.
//!
//! A command with a large value is received into memory of the cache, which the item then keeps
//! instead of a copy. Memory is reserved when the first [`INPUT_BYTES`] of the command are there:
//! announcing a value costs nothing and evicts nothing. The block holds the rest of that command
//! and nothing behind it. Where the cache reserves nothing, as much is received at a time as has
//! arrived before.

use std::io;

use sherwood_cache::{Cache, Received, Reserved};

use super::connection::retry;
use super::conversation::{Advance, NextStep};
use super::sockets::Socket;

/// Size of a read from a client, in bytes, unless a longer command is incomplete.
pub(super) const INPUT_BYTES: usize = 16 * 1024;
/// Size of a command from which it is received into memory of the cache, bytes. Measured: below,
/// the further system call takes as long as the copy.
const IN_PLACE_BYTES_MIN: usize = 48 * 1024;
/// Bytes of a command beyond which it is not moved into memory of the cache any more: of a command
/// with several large values, the first one only, so that it is not copied for each of them.
const BEGUN_BYTES_MAX: usize = 2 * INPUT_BYTES;

/// Input for a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    /// All bytes that are not consumed.
    pub(super) bytes: &'a [u8],
    /// The same bytes in memory of the cache, if they were received there.
    pub(super) received: Option<&'a Received>,
}

impl<'a> From<&'a [u8]> for Input<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, received: None }
    }
}

impl<'a> From<&'a Received> for Input<'a> {
    fn from(received: &'a Received) -> Self {
        Self { bytes: received, received: Some(received) }
    }
}

/// A client's own input: an incomplete command, or commands that wait for the output to be sent.
#[derive(Debug)]
pub(super) enum PendingInput {
    /// In a buffer.
    Buffer(Vec<u8>),
    /// A single command, in memory reserved from the cache.
    Block(Reserved),
}

impl Default for PendingInput {
    fn default() -> Self {
        Self::Buffer(Vec::new())
    }
}

impl PendingInput {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::Block(block) => block.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory that this takes beside the cache's.
    pub(super) fn buffer_bytes(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.capacity(),
            Self::Block(_) => 0,
        }
    }

    /// Receives more of a command of `need` bytes: at least the bytes that are missing, or
    /// [`INPUT_BYTES`] if the command has no large value, because the conversation may wait for no
    /// more than the next byte of something of unknown length. Also returns the room that there
    /// was.
    pub(super) fn receive(
        &mut self,
        socket: &impl Socket,
        need: usize,
        cache: &Cache,
    ) -> (io::Result<usize>, usize) {
        self.reserve(need, cache);
        match self {
            Self::Block(block) => {
                let room = block.room().len();
                let received = retry(|| socket.receive(block.room()));
                if let Ok(bytes) = received {
                    block.add(bytes);
                }
                (received, room)
            }
            Self::Buffer(buffer) => {
                let held = buffer.len();
                let wanted = need.saturating_sub(held).max(INPUT_BYTES);
                buffer.reserve_exact(wanted.min(held.max(INPUT_BYTES)));
                let room = buffer.capacity() - held;
                (retry(|| socket.receive_behind(buffer)), room)
            }
        }
    }

    /// Moves a command of `need` bytes that begins to arrive into memory of the cache, if it is
    /// large enough and there is such memory.
    fn reserve(&mut self, need: usize, cache: &Cache) {
        if let Self::Buffer(buffer) = self
            && let Some(block) = block_of(buffer, need, cache)
        {
            *self = Self::Block(block);
        }
    }

    /// Takes out the memory of the cache that a command of `need` bytes is received into, if it is.
    pub(super) fn take_block(&mut self, need: usize, cache: &Cache) -> Option<Reserved> {
        self.reserve(need, cache);
        match std::mem::take(self) {
            Self::Block(block) => Some(block),
            buffer @ Self::Buffer(_) => {
                *self = buffer;
                None
            }
        }
    }

    /// Returns true if a command is being received into memory of the cache.
    pub(super) fn is_in_place(&self) -> bool {
        matches!(self, Self::Block(_))
    }

    /// Has `advance` consume input; it returns how many bytes, and what comes next. A command that
    /// goes on behind its value stays where it is.
    pub(super) fn consume(&mut self, advance: impl FnOnce(Input<'_>) -> Advance) -> NextStep {
        let (rest, next) = match std::mem::take(self) {
            Self::Buffer(mut buffer) => {
                let Advance { consumed, next } = advance(Input::from(&buffer[..]));
                buffer.drain(..consumed);
                (Self::Buffer(if buffer.is_empty() { Vec::new() } else { buffer }), next)
            }
            Self::Block(block) => {
                let received = block.finish();
                let Advance { consumed, next } = advance(Input::from(&received));
                (rest_of(received, consumed, &next), next)
            }
        };
        *self = rest;
        next
    }

    /// Keeps `bytes` that were received elsewhere, of a command of `need` bytes; there is no other
    /// input.
    pub(super) fn keep(&mut self, bytes: &[u8], need: usize, cache: &Cache) {
        *self = match block_of(bytes, need, cache) {
            Some(block) => Self::Block(block),
            None => Self::Buffer(bytes.to_vec()),
        };
    }
}

/// Returns the received bytes behind the `consumed` ones: in their block if none were and the
/// command is to be continued there, else in a buffer.
fn rest_of(received: Received, consumed: usize, next: &NextStep) -> PendingInput {
    let received = match *next {
        NextStep::Need(need) if consumed == 0 => received.reopen(need),
        _ => Err(received),
    };
    match received {
        Ok(block) => PendingInput::Block(block),
        Err(received) => PendingInput::Buffer(received[consumed..].to_vec()),
    }
}

/// Copies the beginning of a command of `need` bytes into memory reserved from the cache; none if
/// it is not received in place.
fn block_of(begun: &[u8], need: usize, cache: &Cache) -> Option<Reserved> {
    if need < IN_PLACE_BYTES_MIN || !(INPUT_BYTES..=BEGUN_BYTES_MAX).contains(&begun.len()) {
        return None;
    }
    let mut block = cache.reserve(need)?;
    block.room()[..begun.len()].copy_from_slice(begun);
    block.add(begun.len());
    Some(block)
}
