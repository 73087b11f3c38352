//! Input and output of clients that are served in one round: received together, answered one after
//! the other, and sent to together.
//!
//! Each client has a room for its input and an output of its own, which are reached by its token
//! alone.

use std::mem;

use super::input::INPUT_BYTES;
use super::lent::Empty;
use super::output::Output;
use super::slots::Token;
use super::times::TimedTurn;

/// Distance of two rooms. More than a room, so that the starts of rooms, which are used most, do
/// not compete for the same lines of the processor's cache.
const ROOM_STRIDE: usize = INPUT_BYTES + 192;
/// Size of a page of memory, as far as that matters for an estimate.
const PAGE_BYTES: usize = 4096;
/// Most clients of a round. Measured, with 50 connections: more save little in system calls, but
/// clients wait while the server works, and the server while they do.
pub(super) const ROUND_CLIENTS_MAX: usize = 16;
/// Number of clients whose answers wait for each other. With as many as a round has, P99 of an open
/// loop of 20,000 requests a second was 1.2 to 1.4 times that of epoll alone.
const OWED_CLIENTS_MAX: usize = 8;
/// Bytes of answers, without values that are sent in place, after which those that wait are sent
/// before others are produced.
const OWED_BYTES_MAX: usize = 8 * 1024;
/// Bytes of one client's answers after which they do not wait for others. Measured with pipelines
/// of 16 gets of 100 bytes, whose answers are longer: when they wait for each other, throughput is
/// a fifth lower.
const PIPELINE_BYTES: usize = 1024;
/// Capacity up to which the memory of answers is kept for the next round.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Rooms for the input of the clients of a round. The memory is allocated with the first round.
#[derive(Debug, Default)]
pub(super) struct RoundInput {
    memory: Box<[u8]>,
    /// The clients that have input, in the order in which they are to be answered: token, number of
    /// the room, and length.
    inputs: Vec<(Token, usize, usize)>,
    /// For each room, the most bytes of input that it has had.
    most: Vec<usize>,
}

impl RoundInput {
    /// Returns the rooms, [`ROUND_CLIENTS_MAX`] of [`INPUT_BYTES`] each.
    pub(super) fn rooms(&mut self) -> impl Iterator<Item = &mut [u8]> {
        if self.memory.is_empty() {
            self.memory = vec![0; ROUND_CLIENTS_MAX * ROOM_STRIDE].into();
            self.most = vec![0; ROUND_CLIENTS_MAX];
        }
        self.memory.chunks_exact_mut(ROOM_STRIDE).map(|room| &mut room[..INPUT_BYTES])
    }

    /// Returns a room.
    pub(super) fn room(&mut self, number: usize) -> &mut [u8] {
        &mut self.memory[number * ROOM_STRIDE..][..INPUT_BYTES]
    }

    /// Makes the first `bytes` bytes of a room the input of a client.
    pub(super) fn add(&mut self, token: Token, room: usize, bytes: usize) {
        let bytes = bytes.min(INPUT_BYTES);
        self.most[room] = self.most[room].max(bytes);
        self.inputs.push((token, room, bytes));
    }

    /// Returns the clients and their input.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (Token, &[u8])> {
        self.inputs.iter().map(|&(token, room, bytes)| (token, &self.memory[room * ROOM_STRIDE..][..bytes]))
    }
}

impl Empty for RoundInput {
    fn empty(&mut self) {
        self.inputs.clear();
    }

    /// Counts the pages that have been written to; the system backs no others with memory.
    fn capacity(&self) -> usize {
        self.most.iter().map(|bytes| bytes.next_multiple_of(PAGE_BYTES)).sum()
    }
}

/// Answers for the clients of a round, to be sent together.
#[derive(Debug, Default)]
pub(super) struct RoundOutput {
    owed: Vec<Owed>,
    /// Bytes of the answers in `owed`, without values that are sent in place.
    bytes: usize,
    /// The part of these bytes that the latest answer has.
    latest: usize,
    /// Empty outputs whose memory is used again.
    spare: Vec<Output>,
    /// Bytes of memory of the outputs in `owed` and `spare`.
    memory: usize,
}

/// The answers for a client.
#[derive(Debug)]
pub(super) struct Owed {
    pub(super) token: Token,
    pub(super) output: Output,
    /// Record of the client's turn for when they are sent, if it is timed.
    pub(super) timed: Option<TimedTurn>,
}

