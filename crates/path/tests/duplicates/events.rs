//! The keys of the simulated world.

/// Number of keys.
pub(crate) const KEYS: usize = 8;

/// For each key the place of a write in the order of the key's writes, from 1 on; 0 for none.
pub(crate) type View = [u64; KEYS];
