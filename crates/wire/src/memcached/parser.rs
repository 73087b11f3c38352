//! Parses received bytes into memcached commands, one step at a time.
//!
//! A connection's bytes arrive in arbitrary pieces, so the parser is a state machine: it receives
//! all bytes that are not consumed yet and consumes complete commands. The result depends on the
//! bytes alone and not on how they were split: every limit counts bytes from the start of a line.

use super::command::{Command, Delta, Keys, Refusal, Retrieval, Storage, StorageVerb};
use super::line::{Words, flags, signed, split_word, unsigned, without_return};
use super::meta::{self, Meta, MetaRefusal, MetaVerb};
use super::{Exptime, KEY_BYTES_MAX, KEYS_BYTES_MAX, LINE_BYTES_MAX};

/// The two bytes that end a value.
const LINE_END: &[u8] = b"\r\n";
/// Greatest announced length of a value that is accepted; one over the configured limit is skipped.
/// The bound is memcached's.
const ANNOUNCED_BYTES_MAX: u64 = i32::MAX as u64 - 2;

/// Least number of bytes on a line that can be the name of a command.
const NAME_BYTES_MIN: usize = 2;

/// The bounds of what a memcached server buffers for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest value in bytes that a client may store.
    pub value_bytes_max: u32,
}

impl Limits {
    /// The buffer size in bytes that is enough to parse any command: the longest line with the
    /// longest value, or a piece of a key list.
    #[must_use]
    pub const fn buffer_bytes_max(self) -> usize {
        let storage = LINE_BYTES_MAX + LINE_END.len() + self.value_bytes_max as usize + LINE_END.len();
        if storage > KEYS_BYTES_MAX { storage } else { KEYS_BYTES_MAX }
    }
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
    /// The command is incomplete: pass the rest of the buffer again once it holds `need` bytes or
    /// more, at most [`Limits::buffer_bytes_max`].
    Incomplete {
        /// Number of bytes from the first one not consumed; always more than there are.
        need: usize,
    },
    /// A command to execute.
    Command(Command<'a>),
    /// The bytes are not a command.
    Refused {
        /// The reason for the refusal, which determines the answer.
        refusal: Refusal,
        /// True if no answer is written.
        noreply: bool,
        /// True if the connection is closed after the answer.
        close: bool,
    },
}

/// Parses the commands of one connection.
///
/// Call [`parse`](Self::parse) with all bytes that are not consumed, remove those it has consumed,
/// and repeat until it needs more. It allocates nothing. Each call reads the line at the start of
/// the buffer a small constant number of times, and no bytes of a value. A line that arrives in
/// pieces is read again from its start with each piece, at most [`KEYS_BYTES_MAX`] of it.
///
/// ```
/// use sherwood_wire::memcached::{Command, Event, Limits, Parser};
/// let mut parser = Parser::new(Limits { value_bytes_max: 1024 });
/// let buffer = b"get a\r\nversi";
/// let first = parser.parse(buffer);
/// assert!(matches!(first.event, Event::Command(Command::Retrieval(get)) if get.keys.eq([b"a"])));
/// let second = parser.parse(&buffer[first.consumed..]);
/// assert_eq!((second.consumed, second.event), (0, Event::Incomplete { need: 6 }));
/// ```
#[derive(Clone, Debug)]
pub struct Parser {
    limits: Limits,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next byte begins a command.
    Line,
    /// The next byte is within the key list of a `get` command.
    Keys { cas: bool, touch: Option<Exptime> },
    /// The next bytes belong to a value that is skipped.
    Skip { bytes: u64 },
    /// The next bytes belong to a line that is skipped.
    SkipLine,
    /// The connection's last line had no end, so that nothing can be parsed any more.
    Lost,
}

impl Parser {
    /// Makes a parser for the bytes of a new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Line }
    }

