//! A walk through the keys of one store on a Redis server, by `SCAN`.

use std::sync::Arc;

use bytes::Bytes;
use sherwood_wire::resp::client::Reply;

use super::exchange::{Outcome, Request};
use super::request;
use crate::remote::pipeline::{Access, Operation, Session};
use crate::{Attempt, BoxFuture, Cause, KeyPages, PAGE_KEYS_MAX, StoreError, StoreKind, is_reserved};

/// Keys that the server looks at for one `SCAN`.
const COUNT: &[u8] = b"256";

/// A walk through the keys under a prefix.
///
/// The server returns each key that exists during the whole walk at least once. While it resizes
/// its table of keys, one of its answers may have more keys than were asked for, all of which are
/// held until they are returned.
pub(super) struct Scan {
    name: Arc<str>,
    session: Session<Request>,
    key_prefix: Bytes,
    /// The server's cursor for the next keys; none after the last.
    cursor: Option<String>,
    /// Keys that are not returned yet.
    pending: Vec<Bytes>,
}

impl Scan {
    pub(super) fn new(name: Arc<str>, session: Session<Request>, key_prefix: Bytes) -> Self {
        Self { name, session, key_prefix, cursor: Some("0".to_owned()), pending: Vec::new() }
    }

    /// Asks for keys until there are some, or no more.
    async fn next(&mut self) -> Result<Option<Vec<Bytes>>, Cause> {
        while self.pending.is_empty() {
            let Some(cursor) = &self.cursor else { return Ok(None) };
            let pattern = pattern(&self.key_prefix);
            let request = request(&[b"SCAN", cursor.as_bytes(), b"MATCH", &pattern, b"COUNT", COUNT]);
            let operation = Operation::new(Access::Read, request, 1, Request::scan());
            let outcome = self.session.call(operation).await?;
            self.cursor = Some(outcome.text).filter(|cursor| cursor != "0");
            let own = outcome.keys.into_iter().filter_map(|key| self.without_prefix(&key));
            self.pending = own.collect();
        }
        let rest = self.pending.split_off(self.pending.len().min(PAGE_KEYS_MAX));
        Ok(Some(std::mem::replace(&mut self.pending, rest)))
    }

    /// Returns a key without the prefix; none if it is not one of an item of the store.
    fn without_prefix(&self, key: &Bytes) -> Option<Bytes> {
        let own = key.starts_with(&self.key_prefix).then(|| key.slice(self.key_prefix.len()..))?;
        (!is_reserved(&own)).then_some(own)
    }
}

impl KeyPages for Scan {
    fn next_page(&mut self) -> BoxFuture<'_, Result<Option<Vec<Bytes>>, StoreError>> {
        Box::pin(async move {
            let page = self.next().await;
            page.map_err(|cause| {
                StoreError::new(Arc::clone(&self.name), StoreKind::Redis, Attempt::Walk, cause)
            })
        })
    }
}

/// The part of the answer to `SCAN` that is expected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ScanReply {
    /// The array of the cursor and the keys.
    #[default]
    Whole,
    /// The cursor.
    Cursor,
    /// The array of the keys.
    Keys,
    /// This many keys of the array that has begun.
    Left(usize),
}

impl ScanReply {
    /// Adds a part to the outcome, whose text is the cursor. Returns true if it was the last one.
    ///
    /// # Errors
    /// When the part is not the one expected.
    pub(super) fn read(&mut self, reply: &Reply<'_>, outcome: &mut Outcome) -> Result<bool, ()> {
        *self = match (*self, reply) {
            (Self::Whole, Reply::Array(2)) => Self::Cursor,
            (Self::Cursor, Reply::Bulk(cursor)) if is_cursor(cursor) => {
                outcome.text = String::from_utf8_lossy(cursor).into_owned();
                Self::Keys
            }
            (Self::Keys, Reply::Array(keys)) if *keys <= KEYS_MAX => Self::Left(*keys),
            (Self::Left(left), Reply::Bulk(key)) => {
                outcome.keys.push(Bytes::copy_from_slice(key));
                Self::Left(left - 1)
            }
            _ => return Err(()),
        };
        Ok(*self == Self::Left(0))
    }
}

/// Most keys accepted in one answer.
const KEYS_MAX: usize = 1 << 20;

/// Returns true for an unsigned number of 64 bits, in digits.
fn is_cursor(cursor: &[u8]) -> bool {
    (1..=20).contains(&cursor.len()) && cursor.iter().all(u8::is_ascii_digit)
}

/// Returns the pattern of all keys that begin with `prefix`.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(2 * prefix.len() + 1);
    for &byte in prefix {
        if b"*?[]\\^-".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_a_prefix_are_escaped_in_the_pattern() {
        assert_eq!(pattern(b""), b"*");
        assert_eq!(pattern(b"a:b"), b"a:b*");
        assert_eq!(pattern(br"a*?[x]\^-"), br"a\*\?\[x\]\\\^\-*");
    }
}
