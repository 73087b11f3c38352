//! Random numbers from the entropy that fetches bring along.

use std::time::Duration;

use sherwood_model::{Instant, SplitMix64};

/// [`SplitMix64`], stirred with every fetch's entropy. Retries and probes follow fetches, so that
/// they need no entropy of their own.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    generator: SplitMix64,
}

impl Default for Draws {
    fn default() -> Self {
        Self { generator: SplitMix64::new(0) }
    }
}

impl Draws {
    /// Mixes in what the driver drew.
    pub(crate) fn stir(&mut self, entropy: u64) {
        self.generator.stir(entropy);
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// A moment between `wait` and a quarter more after `now`.
    pub(crate) fn jittered(&mut self, now: Instant, wait: Duration) -> Instant {
        let quarter = u64::try_from((wait / 4).as_nanos()).unwrap_or(u64::MAX);
        now + wait + Duration::from_nanos(below(self.next(), quarter))
    }
}

/// A number below `bound` (0 when that is 0) from 64 random bits, by multiplication; its bias is
/// under `bound / 2^64`.
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_covers_its_range_evenly() {
        let mut draws = Draws::default();
        let mut counts = [0; 5];
        for _ in 0..5_000 {
            counts[below(draws.next(), 5) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!(below(u64::MAX, 0), 0);
    }

    #[test]
    fn jitter_adds_at_most_a_quarter() {
        let mut draws = Draws::default();
        let wait = Duration::from_millis(100);
        for _ in 0..1_000 {
            let at = draws.jittered(Instant::ZERO, wait) - Instant::ZERO;
            assert!(wait <= at && at < wait + wait / 4, "{at:?}");
        }
    }
}
