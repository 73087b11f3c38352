//! Expiry times as the protocol writes them.

use std::time::Duration;

/// Above this many seconds an expiry time is a Unix time: 30 days.
const RELATIVE_SECS_MAX: i64 = 60 * 60 * 24 * 30;

/// An expiry time as sent: seconds, to be read by the rules of [`Exptime::resolve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exptime(pub i64);

/// What an [`Exptime`] means at a given moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// It stays until it is evicted.
    Never,
    /// It is expired already: stored, and not found.
    Already,
    /// It is found for this much longer.
    After(Duration),
}

impl Exptime {
    /// What this expiry time means when the Unix time is `unix_secs`: 0 is never, a negative one
    /// expired at once, one of up to 30 days counts from now, and a larger one is a Unix time, in
    /// the past or not.
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
    fn thirty_days_are_relative_and_one_second_more_is_a_date() {
        let month = RELATIVE_SECS_MAX as u64;
        assert_eq!(Exptime(RELATIVE_SECS_MAX).resolve(0), Expires::After(Duration::from_secs(month)));
        assert_eq!(Exptime(RELATIVE_SECS_MAX + 1).resolve(month), Expires::After(Duration::from_secs(1)));
        assert_eq!(Exptime(RELATIVE_SECS_MAX + 1).resolve(month + 1), Expires::Already);
    }

    #[test]
    fn extremes_do_not_overflow() {
        assert_eq!(Exptime(i64::MIN).resolve(u64::MAX), Expires::Already);
        assert_eq!(Exptime(i64::MAX).resolve(u64::MAX), Expires::Already);
        assert_eq!(Exptime(i64::MAX).resolve(0), Expires::After(Duration::from_secs(i64::MAX as u64)));
    }
}