    /// Parses one command, or a piece of a key list, at the start of `buf`, which has all bytes
    /// that were not consumed so far.
    pub fn parse<'a>(&mut self, buf: &'a [u8]) -> Parsed<'a> {
        let skipped = self.skip(buf);
        let rest = &buf[skipped..];
        if rest.is_empty() {
            return incomplete(skipped, 1);
        }
        let step = match self.state {
            State::Line => self.line(rest),
            State::Keys { cas, touch } => self.more_keys(rest, cas, touch),
            State::Skip { .. } | State::SkipLine | State::Lost => incomplete(0, rest.len() + 1),
        };
        Parsed { consumed: skipped + step.consumed, event: step.event }
    }

    /// Returns the number of bytes of `buf` to skip: those of a refused value or line.
    fn skip(&mut self, buf: &[u8]) -> usize {
        match self.state {
            State::Line | State::Keys { .. } => 0,
            State::Skip { bytes } => {
                let skipped = usize::try_from(bytes).unwrap_or(usize::MAX).min(buf.len());
                let left = bytes - skipped as u64;
                self.state = if left == 0 { State::Line } else { State::Skip { bytes: left } };
                skipped
            }
            State::SkipLine => match memchr::memchr(b'\n', buf) {
                Some(end) => {
                    self.state = State::Line;
                    end + 1
                }
                None => buf.len(),
            },
            State::Lost => buf.len(),
        }
    }

    fn line<'a>(&mut self, rest: &'a [u8]) -> Parsed<'a> {
        let window = Window::of(rest);
        match (Getter::of(window.text), window.end) {
            (Some((getter, words)), Some(end)) => getter.whole(words, end),
            (Some((getter, words)), None) if window.is_full() => {
                self.first_keys(getter, words, window.text.len())
            }
            (Some(_), None) => incomplete(0, rest.len() + 1),
            (None, Some(end)) if end <= LINE_BYTES_MAX + 1 => self.command(window.text, rest, end),
            (None, None) if rest.len() <= LINE_BYTES_MAX => incomplete(0, rest.len() + 1),
            (None, _) => self.lost(rest.len()),
        }
    }

    /// Refuses a line that is too long, after which nothing can be parsed any more. As in memcached
    /// there is no answer: such a line hardly comes from a client.
    fn lost<'a>(&mut self, consumed: usize) -> Parsed<'a> {
        self.state = State::Lost;
        Parsed {
            consumed,
            event: Event::Refused { refusal: Refusal::LineTooLong, noreply: true, close: true },
        }
    }

    /// Reads the first piece of a key list that does not fit into the first `window` bytes. `words`
    /// follow the command's name in these bytes.
    fn first_keys<'a>(&mut self, getter: Getter, words: &'a [u8], window: usize) -> Parsed<'a> {
        let (touch, keys) = if getter.touch {
            match split_word(words) {
                Some((exptime, keys)) if !keys.is_empty() => match signed(exptime) {
                    Some(secs) => (Some(Exptime(secs)), keys),
                    None => return self.refuse_line(window, Refusal::BadExptime),
                },
                _ => return self.lost(window),
            }
        } else {
            (None, words)
        };
        self.piece(keys, window, getter.cas, touch)
    }

    fn more_keys<'a>(&mut self, rest: &'a [u8], cas: bool, touch: Option<Exptime>) -> Parsed<'a> {
        let window = Window::of(rest);
        match window.end {
            Some(end) => {
                self.state = State::Line;
                retrieval(window.text, end, cas, touch, true)
            }
            None if window.is_full() => self.piece(window.text, window.text.len(), cas, touch),
            None => incomplete(0, rest.len() + 1),
        }
    }

    /// Returns the complete keys in `text` as one piece of a key list; `text` ends the first
    /// `window` bytes of the line.
    fn piece<'a>(&mut self, text: &'a [u8], window: usize, cas: bool, touch: Option<Exptime>) -> Parsed<'a> {
        let (keys, cut) = text.split_at(memchr::memrchr(b' ', text).map_or(0, |space| space + 1));
        // A key of the greatest length and a carriage return may still be valid; more cannot.
        if cut.len() > KEY_BYTES_MAX + 1 || !are_keys(keys) {
            return self.refuse_line(window, Refusal::BadFormat);
        }
        self.state = State::Keys { cas, touch };
        retrieval(keys, window - cut.len(), cas, touch, false)
    }

    /// Refuses a line whose end has not been received, and skips its rest.
    fn refuse_line<'a>(&mut self, consumed: usize, refusal: Refusal) -> Parsed<'a> {
        self.state = State::SkipLine;
        refuse(consumed, refusal, false)
    }

    /// Parses the command on the line `text`. If it has a value, that begins at `end` of `rest`,
    /// the bytes not consumed.
    fn command<'a>(&mut self, text: &'a [u8], rest: &'a [u8], end: usize) -> Parsed<'a> {
        if let Some((name, after)) = meta::Name::of(text) {
            return self.meta(name, after, rest, end);
        }
        let words = Words::of(text);
        let verb = match words.get(0) {
            b"set" => StorageVerb::Set,
            b"add" => StorageVerb::Add,
            b"replace" => StorageVerb::Replace,
            b"append" => StorageVerb::Append,
            b"prepend" => StorageVerb::Prepend,
            b"cas" => StorageVerb::Cas(0),
            _ => return one_line(&words, text, end),
        };
        self.storage(verb, &words, rest, end)
    }

    /// Parses a meta command; `words` follow its name on the line. Its value begins at `end` of
    /// `rest`.
    fn meta<'a>(&mut self, name: meta::Name, words: &'a [u8], rest: &'a [u8], end: usize) -> Parsed<'a> {
        let Some((sent, after)) = split_word(words) else {
            return refuse(end, Refusal::Meta(MetaRefusal::BadFormat), false);
        };
        let parse = |flags| match key(sent) {
            None if sent.len() <= KEY_BYTES_MAX => Err(MetaRefusal::BadFormat),
            _ => name.meta(sent, flags),
        };
        if name != meta::Name::Set {
            return match parse(after) {
                Ok(meta) => found(end, Command::Meta(meta)),
                Err(refusal) => refuse(end, Refusal::Meta(refusal), false),
            };
        }
        let length = split_word(after).and_then(|(bytes, flags)| Some((unsigned(bytes)?, flags)));
        let Some((bytes, flags)) = length.filter(|&(bytes, _)| bytes <= ANNOUNCED_BYTES_MAX) else {
            return refuse(end, Refusal::Meta(MetaRefusal::BadFormat), false);
        };
        match parse(flags) {
            Ok(meta) => self.meta_set(meta, bytes, rest, end),
            Err(refusal) => {
                self.state = State::Skip { bytes: bytes + LINE_END.len() as u64 };
                refuse(end, Refusal::Meta(refusal), false)
            }
        }
    }

    /// Parses the value of the `ms` command `meta`, which has `bytes` bytes and begins at `end` of
    /// `rest`.
    fn meta_set<'a>(&mut self, meta: Meta<'a>, bytes: u64, rest: &'a [u8], end: usize) -> Parsed<'a> {
        if bytes > u64::from(self.limits.value_bytes_max) {
            self.state = State::Skip { bytes: bytes + LINE_END.len() as u64 };
            return found(end, Command::Meta(Meta { verb: MetaVerb::TooLarge, ..meta }));
        }
        let block_end = end + bytes as usize + LINE_END.len();
        match Block::of(rest, end, block_end) {
            Block::Value(value) => found(block_end, Command::Meta(meta.with_value(value))),
            Block::Bad => refuse(block_end, Refusal::BadChunk, false),
            Block::Incomplete { need } => incomplete(0, need),
        }
    }

    fn storage<'a>(
        &mut self,
        verb: StorageVerb,
        words: &Words<'a>,
        rest: &'a [u8],
        end: usize,
    ) -> Parsed<'a> {
        let noreply = words.noreply();
        // Without a length the value cannot be skipped. Words after the needed ones are ignored.
        let Some(bytes) = unsigned(words.get(4)).filter(|&bytes| bytes <= ANNOUNCED_BYTES_MAX) else {
            return refuse(end, Refusal::BadFormat, noreply);
        };
        let Some(header) = Header::of(verb, words) else {
            self.state = State::Skip { bytes: bytes + LINE_END.len() as u64 };
            return refuse(end, Refusal::BadFormat, noreply);
        };
        let Header { verb, key, flags, exptime } = header;
        if bytes > u64::from(self.limits.value_bytes_max) {
            self.state = State::Skip { bytes: bytes + LINE_END.len() as u64 };
            return found(end, Command::TooLarge { verb, key, noreply });
        }
        let block_end = end + bytes as usize + LINE_END.len();
        match Block::of(rest, end, block_end) {
            Block::Value(value) => {
                let storage = Storage { verb, key, flags, exptime, value, noreply };
                found(block_end, Command::Storage(storage))
            }
            Block::Bad => refuse(block_end, Refusal::BadChunk, noreply),
            Block::Incomplete { need } => incomplete(0, need),
        }
    }
}

