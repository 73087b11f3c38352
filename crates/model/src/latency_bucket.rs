//! Buckets of latencies whose width grows with the latency.

/// A bucket of latencies in microseconds, 0 to 1,727: 2^6 buckets to each power of two, so a
/// latency differs from its bucket's middle by at most 1/128 of the latency. Latencies below 128 µs
/// have a bucket each.
///
/// ```
/// use sherwood_model::LatencyBucket;
/// let bucket = LatencyBucket::of(150_000);
/// assert_eq!((bucket.index(), bucket.middle_us()), (777, 150_528));
/// assert_eq!(LatencyBucket::from_index(777), Some(bucket));
/// assert_eq!(LatencyBucket::from_index(1_728), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LatencyBucket(u16);

/// A power of two has two to this power of buckets.
const GROUPING_POWER: u32 = 6;
const BUCKETS: u16 = LatencyBucket::of(u32::MAX).0 + 1;

impl LatencyBucket {
    /// Returns the bucket of a latency.
    #[must_use]
    pub const fn of(latency_us: u32) -> Self {
        let width_power = (32 - latency_us.leading_zeros()).saturating_sub(GROUPING_POWER + 1);
        Self(((width_power << GROUPING_POWER) + (latency_us >> width_power)) as u16)
    }

    /// Returns the bucket with this index; none above the largest.
    #[must_use]
    pub const fn from_index(index: u16) -> Option<Self> {
        if index < BUCKETS { Some(Self(index)) } else { None }
    }

    /// The index, in the order of latencies.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0
    }

    /// The middle of the bucket, microseconds; it lies in the bucket.
    #[must_use]
    pub const fn middle_us(self) -> u32 {
        let index = self.0 as u32;
        let width_power = (index >> GROUPING_POWER).saturating_sub(1);
        let low = (index - (width_power << GROUPING_POWER)) << width_power;
        low + (1 << width_power) / 2
    }

    /// Returns the bucket in the middle of a group of 2^`power` neighbours. A latency differs from
    /// that bucket's middle by at most (2^`power` + 1)/128 of itself, or by 2^`power` µs if that is
    /// more, for a `power` of at most 6; one of 11 has all latencies in one group.
    #[must_use]
    pub(crate) fn coarse(self, power: u32) -> Self {
        let grouped = u32::from(self.0) >> power << power;
        Self((grouped + (1 << power) / 2).min(u32::from(BUCKETS) - 1) as u16)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn middle_of_every_bucket_lies_in_it() {
        for index in 0..BUCKETS {
            let bucket = LatencyBucket::from_index(index).expect("there are that many");
            assert_eq!(LatencyBucket::of(bucket.middle_us()), bucket);
        }
        assert_eq!(BUCKETS, 1_728);
    }

    proptest! {
        #[test]
        fn latency_is_within_the_stated_error_of_its_buckets_middle(latency: u32, power in 0_u32..=6) {
            let exact = LatencyBucket::of(latency);
            prop_assert!(u64::from(exact.middle_us().abs_diff(latency)) * 128 <= u64::from(latency));
            let off = u64::from(exact.coarse(power).middle_us().abs_diff(latency));
            prop_assert!(off <= 1 << power || off * 128 <= u64::from(latency) * ((1 << power) + 1), "{off}");
            prop_assert_eq!(exact.coarse(power).coarse(power), exact.coarse(power));
        }

        #[test]
        fn order_of_latencies_is_that_of_their_buckets(a: u32, b: u32) {
            let (less, more) = (a.min(b), a.max(b));
            prop_assert!(LatencyBucket::of(less) <= LatencyBucket::of(more));
            prop_assert_eq!(LatencyBucket::of(less).coarse(11), LatencyBucket::of(more).coarse(11));
        }
    }
}
