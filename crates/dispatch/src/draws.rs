//! Random numbers, seeded by the entropy that each fetch supplies.

use std::time::Duration;

use sherwood_model::{Instant, SplitMix64};

/// A [`SplitMix64`] into which every fetch's entropy is mixed. Retries and probes follow fetches,
/// so they need no entropy of their own.
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
    /// Mixes the driver's entropy into the generator's state.
    pub(crate) fn stir(&mut self, entropy: u64) {
        self.generator.stir(entropy);
    }

    /// Returns the next 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.generator.next_u64()
    }

    /// Returns the time `wait` after `now`, plus a random part of up to a quarter of `wait`.
    pub(crate) fn jittered(&mut self, now: Instant, wait: Duration) -> Instant {
        let quarter = u64::try_from((wait / 4).as_nanos()).unwrap_or(u64::MAX);
        now + wait + Duration::from_nanos(below(self.next(), quarter))
    }
}

/// Returns a number below `bound` (0 if that is 0) from 64 random bits, by multiplication; its bias
/// is under `bound / 2^64`.
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_number_below_a_bound_covers_its_range_evenly() {
        let mut draws = Draws::default();
        let mut counts = [0; 5];
        for _ in 0..5_000 {
            counts[below(draws.next(), 5) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!(below(u64::MAX, 0), 0);
    }

    #[test]
    fn jitter_adds_at_most_a_quarter_of_the_wait() {
        let mut draws = Draws::default();
        let wait = Duration::from_millis(100);
        for _ in 0..1_000 {
            let at = draws.jittered(Instant::ZERO, wait) - Instant::ZERO;
            assert!(wait <= at && at < wait + wait / 4, "{at:?}");
        }
    }
}