/// The value of a storage command, as far as it has been received.
enum Block<'a> {
    /// The complete value, without its line end.
    Value(&'a [u8]),
    /// The value has another length than announced.
    Bad,
    /// The value has not arrived completely; `need` bytes of the buffer are needed.
    Incomplete { need: usize },
}

impl<'a> Block<'a> {
    /// Takes a value and its line end from the bytes `start` to `end` of `rest`, the bytes not
    /// consumed.
    fn of(rest: &'a [u8], start: usize, end: usize) -> Self {
        match rest.get(start..end).map(|block| block.strip_suffix(LINE_END)) {
            Some(Some(value)) => Self::Value(value),
            Some(None) => Self::Bad,
            None => Self::Incomplete { need: end },
        }
    }
}

/// The first line in a buffer, or its first [`KEYS_BYTES_MAX`] bytes if it is longer or incomplete.
struct Window<'a> {
    /// The line without its end.
    text: &'a [u8],
    /// The start of the next line; none if the line has no end within these bytes.
    end: Option<usize>,
}

impl<'a> Window<'a> {
    fn of(buf: &'a [u8]) -> Self {
        let window = &buf[..buf.len().min(KEYS_BYTES_MAX)];
        match memchr::memchr(b'\n', window) {
            Some(at) => Self { text: without_return(&window[..at]), end: Some(at + 1) },
            None => Self { text: window, end: None },
        }
    }

