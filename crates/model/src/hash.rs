//! Seeded, reproducible hashing.

use std::hash::BuildHasher;

use rapidhash::quality::RapidHasher;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// A hash function chosen by a 64-bit seed: equal seeds give equal hashes on every machine and in
/// every run.
///
/// The standard library seeds its maps from the system's entropy, which a simulation cannot replay.
/// A driver that faces untrusted keys passes a seed drawn at start-up; a simulation passes its own
/// seed.
///
/// ```
/// use sherwood_model::SeededState;
/// let state = SeededState::new(7);
/// assert_eq!(state.hash_bytes(b"key"), SeededState::new(7).hash_bytes(b"key"));
/// assert_ne!(state.hash_bytes(b"key"), SeededState::new(8).hash_bytes(b"key"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SeededState {
    seed: u64,
    secrets: RapidSecrets,
}

impl SeededState {
    /// Returns the hash function of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, secrets: RapidSecrets::seed(seed) }
    }

    /// Hash of a byte string, the same on machines of either endianness.
    #[must_use]
    pub fn hash_bytes(&self, bytes: &[u8]) -> u64 {
        rapidhash_v3_seeded(bytes, &self.secrets)
    }
}

impl BuildHasher for SeededState {
    type Hasher = RapidHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        RapidHasher::new(self.seed)
    }
}
