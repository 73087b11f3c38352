//! Replies of a memcached server, read line by line.

use std::time::Duration;

use bytes::Bytes;
use sherwood_wire::memcached::client::{self, Progress, Reply, ReplyError};
use sherwood_wire::pipeline::{self, Step};

use crate::escape::message_bytes;
use crate::remote::Each;
use crate::remote::pipeline::Exchange;
use crate::{Cause, Found};

/// Most keys on one `get` line. memcached reads lines of any length, but searches for the end from
/// the start with every piece.
pub(super) const KEYS_PER_LINE_MAX: usize = 100;

/// Longest value that memcached can be configured to hold; a longer announced value is an invalid
/// reply.
const ITEM_BYTES_MAX: u64 = 1 << 30;

/// A request in flight to memcached, by the command that was sent.
pub(crate) enum Request {
    /// `get` of some keys, on one or more lines, or `mg` of each.
    Values(Values),
    /// `mg` of a key without its value.
    Exists,
    /// A `set`, answered by an acknowledgement.
    Stored,
    /// A `delete`, answered by an acknowledgement.
    Deleted,
    /// A `version`, answered by the server's version.
    Version,
    /// The `set` by which the connector logs in.
    Login,
}

/// The result of a request to memcached: the values of a `get`, or the text of a `version`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The result of each key of a `get`.
    pub(super) values: Vec<Each>,
    pub(super) text: String,
    /// True if the item asked for exists.
    pub(super) is_there: bool,
}

/// The state of reading the replies to a `get`, or to the `mg` of each key.
pub(crate) struct Values {
    /// The keys of a `get`, whose replies name theirs. Empty for `mg`.
    keys: Vec<Bytes>,
    found: Vec<Each>,
    /// The first position at which the key of the next value is searched for: memcached answers in
    /// the order of the keys, proxies may not.
    next: usize,
    /// `get` lines sent whose reply has not ended yet.
    lines: usize,
    /// Most bytes of one value, and of all values of the `get` together.
    value_bytes_max: u32,
    /// Bytes of the values found so far.
    bytes: u64,
    /// True after the bytes of a skipped value were read, until its line end is read as well.
    skipped: bool,
    /// The failure of the whole `get`, which is returned at the end of its reply.
    failed: Option<Cause>,
}

impl Request {
    pub(super) fn values(keys: Vec<Bytes>, value_bytes_max: u32) -> Self {
        let (found, lines) = (keys.len(), keys.len().div_ceil(KEYS_PER_LINE_MAX));
        Self::of_lines(keys, found, lines, value_bytes_max)
    }

    /// Expects the reply to one `mg` for each key.
    pub(super) fn items(keys: usize, value_bytes_max: u32) -> Self {
        Self::of_lines(Vec::new(), keys, keys, value_bytes_max)
    }

    fn of_lines(keys: Vec<Bytes>, found: usize, lines: usize, value_bytes_max: u32) -> Self {
        Self::Values(Values {
            keys,
            found: vec![Ok(None); found],
            next: 0,
            lines,
            value_bytes_max,
            bytes: 0,
            skipped: false,
            failed: None,
        })
    }
}

impl pipeline::Exchange for Request {
    type Answer = Result<Outcome, Cause>;
    type Error = String;

    fn read(&mut self, input: &[u8]) -> Result<Step<Self::Answer>, String> {
        if let Self::Values(values) = self {
            return values.read(input);
        }
        let (consumed, reply) = match client::parse(input, 0) {
            Ok(Progress::Incomplete { need }) => return Ok(Step::Incomplete(need)),
            Ok(Progress::Reply { consumed, reply }) => (consumed, reply),
            Err(error) => return Err(error.to_string()),
        };
        let outcome = match (self, reply) {
            (Self::Stored | Self::Login, Reply::Stored)
            | (Self::Deleted, Reply::Deleted | Reply::NotFound) => Ok(Outcome::default()),
            (Self::Exists, reply @ (Reply::MetaDone | Reply::MetaMiss)) => {
                Ok(Outcome { is_there: reply == Reply::MetaDone, ..Outcome::default() })
            }
            (Self::Version, Reply::Version(text)) => {
                Ok(Outcome { text: message_bytes(text), ..Outcome::default() })
            }
            // On a server without authentication it is an ordinary `set`, which may be refused for
            // its size or for lack of memory.
            (Self::Login, Reply::ClientError(text)) => {
                Err(Cause::Credentials { detail: message_bytes(text) })
            }
            (Self::Stored, Reply::ServerError(text)) => Err(not_stored(text)),
            (_, reply) => Err(refusal(&reply).ok_or_else(|| unexpected(&reply))?),
        };
        Ok(Step::Done(consumed, outcome))
    }
}

impl Exchange for Request {
    type Outcome = Outcome;

    const PROTOCOL: &'static str = "the memcached protocol";

    /// The cause in bytes that arrived without a request: a server at its connection limit sends an
    /// error at once and closes the connection.
    fn unsolicited(input: &[u8]) -> Option<Cause> {
        match client::parse(input, 0) {
            Ok(Progress::Reply { reply, .. }) => refusal(&reply),
            _ => None,
        }
    }
}

