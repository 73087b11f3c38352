//! Counts operations of a run by result.

use std::time::Duration;

use sherwood_workload::tenants::pause_after_refusal;

use super::Ended;
use super::operations::Operations;
use super::retry::retry_in;
use crate::report::{sent_per_s, us};
use crate::{DeadlineCounts, HitsMisses, Latencies, LatencySummary, Report};

/// The counts of a run so far, and its observer.
pub(super) struct Tally<'a> {
    observe: &'a mut dyn FnMut(&Ended),
    pub(super) ops: u64,
    pub(super) errors: u64,
    pub(super) unsent: u64,
    pub(super) sets: u64,
    /// The deadline of each operation, and the counts of their ends.
    deadline: Option<Duration>,
    deadlines: DeadlineCounts,
    /// The text with which the first operation was refused.
    pub(super) first_error: Option<String>,
    /// The pause that the latest rejection asks for, until it is [taken](Self::take_pause).
    pause: Option<Duration>,
    /// Hits and misses by the index of the partition.
    by_partition: Vec<HitsMisses>,
    latency: Latencies,
    lateness: Latencies,
    /// Intended starts of the operations built and not sent yet; at most those of one pass of the
    /// driver.
    built: Vec<u64>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(deadline: Option<Duration>, observe: &'a mut dyn FnMut(&Ended)) -> Self {
        Self {
            observe,
            ops: 0,
            errors: 0,
            unsent: 0,
            sets: 0,
            deadline,
            deadlines: DeadlineCounts::default(),
            first_error: None,
            pause: None,
            by_partition: Vec::new(),
            latency: Latencies::default(),
            lateness: Latencies::default(),
            built: Vec::new(),
        }
    }

    /// Notes the intended start of an operation that was built; its lateness is known when it is
    /// [`sent`](Self::sent).
    pub(super) fn built(&mut self, intended_ns: u64) {
        self.built.push(intended_ns);
    }

    pub(super) fn has_built(&self) -> bool {
        !self.built.is_empty()
    }

    /// Records the lateness of the operations built so far, which have been passed to their
    /// sockets.
    pub(super) fn sent(&mut self, now_ns: u64) {
        for intended_ns in self.built.drain(..) {
            self.lateness.record_ns(now_ns.saturating_sub(intended_ns));
        }
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
        self.count_deadline(ended);
        (self.observe)(ended);
    }

    fn count_deadline(&mut self, ended: &Ended) {
        if let Some(deadline) = self.deadline {
            self.deadlines.count(ended.rejected, !ended.failed && ended.latency <= deadline);
        }
    }

    /// Notes the text with which the target refused an operation. Does not end the operation.
    pub(super) fn refused(&mut self, text: String) {
        self.first_error.get_or_insert(text);
    }

    /// Notes the text with which the target rejected an operation.
    pub(super) fn rejected(&mut self, text: String) {
        self.pause = Some(pause_after_refusal(retry_in(&text)));
        self.refused(text);
    }

    /// Takes the pause that a client has to make because of a rejection since the last call.
    pub(super) fn take_pause(&mut self) -> Option<Duration> {
        self.pause.take()
    }

    /// Counts an operation that was due and never sent: an error, with the time waited so far as
    /// its latency.
    pub(super) fn never_sent(&mut self, intended: Duration, waited: Duration) {
        self.ops += 1;
        self.unsent += 1;
        self.errors += 1;
        self.latency.record(waited);
        self.lateness.record(waited);
        let ended = Ended { intended, latency: waited, hits: 0, misses: 0, failed: true, rejected: false };
        self.count_deadline(&ended);
        (self.observe)(&ended);
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
            ops_per_s: sent_per_s(self.ops, self.unsent, duration_s),
            errors: self.errors,
            hits: total.hits,
            misses: total.misses,
            not_found: 0,
            failed_keys: 0,
            failed_latency: None,
            hit_ratio: total.hit_ratio(),
            by_partition: asked.map(|(index, counts)| (operations.partition_name(index), *counts)).collect(),
            latency_us: LatencySummary::of(&self.latency),
            late_p99_us: if open { us(self.lateness.percentile(99.0)) } else { 0.0 },
            sets: self.sets,
            unsent: self.unsent,
            duration_s,
            deadlines: self.deadline.map(|deadline| self.deadlines.of_run(deadline, self.ops)),
            complete: true,
            incomplete_because: None,
            first_error: self.first_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use sherwood_workload::KeyValueOptions;

    use super::*;
    use crate::cache::Workload;
    use crate::cache::operations::from_workload;

    fn report(tally: Tally<'_>) -> Report {
        let workload = Workload::KeyValue {
            options: KeyValueOptions::default(),
            batch: 1,
            prefixes: Vec::new(),
            seed: 1,
        };
        tally.report(from_workload(workload, None).expect("defaults are valid").as_ref(), 2.0, true)
    }

    #[test]
    fn lateness_of_operations_counts_until_their_batch_is_sent() {
        let mut observe = |_: &Ended| {};
        let mut tally = Tally::new(None, &mut observe);
        tally.built(0);
        tally.built(7_000_000);
        assert!(tally.has_built());
        tally.sent(8_000_000);
        assert!(!tally.has_built());
        let late_us = report(tally).late_p99_us;
        assert!((8_000.0..=8_000.0 * (1.0 + 1.0 / 128.0)).contains(&late_us), "{late_us}");
    }

    #[test]
    fn operations_never_sent_count_as_operations_and_errors() {
        let mut observe = |_: &Ended| {};
        let mut tally = Tally::new(None, &mut observe);
        let moment = Duration::from_micros(1);
        let ended =
            |failed| Ended { intended: moment, latency: moment, hits: 0, misses: 0, failed, rejected: false };
        tally.ended(&ended(false));
        tally.ended(&ended(true));
        tally.never_sent(moment, 5 * moment);
        tally.never_sent(moment, 5 * moment);
        let report = report(tally);
        assert_eq!((report.ops, report.errors, report.unsent), (4, 3, 2));
        assert_eq!(report.ops_per_s, 1.0, "two were sent in two seconds");
    }

    #[test]
    fn operations_miss_their_deadline_when_they_are_slow_or_fail_unless_rejected() {
        let mut observe = |_: &Ended| {};
        let ms = Duration::from_millis;
        let mut tally = Tally::new(Some(ms(5)), &mut observe);
        for (latency, failed, rejected) in
            [(5, false, false), (6, false, false), (1, true, false), (1, true, true), (9, true, true)]
        {
            let ended = Ended { intended: ms(1), latency: ms(latency), hits: 0, misses: 0, failed, rejected };
            tally.ended(&ended);
        }
        tally.never_sent(ms(1), ms(1));
        let deadlines = report(tally).deadlines.expect("there is a deadline");
        assert_eq!((deadlines.missed, deadlines.rejected, deadlines.late), (3, 2, 0));
        assert_eq!((deadlines.deadline_miss_ratio, deadlines.rejection_ratio), (0.5, 2.0 / 6.0));
    }
}
