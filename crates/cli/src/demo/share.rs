//! The part of the workload's load that a run shows.

use std::fmt::{self, Display};

use serde::{Serialize, Serializer};

/// The part of the workload's requests that a run sends: one in `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadShare {
    /// The number n, one of [`DIVISORS`].
    divisor: u32,
}

/// The shares that are tried, from the whole load down. With less than an eighth, 50 requests a
/// second, the SLO's windows hold too few requests for a P99.
const DIVISORS: [u32; 4] = [1, 2, 4, 8];

impl LoadShare {
    /// The whole load.
    pub(crate) const WHOLE: Self = Self { divisor: 1 };

    /// The share as a ratio, above 0 and up to 1.
    pub(crate) fn ratio(self) -> f64 {
        f64::from(self.divisor).recip()
    }

    /// True unless every request is sent.
    pub(crate) const fn is_partial(self) -> bool {
        self.divisor > 1
    }

    /// Requests that are left out for each one that is sent.
    pub(crate) const fn left_out(self) -> u32 {
        self.divisor - 1
    }

    /// Returns the next smaller share; none below the smallest.
    pub(crate) fn smaller(self) -> Option<Self> {
        DIVISORS.into_iter().find(|divisor| *divisor > self.divisor).map(|divisor| Self { divisor })
    }
}

impl Default for LoadShare {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Serialize for LoadShare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.ratio())
    }
}

impl Display for LoadShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.divisor {
            1 => f.write_str("the whole load"),
            2 => f.write_str("half of the load"),
            4 => f.write_str("a quarter of the load"),
            8 => f.write_str("an eighth of the load"),
            other => write!(f, "1/{other} of the load"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_load_end_at_an_eighth() {
        let shares = std::iter::successors(Some(LoadShare::WHOLE), |share| share.smaller());
        let all: Vec<_> = shares.map(|share| (share.ratio(), share.to_string())).collect();
        assert_eq!(
            all,
            [
                (1.0, "the whole load".to_owned()),
                (0.5, "half of the load".to_owned()),
                (0.25, "a quarter of the load".to_owned()),
                (0.125, "an eighth of the load".to_owned()),
            ]
        );
    }
}
