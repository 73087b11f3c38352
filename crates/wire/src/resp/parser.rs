//! Parses received bytes into Redis requests, one step at a time.
//!
//! A request of many arguments arrives in many pieces. Parsing it from its start with each piece
//! would take time quadratic in its length, so the parser keeps the positions of the complete
//! arguments. The result depends on the bytes alone and not on how they were split.

use thiserror::Error;

use super::args::{Args, Span};
use super::inline;
use super::integer::integer;
use super::{ARGUMENTS_MAX, BULK_BYTES_MAX, LINE_BYTES_MAX};

/// Number of bytes that end an argument.
const END_BYTES: usize = 2;
/// Number of argument positions for which memory is kept between requests: 8 KiB, more than any but
/// bulk requests need.
const SPANS_KEPT: usize = 1024;

/// The bounds of what a Redis server buffers for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest argument of a request in bytes.
    pub argument_bytes_max: u32,
    /// Longest request in bytes as sent; inline requests have a limit of their own.
    pub request_bytes_max: u32,
}

impl Limits {
    /// The buffer size in bytes that is enough to parse any request: the longest request and an
    /// incomplete line.
    #[must_use]
    pub const fn buffer_bytes_max(self) -> usize {
        self.request_bytes_max as usize + LINE_BYTES_MAX + END_BYTES
    }

    /// Most bytes that a parser itself holds: the positions of a request's arguments, each of which
    /// takes at least six bytes of the request, in a vector that doubles; or the words of an inline
    /// request.
    #[must_use]
    pub const fn parser_bytes_max(self) -> usize {
        let arguments = self.request_bytes_max as usize / 6;
        let arguments = if arguments < ARGUMENTS_MAX as usize { arguments } else { ARGUMENTS_MAX as usize };
        2 * arguments * size_of::<Span>() + 2 * LINE_BYTES_MAX * (1 + size_of::<Span>())
    }
}

/// The result of one step of a [`Parser`].
#[derive(Clone, Copy, Debug)]
pub struct Parsed<'a> {
    /// Bytes consumed at the start of the buffer. `event` may borrow from these bytes.
    pub consumed: usize,
    /// The meaning of the consumed bytes.
    pub event: Event<'a>,
}

/// The meaning of the bytes that a step of a [`Parser`] consumed.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The request is incomplete: pass the rest of the buffer again once it holds `need` bytes or
    /// more, at most [`Limits::buffer_bytes_max`].
    Incomplete {
        /// Number of bytes from the first one not consumed; always more than there are.
        need: usize,
    },
    /// A request to execute.
    Request(Args<'a>),
    /// A request over the limit, or with an argument over the limit. Contains the arguments before
    /// the one that exceeds a limit; there may be none. The parser skips the others as they arrive.
    TooLarge(Args<'a>),
    /// The bytes are not a request. The start of the next one is unknown: answer and close the
    /// connection.
    Broken(ProtocolError),
}

/// The reason why bytes are not a request, with Redis's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// An inline request has no end within [`LINE_BYTES_MAX`] bytes.
    #[error("Protocol error: too big inline request")]
    InlineTooLong,
    /// An inline request has a quote that is not closed, or not at the end of a word.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// The number of arguments has no line end within [`LINE_BYTES_MAX`] bytes.
    #[error("Protocol error: too big mbulk count string")]
    CountTooLong,
    /// The number of arguments is invalid, or above [`ARGUMENTS_MAX`].
    #[error("Protocol error: invalid multibulk length")]
    InvalidCount,
    /// The length of an argument has no line end within [`LINE_BYTES_MAX`] bytes.
    #[error("Protocol error: too big bulk count string")]
    LengthTooLong,
    /// This byte is in place of the `$` before an argument's length.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0).escape_default())]
    NoLength(u8),
    /// The length of an argument is not a number, negative, or above [`BULK_BYTES_MAX`].
    #[error("Protocol error: invalid bulk length")]
    InvalidLength,
}

