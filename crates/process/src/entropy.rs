//! The daemon's randomness: one generator, seeded once.

use std::sync::Mutex;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Random words for the pure crates. Not for secrets.
#[derive(Debug)]
pub struct Entropy(Mutex<Xoshiro256PlusPlus>);

impl Entropy {
    /// Creates the generator of the random sequence that `seed` determines.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)))
    }

    /// Creates an unpredictable sequence, seeded by the operating system.
    #[must_use]
    pub fn from_system() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self::seeded(RandomState::new().hash_one("sherwood"))
    }

    /// Returns the next 64 random bits.
    #[must_use]
    pub fn draw(&self) -> u64 {
        self.0.lock().expect("no panics while held").next_u64()
    }
}
