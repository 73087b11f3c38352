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
/// Bytes of extras that consist of one number: an expiry time, or the level of `verbosity`.
const NUMBER_EXTRAS: usize = 4;
/// Expiry time with which an `increment` or `decrement` does not create a missing item.
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
        /// Number of bytes from the first one not consumed; always more than were passed.
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
/// Call [`parse`](Self::parse) with all bytes not consumed yet, remove the bytes that it has
/// consumed, and repeat until it needs more. It does not allocate memory. Results do not depend on
/// how the bytes were split over calls. A copy of the parser taken before a call can parse the same
/// bytes again.
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
    /// The next `bytes` bytes belong to a refused frame and are skipped.
    Skip { bytes: u32 },
    /// The start of the next frame is unknown, so nothing more is parsed.
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

    /// Parses a storage command. A value over the limit is skipped.
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

    /// Refuses a frame, after which the connection has to be closed.
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

/// Returns the error of a frame that is refused without closing the connection; none if the frame
/// has to be parsed.
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

/// Returns true for the login commands: the only ones with a value besides storage commands.
fn is_login(loud: u8) -> bool {
    matches!(loud, opcode::SASL_AUTH | opcode::SASL_STEP)
}

/// Reads a command other than a storage command from the fields of its frame. Only a login has a
/// `value`.
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

