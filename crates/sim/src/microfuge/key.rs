//! Keys of records.

use std::hash::{Hash, Hasher};

use sherwood_dispatch::Holders;
use sherwood_model::{ReplicaId, SplitMix64};

use super::{COPIES, SERVERS};

/// The key of a record, 13 bytes long, as one fetch asks for it.
///
/// Fetches that must not be joined have different numbers and therefore different keys, which share
/// their bytes and thus their item in the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    bytes: [u8; KEY_BYTES],
    /// Number of the fetch; 0 if it may be joined.
    fetch: u64,
    /// Random bits from which the time of a read follows. Equal keys may differ in them.
    pub(super) draw: u64,
}

/// Length of a key, as in the paper.
pub(super) const KEY_BYTES: usize = 13;

impl Key {
    /// Returns the key of record `record` of a tenant.
    pub(super) fn new(tenant: u16, record: u64, fetch: u64, draw: u64) -> Self {
        let mut bytes = [b'0'; KEY_BYTES];
        bytes[0] = b'a' + tenant as u8;
        let mut left = record;
        for digit in bytes[1..].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        Self { bytes, fetch, draw }
    }
}

/// Returns the servers that have the record of a key with these bytes.
pub(super) fn holders(key: &[u8]) -> Holders {
    let number = key.iter().fold(0_u64, |number, byte| (number << 4) + u64::from(byte & 15));
    let first = SplitMix64::new(number).next_u64() % u64::from(SERVERS);
    Holders::Ring { first: ReplicaId(first as u16), copies: COPIES }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.bytes, self.fetch) == (other.bytes, other.fetch)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.bytes, self.fetch).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_fetches_differ_but_share_their_item() {
        let (one, two) = (Key::new(0, 199_999, 7, 1), Key::new(0, 199_999, 8, 2));
        assert_ne!(one, two);
        assert_eq!(one.as_ref(), b"a000000199999");
        assert_eq!(one.as_ref(), two.as_ref());
        assert_eq!(one, Key::new(0, 199_999, 7, 3));
        assert_ne!(one.as_ref(), Key::new(1, 199_999, 7, 1).as_ref());
    }

    #[test]
    fn records_are_spread_evenly_over_the_servers() {
        let mut records = [0_u32; SERVERS as usize];
        for record in 0..160_000 {
            let holders = holders(Key::new(0, record, 0, 0).as_ref());
            for (server, records) in (0..SERVERS).zip(&mut records) {
                *records += u32::from(holders.include(ReplicaId(server), SERVERS.into()));
            }
        }
        assert!(records.iter().all(|count| count.abs_diff(30_000) < 1_000), "{records:?}");
    }
}
