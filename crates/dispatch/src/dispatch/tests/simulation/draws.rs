//! Random numbers of the fault simulation.

use std::time::Duration;

use sherwood_model::SplitMix64;

#[derive(Clone, Debug)]
pub(super) struct Draws(SplitMix64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    pub(super) fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_nanos(self.within(0..=longest.as_nanos() as u64))
    }
}
