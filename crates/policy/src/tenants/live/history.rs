//! A tenant's counters over a window of time.

use std::collections::VecDeque;
use std::time::Duration;

use sherwood_model::Instant;

use super::{ReadCounts, TenantObservation, TenantPartition, UnitCounts};

/// Samples of a window; a window therefore covers up to a 16th more than its span. Chosen as enough
/// batches to estimate a variance.
const SAMPLES: u32 = 16;

/// Counters of one tenant over the latest span of time. Memory is [`SAMPLES`] samples of 24 bytes
/// for each resource and 48 for each partition.
#[derive(Clone, Debug)]
pub(super) struct History {
    span: Duration,
    /// Samples at least a 16th of the span apart, the oldest one first.
    samples: VecDeque<(Instant, Sample)>,
    latest: Option<(Instant, Sample)>,
}

/// Counters at one time, or what they grew by.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) requests: u64,
    pub(super) units: Vec<UnitCounts>,
    pub(super) parts: Vec<PartSample>,
}

/// Counters of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PartSample {
    pub(super) reads: ReadCounts,
    /// Misses that the curve predicted for the reads, at the size that the partition had, and those
    /// that there were. Reads before there was a curve do not count.
    pub(super) predicted: f64,
    pub(super) compared: u64,
    /// Bytes of the partition's items at the beginning of the window.
    pub(super) used_bytes: u64,
}

impl History {
    pub(super) fn new(span: Duration) -> Self {
        Self { span, samples: VecDeque::new(), latest: None }
    }

    /// Adds the counters of `seen` at `now`, which is later than the last. `predict` returns the
    /// miss ratio that the curve of the partition at an index predicts for its present size, or
    /// none without a curve. Returns what the counters grew by since the last call.
    pub(super) fn add(
        &mut self,
        now: Instant,
        seen: &TenantObservation,
        predict: impl Fn(usize) -> Option<f64>,
    ) -> Sample {
        let mut sample = Sample {
            requests: seen.counts.requests,
            units: seen.counts.units.clone(),
            parts: seen.partitions.iter().map(PartSample::of).collect(),
        };
        let grown = match &self.latest {
            Some((_, before)) => sample.since(before),
            None => None,
        };
        let Some(mut grown) = grown else {
            self.samples.clear();
            self.samples.push_back((now, sample.clone()));
            self.latest = Some((now, sample));
            return Sample::default();
        };
        if let Some((_, before)) = &self.latest {
            for (index, (part, grown)) in sample.parts.iter_mut().zip(&mut grown.parts).enumerate() {
                if let Some(ratio) = predict(index) {
                    grown.predicted = ratio * grown.reads.reads() as f64;
                    grown.compared = grown.reads.misses;
                }
                part.predicted = before.parts[index].predicted + grown.predicted;
                part.compared = before.parts[index].compared + grown.compared;
            }
        }
        self.keep(now, &sample);
        self.latest = Some((now, sample));
        grown
    }

    fn keep(&mut self, now: Instant, sample: &Sample) {
        let spacing = self.span / SAMPLES;
        if self.samples.back().is_none_or(|(at, _)| now.since(*at) >= spacing) {
            self.samples.push_back((now, sample.clone()));
        }
        let begins = now - self.span;
        // The newest sample before the window is kept as the base of the difference.
        while self.samples.get(1).is_some_and(|(at, _)| *at <= begins) {
            self.samples.pop_front();
        }
    }

    /// Growth of the counters over the window, and the time that it covers.
    pub(super) fn window(&self) -> (Sample, Duration) {
        let (Some((from, base)), Some((to, latest))) = (self.samples.front(), &self.latest) else {
            return (Sample::default(), Duration::ZERO);
        };
        (latest.since(base).unwrap_or_default(), to.since(*from))
    }

    /// The samples of the window and the latest observation, the oldest one first.
    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().chain(&self.latest).map(|(_, sample)| sample)
    }

    /// Least and most bytes of a partition's items in the window.
    pub(super) fn used_bytes(&self, part: usize) -> (u64, u64) {
        let used = || self.samples().filter_map(|sample| Some(sample.parts.get(part)?.used_bytes));
        (used().min().unwrap_or(0), used().max().unwrap_or(0))
    }

    /// Relative variance of a partition's misses per read in the window; none if there were no
    /// reads in some part of it.
    ///
    /// From the ratios of the window's parts (batch means), so that misses which come together, as
    /// those of a scan, count as less evidence. O(samples).
    pub(super) fn variance(&self, part: usize) -> Option<f64> {
        let counts: Vec<ReadCounts> = self
            .samples
            .iter()
            .map(|(_, sample)| Some(sample.parts.get(part)?.reads))
            .collect::<Option<_>>()?;
        let (first, last) = (counts.first()?, counts.last()?);
        let (reads, misses) = (last.reads() - first.reads(), last.misses - first.misses);
        let parts = counts.len() - 1;
        if parts < 2 {
            return None;
        }
        let ratio = misses as f64 / reads.max(1) as f64;
        let mut squares = 0.0;
        for pair in counts.windows(2) {
            let (reads, misses) = (pair[1].reads() - pair[0].reads(), pair[1].misses - pair[0].misses);
            if reads == 0 {
                return None;
            }
            let rest = misses as f64 - ratio * reads as f64;
            squares += rest * rest;
        }
        let parts = parts as f64;
        let misses = misses.max(1) as f64;
        Some(squares * parts / ((parts - 1.0) * misses * misses))
    }
}

