//! Distributions of value sizes.

use std::fmt;
use std::str::FromStr;

use sherwood_model::units::{ByteSize, UnitError, quoted};
use thiserror::Error;

use crate::draw::{standard_normal, uniform};

/// A distribution of the sizes of values, in bytes, 0 to [`Self::BYTES_MAX`].
///
/// Parsed from and printed as one of the following, where sizes are plain bytes or have a unit as
/// in `64KiB`, and are printed as plain bytes:
///
/// - `N`: all values have N bytes.
/// - `uniform:MIN-MAX`: each whole number from MIN to MAX is equally likely.
/// - `lognormal:MEDIAN,SIGMA,MAX`: MEDIAN × exp(SIGMA z) with z standard normal, rounded and
///   clamped to 1 to MAX. MEDIAN is 1 to MAX, SIGMA 0 to 10.
/// - `choice:N,N,…`: 1 to 1,000 sizes, equally likely; a size listed twice is twice as likely.
///
/// ```
/// use sherwood_workload::{ValueSizes, rng_from_seed};
/// let sizes: ValueSizes = "uniform:1KiB-4KiB".parse()?;
/// assert!((1_024..=4_096).contains(&sizes.draw(&mut rng_from_seed(1))));
/// assert_eq!(sizes.to_string(), "uniform:1024-4096");
/// assert!("uniform:4KiB-1KiB".parse::<ValueSizes>().is_err());
/// # Ok::<(), sherwood_workload::ValueSizesError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ValueSizes(Law);

/// A valid distribution: sizes are at most [`ValueSizes::BYTES_MAX`], and parameters in their
/// ranges.
#[derive(Clone, Debug, PartialEq)]
enum Law {
    Fixed(u32),
    Uniform {
        min: u32,
        max: u32,
    },
    LogNormal {
        median: u32,
        sigma: f64,
        max: u32,
    },
    /// At least one size.
    Choice(Vec<u32>),
}

/// Reason why a text or a number was refused as a distribution of value sizes.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ValueSizesError {
    /// The text is neither a size nor begins with the name of a distribution.
    #[error("\"{0}\" is no value size; write {FORMS}, each size in bytes or with a unit, such as \"64KiB\"")]
    Form(String),
    /// A distribution has too few or too many parameters.
    #[error("\"{found}\" is incomplete or too long; write {accepted}")]
    Parameters {
        /// The text given.
        found: String,
        /// The form of the distribution, with an example.
        accepted: &'static str,
    },
    /// A parameter is not a size.
    #[error("{parameter}: {source}")]
    Size {
        /// The parameter's name.
        parameter: &'static str,
        /// The size parser's error.
        source: UnitError,
    },
    /// A size is above 128 MiB.
    #[error("{parameter} of {bytes} bytes is out of range: give 0 to 134217728 (128 MiB)")]
    TooLarge {
        /// The parameter's name.
        parameter: &'static str,
        /// The size given, in bytes.
        bytes: u64,
    },
    /// The bounds of a uniform distribution are in the wrong order.
    #[error("MIN of {min} bytes is above MAX of {max} bytes: give the smaller size first")]
    MinAboveMax {
        /// The lower bound given, in bytes.
        min: u32,
        /// The upper bound given, in bytes.
        max: u32,
    },
    /// The median of a log-normal distribution is 0 or above the maximum.
    #[error("MEDIAN of {median} bytes is out of range: give 1 to MAX, which is {max}")]
    Median {
        /// The median given, in bytes.
        median: u32,
        /// The maximum given, in bytes.
        max: u32,
    },
    /// Sigma is not a number, or out of range.
    #[error("SIGMA of \"{0}\" is out of range: give 0 (all values of the median's size) to 10, such as 1.8")]
    Sigma(String),
    /// The list of sizes is empty or too long.
    #[error("{found} sizes to choose from are out of range: give 1 to 1000, such as choice:20,5000,100KiB")]
    Choices {
        /// The number of sizes given.
        found: usize,
    },
}

/// The accepted forms of a distribution, for errors.
const FORMS: &str = "N, uniform:MIN-MAX, lognormal:MEDIAN,SIGMA,MAX or choice:N,N,…";

/// Largest number of sizes to choose from: enough for the percentiles of a measured distribution,
/// to a tenth.
const CHOICES_MAX: usize = 1_000;

impl ValueSizes {
    /// Largest size of a value, 128 MiB: the largest item size that a node can be configured to
    /// accept.
    pub const BYTES_MAX: u32 = 128 << 20;

