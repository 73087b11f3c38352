//! The client's side of a connection whose server answers requests in the order they were sent, as
//! memcached and Redis do.
//!
//! A [`Pipeline`] holds the bytes to send, the bytes received and the requests in flight. It has no
//! socket: its driver moves the bytes. The protocol is in the requests: each is an [`Exchange`],
//! which reads its own reply piece by piece and returns its result.
//!
//! ```text
//! push(exchange) ──▶ output ──▶ unsent(), sent(n)      ──▶ socket
//!                      in flight, in order
//! reply()        ◀── input  ◀── room(), received(n)    ◀── socket
//! ```
//!
//! Everything is bounded: the requests in flight and the longest piece of a reply by [`Limits`],
//! the bytes to send by the requests in flight. Bytes of a reply that the exchange does not need
//! are discarded as they arrive and never held.
//!
//! ```
//! use sherwood_wire::pipeline::{Exchange, Limits, Pipeline, Step};
//! use sherwood_wire::resp::client::{self, Progress, Reply, ReplyError};
//!
//! struct Get;
//! impl Exchange for Get {
//!     type Answer = Option<Vec<u8>>;
//!     type Error = ReplyError;
//!     fn read(&mut self, input: &[u8]) -> Result<Step<Self::Answer>, ReplyError> {
//!         Ok(match client::parse(input)? {
//!             Progress::Incomplete(need) => Step::Incomplete(need),
//!             Progress::Reply(Reply::Bulk(value), used) => Step::Done(used, Some(value.to_vec())),
//!             Progress::Reply(_, used) => Step::Done(used, None),
//!         })
//!     }
//! }
//!
//! let mut pipeline = Pipeline::new(Limits { in_flight_max: 2, piece_bytes_max: 1 << 20 });
//! pipeline.push(Get, |_, out| client::get(out, b"a"));
//! pipeline.push(Get, |_, out| client::get(out, b"b"));
//! let sent = pipeline.unsent().len();
//! pipeline.sent(sent);
//! pipeline.room()[..10].copy_from_slice(b"$1\r\nx\r\n$-1");
//! pipeline.received(10);
//! assert_eq!(pipeline.reply()?.map(|(_, answer)| answer), Some(Some(b"x".to_vec())));
//! assert!(pipeline.reply()?.is_none(), "the second reply is incomplete");
//! # Ok::<(), sherwood_wire::pipeline::ReplyError<ReplyError>>(())
//! ```

use std::collections::VecDeque;

use thiserror::Error;

/// A request in flight, which reads its reply.
pub trait Exchange {
    /// The result of the request, parsed from its reply.
    type Answer;
    /// The reason why received bytes are no reply to this request.
    type Error;

    /// Reads a piece of the reply at the start of `input`, the bytes received and not used yet; at
    /// least one.
    ///
    /// # Errors
    /// When the bytes are no reply to this request. The start of the next reply is then unknown:
    /// close the connection.
    fn read(&mut self, input: &[u8]) -> Result<Step<Self::Answer>, Self::Error>;
}

/// The progress of one [`Exchange::read`]. Of the bytes it reports as used, those that have not
/// arrived yet are discarded when they do: this is how a value that is too large is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<A> {
    /// The bytes contain no whole piece of the reply: the exchange is called again once there are
    /// this many, at least one more than now.
    Incomplete(usize),
    /// A piece of the reply of this many bytes was read; more pieces follow.
    Used(usize),
    /// The last piece of the reply was read: its bytes, and the result of the request.
    Done(usize, A),
}

/// A request whose reply is complete, with its result.
pub type Answered<E> = (E, <E as Exchange>::Answer);

/// The bounds of a [`Pipeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most requests that are sent, or to be sent, and not answered.
    pub in_flight_max: usize,
    /// Longest piece of a reply, in bytes; a piece is held until it is whole.
    pub piece_bytes_max: usize,
}

