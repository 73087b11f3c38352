//! The operator's limits for each partition's size, and checks that they can all be obeyed.

/// Least and most bytes of a partition, set by the configuration and the admin API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Least bytes of the partition; 0 for no minimum.
    pub min_bytes: u64,
    /// Most bytes of the partition; none for no limit.
    pub max_bytes: Option<u64>,
    /// True if the partition keeps its budget and decisions about it are only reported.
    pub dry_run: bool,
}

/// The reason a partition is not pinned as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The minimum of the partition is above its maximum.
    #[error("a minimum of {min} bytes is above the maximum of {max}; lower one or raise the other")]
    Crossed {
        /// Minimum of the partition, bytes.
        min: u64,
        /// Maximum of the partition, bytes.
        max: u64,
    },
    /// The cache of the partition does not accept so small a size.
    #[error(
        "a {what} of {bytes} bytes is less than its cache can be told to keep to, {least} bytes; raise it"
    )]
    Least {
        /// Name of the limit that is too small, `minimum` or `maximum`.
        what: &'static str,
        /// The limit that was requested, bytes.
        bytes: u64,
        /// Smallest size that the partition's cache accepts, bytes.
        least: u64,
    },
    /// The minimums of all partitions exceed the total.
    #[error(
        "the minimums of all partitions would sum to {min_bytes} bytes, counting the budgets that those in a dry run keep, and there are \
         {total}; lower one, or end a dry run"
    )]
    Minimums {
        /// Sum of the minimums, bytes.
        min_bytes: u64,
        /// The total of all partitions, bytes.
        total: u64,
    },
    /// The maximums of all partitions leave a part of the total unused.
    #[error(
        "the maximums of all partitions would sum to {max_bytes} bytes, counting the budgets that those in a dry run keep, less than the \
         total of {total}; raise one, or end a dry run"
    )]
    Maximums {
        /// Sum of the maximums, bytes.
        max_bytes: u64,
        /// The total of all partitions, bytes.
        total: u64,
    },
}

/// Checks that the minimum of a pin does not exceed its maximum, and that both are at least
/// `least`, the smallest size that the partition's cache accepts.
pub fn check_least(pin: &Pin, least: u64) -> Result<(), PinError> {
    let less = |(what, bytes)| PinError::Least { what, bytes, least };
    let bounds = [("minimum", Some(pin.min_bytes)), ("maximum", pin.max_bytes)];
    let mut bounds = bounds.into_iter().filter_map(|(what, bytes)| Some((what, bytes?)));
    if let Some(bound) = bounds.find(|(_, bytes)| *bytes < least) {
        return Err(less(bound));
    }
    match pin.max_bytes.filter(|&max| max < pin.min_bytes) {
        Some(max) => Err(PinError::Crossed { min: pin.min_bytes, max }),
        None => Ok(()),
    }
}

/// Checks that budgets that obey all of `pins` can sum to `total`, where partitions in a dry run
/// keep their `budgets`.
pub fn check_sums(pins: &[Pin], budgets: &[u64], total: u64) -> Result<(), PinError> {
    let bounds = |(pin, &budget): (&Pin, &u64)| match pin.dry_run {
        true => (budget, budget),
        false => (pin.min_bytes, pin.max_bytes.unwrap_or(u64::MAX)),
    };
    let (min_bytes, max_bytes) = pins.iter().zip(budgets).map(bounds).fold((0_u64, 0_u64), |sums, bounds| {
        (sums.0.saturating_add(bounds.0), sums.1.saturating_add(bounds.1))
    });
    if min_bytes > total {
        return Err(PinError::Minimums { min_bytes, total });
    }
    if max_bytes < total {
        return Err(PinError::Maximums { max_bytes, total });
    }
    Ok(())
}

