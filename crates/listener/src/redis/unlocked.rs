//! Values that are read after the shard of their key is unlocked.

use std::ops::Deref;

use sherwood_cache::{Item, Pinned};

/// A value that outlives the lock of its shard: pinned if it is large, else copied.
pub(super) enum Unlocked {
    Pinned(Pinned),
    Copied(Vec<u8>),
}

impl Unlocked {
    /// Keeps the value of an item.
    pub(super) fn of(item: &Item<'_>, value: &[u8]) -> Self {
        item.pin().map_or_else(|| Self::Copied(value.to_vec()), Self::Pinned)
    }
}

impl Deref for Unlocked {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Pinned(value) => value,
            Self::Copied(value) => value,
        }
    }
}
