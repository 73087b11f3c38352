//! Parses received bytes into requests, one frame at a time.

use super::super::{Delta, Exptime, KEY_BYTES_MAX, Limits, Storage, StorageVerb};
use super::header::{HEADER_BYTES, Header, REQUEST};
use super::opcode;
use super::request::{Command, Echo, Request};
use super::{LOGIN_BYTES_MAX, MECHANISM_BYTES_MAX, Status};

/// Bytes of the extras of `set`, `add` and `replace`: flags and expiry time.
const STORE_EXTRAS: usize = 8;
/// Bytes of the extras of `increment` and `decrement`: amount, initial number and expiry time.
const COUNT_EXTRAS: usize = 20;
/// Bytes of extras that are an expiry time or a level.
const NUMBER_EXTRAS: usize = 4;
/// Expiry time of an `increment` or `decrement` that creates no item.
const CREATES_NOTHING: u32 = u32::MAX;

/// Returns the length in bytes of the longest frame that a parser with these limits holds.
#[must_use]
pub const fn frame_bytes_max(limits: Limits) -> usize {
    let storage = STORE_EXTRAS + KEY_BYTES_MAX + limits.value_bytes_max as usize;
    // Extras of a wrong length are refused with their frame.
    let other = u8::MAX as usize + MECHANISM_BYTES_MAX + LOGIN_BYTES_MAX;
    HEADER_BYTES + if storage > other { storage } else { other }
}

/// The result of one step of a [`Parser`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// Bytes consumed at the start of the buffer. `event` may borrow from these bytes.
    pub consumed: usize,
    /// The meaning of the consumed bytes.
    pub event: Event<'a>,
}

/// The meaning of the bytes that a step of a [`Parser`] consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The request is incomplete: pass the rest of the buffer again once it holds `need` bytes or
    /// more, at most [`frame_bytes_max`].
    Incomplete {
        /// Number of bytes from the first one not consumed; always more than there are.
        need: usize,
    },
    /// A request to execute.
    Request(Request<'a>),
    /// The frame is not a valid request.
    Refused {
        /// The fields that the response repeats.
        echo: Echo,
        /// The error to answer.
        status: Status,
        /// True if the connection is closed after the response.
        close: bool,
    },
    /// The next byte does not begin a request: the connection is closed without an answer.
    Lost,
}

/// Parses the requests of one connection.
///
/// Call [`parse`](Self::parse) with all bytes that are not consumed, remove those it has consumed,
/// and repeat until it needs more. It allocates nothing. Results depend on the bytes alone and not
/// on how they were split. A copy taken before a call parses the same bytes again.
///
/// ```
/// use sherwood_wire::memcached::Limits;
/// use sherwood_wire::memcached::binary::{Command, Event, Parser};
/// let mut parser = Parser::new(Limits { value_bytes_max: 1024 });
/// let mut no_op = [0; 24];
/// (no_op[0], no_op[1]) = (0x80, 0x0a);
/// let parsed = parser.parse(&no_op);
/// assert!(matches!(parsed.event, Event::Request(request) if request.command == Command::NoOp));
/// assert_eq!(parser.parse(&no_op[..1]).event, Event::Incomplete { need: 24 });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    limits: Limits,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next byte begins a frame.
    Frame,
    /// So many of the next bytes belong to a frame that was refused.
    Skip { bytes: u32 },
    /// Nothing can be parsed any more.
    Lost,
}

/// A frame that is not a valid request of its command: refused, and the connection is closed.
struct Malformed;

