//! Requests to memcached about the items of one store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sherwood_wire::memcached::client::{self, Answer, Item, Key, KeyError};
use sherwood_wire::memcached::{Exptime, KEY_BYTES_MAX, StorageVerb};

use super::exchange::{Outcome, Request};
use crate::remote::Each;
use crate::remote::changes::{Commands, Stored};
use crate::remote::pipeline::{Access, Operation};
use crate::{Cause, StoreKind};

/// Longest time to live, in seconds, that memcached takes for one. A larger number is a Unix time.
const RELATIVE_S_MAX: u64 = 60 * 60 * 24 * 30;

/// The options of a store on which its requests depend.
#[derive(Clone)]
pub(crate) struct MemcachedCommands {
    pub(super) key_prefix: Bytes,
    pub(super) write_ttl: Option<Duration>,
    pub(super) value_bytes_max: u32,
}

impl MemcachedCommands {
    /// Adds the store's configured prefix to a key.
    pub(super) fn prefixed(&self, key: &[u8]) -> Bytes {
        [&self.key_prefix[..], key].concat().into()
    }
}

impl Commands for MemcachedCommands {
    type Exchange = Request;

    const KIND: StoreKind = StoreKind::Memcached;

    fn write_ttl(&self) -> Option<Duration> {
        self.write_ttl
    }

    fn set(&self, key: &[u8], stored: Stored<'_>) -> Result<Operation<Request>, Cause> {
        let (key, Stored { value, flags, ttl }) = (self.prefixed(key), stored);
        let accepted = checked(&key)?;
        let value_bytes_max = self.value_bytes_max as usize;
        if value.len() > value_bytes_max {
            return Err(Cause::Refused { what: "value", bytes: value.len(), min: 0, max: value_bytes_max });
        }
        let mut request = Vec::with_capacity(value.len() + 2 * KEY_BYTES_MAX);
        let item = Item { value, flags, exptime: ttl.map_or(Exptime(0), exptime) };
        client::store(&mut request, StorageVerb::Set, accepted, item, Answer::Expected);
        Ok(Operation::new(Access::Write, request.into(), 1, Request::Stored))
    }

    fn delete(&self, key: &[u8]) -> Option<Operation<Request>> {
        let key = self.prefixed(key);
        let mut request = Vec::new();
        client::delete(&mut request, Key::new(&key).ok()?, Answer::Expected);
        Some(Operation::new(Access::Write, request.into(), 1, Request::Deleted))
    }

    fn accepts(&self, key: &[u8]) -> bool {
        Key::new(&self.prefixed(key)).is_ok()
    }

    fn read(&self, keys: &[Bytes]) -> Operation<Request> {
        let keys: Vec<Bytes> = keys.iter().map(|key| self.prefixed(key)).collect();
        let mut request = Vec::new();
        keys.iter().filter_map(|key| Key::new(key).ok()).for_each(|key| client::meta_item(&mut request, key));
        let exchange = Request::items(keys.len(), self.value_bytes_max);
        Operation::new(Access::Read, request.into(), keys.len(), exchange)
    }

    fn items(outcome: Outcome) -> Vec<Each> {
        outcome.values
    }

    fn has(&self, key: &Bytes) -> Operation<Request> {
        let key = self.prefixed(key);
        let mut request = Vec::new();
        Key::new(&key).into_iter().for_each(|key| client::meta_exists(&mut request, key));
        Operation::new(Access::Read, request.into(), 1, Request::Exists)
    }

    fn is_there(outcome: &Outcome) -> bool {
        outcome.is_there
    }
}

/// Checks that memcached can hold `key`: its length and its bytes.
fn checked(key: &[u8]) -> Result<Key<'_>, Cause> {
    Key::new(key).map_err(|error| match error {
        KeyError::Length(bytes) => Cause::Refused { what: "key", bytes, min: 1, max: KEY_BYTES_MAX },
        KeyError::Byte { .. } => Cause::Unsupported {
            reason: "memcached has no keys with blanks or control characters; encode such keys before they are written",
        },
    })
}

/// Returns the expiry time of an item that lives for `ttl`, rounded up to a second. One that lives
/// for more than 30 days expires at a time by this machine's clock.
fn exptime(ttl: Duration) -> Exptime {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let start = match seconds {
        0..=RELATIVE_S_MAX => 0,
        _ => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()),
    };
    Exptime(i64::try_from(start.saturating_add(seconds.max(1))).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_live_of_more_than_thirty_days_becomes_a_unix_time() {
        assert_eq!(exptime(Duration::from_millis(1)), Exptime(1));
        assert_eq!(exptime(Duration::from_secs(RELATIVE_S_MAX)), Exptime(2_592_000));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let Exptime(absolute) = exptime(Duration::from_secs(RELATIVE_S_MAX + 1));
        assert!(absolute.unsigned_abs() > now + RELATIVE_S_MAX);
    }
}
