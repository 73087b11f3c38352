//! Input of several clients, read before the first of them is answered.
//!
//! A short command waits for memory longer than it computes. So clients that are ready at the same
//! time are read first, as many as there is room for, and then answered one after the other, while
//! the keys of the next ones are being prefetched. The delay is small: a read takes half a
//! microsecond, and a single client is answered at once.

use super::connection::ReadOutcome;
use super::conversation::Conversation;
use super::input::INPUT_BYTES;
use super::lent::{Empty, ReadBuffer};
use super::shared::Service;
use super::slots::Token;
use super::tenants::TenantSlot;

/// Most clients that are read before the first is answered: each has a key to prefetch.
const CLIENTS_MAX: usize = 32;
/// Bytes of the buffer for a batch. There is room for one more read until the batch is answered.
pub(super) const ROOM_BYTES: usize = 2 * INPUT_BYTES;

/// Input of several clients that was read and is to be answered. Each client's input can be reached
/// by the client's token alone.
#[derive(Debug, Default)]
pub(super) struct InputBatch {
    buffer: ReadBuffer,
    /// Clients in the order in which they were read, with the end of each one's input in the
    /// buffer.
    ends: Vec<(Token, usize)>,
}

impl InputBatch {
    pub(super) fn new() -> Self {
        Self { buffer: ReadBuffer::new(ROOM_BYTES), ends: Vec::with_capacity(CLIENTS_MAX) }
    }

    /// Calls `read` to read a client into the buffer, which has [`INPUT_BYTES`] free while the
    /// batch is not [full](Self::is_full). The bytes become the client's input.
    pub(super) fn read(
        &mut self,
        token: Token,
        read: impl FnOnce(&mut ReadBuffer) -> ReadOutcome,
    ) -> ReadOutcome {
        let ends = read(&mut self.buffer);
        if matches!(ends, ReadOutcome::Input) {
            self.ends.push((token, self.buffer.len()));
        }
        ends
    }

    /// Returns true if the batch has to be answered before another client is read.
    pub(super) fn is_full(&self) -> bool {
        self.ends.len() == CLIENTS_MAX || self.buffer.free() < INPUT_BYTES
    }

    /// Returns the clients and their input, in the order in which they were read.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (Token, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&(_, end)| end));
        starts.zip(&self.ends).map(|(start, &(token, end))| (token, &self.buffer[start..end]))
    }
}

/// Prefetches the cache entry of the first key in each client's input; the client's conversation
/// (its protocol state) prefetches those of the other keys. `slot` returns the tenant of a client;
/// none if it has gone.
pub(super) fn prefetch<'i, C: Conversation>(
    inputs: impl Iterator<Item = (Token, &'i [u8])>,
    service: &Service,
    slot: impl Fn(Token) -> Option<TenantSlot>,
) {
    service.cache.prefetch(inputs.filter_map(|(token, input)| {
        let routing = service.routing(slot(token)?);
        let (target, name) = routing.find(C::keys_ahead(input).next()?)?;
        Some((target.partition, name))
    }));
}

impl Empty for InputBatch {
    fn empty(&mut self) {
        self.buffer.empty();
        self.ends.clear();
    }

    fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(batch: &mut InputBatch, number: u64, text: &[u8]) {
        batch.read(Token::from_number(number), |buffer| {
            let read = buffer.fill::<()>(INPUT_BYTES, |memory| {
                memory[..text.len()].copy_from_slice(text);
                Ok(text.len())
            });
            read.map_or(ReadOutcome::Busy, |_| ReadOutcome::Input)
        });
    }

    #[test]
    fn inputs_of_a_batch_are_in_order_and_gone_when_it_is_emptied() {
        let mut batch = InputBatch::new();
        for (number, text) in [(3, &b"get a"[..]), (1, b"x"), (2, b"quit")] {
            say(&mut batch, number, text);
        }
        let ends: Vec<_> = batch.inputs().map(|(token, input)| (token.number(), input)).collect();
        assert_eq!(ends, [(3, &b"get a"[..]), (1, b"x"), (2, b"quit")]);
        batch.empty();
        assert_eq!(batch.inputs().count(), 0);
        say(&mut batch, 9, b"stats");
        assert!(batch.inputs().eq([(Token::from_number(9), &b"stats"[..])]));
    }

    #[test]
    fn client_that_was_not_read_has_no_input_in_the_batch() {
        let mut batch = InputBatch::new();
        say(&mut batch, 1, b"get a");
        batch.read(Token::from_number(2), |_| ReadOutcome::Busy);
        assert!(batch.inputs().eq([(Token::from_number(1), &b"get a"[..])]));
    }

    #[test]
    fn input_batch_is_full_after_many_clients_or_many_bytes() {
        let mut short = InputBatch::new();
        let clients = (0..).take_while(|&number| {
            say(&mut short, number, b"get a\r\n");
            !short.is_full()
        });
        assert_eq!(clients.count() + 1, CLIENTS_MAX);
        let mut long = InputBatch::new();
        say(&mut long, 0, &[b'x'; INPUT_BYTES]);
        assert!(!long.is_full(), "there is room for one more");
        say(&mut long, 1, b"x");
        assert!(long.is_full());
    }
}