/// Converts the expiry time of a request. It is unsigned; numbers above 30 days are Unix times.
#[inline]
fn seconds(number: u32) -> Exptime {
    Exptime(number.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { value_bytes_max: 8 };

    /// A frame whose header announces `body` bytes.
    fn announced(opcode: u8, extras: &[u8], key: &[u8], rest: &[u8], body: u32) -> Vec<u8> {
        let echo = Echo { opcode, opaque: *b"opaq" };
        let header = Header { echo, status: 0, key: key.len(), extras: extras.len(), body, cas: 0 };
        [&header.bytes(REQUEST)[..], extras, key, rest].concat()
    }

    fn frame(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        announced(opcode, extras, key, value, (extras.len() + key.len() + value.len()) as u32)
    }

    /// Parses all of `bytes`, which arrive in pieces of `piece` bytes.
    fn events(bytes: &[u8], piece: usize) -> Vec<String> {
        let mut parser = Parser::new(LIMITS);
        let (mut start, mut end, mut events) = (0, 0, Vec::new());
        loop {
            let Parsed { consumed, event } = parser.parse(&bytes[start..end]);
            start += consumed;
            match event {
                Event::Incomplete { need } => {
                    assert!(need > end - start && need <= frame_bytes_max(LIMITS), "{need}");
                    if end == bytes.len() {
                        return events;
                    }
                    end = bytes.len().min(end + piece);
                }
                event => {
                    assert!(consumed > 0);
                    events.push(format!("{event:?}"));
                }
            }
        }
    }

    fn command_of(bytes: &[u8]) -> Command<'_> {
        match Parser::new(LIMITS).parse(bytes) {
            Parsed { consumed, event: Event::Request(request) } if consumed == bytes.len() => request.command,
            other => panic!("{other:?} of {bytes:?}"),
        }
    }

    fn refused(bytes: &[u8]) -> (Status, bool) {
        match Parser::new(LIMITS).parse(bytes).event {
            Event::Refused { echo, status, close } => {
                assert_eq!(echo.opaque, *b"opaq");
                (status, close)
            }
            other => panic!("{other:?} of {bytes:?}"),
        }
    }

    #[test]
    fn every_binary_command_is_parsed_with_its_fields() {
        let (number, none) = ([0, 0, 1, 44], [255; 4]);
        let exptime = Exptime(300);
        let count = |exptime: [u8; 4]| [&[0, 0, 0, 0, 0, 0, 0, 5][..], &[0; 7], &[9], &exptime].concat();
        let get = |with_key, touch| Command::Get { key: b"k", with_key, touch };
        let add = |create| Command::Arithmetic { key: b"k", delta: Delta::Increase(5), initial: 9, create };
        for (bytes, expected) in [
            (frame(opcode::GETQ, b"", b"k", b""), get(false, None)),
            (frame(opcode::GETKQ, b"", b"k", b""), get(true, None)),
            (frame(opcode::GAT, &number, b"k", b""), get(false, Some(exptime))),
            (frame(opcode::GATKQ, &number, b"k", b""), get(true, Some(exptime))),
            (frame(opcode::TOUCH, &number, b"k", b""), Command::Touch { key: b"k", exptime }),
            (frame(opcode::DELETEQ, b"", b"k", b""), Command::Delete { key: b"k" }),
            (frame(opcode::INCREMENT, &count(number), b"k", b""), add(Some(exptime))),
            (frame(opcode::INCREMENTQ, &count(none), b"k", b""), add(None)),
            (frame(opcode::FLUSH, b"", b"", b""), Command::Flush { delay: Exptime(0) }),
            (frame(opcode::FLUSHQ, &number, b"", b""), Command::Flush { delay: exptime }),
            (frame(opcode::STAT, b"", b"settings", b""), Command::Stat { group: b"settings" }),
            (frame(opcode::NOOP, b"", b"", b""), Command::NoOp),
            (frame(opcode::VERSION, b"", b"", b""), Command::Version),
            (frame(opcode::VERBOSITY, &number, b"", b""), Command::Verbosity),
            (frame(opcode::QUITQ, b"", b"", b""), Command::Quit),
            (frame(opcode::SASL_MECHANISMS, b"", b"", b""), Command::SaslMechanisms),
            (
                frame(opcode::SASL_AUTH, b"", b"PLAIN", b"\0a\0b"),
                Command::SaslAuth { mechanism: b"PLAIN", data: b"\0a\0b" },
            ),
        ] {
            assert_eq!(command_of(&bytes), expected);
        }
        let value = frame(opcode::SETQ, &[0, 0, 0, 7, 0, 0, 1, 44], b"k k", b"a\r\n");
        let Command::Storage(storage) = command_of(&value) else { panic!("no storage command") };
        let expected = Storage {
            verb: StorageVerb::Set,
            key: b"k k",
            flags: 7,
            exptime,
            value: b"a\r\n",
            noreply: true,
        };
        assert_eq!(storage, expected);
    }

    #[test]
    fn set_add_and_replace_with_a_cas_become_conditional_stores() {
        for (number, verb) in [(opcode::SET, true), (opcode::ADDQ, true), (opcode::APPEND, false)] {
            let mut bytes = frame(number, if verb { &[0; 8] } else { b"" }, b"k", b"v");
            bytes[23] = 9;
            let Command::Storage(storage) = command_of(&bytes) else { panic!("no storage command") };
            assert_eq!(storage.verb == StorageVerb::Cas(9), verb, "{storage:?}");
        }
    }

    #[test]
    fn malformed_frame_is_refused_and_closes_the_connection() {
        let long = [b'k'; KEY_BYTES_MAX + 1];
        for bytes in [
            frame(opcode::GET, b"", b"", b""),
            frame(opcode::GET, b"", &long, b""),
            frame(opcode::GET, b"abcd", b"k", b""),
            frame(opcode::GET, b"", b"k", b"v"),
            frame(opcode::GAT, b"", b"k", b""),
            frame(opcode::SET, b"", b"k", b"v"),
            frame(opcode::SET, &[0; 8], b"", b"v"),
            frame(opcode::APPEND, &[0; 8], b"k", b"v"),
            frame(opcode::INCREMENT, &[0; 8], b"k", b""),
            frame(opcode::FLUSH, &[0; 8], b"", b""),
            frame(opcode::NOOP, b"", b"", b"v"),
            frame(opcode::QUIT, b"", b"k", b""),
            frame(opcode::SASL_AUTH, b"", b"", b"v"),
            announced(opcode::GET, b"", b"k", b"", u32::MAX),
        ] {
            assert_eq!(refused(&bytes), (Status::InvalidArguments, true), "{bytes:?}");
        }
        let short = announced(opcode::SET, &[0; 8], b"key", b"", 10);
        assert_eq!(refused(&short), (Status::UnknownCommand, true));
    }

    #[test]
    fn bytes_that_do_not_begin_a_request_end_the_connection_without_an_answer() {
        for bytes in [&b"get a\r\n"[..], &[0x81; 24]] {
            assert_eq!(Parser::new(LIMITS).parse(bytes).event, Event::Lost);
            let mut two = frame(opcode::NOOP, b"", b"", b"");
            two.extend_from_slice(bytes);
            for piece in [1, 1000] {
                let events = events(&two, piece);
                assert!(events.len() == 2 && events[1] == "Lost", "{events:?}");
            }
        }
    }

    #[test]
    fn body_of_a_refused_frame_is_skipped_and_the_next_frame_is_parsed() {
        let no_op = frame(opcode::NOOP, b"", b"", b"");
        for (bytes, expected) in [
            (frame(0x77, b"", b"k", b"value"), "UnknownCommand"),
            (frame(opcode::SASL_AUTH, b"", &[b'X'; 40], b"value"), "InvalidArguments"),
            (frame(opcode::SASL_STEP, b"", b"PLAIN", &[b'x'; LOGIN_BYTES_MAX + 1]), "InvalidArguments"),
            (
                frame(opcode::SET, &[0; 8], b"key", &[b'x'; 900]),
                "TooLarge { verb: Set, key: [107, 101, 121] }",
            ),
        ] {
            let both = [&bytes[..], &no_op].concat();
            for piece in [1, 7, 10_000] {
                let events = events(&both, piece);
                assert!(events.len() == 2, "{events:?}");
                assert!(events[0].contains(expected) && events[1].contains("NoOp"), "{events:?}");
            }
        }
    }

    #[test]
    fn value_over_the_limit_is_reported_from_its_header_before_the_value_arrives() {
        let begun = announced(opcode::ADD, &[0; 8], b"k", b"", u32::MAX);
        let Event::Request(request) = Parser::new(LIMITS).parse(&begun).event else { panic!("not parsed") };
        assert_eq!(request.command, Command::TooLarge { verb: StorageVerb::Add, key: b"k" });
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let opcodes = prop_oneof![4 => 0_u8..0x28, 1 => any::<u8>()];
        let extras = prop::sample::select(vec![0_usize, 0, 4, 8, 8, 20, 3]);
        let made = (opcodes, extras, prop::collection::vec(any::<u8>(), 0..4), 0_usize..20);
        prop_oneof![
            9 => made.prop_map(|(opcode, extras, key, value)| {
                frame(opcode, &vec![1; extras], &key, &vec![b'v'; value])
            }),
            1 => prop::collection::vec(any::<u8>(), 0..40),
        ]
    }

    proptest! {
        #[test]
        fn binary_requests_do_not_depend_on_how_input_is_split(
            pieces in prop::collection::vec(piece(), 0..12),
            cut in 1_usize..60,
        ) {
            let bytes = pieces.concat();
            prop_assert_eq!(events(&bytes, cut), events(&bytes, bytes.len().max(1)));
        }
    }
}
