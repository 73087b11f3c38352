//! A walk through the keys of one store on a memcached server, by its dump of all keys.
//!
//! The dump is not an answer in order like others, so it has a connection of its own, from which it
//! is read as it is wanted: memcached waits while its bytes are not read. It may be as long as the
//! server has keys, so at most one page and a piece of it are held. While memcached waits, other
//! commands to its crawler, such as a second dump, are refused or wait as well, and with them the
//! clients of the same thread. So a walk should be continued without long pauses.
//!
//! memcached dumps its hash table or its lists of recently used items. In the lists, an item that
//! is used meanwhile may be moved past the dump and missed. In the hash table each item stays where
//! it is, but while the table is being enlarged, the dump ends at once, as if there were no items.
//! So the hash table is dumped, and an empty dump has to be confirmed by one of the lists.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sherwood_wire::memcached::LINE_BYTES_MAX;
use sherwood_wire::memcached::client::{self, Key, Progress};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::Memcached;
use super::exchange::refusal;
use crate::escape::message_bytes;
use crate::remote::socket::Io;
use crate::{Attempt, BoxFuture, Cause, KeyPages, PAGE_KEYS_MAX, StoreError, StoreKind, is_reserved};

const OF_TABLE: &[u8] = b"lru_crawler metadump hash\r\n";
const OF_LISTS: &[u8] = b"lru_crawler metadump all\r\n";

/// Most attempts to begin a dump while the server is busy with another one or enlarges its table.
const ATTEMPTS_MAX: usize = 50;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 << 10;

/// A walk through the keys under a prefix.
pub(super) struct Dump {
    name: Arc<str>,
    address: String,
    key_prefix: Bytes,
    answer_timeout: Duration,
    lines: Lines,
    /// Keys that are not returned yet.
    page: Vec<Bytes>,
    /// A line of the dump that was read and not used: the first, or the end.
    peeked: Option<Line>,
}

/// A line of a dump.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// An item with this key.
    Key(Vec<u8>),
    /// There are no more items.
    End,
    /// The server has a dump in progress.
    Busy(String),
}

impl Dump {
    /// Begins a dump, once the server is not busy.
    pub(super) async fn begin(store: &Memcached) -> Result<Self, Cause> {
        let mut busy = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                sleep(PAUSE).await;
            }
            let mut dump = Self::start(store, OF_TABLE).await?;
            match dump.line().await? {
                Line::Busy(text) => busy = text,
                Line::End => match Self::start(store, OF_LISTS).await?.line().await? {
                    Line::Busy(text) => busy = text,
                    Line::Key(_) => "it enlarges its hash table".clone_into(&mut busy),
                    Line::End => {
                        dump.peeked = Some(Line::End);
                        return Ok(dump);
                    }
                },
                first @ Line::Key(_) => {
                    dump.peeked = Some(first);
                    return Ok(dump);
                }
            }
        }
        Err(Cause::Busy { detail: busy })
    }

    async fn start(store: &Memcached, request: &[u8]) -> Result<Self, Cause> {
        let mut io = store.pool.socket().await?;
        let address = store.pool.address().to_string();
        let written = async {
            io.write_all(request).await?;
            io.flush().await
        };
        let reset = |error: io::Error| Cause::Reset { address: address.clone(), detail: error.to_string() };
        match timeout(store.answer_timeout, written).await {
            Ok(written) => written.map_err(reset)?,
            Err(_) => return Err(Cause::unanswered(&address, store.answer_timeout)),
        }
        Ok(Self {
            name: Arc::clone(&store.name),
            address,
            key_prefix: store.commands.key_prefix.clone(),
            answer_timeout: store.answer_timeout,
            lines: Lines { io, bytes: BytesMut::new() },
            page: Vec::new(),
            peeked: None,
        })
    }

    async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Cause> {
        while self.page.len() < PAGE_KEYS_MAX {
            match self.line().await? {
                Line::Key(key) => self.page.extend(self.without_prefix(&key)),
                Line::End => {
                    self.peeked = Some(Line::End);
                    break;
                }
                Line::Busy(detail) => return Err(Cause::Busy { detail }),
            }
        }
        let page = std::mem::take(&mut self.page);
        Ok((!page.is_empty()).then_some(page))
    }

    /// Reads the next line of the dump.
    async fn line(&mut self) -> Result<Line, Cause> {
        if let Some(line) = self.peeked.take() {
            return Ok(line);
        }
        let address = || self.address.clone();
        let protocol =
            |detail| Cause::Protocol { address: address(), expected: "the memcached protocol", detail };
        match timeout(self.answer_timeout, self.lines.next()).await {
            Ok(Ok(line)) => parse(&line)
                .unwrap_or_else(|| Err(protocol(format!("{:?} for a line of a dump", message_bytes(&line))))),
            Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => Err(protocol(error.to_string())),
            Ok(Err(error)) => Err(Cause::Reset { address: address(), detail: error.to_string() }),
            Err(_) => Err(Cause::unanswered(&self.address, self.answer_timeout)),
        }
    }

    /// Returns a key without the prefix; none if it is not one of an item of the store.
    fn without_prefix(&self, key: &[u8]) -> Option<Bytes> {
        let own = key.strip_prefix(&self.key_prefix[..])?;
        (!is_reserved(own) && Key::new(key).is_ok()).then(|| Bytes::copy_from_slice(own))
    }
}

