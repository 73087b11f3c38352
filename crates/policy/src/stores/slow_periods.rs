//! Correlation of the periods in which duplicates are slow.

use std::collections::VecDeque;

use sherwood_model::SlowCount;

use crate::slo::Correlation;

/// Slices of time that are kept: ten minutes of one second each.
const SLICES_MAX: usize = 600;
/// Slices in which both of two duplicates ended attempts, so that their correlation is known.
const SLICES_MIN: u64 = 30;

/// The shares of slow attempts of each replica of a store, by slices of time.
///
/// Duplicates that are slow in the same slices hide nothing from each other: the model of
/// [`slo`](crate::slo) applies while the correlation is near 0.
///
/// ```
/// use sherwood_model::SlowCount;
/// use sherwood_policy::stores::SlowPeriods;
///
/// let mut periods = SlowPeriods::new(2);
/// for slice in 0..60 {
///     let slow = if slice % 6 == 0 { 10 } else { 0 };
///     periods.note(&[SlowCount { attempts: 10, slow }; 2]);
/// }
/// assert!(periods.correlation().is_some_and(|correlation| correlation > 0.99));
/// ```
#[derive(Clone, Debug)]
pub struct SlowPeriods {
    duplicates: usize,
    /// The share of each replica; none where it ended no attempt.
    slices: VecDeque<Vec<Option<f64>>>,
}

impl SlowPeriods {
    /// Returns the record of a store, of whose replicas `duplicates` neighbours, at least one, have
    /// the same keys.
    #[must_use]
    pub fn new(duplicates: usize) -> Self {
        Self { duplicates: duplicates.max(1), slices: VecDeque::new() }
    }

    /// Takes in a slice: the attempts of each replica, in the order of their ids.
    pub fn note(&mut self, replicas: &[SlowCount]) {
        if self.slices.len() == SLICES_MAX {
            self.slices.pop_front();
        }
        let share =
            |count: &SlowCount| (count.attempts > 0).then(|| count.slow as f64 / count.attempts as f64);
        self.slices.push_back(replicas.iter().map(share).collect());
    }

    /// Returns the correlation (Pearson) of the shares of two duplicates, the mean of all pairs
    /// with the same keys of which it is known; none while there is no such pair. It is known of a
    /// pair when both ended attempts in 30 slices and the share of each varied.
    #[must_use]
    pub fn correlation(&self) -> Option<f64> {
        let replicas = self.slices.iter().map(Vec::len).max()?;
        let partner = |one: usize| one + 1..(one / self.duplicates + 1) * self.duplicates;
        let pairs = (0..replicas).flat_map(|one| partner(one).map(move |other| (one, other)));
        let known: Vec<f64> = pairs.filter_map(|(one, other)| self.of_pair(one, other)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    fn of_pair(&self, one: usize, other: usize) -> Option<f64> {
        let share = |slice: &Vec<Option<f64>>, replica: usize| slice.get(replica).copied().flatten();
        let mut correlation = Correlation::default();
        for slice in &self.slices {
            if let (Some(first), Some(second)) = (share(slice, one), share(slice, other)) {
                correlation.record(first, second);
            }
        }
        correlation.coefficient().filter(|_| correlation.pairs() >= SLICES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::SplitMix64;

    use super::*;

    /// Returns the correlation after slices in each of which the replicas had these numbers of slow
    /// attempts out of ten; none where a replica ended no attempt.
    fn correlation(duplicates: usize, slices: impl Iterator<Item = Vec<Option<u64>>>) -> Option<f64> {
        let mut periods = SlowPeriods::new(duplicates);
        for slice in slices {
            let count = |slow: &Option<u64>| {
                slow.map_or(SlowCount::default(), |slow| SlowCount { attempts: 10, slow })
            };
            periods.note(&slice.iter().map(count).collect::<Vec<_>>());
        }
        periods.correlation()
    }

    #[track_caller]
    fn is_near(known: Option<f64>, expected: f64) {
        assert!(known.is_some_and(|known| (known - expected).abs() < 1e-9), "{known:?}");
    }

    fn is_slow(every: u64) -> impl Fn(u64) -> Option<u64> {
        move |slice| Some(if slice.is_multiple_of(every) { 10 } else { 0 })
    }

    #[test]
    fn duplicates_that_are_slow_in_turns_or_together_have_the_ends_of_the_range() {
        let alternating = |slice: u64| vec![Some(slice % 2 * 10), Some(10 - slice % 2 * 10)];
        is_near(correlation(2, (0..40).map(alternating)), -1.0);
        let together = |slice| vec![is_slow(5)(slice); 2];
        is_near(correlation(2, (0..40).map(together)), 1.0);
    }

    #[test]
    fn correlation_of_independent_periods_is_near_zero_and_equals_one_by_hand() {
        let mut draws = SplitMix64::new(3);
        let mut draw = || Some(if draws.next_u64().is_multiple_of(5) { 10 } else { 0 });
        let independent: Vec<_> = (0..600).map(|_| vec![draw(), draw(), draw()]).collect();
        let known = correlation(3, independent.into_iter()).unwrap();
        assert!(known.abs() < 0.1, "{known}");
        // Of 60 slices 30 and 20 are slow, 10 of them in common.
        let by_hand = |slice| vec![is_slow(2)(slice), is_slow(3)(slice)];
        is_near(correlation(2, (0..60).map(by_hand)), 0.0);
    }

    #[test]
    fn correlation_is_unknown_with_few_slices_without_slow_ones_and_between_partitions() {
        let together = |slice| vec![is_slow(5)(slice); 2];
        assert_eq!(correlation(2, (0..29).map(together)), None);
        assert_eq!(correlation(1, (0..99).map(together)), None, "they have different keys");
        assert_eq!(correlation(2, (0..99).map(|slice| vec![is_slow(5)(slice), Some(0)])), None);
        let idle = |slice| vec![is_slow(5)(slice), Some(1).filter(|_| slice < 20)];
        assert_eq!(correlation(2, (0..99).map(idle)), None, "it was hardly asked");
        assert_eq!(correlation(2, std::iter::empty()), None);
    }

    #[test]
    fn old_slices_are_forgotten() {
        let changes = |slice: u64| {
            let other = if slice < 100 { slice % 2 } else { (slice + 1) % 2 };
            vec![Some(slice % 2 * 10), Some(other * 10)]
        };
        is_near(correlation(2, (0..300).map(changes)), -1.0 / 3.0);
        is_near(correlation(2, (0..700).map(changes)), -1.0);
    }
}
