//! Replies of a Redis server, read piece by piece.

use std::time::Duration;

use bytes::Bytes;
use sherwood_wire::pipeline::{self, Step};
use sherwood_wire::resp::client::{self, Progress, Reply};

use super::scan::ScanReply;
use crate::escape::message_bytes;
use crate::remote::Each;
use crate::remote::pipeline::Exchange;
use crate::{Cause, Found};

/// A request in flight to Redis, with the part of its reply that was read.
pub(crate) struct Request {
    /// Replies to `PTTL` still to be read, which come before the values.
    ttls: usize,
    expected: Expected,
    /// Arrays of one value that follow the first one, if each key has an `MGET` of its own.
    more: usize,
    /// True if each key has a request of its own, so that an error in a reply fails only one key.
    alone: bool,
    outcome: Outcome,
    /// Most bytes of one value, and of all values of the request together.
    value_bytes_max: u64,
    /// Bytes of the values found so far.
    bytes: u64,
    /// True after the bytes of a skipped value were read, until its line end is read as well.
    skipped: bool,
    /// The failure of the whole request, which is returned at the end of its reply.
    failed: Option<Cause>,
}

/// The reply that is expected next, after the replies to `PTTL`.
enum Expected {
    /// An array of this many values is expected.
    Values(usize),
    /// This many values of the array that has begun.
    Left(usize),
    /// The status that acknowledges the request.
    Ok,
    /// A number that acknowledges the request.
    Number,
    /// A byte string such as the server's version, which the caller reads as UTF-8 text.
    Text,
    /// A status that answers a question, such as a type.
    Word,
    /// A part of the answer to `SCAN`.
    Scan(ScanReply),
}

/// The result of a request to Redis: the values of an `MGET`, a text or a number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The result of each key of an `MGET`.
    pub(super) values: Vec<Each>,
    pub(super) text: String,
    pub(super) number: i64,
    /// The keys of a `SCAN`.
    pub(super) keys: Vec<Bytes>,
    /// Times to live in the order of the keys, if they were requested.
    ttls: Vec<Result<Option<Duration>, Cause>>,
}

impl Request {
    fn new(expected: Expected, ttls: usize, value_bytes_max: u64) -> Self {
        let outcome = Outcome::default();
        Self {
            ttls,
            expected,
            more: 0,
            alone: false,
            outcome,
            value_bytes_max,
            bytes: 0,
            skipped: false,
            failed: None,
        }
    }

    pub(super) fn ok() -> Self {
        Self::new(Expected::Ok, 0, 0)
    }

    pub(super) fn number() -> Self {
        Self::new(Expected::Number, 0, 0)
    }

    pub(super) fn text(value_bytes_max: u64) -> Self {
        Self::new(Expected::Text, 0, value_bytes_max)
    }

    pub(super) fn word() -> Self {
        Self::new(Expected::Word, 0, 0)
    }

    /// Expects the cursor and the keys of a `SCAN`; the cursor becomes the text of the outcome.
    pub(super) fn scan() -> Self {
        Self::new(Expected::Scan(ScanReply::default()), 0, sherwood_wire::resp::BULK_BYTES_MAX)
    }

    pub(super) fn values(keys: usize, with_ttls: bool, value_bytes_max: u64) -> Self {
        Self::new(Expected::Values(keys), if with_ttls { keys } else { 0 }, value_bytes_max)
    }

    /// Expects the values of one or more keys, each read by an `MGET` of its own.
    pub(super) fn values_alone(keys: usize, with_ttls: bool, value_bytes_max: u64) -> Self {
        let ttls = if with_ttls { keys } else { 0 };
        Self { more: keys - 1, alone: true, ..Self::new(Expected::Values(1), ttls, value_bytes_max) }
    }
}

impl pipeline::Exchange for Request {
    type Answer = Result<Outcome, Cause>;
    type Error = String;

    fn read(&mut self, input: &[u8]) -> Result<Step<Self::Answer>, String> {
        if self.skipped {
            return self.end_of_skipped(input);
        }
        if let Some(bytes) = announced(input).filter(|&bytes| bytes > self.value_bytes_max) {
            return self.too_large(input, bytes);
        }
        let (reply, used) = match client::parse(input) {
            Ok(Progress::Incomplete(need)) => return Ok(Step::Incomplete(need)),
            Ok(Progress::Reply(reply, used)) => (reply, used),
            Err(error) => return Err(error.to_string()),
        };
        if self.ttls > 0 {
            self.ttls -= 1;
            self.ttl(reply)?;
            return Ok(Step::Used(used));
        }
        match (&mut self.expected, reply) {
            (Expected::Left(left), Reply::Bulk(value)) => {
                *left -= 1;
                self.push(Some(value));
            }
            (Expected::Left(left), Reply::Null) => {
                *left -= 1;
                self.push(None);
            }
            // A proxy returns this for a key whose server is unreachable.
            (Expected::Left(left), Reply::Error(text)) => {
                *left -= 1;
                self.outcome.values.push(Err(refusal(text)));
            }
            (Expected::Values(_), Reply::Error(text)) if self.alone => {
                self.expected = Expected::Left(0);
                self.outcome.values.push(Err(refusal(text)));
            }
            (Expected::Values(keys), Reply::Array(len)) if len == *keys => {
                self.expected = Expected::Left(len)
            }
            (_, reply) => return self.read_single(reply, used),
        }
        Ok(self.after(used))
    }
}

