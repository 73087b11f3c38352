//! The distribution of a store's service times, from measured attempts.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_model::AttemptTimes;

use crate::slo::ServiceTimes;

/// Attempts of one bucket: the start of the bucket, and the numbers of those that were answered and
/// of those that were given up.
type Bucket = (Duration, u64, u64);

/// Returns the distribution of the service times of measured attempts; none without an answer.
///
/// An attempt that was given up, at its timeout or because another one had answered, would have
/// taken longer than it had. It counts as the product-limit estimator has it (Kaplan and Meier,
/// 1958): its time is distributed as those of the attempts that took longer. The longest of all
/// attempts counts as answered.
#[must_use]
pub fn service_times(attempts: &AttemptTimes) -> Option<ServiceTimes> {
    let mut buckets: BTreeMap<Duration, Bucket> = BTreeMap::new();
    for (start, end, count) in attempts.answered.buckets() {
        buckets.entry(end).or_insert((start, 0, 0)).1 = count;
    }
    if buckets.is_empty() {
        return None;
    }
    for (start, end, count) in attempts.given_up.buckets() {
        buckets.entry(end).or_insert((start, 0, 0)).2 = count;
    }
    let mut left = attempts.answered.count() + attempts.given_up.count();
    let (mut longer, mut points) = (1.0, Vec::new());
    for (end, (start, answered, given_up)) in buckets {
        let is_last = left == answered + given_up;
        if answered > 0 || is_last {
            let before = 1.0 - longer;
            longer *= if is_last { 0.0 } else { 1.0 - answered as f64 / left as f64 };
            let is_apart = points.last().is_none_or(|(ms, _)| *ms < in_ms(start)) && start < end;
            points.extend(is_apart.then_some((in_ms(start), before)));
            points.push((in_ms(end), 1.0 - longer));
        }
        left -= answered + given_up;
    }
    ServiceTimes::new(points).ok()
}

fn in_ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(answered: &[(u64, u64)], given_up: &[(u64, u64)]) -> AttemptTimes {
        let mut attempts = AttemptTimes::default();
        for &(ms, count) in answered {
            attempts.answered.record_times(Duration::from_millis(ms), count);
        }
        for &(ms, count) in given_up {
            attempts.given_up.record_times(Duration::from_millis(ms), count);
        }
        attempts
    }

    #[track_caller]
    fn close(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 0.01, "{a} and {b}");
    }

    #[test]
    fn distribution_of_answered_attempts_is_theirs() {
        let times = service_times(&attempts(&[(2, 90), (50, 10)], &[])).unwrap();
        for (ms, share) in [(2.1, 0.9), (49.0, 0.9), (51.0, 1.0)] {
            close(times.share_within(ms), share);
        }
        assert_eq!(times.share_within(1.9), 0.0);
        close(times.mean_ms(), 0.9 * 2.0 + 0.1 * 50.0);
    }

    #[test]
    fn attempt_that_was_given_up_counts_as_those_that_took_longer() {
        // Of ten that took longer than 2 ms, eight were given up after 4 ms.
        let times = service_times(&attempts(&[(2, 90), (50, 2)], &[(4, 8)])).unwrap();
        close(times.share_within(49.0), 0.9);
        // Those of 1 ms that were given up say nothing about the shares of the others.
        let times = service_times(&attempts(&[(2, 90), (50, 10)], &[(1, 500)])).unwrap();
        close(times.share_within(49.0), 0.9);
    }

    #[test]
    fn attempts_that_were_given_up_last_took_as_long_as_they_had() {
        let times = service_times(&attempts(&[(2, 90)], &[(60, 10)])).unwrap();
        close(times.share_within(59.0), 0.9);
        close(times.share_within(61.0), 1.0);
        assert_eq!(service_times(&attempts(&[], &[(60, 10)])), None);
        let quick = service_times(&attempts(&[(0, 1)], &[])).unwrap();
        assert_eq!(quick.share_within(0.0), 1.0);
    }
}
