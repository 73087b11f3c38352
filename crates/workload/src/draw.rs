//! Random draws: uniform, normal, and their generator.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The generator of all draws of a load: xoshiro256++ by Blackman and Vigna.
pub type Rng = Xoshiro256PlusPlus;

/// Returns the generator of `seed`; its 256 bits of state are filled by SplitMix64, as its authors
/// recommend.
#[must_use]
pub fn rng_from_seed(seed: u64) -> Rng {
    Rng::seed_from_u64(seed)
}

/// Draws uniformly from [0, 1): the upper 53 bits of one output, so every value is a multiple of
/// 2^-53.
#[must_use]
pub fn uniform(rng: &mut impl rand_core::Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * TWO_POW_MINUS_53
}

/// Draws from the standard normal distribution: one output, mapped through [`normal_quantile`].
///
/// Inversion uses exactly one output per draw, so two generators stay in step whatever they drew.
#[must_use]
pub fn standard_normal(rng: &mut impl rand_core::Rng) -> f64 {
    normal_from_bits(rng.next_u64())
}

/// Returns the standard normal quantile of (floor(bits / 2^11) + 1/2) / 2^53: finite for each of
/// the 2^64 inputs.
pub(crate) fn normal_from_bits(bits: u64) -> f64 {
    normal_quantile(midpoint_from_bits(bits))
}

/// Returns (floor(bits / 2^11) + 1/2) / 2^53: above 0, and below 1 except for rounding.
pub(crate) fn midpoint_from_bits(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) * TWO_POW_MINUS_53
}

/// The quantile of the standard normal distribution at probability `p`; relative error about 1e-15.
///
/// Algorithm AS 241 (PPND16) by M. J. Wichura, *The Percentage Points of the Normal Distribution*,
/// Applied Statistics 37 (1988): three rational functions, one for the middle and two for the
/// tails. Arguments are clamped to [2^-1074, 1 - 2^-53], so the result is finite (-38.5 to 8.3);
/// NaN gives NaN.
///
/// ```
/// use sherwood_workload::normal_quantile;
/// assert_eq!(normal_quantile(0.5), 0.0);
/// assert!((normal_quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-15);
/// ```
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    let p = p.clamp(f64::from_bits(1), 1.0 - TWO_POW_MINUS_53);
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.425 * 0.425 - q * q;
        return q * polynomial(&MIDDLE_NUMERATOR, r) / polynomial(&MIDDLE_DENOMINATOR, r);
    }
    let tail = if q < 0.0 { p } else { 1.0 - p };
    let r = libm::sqrt(-libm::log(tail));
    let magnitude = if r <= 5.0 {
        polynomial(&NEAR_NUMERATOR, r - 1.6) / polynomial(&NEAR_DENOMINATOR, r - 1.6)
    } else {
        polynomial(&FAR_NUMERATOR, r - 5.0) / polynomial(&FAR_DENOMINATOR, r - 5.0)
    };
    if q < 0.0 { -magnitude } else { magnitude }
}