/// Parses the requests of one connection.
///
/// Call [`parse`](Self::parse) with all bytes that are not consumed, remove those it has consumed,
/// and repeat until it needs more. Each byte is read a small constant number of times; only a line
/// that arrives in pieces is read again with each piece. For memory see
/// [`Limits::parser_bytes_max`]; the memory for many arguments is freed at the next request.
///
/// ```
/// use sherwood_wire::resp::{Event, Limits, Parser};
/// let mut parser = Parser::new(Limits { argument_bytes_max: 1024, request_bytes_max: 4096 });
/// let buffer = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING";
/// let first = parser.parse(buffer);
/// let consumed = first.consumed;
/// assert!(matches!(first.event, Event::Request(args) if args.from(0).eq([&b"GET"[..], b"a"])));
/// assert!(matches!(parser.parse(&buffer[consumed..]).event, Event::Incomplete { need: 5 }));
/// ```
#[derive(Clone, Debug)]
pub struct Parser {
    limits: Limits,
    state: State,
    /// The positions of the request's arguments, from its first byte on; for an inline request in
    /// `words`.
    spans: Vec<Span>,
    /// The words of an inline request, without quotes.
    words: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next byte begins a request.
    Start,
    /// The next bytes belong to a request: `left` arguments are missing, the first of them at `at`.
    Arguments { left: u32, at: usize },
    /// The next bytes belong to an argument that is skipped, with `left` more after it.
    Skip { bytes: u64, left: u32 },
    /// The bytes before were not a request, so that nothing can be parsed any more.
    Lost,
}

/// The result of parsing the start of the buffer.
enum Step {
    /// This many bytes were consumed that contain no request.
    Nothing(usize),
    Incomplete(usize),
    Request(usize),
    Inline(usize),
    TooLarge(usize),
    Broken(ProtocolError),
}

impl Parser {
    /// Makes a parser for the bytes of a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Start, spans: Vec::new(), words: Vec::new() }
    }

    /// The memory that the parser has allocated for itself, without the input buffer, bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.words.capacity()
    }

    /// Parses one request at the start of `buf`, which has all bytes that were not consumed so far.
    pub fn parse<'a>(&'a mut self, buf: &'a [u8]) -> Parsed<'a> {
        let mut start = 0;
        loop {
            let rest = &buf[start..];
            let step = match self.state {
                State::Start => self.start(rest),
                State::Arguments { left, at } => self.arguments(rest, left, at),
                State::Skip { bytes, left } => self.skip(rest, bytes, left),
                State::Lost => return Parsed { consumed: buf.len(), event: Event::Incomplete { need: 1 } },
            };
            let (used, event) = match step {
                Step::Nothing(used) => {
                    start += used;
                    continue;
                }
                Step::Incomplete(need) => (0, Event::Incomplete { need }),
                Step::Request(used) => (used, Event::Request(Args { bytes: rest, spans: &self.spans })),
                Step::Inline(used) => (used, Event::Request(Args { bytes: &self.words, spans: &self.spans })),
                Step::TooLarge(used) => (used, Event::TooLarge(Args { bytes: rest, spans: &self.spans })),
                Step::Broken(error) => {
                    self.state = State::Lost;
                    (rest.len(), Event::Broken(error))
                }
            };
            return Parsed { consumed: start + used, event };
        }
    }

    fn start(&mut self, rest: &[u8]) -> Step {
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT);
        match rest.first() {
            None => Step::Incomplete(1),
            Some(b'*') => self.count(rest),
            Some(_) => self.inline(rest),
        }
    }

    /// Parses the line with the number of arguments, at the start of `rest`.
    fn count(&mut self, rest: &[u8]) -> Step {
        let (count, at) = match line(rest, 0) {
            ParsedLine::Whole { text, next } => (integer(&text[1..]), next),
            ParsedLine::Incomplete => return Step::Incomplete(rest.len() + 1),
            ParsedLine::TooLong => return Step::Broken(ProtocolError::CountTooLong),
        };
        match count {
            Some(..=0) => Step::Nothing(at),
            Some(count) if count <= i64::from(ARGUMENTS_MAX) => {
                self.state = State::Arguments { left: count as u32, at };
                self.arguments(rest, count as u32, at)
            }
            _ => Step::Broken(ProtocolError::InvalidCount),
        }
    }

    /// Continues a request of which `left` arguments are missing, at the length of the next one.
    fn arguments(&mut self, rest: &[u8], mut left: u32, mut at: usize) -> Step {
        while left > 0 {
            let (len, start) = match length(rest, at) {
                Ok(Some(found)) => found,
                Ok(None) => return self.wait(left, at, rest.len() + 1),
                Err(error) => return Step::Broken(error),
            };
            if len > u64::from(self.limits.argument_bytes_max)
                || start as u64 + len + END_BYTES as u64 > u64::from(self.limits.request_bytes_max)
            {
                self.state = State::Skip { bytes: len + END_BYTES as u64, left: left - 1 };
                return Step::TooLarge(start);
            }
            let end = start + len as usize + END_BYTES;
            if rest.len() < end {
                return self.wait(left, at, end);
            }
            self.spans.push(Span { start: start as u32, len: len as u32 });
            (left, at) = (left - 1, end);
        }
        self.state = State::Start;
        Step::Request(at)
    }

    fn wait(&mut self, left: u32, at: usize, need: usize) -> Step {
        self.state = State::Arguments { left, at };
        Step::Incomplete(need)
    }

    /// Continues to skip the rest of an argument and the `left` arguments after it.
    fn skip(&mut self, rest: &[u8], bytes: u64, left: u32) -> Step {
        if bytes > 0 {
            let skipped = usize::try_from(bytes).unwrap_or(usize::MAX).min(rest.len());
            self.state = State::Skip { bytes: bytes - skipped as u64, left };
            return if skipped == 0 { Step::Incomplete(1) } else { Step::Nothing(skipped) };
        }
        if left == 0 {
            self.state = State::Start;
            return Step::Nothing(0);
        }
        match length(rest, 0) {
            Ok(Some((len, start))) => {
                self.state = State::Skip { bytes: len + END_BYTES as u64, left: left - 1 };
                Step::Nothing(start)
            }
            Ok(None) => Step::Incomplete(rest.len() + 1),
            Err(error) => Step::Broken(error),
        }
    }

    fn inline(&mut self, rest: &[u8]) -> Step {
        let window = &rest[..rest.len().min(LINE_BYTES_MAX + 1)];
        let Some(end) = memchr::memchr(b'\n', window) else {
            return match window.len() > LINE_BYTES_MAX {
                true => Step::Broken(ProtocolError::InlineTooLong),
                false => Step::Incomplete(rest.len() + 1),
            };
        };
        self.words.clear();
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match inline::split(line, &mut self.words, &mut self.spans) {
            false => Step::Broken(ProtocolError::UnbalancedQuotes),
            true if self.spans.is_empty() => Step::Nothing(end + 1),
            true => Step::Inline(end + 1),
        }
    }
}

