//! Keys of pages and queries.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use sherwood_dispatch::Holders;
use sherwood_model::ReplicaId;

/// The key of a page, or of a query of a copy of a page. No two calls of a tier are for the same
/// one, so that none joins another, except for copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// The key's number, and the server that a query's connection goes to.
    bytes: [u8; 10],
    /// Number of the page.
    pub(super) page: u64,
    /// The copy of the page that asks; 0 for the key of a page.
    pub(super) copy: u32,
    /// Time of a core that the call takes.
    pub(super) work: Duration,
}

impl Key {
    /// Returns the key of a page.
    pub(super) fn page(page: u64, work: Duration) -> Self {
        Self { bytes: bytes(page, 0), page, copy: 0, work }
    }

    /// Returns the key of query `number`, which a copy of a page sends to a server.
    pub(super) fn query(number: u64, server: ReplicaId, page: u64, copy: u32, work: Duration) -> Self {
        Self { bytes: bytes(number, server.0), page, copy, work }
    }
}

fn bytes(number: u64, server: u16) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&server.to_le_bytes());
    bytes
}

/// Returns the server that a query goes to, from the bytes of its key.
pub(super) fn server(key: &[u8]) -> Holders {
    Holders::One(ReplicaId(u16::from_le_bytes([key[8], key[9]])))
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.bytes);
    }
}