impl RoundOutput {
    /// Keeps what a turn has appended to `output` for its client, and leaves an empty output.
    pub(super) fn keep(&mut self, token: Token, output: &mut Output, timed: Option<TimedTurn>) {
        let spare = self.spare.pop().unwrap_or_default();
        self.memory = self.memory + output.capacity() - spare.capacity();
        self.latest = Vec::len(output);
        self.bytes += self.latest;
        self.owed.push(Owed { token, output: mem::replace(output, spare), timed });
    }

    /// Returns true if the answers are to be sent before others are produced.
    pub(super) fn is_full(&self) -> bool {
        self.owed.len() >= OWED_CLIENTS_MAX || self.latest >= PIPELINE_BYTES || self.bytes >= OWED_BYTES_MAX
    }

    /// Takes the answers out, to be [given back](Self::give_back) when they are sent.
    pub(super) fn take(&mut self) -> Vec<Owed> {
        (self.bytes, self.latest) = (0, 0);
        mem::take(&mut self.owed)
    }

    /// Takes back answers that were sent, and keeps some of their memory.
    pub(super) fn give_back(&mut self, mut sent: Vec<Owed>) {
        for Owed { mut output, .. } in sent.drain(..) {
            output.empty();
            if output.capacity() <= KEPT_BYTES_MAX && self.spare.len() < ROUND_CLIENTS_MAX {
                self.spare.push(output);
            }
        }
        self.owed = sent;
        self.memory = self.spare.iter().map(Empty::capacity).sum();
    }

    /// Returns the bytes of memory that the outputs use.
    pub(super) fn capacity(&self) -> usize {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_of_a_client_is_reached_by_its_token_alone_and_gone_when_the_round_is_over() {
        let mut input = RoundInput::default();
        assert_eq!((input.rooms().count(), input.capacity()), (ROUND_CLIENTS_MAX, 0));
        for (room, text) in input.rooms().zip(["get a", "get secret", "quit"]) {
            room[..text.len()].copy_from_slice(text.as_bytes());
        }
        input.add(Token::from_number(7), 0, 5);
        input.add(Token::from_number(9), 2, 4);
        let inputs: Vec<_> = input.inputs().collect();
        assert_eq!(inputs, [(Token::from_number(7), &b"get a"[..]), (Token::from_number(9), b"quit")]);
        assert_eq!(input.capacity(), 2 * PAGE_BYTES, "a page for each room that had input");
        input.empty();
        assert_eq!(input.inputs().count(), 0);
    }

    #[test]
    fn outputs_of_a_round_are_used_again_empty_and_large_ones_are_freed() {
        let mut round = RoundOutput::default();
        let mut output = Output::default();
        for (number, bytes) in [(1, 10), (2, 2 * KEPT_BYTES_MAX), (3, 20)] {
            assert!(output.is_empty());
            output.extend(vec![b'x'; bytes]);
            round.keep(Token::from_number(number), &mut output, None);
        }
        assert!(output.is_empty() && round.is_full());
        let owed = round.take();
        let lengths: Vec<_> = owed.iter().map(|one| (one.token.number(), one.output.len())).collect();
        assert_eq!(lengths, [(1, 10), (2, 2 * KEPT_BYTES_MAX), (3, 20)]);
        round.give_back(owed);
        assert!((30..KEPT_BYTES_MAX).contains(&round.capacity()), "{}", round.capacity());
        for number in [4, 5, 6] {
            output.extend(b"END");
            round.keep(Token::from_number(number), &mut output, None);
            assert!(output.is_empty(), "an earlier answer is left");
        }
    }

    #[test]
    fn answers_are_sent_at_once_if_one_is_long_or_eight_wait() {
        for (bytes, expected) in [(PIPELINE_BYTES, 1), (PIPELINE_BYTES - 1, 8), (1, 8)] {
            let (mut round, mut output) = (RoundOutput::default(), Output::default());
            let mut keep = |number| {
                output.extend(vec![b'x'; bytes]);
                round.keep(Token::from_number(number), &mut output, None);
                round.is_full()
            };
            assert_eq!((1..100).find(|number| keep(*number)).unwrap_or(100), expected);
        }
    }
}
