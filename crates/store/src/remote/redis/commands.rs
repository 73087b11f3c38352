//! Requests to Redis about the items of one store.

use std::time::Duration;

use bytes::Bytes;
use sherwood_wire::resp::client;

use super::exchange::{Outcome, Request};
use super::request;
use crate::remote::Each;
use crate::remote::changes::{Commands, Stored};
use crate::remote::pipeline::{Access, Operation};
use crate::{Cause, StoreKind};

/// Longest key in bytes that Redis accepts.
const KEY_BYTES_MAX: usize = 512 << 20;

/// The options of a store on which its requests depend.
#[derive(Clone)]
pub(crate) struct RedisCommands {
    pub(super) key_prefix: Bytes,
    pub(super) write_ttl: Option<Duration>,
    pub(super) value_bytes_max: u64,
}

impl RedisCommands {
    /// Adds the store's configured prefix to a key.
    pub(super) fn prefixed(&self, key: &Bytes) -> Bytes {
        if self.key_prefix.is_empty() { key.clone() } else { self.whole(key).into() }
    }

    /// Removes a key.
    pub(super) fn removal(&self, key: &[u8]) -> Operation<Request> {
        Operation::new(Access::Write, request(&[b"DEL", &self.whole(key)]), 1, Request::number())
    }

    fn whole(&self, key: &[u8]) -> Vec<u8> {
        [&self.key_prefix[..], key].concat()
    }
}

impl Commands for RedisCommands {
    type Exchange = Request;

    const KIND: StoreKind = StoreKind::Redis;

    fn write_ttl(&self) -> Option<Duration> {
        self.write_ttl
    }

    fn set(&self, key: &[u8], stored: Stored<'_>) -> Result<Operation<Request>, Cause> {
        let refused = |what, bytes, max| Err(Cause::Refused { what, bytes, min: 0, max });
        let value_bytes_max = usize::try_from(self.value_bytes_max).unwrap_or(usize::MAX);
        let (is_accepted, key, value) = (self.accepts(key), self.whole(key), stored.value);
        if !is_accepted {
            return refused("key", key.len(), KEY_BYTES_MAX);
        }
        if value.len() > value_bytes_max {
            return refused("value", value.len(), value_bytes_max);
        }
        let request = match stored.ttl {
            Some(ttl) => {
                let ms = ttl.as_millis().max(1).to_string();
                request(&[b"SET", &key, value, b"PX", ms.as_bytes()])
            }
            None => request(&[b"SET", &key, value]),
        };
        Ok(Operation::new(Access::Write, request, 1, Request::ok()))
    }

    fn delete(&self, key: &[u8]) -> Option<Operation<Request>> {
        Some(self.removal(key))
    }

    fn accepts(&self, key: &[u8]) -> bool {
        self.key_prefix.len() + key.len() <= KEY_BYTES_MAX
    }

    fn read(&self, keys: &[Bytes]) -> Operation<Request> {
        let keys: Vec<Bytes> = keys.iter().map(|key| self.prefixed(key)).collect();
        let mut out = Vec::new();
        keys.iter().for_each(|key| client::request(&mut out, &[b"PTTL", key]));
        client::mget(&mut out, keys.iter().map(|key| &key[..]));
        let exchange = Request::values(keys.len(), true, self.value_bytes_max);
        Operation::new(Access::Read, out.into(), keys.len(), exchange)
    }

    fn items(outcome: Outcome) -> Vec<Each> {
        outcome.values
    }

    /// Asks for the type of the value, since a value of another type than a string is not one of
    /// the store's.
    fn has(&self, key: &Bytes) -> Operation<Request> {
        Operation::new(Access::Read, request(&[b"TYPE", &self.prefixed(key)]), 1, Request::word())
    }

    fn is_there(outcome: &Outcome) -> bool {
        outcome.text == "string"
    }
}
