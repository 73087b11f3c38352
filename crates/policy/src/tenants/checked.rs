//! Checks of the divisions and rates that policies between tenants return.

use std::fmt;

use sherwood_model::{Rates, TenantId};

use super::{Division, Tenants};

/// Relative amount by which rates may exceed a total, because of rounding in their sum.
const ROUNDING: f64 = 1e-6;

/// The reason for which a division is refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DivisionFault {
    /// The number of elements in a part of the division differs from the number of tenants or
    /// resources.
    Shape,
    /// The bytes exceed the total.
    Bytes {
        /// Sum of the bytes of all tenants.
        sum: u128,
        /// The total of the cache, bytes.
        total: u64,
    },
    /// A rate is infinite, negative or not a number.
    Rate {
        /// The rate, in units per second.
        per_s: f64,
    },
    /// The rates of a resource exceed its total.
    Rates {
        /// Sum of the rates of all tenants, in units per second.
        sum: f64,
        /// The total of the resource, in units per second.
        total: f64,
    },
}

impl fmt::Display for DivisionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => f.write_str("it is for another number of tenants or resources"),
            Self::Bytes { sum, total } => {
                write!(f, "its {sum} bytes of cache exceed the total of {total}")
            }
            Self::Rate { per_s } => {
                write!(f, "a rate of {per_s} units per second is not a finite one from 0")
            }
            Self::Rates { sum, total } => {
                write!(f, "its rates of {sum} units per second exceed the total of {total}")
            }
        }
    }
}

impl Division {
    /// Checks that the division is valid: it has a part for each tenant, and the parts are within
    /// the totals.
    pub(super) fn check(&self, tenants: &Tenants) -> Result<(), DivisionFault> {
        if self.bytes.len() != tenants.len() || self.normalized.len() != tenants.len() {
            return Err(DivisionFault::Shape);
        }
        let (sum, total) = (crate::bounds::sum(&self.bytes), tenants.total().bytes);
        if sum > u128::from(total) {
            return Err(DivisionFault::Bytes { sum, total });
        }
        check_rates(&self.rates, tenants.len(), &tenants.total().rates)
    }
}

/// Checks that there are finite, non-negative `rates` for this number of `tenants`, which sum to at
/// most the total of each resource in `totals`.
///
/// # Errors
/// The first fault that is found.
pub fn check_rates(rates: &Rates, tenants: usize, totals: &[f64]) -> Result<(), DivisionFault> {
    if !rates.is_of(tenants, totals.len()) {
        return Err(DivisionFault::Shape);
    }
    let rows = || (0..tenants).map(|index| rates.row(TenantId::from_index(index)));
    let is_rate = |per_s: &&f64| per_s.is_finite() && **per_s >= 0.0;
    if let Some(&per_s) = rows().flatten().find(|per_s| !is_rate(per_s)) {
        return Err(DivisionFault::Rate { per_s });
    }
    for (index, &total) in totals.iter().enumerate() {
        let sum: f64 = rows().map(|row| row[index]).sum();
        if sum > total * (1.0 + ROUNDING) {
            return Err(DivisionFault::Rates { sum, total });
        }
    }
    Ok(())
}
