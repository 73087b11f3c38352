//! Deadlines and service times of MicroFuge's evaluation.
//!
//! A. K. Singh, X. Cui, B. Cassell, B. Wong, K. Daudjee, *MicroFuge: A Middleware Approach to
//! Providing Performance Isolation in Cloud Storage Systems* (ICDCS 2014), section III, says which
//! deadlines its requests have. It measures a LevelDB store on disks and gives no distribution of
//! its latencies; [`ReadTimes`] is a model of such a store.

use std::time::Duration;

use sherwood_model::SplitMix64;

use crate::scrambled_zipf::fnv;

/// Returns the time within which a read or write of record `record` should be answered: 10 to 30
/// ms for a fifth of the records, 30 to 100 ms for three tenths, 100 ms to 1 s for half of them,
/// evenly distributed in each range. The same record always has the same deadline.
///
/// ```
/// use sherwood_workload::deadline_of;
/// assert_eq!(deadline_of(5), deadline_of(5));
/// assert!((0..1_000).all(|record| (10..=1_000).contains(&deadline_of(record).as_millis())));
/// ```
#[must_use]
pub fn deadline_of(record: u64) -> Duration {
    let mut draws = SplitMix64::new(fnv(record).wrapping_add(SALT));
    let (range, place) = (unit(draws.next_u64()), unit(draws.next_u64()));
    let (from_ms, to_ms) = match range {
        range if range < 0.2 => (10.0, 30.0),
        range if range < 0.5 => (30.0, 100.0),
        _ => (100.0, 1_000.0),
    };
    Duration::from_nanos(((from_ms + place * (to_ms - from_ms)) * 1e6) as u64)
}

/// Returns a time from `least` to below `most` within which a read or write of record `record`
/// should be answered, evenly distributed over the records.
///
/// ```
/// use std::time::Duration;
/// use sherwood_workload::deadline_between;
/// let tight = |record| deadline_between(record, Duration::from_millis(10), Duration::from_millis(30));
/// assert_eq!(tight(5), tight(5));
/// assert!((0..1_000).all(|record| (10..30).contains(&tight(record).as_millis())));
/// ```
#[must_use]
pub fn deadline_between(record: u64, least: Duration, most: Duration) -> Duration {
    let mut draws = SplitMix64::new(fnv(record).wrapping_add(SALT));
    least + most.saturating_sub(least).mul_f64(unit(draws.next_u64()))
}

/// Salt of the hash: the least with which not only the records, but also the requests for 200,000
/// records drawn by [`ScrambledZipf`](crate::ScrambledZipf), have the paper's shares of 0.2, 0.3
/// and 0.5 within half a percentage point. The most popular record gets 3.8% of the requests, so
/// that a hash that gives it one deadline or another would be a different workload.
const SALT: u64 = 14;

/// Service times of a store's reads, in units of one scale, of 0.865 scales on average.
///
/// Three tenths of the reads are served from the store's memory in 0.05 scales. 0.65 take as long
/// as a disk, exponentially distributed with the scale as their mean, and 0.05 are stalls, which
/// take 2 to 6 scales, evenly distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTimes {
    /// The scale: mean time of a read from the disk.
    pub scale: Duration,
}

impl ReadTimes {
    /// Returns the service time for 64 random bits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sherwood_workload::ReadTimes;
    /// let times = ReadTimes { scale: Duration::from_millis(4) };
    /// assert_eq!(times.of(1), times.of(1));
    /// assert!(times.of(1) < 60 * times.scale);
    /// ```
    #[must_use]
    pub fn of(self, bits: u64) -> Duration {
        let mut draws = SplitMix64::new(bits);
        let (source, place) = (unit(draws.next_u64()), unit(draws.next_u64()));
        let scales = match source {
            source if source < 0.3 => 0.05,
            source if source < 0.95 => -libm::log(1.0 - place),
            _ => 2.0 + 4.0 * place,
        };
        Duration::from_nanos((scales * self.scale.as_nanos() as f64) as u64)
    }
}

/// Maps 64 random bits to [0, 1).
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ScrambledZipf, rng_from_seed};

    #[test]
    fn deadlines_are_distributed_over_the_three_ranges_as_in_the_paper() {
        let deadlines: Vec<f64> =
            (0..200_000).map(|record| deadline_of(record).as_secs_f64() * 1e3).collect();
        for (from, to, expected) in [(10.0, 30.0, 0.2), (30.0, 100.0, 0.3), (100.0, 1_000.1, 0.5)] {
            let found = deadlines.iter().filter(|ms| (from..to).contains(*ms)).count() as f64 / 2e5;
            assert!((found - expected).abs() < 0.005, "{from} to {to} ms: {found}");
        }
        let mean = deadlines.iter().sum::<f64>() / 2e5;
        assert!((mean - (0.2 * 20.0 + 0.3 * 65.0 + 0.5 * 550.0)).abs() < 2.0, "{mean}");
    }

    #[test]
    fn deadlines_of_requests_have_the_shares_of_the_paper_too() {
        let (keys, mut rng) = (ScrambledZipf::new(200_000), rng_from_seed(5));
        let mut shares = [0.0_f64; 3];
        for _ in 0..400_000 {
            let within = deadline_of(keys.draw(&mut rng)).as_millis();
            shares[usize::from(within >= 30) + usize::from(within >= 100)] += 1.0 / 4e5;
        }
        for (share, expected) in shares.into_iter().zip([0.2, 0.3, 0.5]) {
            assert!((share - expected).abs() < 0.006_f64, "{shares:?}");
        }
    }

    #[test]
    fn service_times_of_reads_have_the_shares_and_the_mean_of_their_model() {
        let times = ReadTimes { scale: Duration::from_millis(10) };
        let mut draws = SplitMix64::new(1);
        let drawn: Vec<Duration> = (0..200_000).map(|_| times.of(draws.next_u64())).collect();
        let share = |wanted: &dyn Fn(&&Duration) -> bool| drawn.iter().filter(wanted).count() as f64 / 2e5;
        let from_memory = share(&|time| time.as_nanos().abs_diff(500_000) <= 1);
        assert!((from_memory - 0.3).abs() < 0.005, "{from_memory}");
        // Stalls, and the reads from the disk that take as long.
        let long = share(&|time| **time >= Duration::from_millis(20));
        assert!((long - (0.05 + 0.65 * libm::exp(-2.0))).abs() < 0.005, "{long}");
        let mean = drawn.iter().sum::<Duration>().as_secs_f64() / 2e5;
        assert!((mean - 8.65e-3).abs() < 1e-4, "{mean}");
    }
}