/// The reason why replies cannot be read any more. The connection is of no further use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplyError<E> {
    /// The bytes are no reply to the first request in flight.
    #[error(transparent)]
    Exchange(E),
    /// Bytes arrived without a request in flight: [`Pipeline::unread`].
    #[error("a reply was received without a request")]
    Unsolicited,
    /// A piece of a reply is longer than the limit.
    #[error("a reply of {bytes} bytes was announced; at most {bytes_max} are accepted: raise the limit")]
    TooLong {
        /// The announced length of the piece in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
}

/// The requests in flight on one connection, with its buffers.
///
/// The driver calls [`push`](Self::push) for each request, sends what [`unsent`](Self::unsent)
/// returns and reports it by [`sent`](Self::sent), reads into [`room`](Self::room) and reports it
/// by [`received`](Self::received), and then calls [`reply`](Self::reply) until it returns none.
#[derive(Debug)]
pub struct Pipeline<E: Exchange> {
    limits: Limits,
    in_flight: VecDeque<E>,
    /// Bytes of requests, of which the first `sent` are sent.
    output: Vec<u8>,
    sent: usize,
    /// Bytes received; those in `start..end` are not used yet by replies.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Number of bytes that have to be there before the first exchange is called again; at least 1.
    need: usize,
    /// Number of bytes used by replies and not removed from the input yet, some of which may not
    /// have arrived.
    discard: usize,
    /// The result of the first request, until the last byte of its reply has arrived.
    answer: Option<E::Answer>,
    /// True if a part of the reply to the first request was already consumed.
    begun: bool,
}

/// Size of an empty input buffer, in bytes. Chosen: the bytes that a socket delivers at once.
const INPUT_BYTES: usize = 64 << 10;

/// Size in bytes up to which [`Pipeline::shrink`] keeps a buffer.
const BUFFER_BYTES_KEPT: usize = 256 << 10;