/// Evaluates a polynomial by Horner's rule; coefficients in order of ascending powers.
fn polynomial(coefficients: &[f64; 8], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

const TWO_POW_MINUS_53: f64 = 1.0 / 9_007_199_254_740_992.0;

// Coefficients of AS 241, as published (more digits than a double holds): a and b for |p - 1/2| <=
// 0.425, c and d for sqrt(-ln tail) <= 5, e and f beyond.
const MIDDLE_NUMERATOR: [f64; 8] = [
    3.387_132_872_796_366_5,
    1.331_416_678_917_843_8e2,
    1.971_590_950_306_551_3e3,
    1.373_169_376_550_946e4,
    4.592_195_393_154_987e4,
    6.726_577_092_700_87e4,
    3.343_057_558_358_813e4,
    2.509_080_928_730_122_7e3,
];
const MIDDLE_DENOMINATOR: [f64; 8] = [
    1.0,
    4.231_333_070_160_091e1,
    6.871_870_074_920_579e2,
    5.394_196_021_424_751e3,
    2.121_379_430_158_659_7e4,
    3.930_789_580_009_271e4,
    2.872_908_573_572_194_3e4,
    5.226_495_278_852_854e3,
];
const NEAR_NUMERATOR: [f64; 8] = [
    1.423_437_110_749_683_5,
    4.630_337_846_156_546,
    5.769_497_221_460_691,
    3.647_848_324_763_204_5,
    1.270_458_252_452_368_4,
    2.417_807_251_774_506e-1,
    2.272_384_498_926_918_4e-2,
    7.745_450_142_783_414e-4,
];
const NEAR_DENOMINATOR: [f64; 8] = [
    1.0,
    2.053_191_626_637_759,
    1.676_384_830_183_803_8,
    6.897_673_349_851e-1,
    1.481_039_764_274_800_8e-1,
    1.519_866_656_361_645_7e-2,
    5.475_938_084_995_345e-4,
    1.050_750_071_644_416_9e-9,
];
const FAR_NUMERATOR: [f64; 8] = [
    6.657_904_643_501_103,
    5.463_784_911_164_114,
    1.784_826_539_917_291_3,
    2.965_605_718_285_048_7e-1,
    2.653_218_952_657_612_4e-2,
    1.242_660_947_388_078_4e-3,
    2.711_555_568_743_487_6e-5,
    2.010_334_399_292_288_1e-7,
];
const FAR_DENOMINATOR: [f64; 8] = [
    1.0,
    5.998_322_065_558_88e-1,
    1.369_298_809_227_358e-1,
    1.487_536_129_085_061_5e-2,
    7.868_691_311_456_133e-4,
    1.846_318_317_510_054_8e-5,
    1.421_511_758_316_446e-7,
    2.044_263_103_389_939_8e-15,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_generator_of_a_seed_yields_fixed_draws() {
        let mut rng = rng_from_seed(1);
        let drawn: Vec<u64> = (0..3).map(|_| rand_core::Rng::next_u64(&mut rng)).collect();
        assert_eq!(drawn, GOLDEN);
    }

    #[test]
    fn normal_quantile_matches_tabulated_values() {
        // The first three are the paper's own test values.
        for (p, expected) in [
            (0.25, -0.674_489_750_196_081_7),
            (0.001, -3.090_232_306_167_813_5),
            (1e-20, -9.262_340_089_798_408),
            (0.9, 1.281_551_565_544_600_5),
            (0.99, 2.326_347_874_040_841),
            (0.999_999, 4.753_424_308_822_899),
        ] {
            let found = normal_quantile(p);
            assert!(
                (found - expected).abs() <= 4e-15 * f64::abs(expected).max(1.0) + tail_slack(p),
                "{p}: {found}"
            );
        }
    }

    /// Change of the normal quantile when `p` close to 1 changes by half a unit in its last place.
    fn tail_slack(p: f64) -> f64 {
        if p > 0.5 { f64::EPSILON / 4.0 / (1.0 - p) } else { 0.0 }
    }

    #[test]
    fn normal_quantile_inverts_the_distribution_function() {
        for step in 1..2_000 {
            let p = f64::from(step) / 2_000.0 * 0.5;
            let back = 0.5 * libm::erfc(-normal_quantile(p) / core::f64::consts::SQRT_2);
            assert!((back - p).abs() < 4e-15 * p, "{p} came back as {back}");
        }
    }

    #[test]
    fn normal_quantile_is_finite_and_odd_at_the_extremes() {
        for bits in [0, u64::MAX, 1 << 63, 1 << 11] {
            assert!(normal_from_bits(bits).is_finite(), "{bits:#x}");
        }
        assert_eq!(normal_quantile(0.25), -normal_quantile(0.75));
        assert!(normal_quantile(-1.0).is_finite() && normal_quantile(2.0).is_finite());
    }

    #[test]
    fn normal_draws_have_mean_zero_and_variance_one() {
        let mut rng = rng_from_seed(3);
        let draws: Vec<f64> = (0..100_000).map(|_| standard_normal(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|z| (z - mean) * (z - mean)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    const GOLDEN: [u64; 3] =
        [14_971_601_782_005_023_387, 13_781_649_495_232_077_965, 1_847_458_086_238_483_744];
}
