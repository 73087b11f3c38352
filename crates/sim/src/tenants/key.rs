//! Keys of tenants.

use std::hash::{Hash, Hasher};

/// A key of a tenant, 16 bytes long. Longer keys of a load count as larger values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key([u8; KEY_BYTES as usize]);

/// Length of a key.
pub(super) const KEY_BYTES: u32 = 16;

impl Key {
    /// Returns the key with this rank of popularity.
    pub(super) fn new(tenant: u16, rank: u64) -> Self {
        let mut bytes = [0; KEY_BYTES as usize];
        bytes[..2].copy_from_slice(&tenant.to_le_bytes());
        bytes[8..].copy_from_slice(&rank.to_le_bytes());
        Self(bytes)
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}
