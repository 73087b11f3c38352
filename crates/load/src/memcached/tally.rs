//! Counts of a run under way.

use std::time::Duration;

use super::Ended;
use super::operations::Operations;
use crate::report::us;
use crate::{HitsMisses, Latencies, LatencySummary, Report};

/// What has happened, and who is told of it.
pub(super) struct Tally<'a> {
    observe: &'a mut dyn FnMut(&Ended),
    pub(super) ops: u64,
    pub(super) errors: u64,
    pub(super) unsent: u64,
    pub(super) sets: u64,
    /// By the index of the partition.
    by_partition: Vec<HitsMisses>,
    latency: Latencies,
    lateness: Latencies,
}

impl<'a> Tally<'a> {
    pub(super) fn new(observe: &'a mut dyn FnMut(&Ended)) -> Self {
        Self {
            observe,
            ops: 0,
            errors: 0,
            unsent: 0,
            sets: 0,
            by_partition: Vec::new(),
            latency: Latencies::default(),
            lateness: Latencies::default(),
        }
    }

    pub(super) fn started(&mut self, late_ns: u64) {
        self.lateness.record_ns(late_ns);
    }

    pub(super) fn looked_up(&mut self, partition: usize, hits: u32, misses: u32) {
        if self.by_partition.len() <= partition {
            self.by_partition.resize(partition + 1, HitsMisses::default());
        }
        self.by_partition[partition].hits += u64::from(hits);
        self.by_partition[partition].misses += u64::from(misses);
    }

    pub(super) fn ended(&mut self, ended: &Ended) {
        self.ops += 1;
        self.errors += u64::from(ended.failed);
        self.latency.record(ended.latency);
        (self.observe)(ended);
    }

    /// An operation that was due and never sent: nobody was answered, so it counts as an error and at least as slow as
    /// the wait until now.
    pub(super) fn never_sent(&mut self, intended: Duration, waited: Duration) {
        self.unsent += 1;
        self.errors += 1;
        self.latency.record(waited);
        self.lateness.record(waited);
        (self.observe)(&Ended { intended, latency: waited, hits: 0, misses: 0, failed: true });
    }

    pub(super) fn report(self, operations: &dyn Operations, duration_s: f64, open: bool) -> Report {
        let total = self.by_partition.iter().fold(HitsMisses::default(), |sum, counts| HitsMisses {
            hits: sum.hits + counts.hits,
            misses: sum.misses + counts.misses,
        });
        let asked =
            self.by_partition.iter().enumerate().filter(|(_, counts)| counts.hits + counts.misses > 0);
        Report {
            ops: self.ops,
            ops_per_s: if duration_s > 0.0 { self.ops as f64 / duration_s } else { 0.0 },
            errors: self.errors,
            hits: total.hits,
            misses: total.misses,
            hit_ratio: total.hit_ratio(),
            by_partition: asked.map(|(index, counts)| (operations.partition_name(index), *counts)).collect(),
            latency_us: LatencySummary::of(&self.latency),
            late_p99_us: if open { us(self.lateness.percentile(99.0)) } else { 0.0 },
            sets: self.sets,
            unsent: self.unsent,
            duration_s,
            complete: true,
            incomplete_because: None,
        }
    }
}