    /// Returns the distribution in which every value has `bytes` bytes.
    ///
    /// # Panics
    /// If `bytes` is above [`Self::BYTES_MAX`].
    #[must_use]
    pub const fn fixed(bytes: u32) -> Self {
        assert!(bytes <= Self::BYTES_MAX, "values have at most 128 MiB");
        Self(Law::Fixed(bytes))
    }

    /// Draws the size of a value, in bytes. Takes one output of `rng`, or none if all values have
    /// the same size by the form `N`.
    #[must_use]
    pub fn draw(&self, rng: &mut impl rand_core::Rng) -> u32 {
        match self.0 {
            Law::Fixed(bytes) => bytes,
            Law::Uniform { min, max } => min + below(max - min + 1, rng),
            Law::LogNormal { median, sigma, max } => {
                // Never NaN: the median is positive and both factors of the exponent are finite.
                let bytes = f64::from(median) * libm::exp(sigma * standard_normal(rng));
                libm::round(bytes).clamp(1.0, f64::from(max)) as u32
            }
            Law::Choice(ref sizes) => sizes[below(sizes.len() as u32, rng) as usize],
        }
    }
}

/// 100 bytes for every value.
impl Default for ValueSizes {
    fn default() -> Self {
        Self::fixed(100)
    }
}

/// Draws uniformly from 0 to `count` - 1. The draw is below 1 by at least 2^-53, and its product
/// with a number below 2^53 never rounds up to that number.
fn below(count: u32, rng: &mut impl rand_core::Rng) -> u32 {
    (uniform(rng) * f64::from(count)) as u32
}

impl FromStr for ValueSizes {
    type Err = ValueSizesError;

    fn from_str(text: &str) -> Result<Self, ValueSizesError> {
        let law = match text.split_once(':') {
            None => match text.parse::<ByteSize>() {
                Ok(ByteSize(bytes)) => Law::Fixed(in_range(SIZE, bytes)?),
                Err(_) => return Err(ValueSizesError::Form(quoted(text))),
            },
            Some(("uniform", bounds)) => uniform_law(text, bounds)?,
            Some(("lognormal", parameters)) => lognormal_law(text, parameters)?,
            Some(("choice", sizes)) => choice_law(sizes)?,
            Some(_) => return Err(ValueSizesError::Form(quoted(text))),
        };
        Ok(Self(law))
    }
}

/// Name of a size that is not one of several parameters.
const SIZE: &str = "a value size";

fn uniform_law(text: &str, bounds: &str) -> Result<Law, ValueSizesError> {
    let Some((min, max)) = bounds.split_once('-') else {
        return Err(parameters(text, "uniform:MIN-MAX, such as uniform:1KiB-64KiB"));
    };
    let (min, max) = (size("MIN", min)?, size("MAX", max)?);
    if min > max {
        return Err(ValueSizesError::MinAboveMax { min, max });
    }
    Ok(Law::Uniform { min, max })
}

fn lognormal_law(text: &str, parameters_text: &str) -> Result<Law, ValueSizesError> {
    let mut parts = parameters_text.split(',');
    let (Some(median), Some(sigma), Some(max), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(parameters(text, "lognormal:MEDIAN,SIGMA,MAX, such as lognormal:1100,1.8,900KiB"));
    };
    let (median, max) = (size("MEDIAN", median)?, size("MAX", max)?);
    if !(1..=max).contains(&median) {
        return Err(ValueSizesError::Median { median, max });
    }
    let sigma = match sigma.parse::<f64>() {
        Ok(number) if (0.0..=SIGMA_MAX).contains(&number) => number,
        _ => return Err(ValueSizesError::Sigma(quoted(sigma))),
    };
    Ok(Law::LogNormal { median, sigma, max })
}

/// Largest sigma, at which one standard deviation is a factor of 22,026.
const SIGMA_MAX: f64 = 10.0;

fn choice_law(sizes: &str) -> Result<Law, ValueSizesError> {
    let found = if sizes.is_empty() { 0 } else { sizes.split(',').count() };
    if !(1..=CHOICES_MAX).contains(&found) {
        return Err(ValueSizesError::Choices { found });
    }
    sizes.split(',').map(|text| size("N", text)).collect::<Result<_, _>>().map(Law::Choice)
}

fn parameters(text: &str, accepted: &'static str) -> ValueSizesError {
    ValueSizesError::Parameters { found: quoted(text), accepted }
}

fn size(parameter: &'static str, text: &str) -> Result<u32, ValueSizesError> {
    let ByteSize(bytes) = text.parse().map_err(|source| ValueSizesError::Size { parameter, source })?;
    in_range(parameter, bytes)
}