impl Exchange for Request {
    type Outcome = Outcome;

    const PROTOCOL: &'static str = "the Redis protocol";

    /// The cause in bytes that arrived without a request: a server in protected mode, or at its
    /// client limit, sends an error at once and closes the connection.
    fn unsolicited(input: &[u8]) -> Option<Cause> {
        match client::parse(input) {
            Ok(Progress::Reply(Reply::Error(text), _)) => Some(refusal(text)),
            _ => None,
        }
    }

    /// True for refusals by a primary that has become a replica, by a node of a cluster that has
    /// given its keys away, and by a server that requires a new login. These keep their
    /// connections, while the configured name may already lead to another server.
    fn is_outdated(cause: &Cause) -> bool {
        match cause {
            Cause::WrongServer { .. } => true,
            Cause::Credentials { detail } => detail.starts_with("NOAUTH"),
            _ => false,
        }
    }
}

impl Request {
    /// Reads a part of a reply that is not an array of values, or an error in place of any reply.
    fn read_single(&mut self, reply: Reply<'_>, used: usize) -> Result<Step<Result<Outcome, Cause>>, String> {
        match (&mut self.expected, reply) {
            (Expected::Ok, Reply::Simple(b"OK")) => {}
            (Expected::Number, Reply::Integer(number)) => self.outcome.number = number,
            (Expected::Text, Reply::Bulk(text)) => {
                self.outcome.text = String::from_utf8_lossy(text).into_owned();
            }
            (Expected::Word, Reply::Simple(word)) => self.outcome.text = message_bytes(word),
            (Expected::Scan(ScanReply::Whole), Reply::Error(text)) => {
                self.failed.get_or_insert(refusal(text));
            }
            (Expected::Scan(part), reply) => {
                if !part.read(&reply, &mut self.outcome).map_err(|()| unexpected(&reply))? {
                    return Ok(Step::Used(used));
                }
            }
            (
                Expected::Values(_) | Expected::Ok | Expected::Number | Expected::Text | Expected::Word,
                Reply::Error(text),
            ) => {
                self.failed.get_or_insert(refusal(text));
            }
            (_, reply) => return Err(unexpected(&reply)),
        }
        Ok(self.done(used))
    }

    fn done(&mut self, used: usize) -> Step<Result<Outcome, Cause>> {
        let outcome = std::mem::take(&mut self.outcome);
        Step::Done(used, self.failed.take().map_or(Ok(outcome), Err))
    }

    /// The next step after a piece of `used` bytes was read: the next array, or the end of the
    /// reply.
    fn after(&mut self, used: usize) -> Step<Result<Outcome, Cause>> {
        match self.expected {
            Expected::Left(0) if self.more > 0 => {
                self.more -= 1;
                self.expected = Expected::Values(1);
                Step::Used(used)
            }
            Expected::Left(0) => self.done(used),
            _ => Step::Used(used),
        }
    }

    /// Adds the next key's value, or its error if the values together exceed the limit.
    fn push(&mut self, value: Option<&[u8]>) {
        let at = self.outcome.values.len();
        let good_for = match self.outcome.ttls.get(at).cloned().unwrap_or(Ok(None)) {
            Ok(good_for) => good_for,
            Err(cause) => return self.outcome.values.push(Err(cause)),
        };
        let bytes = self.bytes + value.map_or(0, <[u8]>::len) as u64;
        if bytes > self.value_bytes_max {
            self.outcome.values.push(Err(self.exceeded()));
            return;
        }
        self.bytes = bytes;
        let found = value.map(|value| Found { good_for, ..Found::from(Bytes::copy_from_slice(value)) });
        self.outcome.values.push(Ok(found));
    }

    fn exceeded(&self) -> Cause {
        Cause::TooLarge { bytes_max: self.value_bytes_max }
    }