impl Parser {
    /// Makes a parser for the bytes of a new connection.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, state: State::Frame }
    }

    /// Parses one request at the start of `buf`, which has all bytes that were not consumed so far.
    #[inline]
    pub fn parse<'a>(&mut self, buf: &'a [u8]) -> Parsed<'a> {
        if let State::Frame = self.state {
            return self.frame(buf);
        }
        let skipped = self.skip(buf);
        let rest = &buf[skipped..];
        if rest.is_empty() {
            return Parsed { consumed: skipped, event: Event::Incomplete { need: 1 } };
        }
        let Parsed { consumed, event } = self.frame(rest);
        Parsed { consumed: skipped + consumed, event }
    }

    /// Returns the number of bytes of `buf` to skip.
    fn skip(&mut self, buf: &[u8]) -> usize {
        match self.state {
            State::Frame => 0,
            State::Skip { bytes } => {
                let skipped = buf.len().min(bytes as usize);
                let left = bytes - skipped as u32;
                self.state = if left == 0 { State::Frame } else { State::Skip { bytes: left } };
                skipped
            }
            State::Lost => buf.len(),
        }
    }

    #[inline]
    fn frame<'a>(&mut self, buf: &'a [u8]) -> Parsed<'a> {
        match buf.first() {
            None => return incomplete(1),
            Some(&REQUEST) => {}
            Some(_) => {
                self.state = State::Lost;
                return Parsed { consumed: buf.len(), event: Event::Lost };
            }
        }
        let Some(header) = Header::of(buf) else { return incomplete(HEADER_BYTES) };
        let Some(value_bytes) = header.value_bytes() else {
            return self.closing(header.echo, Status::UnknownCommand);
        };
        let (loud, quiet) = opcode::loud(header.echo.opcode);
        if header.key > KEY_BYTES_MAX {
            return self.closing(header.echo, Status::InvalidArguments);
        }
        if let Some(verb) = verb(loud, header.cas) {
            return self.storage(buf, header, quiet, verb, value_bytes);
        }
        if let Some(status) = refusal(loud, &header, value_bytes) {
            return self.skipping(header, status);
        }
        if value_bytes > 0 && !is_login(loud) {
            return self.closing(header.echo, Status::InvalidArguments);
        }
        let Some(body) = buf.get(HEADER_BYTES..header.frame_bytes()) else {
            return incomplete(header.frame_bytes());
        };
        let (extras, rest) = body.split_at(header.extras);
        let (key, value) = rest.split_at(header.key);
        match command(loud, extras, key, value) {
            Ok(command) => request(header.frame_bytes(), header, quiet, command),
            Err(Malformed) => self.closing(header.echo, Status::InvalidArguments),
        }
    }

    /// Parses a storage command, whose value is skipped if it is over the limit.
    #[inline]
    fn storage<'a>(
        &mut self,
        buf: &'a [u8],
        header: Header,
        quiet: bool,
        verb: StorageVerb,
        value_bytes: u32,
    ) -> Parsed<'a> {
        let joins = matches!(verb, StorageVerb::Append | StorageVerb::Prepend);
        if header.key == 0 || header.extras != if joins { 0 } else { STORE_EXTRAS } {
            return self.closing(header.echo, Status::InvalidArguments);
        }
        let start = HEADER_BYTES + header.extras + header.key;
        let fits = value_bytes <= self.limits.value_bytes_max;
        let end = if fits { start + value_bytes as usize } else { start };
        let Some(frame) = buf.get(..end) else { return incomplete(end) };
        let (key, value) = (&frame[HEADER_BYTES + header.extras..start], &frame[start..]);
        if !fits {
            self.state = State::Skip { bytes: value_bytes };
            return request(end, header, quiet, Command::TooLarge { verb, key });
        }
        let extras = &frame[HEADER_BYTES..];
        let (flags, exptime) = if joins { (0, 0) } else { (number(extras), number(&extras[4..])) };
        let storage = Storage { verb, key, flags, exptime: seconds(exptime), value, noreply: quiet };
        request(end, header, quiet, Command::Storage(storage))
    }

    /// Refuses a frame whose header was consumed, and skips its body.
    fn skipping<'a>(&mut self, header: Header, status: Status) -> Parsed<'a> {
        if header.body > 0 {
            self.state = State::Skip { bytes: header.body };
        }
        Parsed { consumed: HEADER_BYTES, event: Event::Refused { echo: header.echo, status, close: false } }
    }

    /// Refuses a frame after which the connection closes.
    fn closing<'a>(&mut self, echo: Echo, status: Status) -> Parsed<'a> {
        self.state = State::Lost;
        Parsed { consumed: HEADER_BYTES, event: Event::Refused { echo, status, close: true } }
    }
}

fn incomplete<'a>(need: usize) -> Parsed<'a> {
    Parsed { consumed: 0, event: Event::Incomplete { need } }
}

