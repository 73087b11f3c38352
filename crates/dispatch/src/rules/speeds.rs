//! The speed of each replica, as a balancer has observed it.

use std::time::Duration;

use sherwood_model::{Instant, ReplicaId};

use super::{CallEnd, Completion, ReplicaLoad};

/// The way in which latencies of a replica become its speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mean {
    /// The latest one.
    Last,
    /// A moving average that rises to a greater one at once, and falls by half within the age.
    Peak,
    /// A moving average in which the latest one has this weight.
    Moving(f64),
}

/// A latency of each replica that has answered, which ages: without a call, it halves with every
/// age, so that a replica that was slow is asked again, however slow it was. An attempt that is
/// given to a replica ends that, so that only one at a time finds out. A failed call says nothing,
/// a cancelled one the least that it took.
#[derive(Clone, Debug)]
pub(super) struct Speeds {
    mean: Mean,
    age_ns: u64,
    known: Vec<Option<Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    nanos: f64,
    at: Instant,
    /// The time from which the latency ages: `at`, or that of a later call.
    ages_from: Instant,
}

impl Speeds {
    /// Returns a record of no replica. An `age` of zero keeps latencies as they are.
    pub(super) fn new(mean: Mean, age: Duration) -> Self {
        Self { mean, age_ns: u64::try_from(age.as_nanos()).unwrap_or(u64::MAX), known: Vec::new() }
    }

    /// Returns the latency of a replica in nanoseconds, aged; none if it has not answered.
    #[inline]
    pub(super) fn get(&self, now: Instant, replica: ReplicaId) -> Option<f64> {
        let known = (*self.known.get(replica.index())?)?;
        Some(known.nanos * self.left(now, known.ages_from))
    }

    /// Returns the part of a latency of `since` that is left: a half at the age, a quarter at twice
    /// the age, and so on.
    #[inline]
    fn left(&self, now: Instant, since: Instant) -> f64 {
        let Self { age_ns, .. } = *self;
        if age_ns == 0 {
            return 1.0;
        }
        let mut spent_ns = now.as_nanos().saturating_sub(since.as_nanos());
        let mut left = 1.0;
        if spent_ns >= age_ns {
            left /= (1_u64 << (spent_ns / age_ns).min(HALVINGS_MAX)) as f64;
            spent_ns %= age_ns;
        }
        left * (age_ns as f64 / (age_ns as f64 + spent_ns as f64))
    }

    /// Returns the least latency of the replicas in nanoseconds, which counts for those of which
    /// none is known: an unknown replica is taken to be the best, not to be slow.
    pub(super) fn least(&self, now: Instant, usable: &[ReplicaLoad]) -> f64 {
        let known = usable.iter().filter_map(|load| self.get(now, load.replica));
        known.reduce(f64::min).unwrap_or(1.0)
    }

    /// Notes that an attempt is given to a replica.
    pub(super) fn asked(&mut self, now: Instant, replica: ReplicaId) {
        if let Some(Some(known)) = self.known.get_mut(replica.index()) {
            known.ages_from = now;
        }
    }

    /// Notes the outcome of a call.
    pub(super) fn completed(&mut self, replica: ReplicaId, completion: &Completion) {
        let Completion { at, gap, end, .. } = *completion;
        let index = replica.index();
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        let before = self.known[index];
        let took = gap.as_nanos() as f64;
        let nanos = match (end, before, self.mean) {
            (CallEnd::Failed, ..) => return,
            (CallEnd::Cancelled, Some(known), _) if took <= known.nanos => return,
            (_, Some(known), Mean::Peak) if took < known.nanos => {
                took + (known.nanos - took) * self.left(at, known.at)
            }
            (_, Some(known), Mean::Moving(weight)) => known.nanos + (took - known.nanos) * weight,
            _ => took,
        };
        self.known[index] = Some(Known { nanos, at, ages_from: at });
    }
}

/// Largest number of times that a latency halves: that of an hour is below a nanosecond then.
const HALVINGS_MAX: u64 = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::loads_of;

    const ONE: ReplicaId = ReplicaId(1);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn complete(speeds: &mut Speeds, ms: u64, took_ms: u64, end: CallEnd) -> Option<f64> {
        let took = Duration::from_millis(took_ms);
        speeds.completed(ONE, &Completion::of(at(ms), took, end));
        speeds.get(at(ms), ONE).map(|nanos| nanos / 1e6)
    }

    #[test]
    fn last_latency_counts_and_halves_with_its_age_until_the_replica_is_asked() {
        let mut speeds = Speeds::new(Mean::Last, Duration::from_secs(5));
        assert_eq!(speeds.get(at(0), ONE), None);
        assert_eq!(complete(&mut speeds, 0, 8, CallEnd::Answered), Some(8.0));
        let least = 8e6 / (1_u64 << HALVINGS_MAX) as f64;
        for (ages, left) in [(1, 4e6), (2, 2e6), (3, 1e6), (9, 8e6 / 512.0), (1_000, least)] {
            assert_eq!(speeds.get(at(ages * 5_000), ONE), Some(left));
        }
        speeds.asked(at(5_000), ONE);
        assert_eq!(speeds.get(at(5_000), ONE), Some(8e6));
        assert_eq!(complete(&mut speeds, 5_001, 2, CallEnd::Answered), Some(2.0));
    }

    #[test]
    fn peak_rises_at_once_and_falls_by_half_within_its_age() {
        let mut speeds = Speeds::new(Mean::Peak, Duration::from_secs(5));
        complete(&mut speeds, 0, 1, CallEnd::Answered);
        assert_eq!(complete(&mut speeds, 1, 9, CallEnd::Answered), Some(9.0));
        assert_eq!(complete(&mut speeds, 5_001, 1, CallEnd::Answered), Some(5.0));
    }

    #[test]
    fn failed_call_says_nothing_and_a_cancelled_one_the_least_that_it_took() {
        let mut speeds = Speeds::new(Mean::Last, Duration::ZERO);
        assert_eq!(complete(&mut speeds, 0, 1, CallEnd::Failed), None);
        assert_eq!(complete(&mut speeds, 1, 5, CallEnd::Cancelled), Some(5.0));
        assert_eq!(complete(&mut speeds, 2, 3, CallEnd::Cancelled), Some(5.0));
        assert_eq!(complete(&mut speeds, 3, 3, CallEnd::Answered), Some(3.0));
    }

    #[test]
    fn least_latency_stands_for_an_unknown_replica() {
        let mut speeds = Speeds::new(Mean::Last, Duration::ZERO);
        complete(&mut speeds, 0, 3, CallEnd::Answered);
        assert_eq!(speeds.least(at(0), &loads_of(&[(0, 0), (1, 0)])), 3e6);
    }
}