fn in_range(parameter: &'static str, bytes: u64) -> Result<u32, ValueSizesError> {
    match u32::try_from(bytes) {
        Ok(size) if size <= ValueSizes::BYTES_MAX => Ok(size),
        _ => Err(ValueSizesError::TooLarge { parameter, bytes }),
    }
}

/// Prints the distribution so that parsing the text returns the same one.
impl fmt::Display for ValueSizes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Law::Fixed(bytes) => write!(formatter, "{bytes}"),
            Law::Uniform { min, max } => write!(formatter, "uniform:{min}-{max}"),
            Law::LogNormal { median, sigma, max } => write!(formatter, "lognormal:{median},{sigma},{max}"),
            Law::Choice(sizes) => {
                let sizes: Vec<_> = sizes.iter().map(u32::to_string).collect();
                write!(formatter, "choice:{}", sizes.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::draw::{Rng, rng_from_seed};

    fn sizes(text: &str) -> ValueSizes {
        text.parse().unwrap()
    }

    fn draws(text: &str, count: usize) -> Vec<u32> {
        let (sizes, mut rng) = (sizes(text), rng_from_seed(5));
        (0..count).map(|_| sizes.draw(&mut rng)).collect()
    }

    /// A generator that always returns the same output.
    struct Stuck(u64);

    impl rand_core::TryRng for Stuck {
        type Error = core::convert::Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok((self.0 >> 32) as u32)
        }

        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0)
        }

        fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Self::Error> {
            dst.fill(self.0 as u8);
            Ok(())
        }
    }

    #[test]
    fn extreme_outputs_of_the_generator_yield_sizes_within_the_bounds() {
        for (text, least, most) in [
            ("7", 7, 7),
            ("uniform:0-128MiB", 0, 128 << 20),
            ("uniform:9-9", 9, 9),
            ("lognormal:1,10,128MiB", 1, 128 << 20),
            ("lognormal:1KiB,10,1KiB", 1, 1 << 10),
            ("choice:3,1,2", 3, 2),
        ] {
            let drawn = [0, u64::MAX].map(|output| sizes(text).draw(&mut Stuck(output)));
            assert_eq!(drawn, [least, most], "{text}");
        }
    }

    #[test]
    fn draws_of_a_seed_are_fixed() {
        assert_eq!(draws("uniform:10-20", 5), [13, 16, 11, 10, 15]);
        assert_eq!(draws("lognormal:1100,1.8,900KiB", 5), [411, 1_831, 107, 66, 1_243]);
        assert_eq!(draws("choice:20,5000,100KiB", 5), [20, 5_000, 20, 20, 5_000]);
    }

    #[test]
    fn size_of_equal_values_takes_no_output_of_the_generator() {
        let mut rng = rng_from_seed(1);
        let before: Rng = rng.clone();
        assert_eq!(sizes("64KiB").draw(&mut rng), 65_536);
        assert_eq!(rng, before);
    }

    #[test]
    fn uniform_and_chosen_sizes_are_equally_likely() {
        let shares = |text, candidates: &[u32]| {
            let drawn = draws(text, 30_000);
            assert!(drawn.iter().all(|size| candidates.contains(size)), "{text}");
            candidates.iter().map(|size| drawn.iter().filter(|drawn| *drawn == size).count()).collect()
        };
        let uniform: Vec<usize> = shares("uniform:4-6", &[4, 5, 6]);
        assert!(uniform.iter().all(|count| count.abs_diff(10_000) < 400), "{uniform:?}");
        let chosen: Vec<usize> = shares("choice:20,5000,20", &[20, 5_000]);
        assert!(chosen[0].abs_diff(20_000) < 400, "{chosen:?}");
    }

    #[test]
    fn lognormal_sizes_have_the_median_and_spread_given_and_end_at_the_maximum() {
        let mut drawn = draws("lognormal:1100,1.8,20000", 100_001);
        drawn.sort_unstable();
        assert!(drawn[50_000].abs_diff(1_100) < 30, "{}", drawn[50_000]);
        // One standard deviation below the median: 1,100 exp(-1.8) = 181.8.
        assert!(drawn[15_866].abs_diff(182) < 6, "{}", drawn[15_866]);
        // 5.35% of the distribution is above 20,000: ln(20000 / 1100) is 1.611 sigma.
        let clamped = drawn.iter().filter(|&&size| size == 20_000).count();
        assert!(clamped.abs_diff(5_358) < 300 && drawn[100_000] == 20_000, "{clamped}");
    }

    #[test]
    fn invalid_value_sizes_are_refused_with_the_accepted_range() {
        let many = format!("choice:{}", vec!["1"; 1_001].join(","));
        let texts = [
            "",
            "-5",
            "128Mb",
            "134217729",
            "normal:1,2",
            "uniform:5",
            "uniform:9-1",
            "uniform:-5-10",
            "uniform:1-129MiB",
            "lognormal:5,1",
            "lognormal:0,1,10",
            "lognormal:5,-1,10",
            "lognormal:5,NaN,10",
            "lognormal:5,10.1,10",
            "lognormal:x,1,10",
            "choice:",
            "choice:5,",
            "choice:5,1GiB",
            &many,
        ];
        let refusal = |text: &str| text.parse::<ValueSizes>().unwrap_err().to_string();
        let refusals: Vec<_> = texts.iter().map(|text| refusal(text)).collect();
        assert_eq!(refusals.join("\n"), REFUSALS.trim());
    }

    const REFUSALS: &str = r#"