/// A line that announces a number, as far as it has been received.
enum ParsedLine<'a> {
    Whole { text: &'a [u8], next: usize },
    Incomplete,
    TooLong,
}

/// Reads the line at `at` of `rest`, up to a carriage return and the byte after it, which is not
/// checked.
fn line(rest: &[u8], at: usize) -> ParsedLine<'_> {
    let rest = rest.get(at..).unwrap_or_default();
    let window = &rest[..rest.len().min(LINE_BYTES_MAX + 1)];
    match memchr::memchr(b'\r', window) {
        Some(end) if end + 1 < rest.len() => {
            ParsedLine::Whole { text: &rest[..end], next: at + end + END_BYTES }
        }
        Some(_) => ParsedLine::Incomplete,
        None if window.len() > LINE_BYTES_MAX => ParsedLine::TooLong,
        None => ParsedLine::Incomplete,
    }
}

/// Parses the length of an argument at `at` of `rest` and returns it with the argument's start;
/// none if the line is incomplete.
fn length(rest: &[u8], at: usize) -> Result<Option<(u64, usize)>, ProtocolError> {
    let (text, next) = match line(rest, at) {
        ParsedLine::Whole { text, next } => (text, next),
        ParsedLine::Incomplete => return Ok(None),
        ParsedLine::TooLong => return Err(ProtocolError::LengthTooLong),
    };
    let digits = match text {
        [b'$', digits @ ..] => digits,
        [other, ..] => return Err(ProtocolError::NoLength(*other)),
        [] => return Err(ProtocolError::NoLength(b'\r')),
    };
    match integer(digits).and_then(|len| u64::try_from(len).ok()) {
        Some(len) if len <= BULK_BYTES_MAX => Ok(Some((len, next))),
        _ => Err(ProtocolError::InvalidLength),
    }
}

#[cfg(test)]
mod tests;
