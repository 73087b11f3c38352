//! The error of counters that do not balance.

use thiserror::Error;

/// The counted inputs and outputs differ: the simulation has a bug, and its results are invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the books do not balance after {seconds} s: {what} is {found}, should be {expected}; this is a bug, please report it with the command line"
)]
pub struct Imbalance {
    /// Simulated seconds since the start.
    pub seconds: u64,
    /// Name of the quantity that does not balance.
    pub what: &'static str,
    /// Value of the quantity.
    pub found: u64,
    /// Expected value, or upper bound, of the quantity.
    pub expected: u64,
}
