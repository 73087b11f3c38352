//! Expiry times of the memcached protocol.

use std::time::Duration;

/// Number of seconds (30 days) above which an expiry time is a Unix time.
const RELATIVE_SECS_MAX: i64 = 60 * 60 * 24 * 30;

/// An expiry time of an item as sent: seconds, interpreted by [`Exptime::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exptime(pub i64);

/// The meaning of an [`Exptime`] at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// The item stays until it is evicted.
    Never,
    /// The item has already expired: it is stored, and not found.
    Already,
    /// The item expires after this time.
    After(Duration),
}

impl Exptime {
    /// Resolves this expiry time at the Unix time `unix_secs`: 0 means never, a negative number
    /// expires at once, up to 30 days count from now, and a larger number is a Unix time, which may
    /// be in the past.
    ///
    /// ```
    /// use sherwood_wire::memcached::{Expires, Exptime};
    /// use std::time::Duration;
    /// let now = 1_800_000_000;
    /// assert_eq!(Exptime(0).resolve(now), Expires::Never);
    /// assert_eq!(Exptime(-1).resolve(now), Expires::Already);
    /// assert_eq!(Exptime(60).resolve(now), Expires::After(Duration::from_secs(60)));
    /// assert_eq!(Exptime(1_800_000_005).resolve(now), Expires::After(Duration::from_secs(5)));
    /// assert_eq!(Exptime(1_700_000_000).resolve(now), Expires::Already);
    /// ```
    #[must_use]
    pub fn resolve(self, unix_secs: u64) -> Expires {
        let Ok(secs) = u64::try_from(self.0) else { return Expires::Already };
        if secs == 0 {
            return Expires::Never;
        }
        let left = if self.0 <= RELATIVE_SECS_MAX { secs } else { secs.saturating_sub(unix_secs) };
        match left {
            0 => Expires::Already,
            _ => Expires::After(Duration::from_secs(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_time_of_thirty_days_is_relative_and_of_one_second_more_a_unix_time() {
        let month = RELATIVE_SECS_MAX as u64;
        assert_eq!(Exptime(RELATIVE_SECS_MAX).resolve(0), Expires::After(Duration::from_secs(month)));
        assert_eq!(Exptime(RELATIVE_SECS_MAX + 1).resolve(month), Expires::After(Duration::from_secs(1)));
        assert_eq!(Exptime(RELATIVE_SECS_MAX + 1).resolve(month + 1), Expires::Already);
    }

    #[test]
    fn smallest_and_largest_expiry_times_do_not_overflow() {
        assert_eq!(Exptime(i64::MIN).resolve(u64::MAX), Expires::Already);
        assert_eq!(Exptime(i64::MAX).resolve(u64::MAX), Expires::Already);
        assert_eq!(Exptime(i64::MAX).resolve(0), Expires::After(Duration::from_secs(i64::MAX as u64)));
    }
}