impl KeyPages for Dump {
    fn next_page(&mut self) -> BoxFuture<'_, Result<Option<Vec<Bytes>>, StoreError>> {
        Box::pin(async move {
            let page = self.next().await;
            page.map_err(|cause| {
                StoreError::new(Arc::clone(&self.name), StoreKind::Memcached, Attempt::Walk, cause)
            })
        })
    }
}

/// The lines that arrive over a connection.
struct Lines {
    io: Box<dyn Io>,
    /// Bytes received and not used.
    bytes: BytesMut,
}

impl Lines {
    /// Returns the next line, without its end. The future may be dropped.
    async fn next(&mut self) -> io::Result<Bytes> {
        let mut searched = 0;
        let end = loop {
            if let Some(at) = self.bytes[searched..].iter().position(|&byte| byte == b'\n') {
                break searched + at;
            }
            searched = self.bytes.len();
            if searched > LINE_BYTES_MAX {
                let detail = format!("a line without an end in {LINE_BYTES_MAX} bytes");
                return Err(io::Error::new(ErrorKind::InvalidData, detail));
            }
            self.bytes.reserve(PIECE_BYTES);
            if self.io.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection"));
            }
        };
        let line = self.bytes.split_to(end + 1).freeze();
        Ok(line.slice(..end - usize::from(line[..end].ends_with(b"\r"))))
    }
}

/// Parses a line of a dump, or an error in its place; none if it is neither.
fn parse(line: &[u8]) -> Option<Result<Line, Cause>> {
    if let Some(rest) = line.strip_prefix(b"key=") {
        let encoded = rest.split(|&byte| byte == b' ').next()?;
        return decoded(encoded).map(|key| Ok(Line::Key(key)));
    }
    if line == b"END" {
        return Some(Ok(Line::End));
    }
    if line.starts_with(b"BUSY") {
        return Some(Ok(Line::Busy(message_bytes(line))));
    }
    let whole = [line, b"\r\n"].concat();
    match client::parse(&whole, 0) {
        Ok(Progress::Reply { reply, .. }) => refusal(&reply).map(Err),
        _ => None,
    }
}

/// Decodes a percent-encoded key; none if it is not one.
fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(encoded.len());
    let mut rest = encoded;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        key.push(match byte {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let digit = |at: usize| char::from(digits[at]).to_digit(16);
                u8::try_from(16 * digit(0)? + digit(1)?).ok()?
            }
            byte => byte,
        });
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_dump_is_decoded_and_other_lines_are_told_apart() {
        let key = |key: &[u8]| Some(Ok(Line::Key(key.to_vec())));
        assert_eq!(parse(b"key=a exp=-1 la=1 cas=1 fetch=no cls=1 size=68"), key(b"a"));
        assert_eq!(parse(b"key=%C3%A4%25%2bx exp=-1"), key("ä%+x".as_bytes()));
        assert_eq!(parse(b"END"), Some(Ok(Line::End)));
        let busy = "BUSY currently processing crawler request";
        assert_eq!(parse(busy.as_bytes()), Some(Ok(Line::Busy(busy.to_owned()))));
        let refused = parse(b"CLIENT_ERROR lru crawler disabled").unwrap().unwrap_err();
        assert_eq!(refused, Cause::Statement { detail: "lru crawler disabled".into() });
        for line in ["", "key=%4", "key=%4g exp=-1", "key=%", "STORED", "HTTP/1.1 400 Bad Request"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