impl<E: Exchange> Pipeline<E> {
    /// Makes a pipeline without requests.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            in_flight: VecDeque::new(),
            output: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            need: 1,
            discard: 0,
            answer: None,
            begun: false,
        }
    }

    /// The number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// True if no more requests may be pushed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_flight.len() >= self.limits.in_flight_max
    }

    /// Adds a request; `write` appends its bytes to those that are sent.
    ///
    /// # Panics
    /// When the pipeline [is full](Self::is_full).
    pub fn push(&mut self, exchange: E, write: impl FnOnce(&E, &mut Vec<u8>)) {
        assert!(!self.is_full(), "{} requests are in flight", self.in_flight.len());
        if self.sent > self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        write(&exchange, &mut self.output);
        self.in_flight.push_back(exchange);
    }

    /// The bytes that are still to be sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Removes the first `bytes` of the bytes to send, which were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// The space for bytes to be received; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        self.buffers().1
    }

    /// The bytes to send and the space for received bytes, for drivers that send and receive at
    /// once.
    pub fn buffers(&mut self) -> (&[u8], &mut [u8]) {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let least = self.need.max(self.end + 1);
        if least > self.input.len() {
            self.input.resize(least.next_multiple_of(INPUT_BYTES), 0);
        }
        (&self.output[self.sent..], &mut self.input[self.end..])
    }

    /// Adds the first `bytes` bytes of [`room`](Self::room), which were received, to the input.
    pub fn received(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.input.len(), "{bytes} bytes were received into less room");
    }

    /// The bytes received and not used by a reply yet.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// True if a part of the reply to the first request in flight was received. No byte of the
    /// replies to later requests was received then.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun || !self.unread().is_empty()
    }

    /// Returns the next request whose reply is complete, with its result.
    ///
    /// # Errors
    /// When the bytes received are no reply, or one that is too long.
    pub fn reply(&mut self) -> Result<Option<Answered<E>>, ReplyError<E::Error>> {
        loop {
            if self.discard > 0 {
                let arrived = self.discard.min(self.unread().len());
                self.start += arrived;
                self.discard -= arrived;
                if self.discard > 0 {
                    return Ok(None);
                }
            }
            if let Some(answer) = self.answer.take() {
                self.begun = false;
                return Ok(self.in_flight.pop_front().map(|exchange| (exchange, answer)));
            }
            let input = &self.input[self.start..self.end];
            if input.len() < self.need {
                return Ok(None);
            }
            let first = self.in_flight.front_mut().ok_or(ReplyError::Unsolicited)?;
            match first.read(input).map_err(ReplyError::Exchange)? {
                Step::Incomplete(bytes) if bytes > self.limits.piece_bytes_max => {
                    return Err(ReplyError::TooLong { bytes, bytes_max: self.limits.piece_bytes_max });
                }
                Step::Incomplete(need) => {
                    self.need = need.max(input.len() + 1);
                    return Ok(None);
                }
                Step::Used(bytes) => (self.discard, self.need, self.begun) = (bytes, 1, true),
                Step::Done(bytes, answer) => {
                    (self.discard, self.need, self.begun) = (bytes, 1, true);
                    self.answer = Some(answer);
                }
            }
        }
    }

    /// Removes the requests without a complete reply, in their order: the connection has ended.
    pub fn abandon(&mut self) -> impl Iterator<Item = E> {
        (self.answer, self.begun) = (None, false);
        self.in_flight.drain(..)
    }

    /// Frees the memory of the pipeline's empty buffers that have grown large.
    pub fn shrink(&mut self) {
        if self.unread().is_empty() && self.input.len() > BUFFER_BYTES_KEPT {
            (self.input, self.start, self.end) = (vec![0; INPUT_BYTES], 0, 0);
        }
        if self.unsent().is_empty() && self.output.capacity() > BUFFER_BYTES_KEPT {
            self.output = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test protocol. A reply is its length in one digit and that many letters. An upper-case
    /// letter before it is a piece of its own; `!` is no reply; a length of more than 4 is
    /// discarded.
    #[derive(Debug, PartialEq, Eq)]
    struct Word(u8);

    impl Exchange for Word {
        type Answer = String;
        type Error = char;

        fn read(&mut self, input: &[u8]) -> Result<Step<String>, char> {
            let length = match input[0] {
                b'A'..=b'Z' => return Ok(Step::Used(1)),
                digit @ b'0'..=b'9' => usize::from(digit - b'0'),
                other => return Err(other.into()),
            };
            if length > 4 {
                return Ok(Step::Done(1 + length, "long".to_owned()));
            }
            Ok(match input.get(1..=length) {
                None => Step::Incomplete(1 + length),
                Some(word) => Step::Done(1 + length, String::from_utf8_lossy(word).into_owned()),
            })
        }
    }

    fn pipeline(requests: &[u8]) -> Pipeline<Word> {
        let mut pipeline = Pipeline::new(Limits { in_flight_max: 8, piece_bytes_max: 8 });
        requests.iter().for_each(|&name| pipeline.push(Word(name), |word, out| out.push(word.0)));
        pipeline
    }

    type Replies = Result<Vec<(u8, String)>, ReplyError<char>>;

    /// The results of the requests when `bytes` arrive in pieces of `piece` bytes.
    fn replies(pipeline: &mut Pipeline<Word>, bytes: &[u8], piece: usize) -> Replies {
        let mut replies = Vec::new();
        for bytes in bytes.chunks(piece) {
            pipeline.room()[..bytes.len()].copy_from_slice(bytes);
            pipeline.received(bytes.len());
            while let Some((word, answer)) = pipeline.reply()? {
                replies.push((word.0, answer));
            }
        }
        Ok(replies)
    }

    #[test]
    fn replies_belong_to_requests_in_order_wherever_the_bytes_are_cut() {
        let bytes = b"2abXY3cde0Z9.........4last";
        let expected = [(b'1', "ab"), (b'2', "cde"), (b'3', ""), (b'4', "long"), (b'5', "last")];
        for piece in 1..=bytes.len() {
            let mut pipeline = pipeline(b"123456");
            let replies = replies(&mut pipeline, bytes, piece).unwrap();
            assert!(replies.iter().map(|(name, word)| (*name, &word[..])).eq(expected), "{replies:?}");
            assert_eq!((pipeline.in_flight(), pipeline.unread()), (1, &b""[..]), "{piece} bytes at a time");
        }
    }

    #[test]
    fn discarded_reply_is_complete_when_its_last_byte_has_arrived() {
        let mut pipeline = pipeline(b"1");
        assert_eq!(replies(&mut pipeline, b"9........", 9), Ok(vec![]));
        assert_eq!(pipeline.in_flight(), 1);
        assert_eq!(replies(&mut pipeline, b".", 1), Ok(vec![(b'1', "long".to_owned())]));
    }

    #[test]
    fn has_begun_is_true_while_a_reply_is_partly_received() {
        for (bytes, has_begun) in [
            (&b""[..], false),
            (b"3", true),
            (b"A", true),
            (b"A3abc", false),
            (b"9", true),
            (b"9.........", false),
            (b"1a1", true),
        ] {
            for piece in 1..=bytes.len().max(1) {
                let mut pipeline = pipeline(b"123");
                replies(&mut pipeline, bytes, piece).unwrap();
                assert_eq!(pipeline.has_begun(), has_begun, "{bytes:?}, {piece} bytes at a time");
            }
        }
    }

    #[test]
    fn pipelined_bytes_that_are_no_reply_are_an_error_and_stay_unread() {
        let mut one = pipeline(b"12");
        assert_eq!(replies(&mut one, b"1a!?", 4), Err(ReplyError::Exchange('!')));
        assert_eq!(one.unread(), b"!?");
        assert_eq!(one.abandon().map(|word| word.0).collect::<Vec<_>>(), b"2");
        let mut none = pipeline(b"");
        assert_eq!(replies(&mut none, b"1a", 1), Err(ReplyError::Unsolicited));
        assert_eq!(none.unread(), b"1");
    }

    #[test]
    fn piece_of_a_reply_over_the_limit_is_refused_when_it_is_announced() {
        let limits = Limits { in_flight_max: 1, piece_bytes_max: 4 };
        let mut pipeline = Pipeline::new(limits);
        pipeline.push(Word(b'1'), |_, _| {});
        assert_eq!(replies(&mut pipeline, b"4", 1), Err(ReplyError::TooLong { bytes: 5, bytes_max: 4 }));
    }

    #[test]
    fn bytes_of_requests_are_sent_once_and_freed_afterwards() {
        let mut pipeline = pipeline(b"abc");
        assert_eq!(pipeline.unsent(), b"abc");
        pipeline.sent(2);
        pipeline.push(Word(b'd'), |word, out| out.push(word.0));
        assert_eq!((pipeline.unsent(), pipeline.output.len()), (&b"cd"[..], 2));
        pipeline.sent(2);
        assert_eq!((pipeline.unsent(), pipeline.output.len()), (&b""[..], 0));
    }

    #[test]
    #[should_panic(expected = "8 requests are in flight")]
    fn full_pipeline_panics_at_another_request() {
        let mut pipeline = pipeline(b"12345678");
        assert!(pipeline.is_full());
        pipeline.push(Word(b'9'), |_, _| {});
    }

    #[test]
    fn input_buffer_grows_to_a_long_piece_and_shrinks_when_empty() {
        struct Long;
        impl Exchange for Long {
            type Answer = ();
            type Error = ();
            fn read(&mut self, input: &[u8]) -> Result<Step<()>, ()> {
                let length = 5 * INPUT_BYTES;
                Ok(if input.len() < length { Step::Incomplete(length) } else { Step::Done(length, ()) })
            }
        }
        let limits = Limits { in_flight_max: 1, piece_bytes_max: 5 * INPUT_BYTES };
        let mut pipeline = Pipeline::new(limits);
        pipeline.push(Long, |_, _| {});
        let mut rest = 5 * INPUT_BYTES;
        while rest > 0 {
            assert!(pipeline.reply().unwrap().is_none());
            let received = pipeline.room().len().min(rest);
            assert_ne!(received, 0, "an empty read would be taken for the end of the connection");
            pipeline.received(received);
            rest -= received;
        }
        pipeline.shrink();
        assert_eq!(pipeline.input.len(), 5 * INPUT_BYTES, "it holds a reply");
        assert!(pipeline.reply().unwrap().is_some());
        pipeline.shrink();
        assert_eq!(pipeline.input.len(), INPUT_BYTES);
    }
}
