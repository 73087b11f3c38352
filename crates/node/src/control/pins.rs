//! What the operator says of each partition's size, and whether all of it can be obeyed.

/// Least and most bytes of a partition, set by the configuration and the admin API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Least bytes, 0 for none.
    pub min_bytes: u64,
    /// Most bytes, none for no limit.
    pub max_bytes: Option<u64>,
    /// Whether it keeps its budget, and what it would be is only said.
    pub dry_run: bool,
}

/// Why a partition is not pinned as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PinError {
    /// Its own two contradict each other.
    #[error("a minimum of {min} bytes is above the maximum of {max}; lower one or raise the other")]
    Crossed {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// There is not enough for all minimums.
    #[error(
        "the minimums of all partitions would sum to {min_bytes} bytes, and there are {total}; lower one"
    )]
    Minimums {
        /// Their sum.
        min_bytes: u64,
        /// The total.
        total: u64,
    },
    /// Some of the total would have no partition to go to.
    #[error(
        "the maximums of all partitions would sum to {max_bytes} bytes, less than the total of {total}; raise one"
    )]
    Maximums {
        /// Their sum.
        max_bytes: u64,
        /// The total.
        total: u64,
    },
}

impl Pin {
    /// Whether its own two agree.
    pub(super) fn check(&self) -> Result<(), PinError> {
        match self.max_bytes.filter(|&max| max < self.min_bytes) {
            Some(max) => Err(PinError::Crossed { min: self.min_bytes, max }),
            None => Ok(()),
        }
    }
}

/// Whether budgets that obey all of `pins` can sum to `total`.
pub(super) fn check_sums(pins: &[Pin], total: u64) -> Result<(), PinError> {
    let sum = |bytes: fn(&Pin) -> Option<u64>| {
        pins.iter().map(bytes).fold(0_u64, |sum, bytes| sum.saturating_add(bytes.unwrap_or(u64::MAX)))
    };
    let (min_bytes, max_bytes) = (sum(|pin| Some(pin.min_bytes)), sum(|pin| pin.max_bytes));
    if min_bytes > total {
        return Err(PinError::Minimums { min_bytes, total });
    }
    if max_bytes < total {
        return Err(PinError::Maximums { max_bytes, total });
    }
    Ok(())
}
