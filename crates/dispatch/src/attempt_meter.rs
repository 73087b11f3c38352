//! Measurements of attempts for the manager of a replicated store.

use std::time::Duration;

use sherwood_model::{AttemptTimes, Instant, ReplicaId, SlowCount};

use crate::rules::CallEnd;

/// Measures accesses and their attempts since they were taken last. O(1) time for each event.
#[derive(Clone, Debug)]
pub(crate) struct AttemptMeter {
    bound: Duration,
    /// Time from which on an attempt is slow.
    slow_from: Duration,
    replicas: Vec<Served>,
    times: AttemptTimes,
}

/// Knowledge of the times at which a replica serves attempts.
#[derive(Clone, Copy, Debug)]
struct Served {
    /// The end of the latest attempt.
    until: Instant,
    /// The time before the start of an attempt in which none of those that have ended was served.
    idle: (Instant, Instant),
}

impl Served {
    /// Takes in the end of an attempt that was started at `at`, and returns the time that it was
    /// served for.
    fn end(&mut self, now: Instant, at: Instant) -> Duration {
        let until = std::mem::replace(&mut self.until, now);
        if at > until {
            self.idle = (until, at);
            return now - at;
        }
        // Answers over several connections come in any order: a time that seemed idle was this
        // attempt's.
        let (idle_from, idle_until) = self.idle;
        self.idle.1 = idle_until.min(at.max(idle_from));
        now.since(until) + idle_until.since(self.idle.1)
    }
}

impl AttemptMeter {
    pub(crate) fn new(replicas: usize) -> Self {
        let times = AttemptTimes { replicas: vec![SlowCount::default(); replicas], ..Default::default() };
        Self {
            bound: Duration::MAX,
            slow_from: Duration::MAX,
            replicas: vec![Served { until: Instant::ZERO, idle: (Instant::ZERO, Instant::ZERO) }; replicas],
            times,
        }
    }

    /// Counts an access that begins.
    pub(crate) fn note_access(&mut self) {
        self.times.accesses += 1;
    }

    /// Counts an access that was answered after this time.
    pub(crate) fn note_answer(&mut self, latency: Duration) {
        self.times.within += u64::from(latency <= self.bound);
    }

    /// Counts the end of an attempt that was started at `at`. A replica serves its attempts one
    /// after the other: the time before the end of the one before was spent in its queue.
    pub(crate) fn note_end(&mut self, now: Instant, replica: ReplicaId, at: Instant, end: CallEnd) {
        let times = match end {
            CallEnd::Answered => &mut self.times.answered,
            CallEnd::Cancelled => &mut self.times.given_up,
            CallEnd::Failed => return,
        };
        times.record(self.replicas[replica.index()].end(now, at));
        let count = &mut self.times.replicas[replica.index()];
        count.attempts += 1;
        count.slow += u64::from(now - at >= self.slow_from);
    }

    /// Returns what was measured, and measures with this bound and threshold from now on.
    pub(crate) fn take(&mut self, bound: Duration, slow_from: Duration) -> AttemptTimes {
        (self.bound, self.slow_from) = (bound, slow_from);
        let empty = vec![SlowCount::default(); self.replicas.len()];
        std::mem::replace(&mut self.times, AttemptTimes { replicas: empty, ..Default::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: ReplicaId = ReplicaId(1);

    #[test]
    fn service_begins_when_the_attempt_before_has_ended() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut meter = AttemptMeter::new(2);
        meter.take(ms(15), ms(20));
        for latency in [10, 15, 16] {
            meter.note_access();
            meter.note_answer(ms(latency));
        }
        // Both are in flight from the start; the second waits for the first.
        meter.note_end(at(1_010), REPLICA, at(1_000), CallEnd::Answered);
        meter.note_end(at(1_030), REPLICA, at(1_000), CallEnd::Answered);
        meter.note_end(at(1_100), REPLICA, at(1_060), CallEnd::Cancelled);
        meter.note_end(at(1_200), REPLICA, at(1_060), CallEnd::Failed);
        let times = meter.take(ms(15), ms(20));
        assert_eq!((times.accesses, times.within, times.level()), (3, 2, Some(2.0 / 3.0)));
        let taken = |sketch: &sherwood_model::LatencySketch| {
            let middle = |start: Duration, end: Duration| ((start + end).as_micros() + 1_000) / 2_000;
            sketch.buckets().map(|(start, end, count)| (middle(start, end), count)).collect::<Vec<_>>()
        };
        assert_eq!(taken(&times.answered), [(10, 1), (20, 1)]);
        assert_eq!(taken(&times.given_up), [(40, 1)]);
        assert_eq!(times.replicas, [SlowCount::default(), SlowCount { attempts: 3, slow: 2 }]);
        assert_eq!(meter.take(ms(15), ms(20)).level(), None, "it was taken");
    }

    #[test]
    fn time_of_an_attempt_counts_if_a_later_one_has_ended_before_it() {
        let ms = Duration::from_millis;
        let mut served = Served { until: Instant::ZERO, idle: (Instant::ZERO, Instant::ZERO) };
        let mut end = |now, at| served.end(Instant::from_millis(now), Instant::from_millis(at));
        assert_eq!(end(1_010, 1_000), ms(10));
        // The replica stops at 1,020, and its answers come in another order than the calls.
        let times = [end(1_100, 1_060), end(1_101, 1_020), end(1_102, 1_040), end(1_103, 1_102)];
        assert_eq!(times, [ms(40), ms(41), ms(1), ms(1)]);
    }
}