impl Values {
    fn read(&mut self, input: &[u8]) -> Result<Step<Result<Outcome, Cause>>, String> {
        if self.skipped {
            return self.end_of_skipped(input);
        }
        let (consumed, reply) = match client::parse(input, self.value_bytes_max) {
            Ok(Progress::Incomplete { need }) => return Ok(Step::Incomplete(need)),
            Ok(Progress::Reply { consumed, reply }) => (consumed, reply),
            Err(ReplyError::ValueTooLarge { bytes, bytes_max }) if bytes <= ITEM_BYTES_MAX => {
                let line = input.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                let at = match self.keys.is_empty() {
                    true => self.next_item()?,
                    false => {
                        self.place(input[..line].split(|&byte| byte == b' ').nth(1).unwrap_or_default())?
                    }
                };
                self.found[at] = Err(Cause::TooLarge { bytes_max: bytes_max.into() });
                self.skipped = true;
                return Ok(Step::Used(line + bytes as usize));
            }
            Err(error) => return Err(error.to_string()),
        };
        match reply {
            Reply::Value { key, flags, value, .. } if !self.keys.is_empty() => {
                let at = self.place(key)?;
                self.value(at, value, flags, None);
            }
            Reply::End if !self.keys.is_empty() => self.lines -= 1,
            Reply::MetaValue { value, flags, remaining_s } => {
                let at = self.next_item()?;
                self.value(at, value, flags, remaining_s.map(Duration::from_secs));
            }
            Reply::MetaMiss => _ = self.next_item()?,
            reply => {
                // An error in place of the values and the `END` of one line.
                let cause = refusal(&reply).ok_or_else(|| unexpected(&reply))?;
                self.failed.get_or_insert(cause);
                self.lines -= 1;
            }
        }
        Ok(self.after(consumed))
    }

    /// The step after `consumed` bytes: the next line, or the end of the reply.
    fn after(&mut self, consumed: usize) -> Step<Result<Outcome, Cause>> {
        if self.lines > 0 {
            return Step::Used(consumed);
        }
        let values = std::mem::take(&mut self.found);
        let outcome = Outcome { values, ..Outcome::default() };
        Step::Done(consumed, self.failed.take().map_or(Ok(outcome), Err))
    }

    /// Reads the line end of a value that was skipped.
    fn end_of_skipped(&mut self, input: &[u8]) -> Result<Step<Result<Outcome, Cause>>, String> {
        let Some(end) = input.get(..LINE_END.len()) else { return Ok(Step::Incomplete(LINE_END.len())) };
        if end != LINE_END {
            return Err("a value that is longer or shorter than it announced".to_owned());
        }
        self.skipped = false;
        Ok(self.after(LINE_END.len()))
    }

    fn value(&mut self, at: usize, value: &[u8], flags: u32, good_for: Option<Duration>) {
        let bytes = self.bytes + value.len() as u64;
        self.found[at] = if bytes > self.value_bytes_max.into() {
            Err(Cause::TooLarge { bytes_max: self.value_bytes_max.into() })
        } else {
            self.bytes = bytes;
            Ok(Some(Found { flags, good_for, ..Found::from(Bytes::copy_from_slice(value)) }))
        };
    }

    /// Returns the position of the item that the next reply to an `mg` is about.
    fn next_item(&mut self) -> Result<usize, String> {
        if !self.keys.is_empty() {
            return Err("the reply to an `mg` in place of that to a `get`".to_owned());
        }
        let at = self.next;
        (self.next, self.lines) = (at + 1, self.lines - 1);
        Ok(at)
    }

    /// Finds the position of a value's key among the requested keys: the next equal key without a
    /// value.
    fn place(&mut self, key: &[u8]) -> Result<usize, String> {
        let asked = |at: &usize| self.keys[*at] == key && self.found[*at] == Ok(None);
        let place = (self.next..self.keys.len()).chain(0..self.next).find(asked);
        let at =
            place.ok_or_else(|| format!("a value of {:?}, which was not asked for", message_bytes(key)))?;
        self.next = at + 1;
        Ok(at)
    }
}

/// The line end after a value.
const LINE_END: &[u8] = b"\r\n";

/// The cause of a reply that is an error; none if it is another reply.
pub(super) fn refusal(reply: &Reply<'_>) -> Option<Cause> {
    Some(match reply {
        Reply::ClientError(text)
            if text.starts_with(b"unauthenticated") || text.starts_with(b"authentication") =>
        {
            Cause::Credentials { detail: message_bytes(text) }
        }
        Reply::Error(text) if text.starts_with(b"Too many open connections") => {
            Cause::Busy { detail: message_bytes(text) }
        }
        Reply::ServerError(text) if text.starts_with(b"out of memory") => {
            Cause::Busy { detail: message_bytes(text) }
        }
        Reply::ServerError(text) => Cause::Server { detail: message_bytes(text) },
        Reply::ClientError(text) => Cause::Statement { detail: message_bytes(text) },
        Reply::Error([]) => Cause::Statement { detail: "ERROR: it does not know the command".into() },
        Reply::Error(text) => Cause::Statement { detail: message_bytes(text) },
        _ => return None,
    })
}

/// The cause of a failed `set`. When the item is too large, or memory is short, memcached removes
/// the old value, so the cause has to be one after which the key may have changed.
fn not_stored(text: &[u8]) -> Cause {
    let remedy = match text {
        text if text.starts_with(b"object too large") => {
            ": the value is larger than its items may be, and it may have removed the one before; raise its item size (memcached -I)"
        }
        text if text.starts_with(b"out of memory") => ": it may have removed the value before",
        _ => "",
    };
    Cause::Server { detail: message_bytes(text) + remedy }
}

fn unexpected(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Value { key, .. } => format!("a value of {:?} without a question", message_bytes(key)),
        reply => message_bytes(format!("{reply:?}").as_bytes()),
    }
}

#[cfg(test)]
mod tests;
