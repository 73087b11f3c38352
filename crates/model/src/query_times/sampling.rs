//! The choice of the queries that are timed, where the cache alone answers.

use crate::SplitMix64;

/// Chooses one of each 64 batches of queries, at random: with a fixed step, of commands that repeat
/// with an even period the same one would be timed each time.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Number of batches among the current 64 that are over.
    over: u64,
    /// Number of the one that is timed.
    timed: u64,
    random: SplitMix64,
}

impl Sampling {
    /// Number of batches of which one is timed.
    pub const EVERY: u64 = 64;

    /// Creates a choice whose random sequence starts with `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        Self { over: 0, timed: random.next_u64() % Self::EVERY, random }
    }

    /// Returns true if the next batch is timed.
    pub fn choose(&mut self) -> bool {
        let is_timed = self.over == self.timed;
        self.over += 1;
        if self.over == Self::EVERY {
            (self.over, self.timed) = (0, self.random.next_u64() % Self::EVERY);
        }
        is_timed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_64_batches_is_timed_whatever_the_period_of_the_commands() {
        let mut sampling = Sampling::new(0);
        let mut of_remainder = [0; 8];
        for block in 0..1000 {
            let timed: Vec<_> = (0..Sampling::EVERY).filter(|_| sampling.choose()).collect();
            let [batch] = timed[..] else { panic!("{timed:?} of block {block}") };
            of_remainder[(batch % 8) as usize] += 1;
        }
        assert!(of_remainder.iter().all(|count| (60..200).contains(count)), "{of_remainder:?}");
    }
}