"" is no value size; write N, uniform:MIN-MAX, lognormal:MEDIAN,SIGMA,MAX or choice:N,N,…, each size in bytes or with a unit, such as "64KiB"
"-5" is no value size; write N, uniform:MIN-MAX, lognormal:MEDIAN,SIGMA,MAX or choice:N,N,…, each size in bytes or with a unit, such as "64KiB"
"128Mb" is no value size; write N, uniform:MIN-MAX, lognormal:MEDIAN,SIGMA,MAX or choice:N,N,…, each size in bytes or with a unit, such as "64KiB"
a value size of 134217729 bytes is out of range: give 0 to 134217728 (128 MiB)
"normal:1,2" is no value size; write N, uniform:MIN-MAX, lognormal:MEDIAN,SIGMA,MAX or choice:N,N,…, each size in bytes or with a unit, such as "64KiB"
"uniform:5" is incomplete or too long; write uniform:MIN-MAX, such as uniform:1KiB-64KiB
MIN of 9 bytes is above MAX of 1 bytes: give the smaller size first
MIN: "" is no size; write whole bytes as B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as "64MiB"
MAX of 135266304 bytes is out of range: give 0 to 134217728 (128 MiB)
"lognormal:5,1" is incomplete or too long; write lognormal:MEDIAN,SIGMA,MAX, such as lognormal:1100,1.8,900KiB
MEDIAN of 0 bytes is out of range: give 1 to MAX, which is 10
SIGMA of "-1" is out of range: give 0 (all values of the median's size) to 10, such as 1.8
SIGMA of "NaN" is out of range: give 0 (all values of the median's size) to 10, such as 1.8
SIGMA of "10.1" is out of range: give 0 (all values of the median's size) to 10, such as 1.8
MEDIAN: "x" is no size; write whole bytes as B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as "64MiB"
0 sizes to choose from are out of range: give 1 to 1000, such as choice:20,5000,100KiB
N: "" is no size; write whole bytes as B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as "64MiB"
N of 1073741824 bytes is out of range: give 0 to 134217728 (128 MiB)
1001 sizes to choose from are out of range: give 1 to 1000, such as choice:20,5000,100KiB
"#;

    proptest! {
        #[test]
        fn printed_value_sizes_parse_to_the_same_distribution_and_draw_within_it(
            min in 0..=ValueSizes::BYTES_MAX, more in 0..=ValueSizes::BYTES_MAX, sigma in 0.0..=10.0,
            choices in proptest::collection::vec(0..=ValueSizes::BYTES_MAX, 1..20), seed: u64,
        ) {
            let (max, mut rng) = (min.saturating_add(more).min(ValueSizes::BYTES_MAX), rng_from_seed(seed));
            let (median, lognormal_max) = (min.max(1), max.max(1));
            for (law, bounds) in [
                (Law::Fixed(min), min..=min),
                (Law::Uniform { min, max }, min..=max),
                (Law::LogNormal { median, sigma, max: lognormal_max }, 1..=lognormal_max),
                (Law::Choice(choices.clone()), 0..=ValueSizes::BYTES_MAX),
            ] {
                let sizes = ValueSizes(law);
                prop_assert_eq!(sizes.to_string().parse(), Ok(sizes.clone()));
                prop_assert!(bounds.contains(&sizes.draw(&mut rng)), "{}", sizes);
            }
        }

        #[test]
        fn parsing_arbitrary_text_as_value_sizes_never_panics(
            name in "(uniform:|lognormal:|choice:)?", text in "[0-9.,KMiBe:-]*|\\PC*"
        ) {
            let _ = format!("{name}{text}").parse::<ValueSizes>();
        }
    }
}
