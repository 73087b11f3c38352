//! Random numbers derived from a seed.

use sherwood_model::SplitMix64;

/// A generator of random numbers, which equal seeds repeat.
pub(crate) struct Draw(SplitMix64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Draws a number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    /// Draws a number from 1 to `max`, which is at least 1.
    pub(crate) fn up_to(&mut self, max: usize) -> usize {
        1 + self.below(max)
    }

    /// Returns true with a probability of `percent` per cent.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Draws one of the values.
    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
