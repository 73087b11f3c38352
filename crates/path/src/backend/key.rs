//! The key that a backend is asked for.

use sherwood_model::PartitionId;

/// A key of a backend in one tenant's partition: what is fetched, and where its value is cached.
///
/// Tenants share neither fetches nor cache space, so the same key of two tenants is two of these. A
/// write names the key alone, since the store has one value for all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchKey<K> {
    /// The tenant's partition of the backend.
    pub partition: PartitionId,
    /// The key as the backend knows it.
    pub key: K,
}

impl<K: AsRef<[u8]>> AsRef<[u8]> for FetchKey<K> {
    fn as_ref(&self) -> &[u8] {
        self.key.as_ref()
    }
}