    fn ttl(&mut self, reply: Reply<'_>) -> Result<(), String> {
        let ttl = match reply {
            // The key has no time to live.
            Reply::Integer(-1) => Ok(None),
            // The key was absent: a value read now has an unknown time to live.
            Reply::Integer(-2) => Ok(Some(Duration::ZERO)),
            Reply::Integer(ms) if ms >= 0 => Ok(Some(Duration::from_millis(ms.unsigned_abs()))),
            Reply::Error(text) => {
                let cause = refusal(text);
                if !self.alone {
                    self.failed.get_or_insert(cause.clone());
                }
                Err(cause)
            }
            reply => return Err(format!("{} for a time to live", named(&reply))),
        };
        self.outcome.ttls.push(ttl);
        Ok(())
    }

    /// Skips a value of `bytes` bytes, which is over the limit and fails its key.
    fn too_large(&mut self, input: &[u8], bytes: u64) -> Result<Step<Result<Outcome, Cause>>, String> {
        let line = input.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let exceeded = self.exceeded();
        match &mut self.expected {
            Expected::Left(left) => {
                *left -= 1;
                self.outcome.values.push(Err(exceeded));
            }
            Expected::Text => self.failed = Some(exceeded),
            Expected::Values(_) | Expected::Ok | Expected::Number | Expected::Word | Expected::Scan(_) => {
                return Err(format!("a text of {bytes} bytes in place of an answer"));
            }
        }
        self.skipped = true;
        Ok(Step::Used(line + bytes as usize))
    }

    /// Reads the line end of a value that was skipped.
    fn end_of_skipped(&mut self, input: &[u8]) -> Result<Step<Result<Outcome, Cause>>, String> {
        let Some(end) = input.get(..LINE_END.len()) else { return Ok(Step::Incomplete(LINE_END.len())) };
        if end != LINE_END {
            return Err(client::ReplyError::LineEnd.to_string());
        }
        self.skipped = false;
        Ok(match self.expected {
            Expected::Text => self.done(LINE_END.len()),
            _ => self.after(LINE_END.len()),
        })
    }
}

/// The line end after a value.
const LINE_END: &[u8] = b"\r\n";

/// The length that the byte string at the start of `input` announces, once its first line is
/// complete.
fn announced(input: &[u8]) -> Option<u64> {
    let line = input.strip_prefix(b"$")?;
    let window = &line[..line.len().min(24)];
    let end = window.windows(2).position(|pair| pair == b"\r\n")?;
    let length = sherwood_wire::resp::integer(&line[..end])?;
    u64::try_from(length).ok().filter(|&length| length <= sherwood_wire::resp::BULK_BYTES_MAX)
}

fn unexpected(reply: &Reply<'_>) -> String {
    format!("an unexpected {}", named(reply))
}

/// Names the type of a reply without its bytes, which may be a user's value.
fn named(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Simple(word) => format!("word \"{}\"", message_bytes(word)),
        Reply::Error(text) => format!("error \"{}\"", message_bytes(text)),
        Reply::Integer(_) => "number".to_owned(),
        Reply::Bulk(bytes) => format!("text of {} bytes", bytes.len()),
        Reply::Null => "null".to_owned(),
        Reply::Array(len) => format!("array of {len}"),
    }
}

/// The cause of an error that Redis returned, by the first word of its text.
fn refusal(text: &[u8]) -> Cause {
    let detail = message_bytes(text);
    match detail.split_ascii_whitespace().next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => Cause::Credentials { detail },
        "NOPERM" if is_about_keys(&detail) => Cause::Forbidden { detail },
        "NOPERM" => Cause::Credentials { detail },
        // The server's text has a thousand characters, whose start does not contain the remedy.
        "DENIED" => Cause::Credentials {
            detail: "DENIED: it runs in protected mode, where it lets in nobody from another machine: give it a `bind` and a password \
                     (`requirepass`), or set `protected-mode no` there"
                .to_owned(),
        },
        "LOADING" | "BUSY" | "TRYAGAIN" | "MASTERDOWN" | "CLUSTERDOWN" | "OOM" | "NOREPLICAS" => {
            Cause::Busy { detail }
        }
        "READONLY" => Cause::WrongServer { detail, remedy: "name its primary for writes" },
        "MOVED" | "ASK" | "CROSSSLOT" => Cause::WrongServer {
            detail,
            remedy: "it is part of a cluster, to which this connector does not speak: put a proxy for clusters between",
        },
        "MISCONF" => Cause::Server { detail },
        _ if detail.contains("max number of clients") => Cause::Busy { detail },
        _ if detail.contains("without any password") => Cause::Credentials { detail },
        _ if detail.contains("DB index is out of range") => {
            Cause::Missing { what: "the database of `db`", detail }
        }
        _ => Cause::Statement { detail },
    }
}

/// True if the user lacks permission for a key ("NOPERM No permissions to access a key") and not
/// for a command ("… no permissions to run the 'mget' command").
fn is_about_keys(noperm: &str) -> bool {
    noperm.contains("permissions to access") && noperm.contains(" key")
}

#[cfg(test)]
mod tests;
