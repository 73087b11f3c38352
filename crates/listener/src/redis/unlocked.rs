//! Values that are read after the shard of their key is unlocked.

use std::ops::Deref;

use sherwood_cache::{Item, Pinned};

/// A value that stays valid after its shard is unlocked: pinned in the cache if it is large, else
/// copied.
pub(super) enum Unlocked {
    Pinned(Pinned),
    Copied(Vec<u8>),
}

impl Unlocked {
    /// Pins or copies the value of an item.
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