/// Returns the pins that the next decision has to obey: a partition that is not `reached` is pinned
/// to its budget. Its budget counts and not its actual size, because the budgets sum to the total;
/// the rest then fits the other partitions even if the instance's size differs from its budget. The
/// ledger keeps its bytes above the budget from the others. If the operator's pins contradict that
/// budget, the pins win, and the instance gets its new size when it is reachable again.
pub(crate) fn while_absent(pins: &[Pin], budgets: &[u64], reached: &[bool], total: u64) -> Vec<Pin> {
    let keep = |((pin, &budget), &reached): ((&Pin, &u64), &bool)| {
        let kept = budget.min(pin.max_bytes.unwrap_or(u64::MAX)).max(pin.min_bytes);
        if reached || pin.dry_run { *pin } else { Pin { min_bytes: kept, max_bytes: Some(kept), ..*pin } }
    };
    let kept: Vec<Pin> = pins.iter().zip(budgets).zip(reached).map(keep).collect();
    if check_sums(&kept, budgets, total).is_ok() { kept } else { pins.to_vec() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sherwood_model::{BackendId, Band, Instant, TenantId};
    use sherwood_policy::{BandCounts, Controller, Observation, Options, PartitionObservation, by_name};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn pin(min_mib: u64, max_mib: Option<u64>) -> Pin {
        Pin { min_bytes: min_mib * MIB, max_bytes: max_mib.map(|mib| mib * MIB), dry_run: false }
    }

    /// Returns the budgets in MiB after a round of `policy` that starts from `mib`, where the
    /// instance of the first one is not reached.
    fn without_the_first(policy: &str, pins: &[Pin], mib: &[u64], total_mib: u64) -> Vec<u64> {
        let options = Options::default();
        let budgets: Vec<u64> = mib.iter().map(|mib| mib * MIB).collect();
        let reached: Vec<bool> = (0..mib.len()).map(|index| index > 0).collect();
        let partition = |(index, pin): (usize, Pin)| PartitionObservation {
            min_bytes: pin.min_bytes,
            max_bytes: pin.max_bytes,
            dry_run: pin.dry_run,
            hits: 1,
            ..PartitionObservation::new(TenantId(0), BackendId::from_index(index))
        };
        let seen = Observation {
            total_bytes: total_mib * MIB,
            partitions: while_absent(pins, &budgets, &reached, total_mib * MIB)
                .into_iter()
                .enumerate()
                .map(partition)
                .collect(),
            requests: 1_000,
            latency_range: Some((Duration::from_millis(1), Duration::from_millis(200))),
            blocking: vec![BandCounts { band: Band::TAIL, counts: vec![1; mib.len()] }],
            ..Observation::default()
        };
        let policy = by_name(policy, &options).unwrap();
        let mut controller = Controller::new(policy, &options, Vec::new(), budgets);
        controller.decide(Instant::from_secs(5), &seen);
        controller.budgets().iter().map(|bytes| bytes / MIB).collect()
    }

    #[test]
    fn unreachable_instance_keeps_its_budget_and_does_not_shrink_others() {
        // The instance may use a hundred times the total; the other budgets stay the same.
        let pins = [pin(2, None); 2];
        for policy in ["static", "equal", "robinhood"] {
            assert_eq!(without_the_first(policy, &pins, &[32, 32], 64), [32, 32], "{policy}");
        }
        assert_eq!(without_the_first("equal", &[pin(2, None); 3], &[32, 10, 22], 64), [32, 16, 16]);
    }

    #[test]
    fn partition_in_a_dry_run_counts_with_its_budget() {
        let dry = Pin { dry_run: true, ..pin(0, None) };
        let check = |pins: &[Pin], mib: &[u64]| {
            check_sums(pins, &mib.iter().map(|mib| mib * MIB).collect::<Vec<_>>(), 64 * MIB)
        };
        assert_eq!(check(&[pin(0, None), pin(0, Some(30))], &[20, 30]), Ok(()));
        let maximums = Err(PinError::Maximums { max_bytes: 50 * MIB, total: 64 * MIB });
        assert_eq!(check(&[dry, pin(0, Some(30))], &[20, 30]), maximums);
        assert_eq!(check(&[dry, pin(0, Some(30))], &[34, 30]), Ok(()));
        let minimums = Err(PinError::Minimums { min_bytes: 70 * MIB, total: 64 * MIB });
        assert_eq!(check(&[dry, pin(30, None)], &[40, 24]), minimums);
        assert_eq!(check(&[dry, dry], &[34, 30]), Ok(()));
    }

    #[test]
    fn operators_limits_win_over_the_budget_of_an_unreachable_instance() {
        let pins = [pin(0, None), pin(0, Some(20)), pin(0, Some(30))];
        assert_eq!(without_the_first("equal", &pins, &[32, 32, 32], 96), [46, 20, 30]);
        let pins = [pin(0, None), pin(60, None), pin(0, None)];
        let budgets = without_the_first("equal", &pins, &[48, 24, 24], 96);
        assert_eq!((budgets[1], budgets.iter().sum::<u64>()), (60, 96));
        assert_eq!(without_the_first("equal", &[pin(0, Some(8)), pin(0, None)], &[48, 48], 96), [8, 88]);
    }
}