    fn is_full(&self) -> bool {
        self.text.len() == KEYS_BYTES_MAX
    }
}

/// A command that looks up a list of keys: `get`, `gets`, `gat` or `gats`.
#[derive(Clone, Copy)]
struct Getter {
    cas: bool,
    touch: bool,
}

impl Getter {
    /// Splits a line into the name of a command with a key list and the text after it; none for
    /// other commands. Only the first [`LINE_BYTES_MAX`] bytes are searched for the name, so that
    /// the result does not depend on how much of the line has arrived.
    fn of(text: &[u8]) -> Option<(Self, &[u8])> {
        // A fast path for the most frequent command; the code below gives the same result.
        if text.starts_with(b"get ") {
            return Some((Self { cas: false, touch: false }, &text[b"get".len()..]));
        }
        let head = &text[..text.len().min(LINE_BYTES_MAX)];
        let (name, after) = split_word(head).filter(|(_, after)| !after.is_empty())?;
        let getter = match name {
            b"get" => Self { cas: false, touch: false },
            b"gets" => Self { cas: true, touch: false },
            b"gat" => Self { cas: false, touch: true },
            b"gats" => Self { cas: true, touch: true },
            _ => return None,
        };
        Some((getter, &text[head.len() - after.len()..]))
    }

    /// Parses the command from the `words` after its name, when its line is complete and ends
    /// before `end`.
    fn whole(self, words: &[u8], end: usize) -> Parsed<'_> {
        if !self.touch {
            return self.some_keys(words, None, end);
        }
        match split_word(words).filter(|(_, keys)| !keys.is_empty()) {
            None => refuse(end, Refusal::BadFormat, false),
            Some((exptime, keys)) => match signed(exptime) {
                Some(secs) => self.some_keys(keys, Some(Exptime(secs)), end),
                None => refuse(end, Refusal::BadExptime, false),
            },
        }
    }

    fn some_keys(self, keys: &[u8], touch: Option<Exptime>, end: usize) -> Parsed<'_> {
        match keys.iter().all(|&byte| byte == b' ') {
            true => refuse(end, Refusal::BadFormat, false),
            false => retrieval(keys, end, self.cas, touch, true),
        }
    }
}

fn retrieval(keys: &[u8], consumed: usize, cas: bool, touch: Option<Exptime>, last: bool) -> Parsed<'_> {
    if are_keys(keys) {
        found(consumed, Command::Retrieval(Retrieval { keys: Keys(keys), cas, touch, last }))
    } else {
        refuse(consumed, Refusal::BadFormat, false)
    }
}

/// The words of a storage command before the length of its value.
struct Header<'a> {
    verb: StorageVerb,
    key: &'a [u8],
    flags: u32,
    exptime: Exptime,
}

impl<'a> Header<'a> {
    fn of(verb: StorageVerb, words: &Words<'a>) -> Option<Self> {
        let verb = match verb {
            StorageVerb::Cas(_) => StorageVerb::Cas(unsigned(words.get(5))?),
            other => other,
        };
        let exptime = Exptime(signed(words.get(3))?);
        Some(Self { verb, key: key(words.get(1))?, flags: flags(words.get(2))?, exptime })
    }
}

