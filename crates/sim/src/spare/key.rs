//! Keys of pages and queries.

use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The key of a page, or of a query of a copy of a page. No two calls of a tier are for the same
/// one, so that none joins another, except for copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// The key's number.
    bytes: [u8; 8],
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
        Self { bytes: page.to_le_bytes(), page, copy: 0, work }
    }

    /// Returns the key of query `number`, which a copy of a page asks.
    pub(super) fn query(number: u64, page: u64, copy: u32, work: Duration) -> Self {
        Self { bytes: number.to_le_bytes(), page, copy, work }
    }
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
