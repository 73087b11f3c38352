//! Key of an object in a cache.

use std::hash::{Hash, Hasher};

/// An object's id as the eight bytes under which a cache stores it; the partition identifies its
/// backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Aligned like an id, so that a batch of ids is converted in place into a batch of keys.
#[repr(align(8))]
pub(crate) struct Key([u8; 8]);

impl Key {
    pub(crate) const fn new(object: u64) -> Self {
        Self(object.to_le_bytes())
    }

    pub(crate) const fn object(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.object());
    }
}