/// Parses a command that is one line and lists no keys; the line ends before `end`.
fn one_line<'a>(words: &Words<'a>, text: &'a [u8], end: usize) -> Parsed<'a> {
    let noreply = words.noreply();
    let command = match (words.get(0), words.count()) {
        (b"incr", 3..) => arithmetic(words, Delta::Increase),
        (b"decr", 3..) => arithmetic(words, Delta::Decrease),
        (b"touch", 3..) => touch(words),
        (b"delete", 2..) => delete(words),
        (b"flush_all", _) => flush_all(words),
        (b"stats", _) => Ok(Command::Stats(split_word(text).map_or(b"", |(_, after)| after.trim_ascii()))),
        (b"version", _) => Ok(Command::Version),
        (b"verbosity", _) => match flags(words.get(1)) {
            Some(_) => Ok(Command::Verbosity { noreply }),
            None => Err(Refusal::BadFormat),
        },
        (b"mn", _) => Ok(Command::MetaNoOp),
        (b"quit", _) => Ok(Command::Quit),
        // An HTTP request, which a website can make a browser send: its body must not be executed
        // as commands, nor answered.
        (_, 2..) if words.get(words.count() - 1).starts_with(b"HTTP/") => {
            let event = Event::Refused { refusal: Refusal::Unknown, noreply: true, close: true };
            return Parsed { consumed: end, event };
        }
        (b"incr" | b"decr" | b"touch" | b"delete" | b"get" | b"gets" | b"gat" | b"gats", _) => {
            Err(Refusal::BadFormat)
        }
        _ if text.len() < NAME_BYTES_MIN => Err(Refusal::BadFormat),
        _ => return refuse(end, Refusal::Unknown, false),
    };
    match command {
        Ok(command) => found(end, command),
        Err(refusal) => refuse(end, refusal, noreply),
    }
}

fn arithmetic<'a>(words: &Words<'a>, delta: impl Fn(u64) -> Delta) -> Result<Command<'a>, Refusal> {
    let key = key(words.get(1)).ok_or(Refusal::BadFormat)?;
    let by = unsigned(words.get(2)).ok_or(Refusal::BadDelta)?;
    Ok(Command::Arithmetic { key, delta: delta(by), noreply: words.noreply() })
}

fn touch<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    let key = key(words.get(1)).ok_or(Refusal::BadFormat)?;
    let exptime = Exptime(signed(words.get(2)).ok_or(Refusal::BadExptime)?);
    Ok(Command::Touch { key, exptime, noreply: words.noreply() })
}

fn delete<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    let allowed = match words.count() {
        2 => true,
        3 => matches!(words.get(2), b"0" | b"noreply"),
        4 => words.get(2) == b"0" && words.noreply(),
        _ => false,
    };
    if !allowed {
        return Err(Refusal::BadDelete);
    }
    let key = key(words.get(1)).ok_or(Refusal::BadFormat)?;
    Ok(Command::Delete { key, noreply: words.count() > 2 && words.noreply() })
}

fn flush_all<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    let noreply = words.noreply();
    let delay = match words.get(1) {
        b"" | b"noreply" => 0,
        word => signed(word).ok_or(Refusal::BadExptime)?,
    };
    Ok(Command::FlushAll { delay: Exptime(delay), noreply })
}

/// Returns a word that can be a key, which may contain any byte but a space, a line feed and a zero
/// byte; none for other words.
fn key(word: &[u8]) -> Option<&[u8]> {
    (!word.is_empty() && are_keys(word)).then_some(word)
}

fn are_keys(keys: &[u8]) -> bool {
    let short = keys.len() <= KEY_BYTES_MAX || Keys(keys).all(|key| key.len() <= KEY_BYTES_MAX);
    short && memchr::memchr(0, keys).is_none()
}

fn found(consumed: usize, command: Command<'_>) -> Parsed<'_> {
    Parsed { consumed, event: Event::Command(command) }
}

fn refuse<'a>(consumed: usize, refusal: Refusal, noreply: bool) -> Parsed<'a> {
    Parsed { consumed, event: Event::Refused { refusal, noreply, close: false } }
}

fn incomplete<'a>(consumed: usize, need: usize) -> Parsed<'a> {
    Parsed { consumed, event: Event::Incomplete { need } }
}

#[cfg(test)]
mod tests;