#[inline]
fn request<'a>(consumed: usize, header: Header, quiet: bool, command: Command<'a>) -> Parsed<'a> {
    let request = Request { echo: header.echo, quiet, cas: header.cas, command };
    Parsed { consumed, event: Event::Request(request) }
}

/// Returns the operation of a storage command; none for other commands.
#[inline]
fn verb(loud: u8, cas: u64) -> Option<StorageVerb> {
    Some(match loud {
        opcode::SET | opcode::ADD | opcode::REPLACE if cas != 0 => StorageVerb::Cas(cas),
        opcode::SET => StorageVerb::Set,
        opcode::ADD => StorageVerb::Add,
        opcode::REPLACE => StorageVerb::Replace,
        opcode::APPEND => StorageVerb::Append,
        opcode::PREPEND => StorageVerb::Prepend,
        _ => return None,
    })
}

/// Returns the error of a frame that is refused without closing the connection.
fn refusal(loud: u8, header: &Header, value_bytes: u32) -> Option<Status> {
    match loud {
        _ if is_login(loud) => {
            let too_long = header.key > MECHANISM_BYTES_MAX || value_bytes as usize > LOGIN_BYTES_MAX;
            too_long.then_some(Status::InvalidArguments)
        }
        opcode::GET..=opcode::GATQ | opcode::SASL_MECHANISMS | opcode::GATK | opcode::GATKQ => None,
        _ => Some(Status::UnknownCommand),
    }
}

/// Returns true for the commands, other than those that store, which have a value.
fn is_login(loud: u8) -> bool {
    matches!(loud, opcode::SASL_AUTH | opcode::SASL_STEP)
}

/// Reads a command that is no storage command from the fields of its frame, which have a value
/// only if the command is a login.
#[inline]
fn command<'a>(loud: u8, extras: &'a [u8], key: &'a [u8], value: &'a [u8]) -> Result<Command<'a>, Malformed> {
    Ok(match (loud, extras.len(), key.is_empty()) {
        (opcode::GET | opcode::GETK, 0, false) => {
            Command::Get { key, with_key: loud == opcode::GETK, touch: None }
        }
        (opcode::GAT | opcode::GATK, NUMBER_EXTRAS, false) => {
            Command::Get { key, with_key: loud == opcode::GATK, touch: Some(seconds(number(extras))) }
        }
        (opcode::TOUCH, NUMBER_EXTRAS, false) => Command::Touch { key, exptime: seconds(number(extras)) },
        (opcode::DELETE, 0, false) => Command::Delete { key },
        (opcode::INCREMENT | opcode::DECREMENT, COUNT_EXTRAS, false) => {
            let (by, exptime) = (long(extras), number(&extras[16..]));
            let delta = if loud == opcode::INCREMENT { Delta::Increase(by) } else { Delta::Decrease(by) };
            let create = (exptime != CREATES_NOTHING).then(|| seconds(exptime));
            Command::Arithmetic { key, delta, initial: long(&extras[8..]), create }
        }
        (opcode::FLUSH, 0, true) => Command::Flush { delay: Exptime(0) },
        (opcode::FLUSH, NUMBER_EXTRAS, true) => Command::Flush { delay: seconds(number(extras)) },
        (opcode::STAT, 0, _) => Command::Stat { group: key },
        (opcode::NOOP, 0, true) => Command::NoOp,
        (opcode::VERSION, 0, true) => Command::Version,
        (opcode::VERBOSITY, NUMBER_EXTRAS, true) => Command::Verbosity,
        (opcode::QUIT, 0, true) => Command::Quit,
        (opcode::SASL_MECHANISMS, 0, true) => Command::SaslMechanisms,
        (opcode::SASL_AUTH, 0, false) => Command::SaslAuth { mechanism: key, data: value },
        (opcode::SASL_STEP, 0, false) => Command::SaslStep { mechanism: key, data: value },
        _ => return Err(Malformed),
    })
}

/// The number in the first four bytes of `extras`, whose length was checked; 0 if there are fewer.
#[inline]
fn number(extras: &[u8]) -> u32 {
    extras.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The number in the first eight bytes of `extras`, as [`number`].
fn long(extras: &[u8]) -> u64 {
    extras.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The expiry time of a request. It has no sign: numbers above 30 days are Unix times.
#[inline]
fn seconds(number: u32) -> Exptime {
    Exptime(number.into())
}
