//! Ranges of options.

use std::ops::RangeInclusive;

use crate::OpenCause;

/// Range of the number of calls that may wait in a store.
pub(crate) const QUEUED_CALLS_MAX: RangeInclusive<u32> = 1..=1_000_000;

/// Checks that the `value` of the option called `option` is in its range.
pub(crate) fn check<T>(option: &'static str, value: T, accepted: &RangeInclusive<T>) -> Result<(), OpenCause>
where
    T: Copy + PartialOrd + Into<u64>,
{
    if accepted.contains(&value) {
        return Ok(());
    }
    let (min, max) = ((*accepted.start()).into(), (*accepted.end()).into());
    Err(OpenCause::Option { option, value: value.into(), min, max })
}
