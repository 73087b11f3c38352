//! The pseudorandom generator whose outputs are part of file formats and of decisions.

/// SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA
/// 2014): 64 bits of state, 64 bits an output, period 2^64.
///
/// The workload model's file format (object sizes, random walks) and the values of compute stores
/// are defined by its outputs, so it is implemented here and must never change. Equal states give
/// equal outputs on every machine.
///
/// ```
/// use sherwood_model::SplitMix64;
/// assert_eq!(SplitMix64::new(1_234_567).next_u64(), 6_457_827_717_110_365_317);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Returns the generator in `state`; every state is valid.
    #[must_use]
    pub const fn new(state: u64) -> Self {
        Self { state }
    }

    /// Advances the state and returns the next output.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Mixes `entropy` into the state: later outputs depend on both.
    pub const fn stir(&mut self, entropy: u64) {
        self.state ^= entropy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs commonly used to check implementations of the algorithm.
    #[test]
    fn split_mix_outputs_equal_the_published_sequence() {
        let mut split_mix = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| split_mix.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn entropy_stirred_in_changes_the_state_of_the_generator() {
        let mut stirred = SplitMix64::new(0b1100);
        stirred.stir(0b1010);
        assert_eq!(stirred, SplitMix64::new(0b0110));
    }
}
