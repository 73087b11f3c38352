//! The world's random numbers.

use std::time::Duration;

use sherwood_model::SplitMix64;

#[derive(Clone, Debug)]
pub(crate) struct Draws(SplitMix64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.within(0..=longest.as_nanos() as u64))
    }
}