impl PartSample {
    fn of(part: &TenantPartition) -> Self {
        Self { reads: part.reads, used_bytes: part.used_bytes, ..Self::default() }
    }
}

impl Sample {
    /// The growth since `before`; none if a counter shrank or the number of partitions changed.
    /// Used units that shrank count as none.
    fn since(&self, before: &Self) -> Option<Self> {
        if self.parts.len() != before.parts.len() || self.units.len() != before.units.len() {
            return None;
        }
        let units = self.units.iter().zip(&before.units).map(|(now, before)| {
            Some(UnitCounts {
                if_hit: growth(now.if_hit, before.if_hit)?,
                if_miss: growth(now.if_miss, before.if_miss)?,
                // Units that are given back, as after a throttled read, lower it for a moment.
                used: growth(now.used, before.used).unwrap_or(0.0),
            })
        });
        let parts = self.parts.iter().zip(&before.parts).map(|(now, before)| {
            let reads = ReadCounts {
                hits: now.reads.hits.checked_sub(before.reads.hits)?,
                misses: now.reads.misses.checked_sub(before.reads.misses)?,
                joined: now.reads.joined.checked_sub(before.reads.joined)?,
            };
            Some(PartSample {
                reads,
                predicted: now.predicted - before.predicted,
                compared: now.compared.saturating_sub(before.compared),
                used_bytes: before.used_bytes,
            })
        });
        Some(Self {
            requests: self.requests.checked_sub(before.requests)?,
            units: units.collect::<Option<_>>()?,
            parts: parts.collect::<Option<_>>()?,
        })
    }
}

/// The growth of a counter of units, none if it shrank. One that is not a number did not grow.
fn growth(now: f64, before: f64) -> Option<f64> {
    let grown = now - before;
    if grown.is_finite() { (grown >= 0.0).then_some(grown) } else { Some(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(requests: u64, units: UnitCounts) -> TenantObservation {
        let counts = super::super::TenantCounts { requests, units: vec![units] };
        TenantObservation { counts, ..TenantObservation::default() }
    }

    /// The variance of a partition's miss ratio after ten seconds with these misses of 100 reads.
    fn variance(misses: [u64; 10], idle: Option<usize>) -> Option<f64> {
        let mut history = History::new(Duration::from_secs(10));
        let mut reads = ReadCounts::default();
        for second in 0..=10 {
            if second > 0 && idle != Some(second) {
                reads.misses += misses[second - 1];
                reads.hits += 100 - misses[second - 1];
            }
            let part = TenantPartition {
                backend: sherwood_model::BackendId(0),
                budget_bytes: 100,
                used_bytes: 90 + second as u64,
                reads,
                curve: None,
            };
            let seen = TenantObservation { partitions: vec![part], ..TenantObservation::default() };
            history.add(Instant::from_secs(1 + second as u64), &seen, |_| None);
        }
        assert_eq!(history.used_bytes(0), (90, 100));
        history.variance(0)
    }

    #[test]
    fn misses_that_come_together_are_less_evidence() {
        let even = variance([18, 22, 20, 19, 21, 20, 22, 18, 21, 19], None).expect("it was measured");
        let bursts = variance([0, 100, 0, 0, 0, 0, 100, 0, 0, 0], None).expect("it was measured");
        assert!(even < 0.001 && (0.4..0.5).contains(&bursts), "{even}, {bursts}");
        assert_eq!(variance([20; 10], Some(4)), None, "there was no load for a second");
        assert_eq!(variance([0; 10], None), Some(0.0), "nothing missed");
    }

    #[test]
    fn refunded_units_leave_the_window_as_it_is() {
        let mut history = History::new(Duration::from_secs(60));
        let counts = [(0, 0.0, 0.0), (100, 100.0, 90.0), (130, 130.0, 70.0), (150, 150.0, 95.0)];
        for (second, (requests, if_miss, used)) in (1..).zip(counts) {
            let units = UnitCounts { if_hit: 0.0, if_miss, used };
            history.add(Instant::from_secs(second), &seen(requests, units), |_| None);
        }
        let (window, time) = history.window();
        assert_eq!((window.requests, time), (150, Duration::from_secs(3)));
        assert_eq!(window.units, [UnitCounts { if_hit: 0.0, if_miss: 150.0, used: 95.0 }]);
        history.add(Instant::from_secs(9), &seen(149, UnitCounts::default()), |_| None);
        let (window, time) = history.window();
        assert_eq!((window.requests, time), (0, Duration::ZERO), "the counters start anew");
    }
}
