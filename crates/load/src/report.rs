//! The result of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::Latencies;

/// The result of a run, as `sherwood load --json` prints it. Ratios and latencies are 0 if nothing
/// was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Operations that were due: answered, failed or never sent. `latency_us` is over all of them.
    /// A get that misses and its fill are one operation; with a gateway, an operation is a request.
    pub ops: u64,
    /// Operations per second of the run, without those never sent.
    pub ops_per_s: f64,
    /// Operations that failed: refused, disconnected, timed out or never sent. Contained in `ops`.
    pub errors: u64,
    /// Keys found.
    pub hits: u64,
    /// Keys not found.
    pub misses: u64,
    /// Keys that a gateway's backends do not have; contained in `misses`.
    pub not_found: u64,
    /// Keys that were refused, timed out or failed in requests that a gateway answered.
    pub failed_keys: u64,
    /// The least latency of a request to a gateway that failed, or has a failed key.
    #[serde(skip)]
    pub failed_latency: Option<Duration>,
    /// Keys found as a share of all keys looked up.
    pub hit_ratio: f64,
    /// Hits and misses by partition: object type of a trace, backend of a request, `all` of a
    /// key-value load.
    pub by_partition: BTreeMap<String, HitsMisses>,
    /// Latency from the intended start (with a rate) or from sending (closed loop) to the end of
    /// the operation.
    pub latency_us: LatencySummary,
    /// 99th percentile of the time by which operations were sent after their intended start, in
    /// microseconds; 0 in a closed loop.
    pub late_p99_us: f64,
    /// Values stored: sets, and fills after misses.
    pub sets: u64,
    /// Operations that were due and never sent, because the target or the generator fell behind:
    /// with a cache those still waiting a second after the end, with a gateway those due while the
    /// most allowed were outstanding. Contained in `errors`, and so in `ops`.
    pub unsent: u64,
    /// Length of the run in seconds, from the first intended start to the last answer.
    pub duration_s: f64,
    /// Deadlines missed and operations rejected, if the operations have a deadline.
    #[serde(flatten)]
    pub deadlines: Option<Deadlines>,
    /// True if the run reached its planned end.
    pub complete: bool,
    /// The reason why the run ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_because: Option<String>,
    /// The answer to the first operation that failed, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

/// Ends of the operations of a run whose operations have a deadline. Ratios are of all operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Deadlines {
    /// The deadline of every operation, from its start on.
    pub deadline_ms: f64,
    /// Operations that took longer than that, by the clock of this program and from their intended
    /// start, or that failed; rejected ones excluded.
    pub missed: u64,
    /// Operations with a key that the target refused at once, because its answer would have come
    /// too late or a bound was reached.
    pub rejected: u64,
    /// Operations with a key that the gateway marked as late.
    pub late: u64,
    /// Missed deadlines as a share of all operations.
    pub deadline_miss_ratio: f64,
    /// Rejected operations as a share of all operations.
    pub rejection_ratio: f64,
}

/// Counts of the ends of operations with a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineCounts {
    /// As in [`Deadlines::missed`].
    pub missed: u64,
    /// As in [`Deadlines::rejected`].
    pub rejected: u64,
    /// As in [`Deadlines::late`].
    pub late: u64,
}

impl DeadlineCounts {
    /// Counts an operation that was rejected, or else was in time or not.
    pub(crate) fn count(&mut self, rejected: bool, in_time: bool) {
        self.rejected += u64::from(rejected);
        self.missed += u64::from(!rejected && !in_time);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let Self { missed, rejected, late } = other;
        self.missed += missed;
        self.rejected += rejected;
        self.late += late;
    }

    /// Returns the counts of a run of `ops` operations with this deadline.
    pub(crate) fn of_run(self, deadline: Duration, ops: u64) -> Deadlines {
        let ratio = |count: u64| if ops > 0 { count as f64 / ops as f64 } else { 0.0 };
        let Self { missed, rejected, late } = self;
        Deadlines {
            deadline_ms: deadline.as_nanos() as f64 / 1e6,
            missed,
            rejected,
            late,
            deadline_miss_ratio: ratio(missed),
            rejection_ratio: ratio(rejected),
        }
    }
}

/// Keys found and not found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HitsMisses {
    /// Keys found.
    pub hits: u64,
    /// Keys not found.
    pub misses: u64,
}

/// Percentiles in microseconds, at most 1/128 too long and never too short; `max` is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Median latency.
    pub p50: f64,
    /// 90th percentile of latency.
    pub p90: f64,
    /// 99th percentile of latency.
    pub p99: f64,
    /// 99.9th percentile of latency.
    pub p99_9: f64,
    /// Longest latency.
    pub max: f64,
}

impl HitsMisses {
    /// Counts a key as found or not found.
    pub fn count(&mut self, hit: bool) {
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
    }

    /// Hits over hits and misses; 0 if there are none.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

impl LatencySummary {
    /// Summarises the recorded latencies.
    #[must_use]
    pub fn of(latencies: &Latencies) -> Self {
        let percentile = |percentile| us(latencies.percentile(percentile));
        let (p50, p90, p99, p99_9) = (percentile(50.0), percentile(90.0), percentile(99.0), percentile(99.9));
        Self { p50, p90, p99, p99_9, max: us(latencies.max()) }
    }
}

/// Converts a duration to microseconds, exact to the nanosecond.
pub(crate) fn us(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// Operations sent per second in a run of `duration_s` seconds: `ops` were due, `unsent` of them
/// never sent.
pub(crate) fn sent_per_s(ops: u64, unsent: u64, duration_s: f64) -> f64 {
    if duration_s > 0.0 { (ops - unsent) as f64 / duration_s } else { 0.0 }
}

/// Formats a summary of a few lines, with a table of the partitions.
impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LatencySummary { p50, p90, p99, p99_9, max } = self.latency_us;
        if let Some(reason) = &self.incomplete_because {
            writeln!(formatter, "incomplete    {reason}")?;
        }
        writeln!(
            formatter,
            "operations    {} in {:.1} s, {:.0} per second",
            self.ops, self.duration_s, self.ops_per_s
        )?;
        writeln!(formatter, "errors        {} (of these never sent: {})", self.errors, self.unsent)?;
        if let Some(latency) = self.failed_latency.filter(|_| self.errors + self.failed_keys > 0) {
            let (keys, seconds) = (self.failed_keys, latency.as_secs_f64());
            writeln!(formatter, "failed keys   {keys}; failed requests count as {seconds} s or longer")?;
        }
        let percent = self.hit_ratio * 100.0;
        writeln!(
            formatter,
            "hits, misses  {}, {} ({percent:.2}% hits); {} stored",
            self.hits, self.misses, self.sets
        )?;
        if self.not_found > 0 {
            writeln!(
                formatter,
                "not found     {} of the misses: the backends do not have these keys",
                self.not_found
            )?;
        }
        writeln!(
            formatter,
            "latency us    p50 {p50:.0}  p90 {p90:.0}  p99 {p99:.0}  p99.9 {p99_9:.0}  max {max:.0}"
        )?;
        writeln!(formatter, "late us       p99 {:.0}", self.late_p99_us)?;
        if let Some(Deadlines { deadline_ms, missed, rejected, late, .. }) = self.deadlines {
            writeln!(
                formatter,
                "deadline      {deadline_ms} ms: {missed} missed, {rejected} rejected, {late} marked late"
            )?;
        }
        if self.by_partition.len() > 1 {
            writeln!(formatter, "{:<12} {:>10} {:>10} {:>8}", "partition", "hits", "misses", "hits %")?;
            for (name, counts) in &self.by_partition {
                let percent = counts.hit_ratio() * 100.0;
                writeln!(formatter, "{name:<12} {:>10} {:>10} {percent:>8.2}", counts.hits, counts.misses)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_report_has_the_fields_that_scripts_read() {
        let report = Report {
            by_partition: BTreeMap::from([("t07".to_owned(), HitsMisses { hits: 1, misses: 2 })]),
            ..Report::default()
        };
        let json = serde_json::to_value(&report).unwrap();
        for field in ["ops", "ops_per_s", "errors", "hits", "misses", "hit_ratio", "late_p99_us"] {
            assert!(json[field].is_number(), "{field}");
        }
        for field in ["p50", "p90", "p99", "p99_9", "max"] {
            assert!(json["latency_us"][field].is_number(), "{field}");
        }
        assert!(json.get("deadline_ms").is_none());
        let deadlines = DeadlineCounts { missed: 3, rejected: 1, late: 2 };
        let report = Report { deadlines: Some(deadlines.of_run(Duration::from_micros(2_500), 4)), ..report };
        let with_deadline = serde_json::to_value(&report).unwrap();
        for (field, value) in [
            ("deadline_ms", 2.5),
            ("missed", 3.0),
            ("rejected", 1.0),
            ("late", 2.0),
            ("deadline_miss_ratio", 0.75),
            ("rejection_ratio", 0.25),
        ] {
            assert_eq!(with_deadline[field].as_f64(), Some(value), "{field}");
        }
        assert!(report.to_string().contains("deadline      2.5 ms: 3 missed, 1 rejected, 2 marked late\n"));
        assert_eq!(json["by_partition"]["t07"], serde_json::json!({ "hits": 1, "misses": 2 }));
    }

    #[test]
    fn text_report_says_as_what_failed_requests_count() {
        let failed_latency = Some(Duration::from_secs(10));
        let text = |failed_keys| Report { failed_keys, failed_latency, ..Report::default() }.to_string();
        assert!(
            text(3).contains("failed keys   3; failed requests count as 10 s or longer\n"),
            "{}",
            text(3)
        );
        assert!(!text(0).contains("10 s"), "{}", text(0));
    }

    #[test]
    fn hit_ratio_of_a_report_without_keys_is_zero() {
        assert_eq!(HitsMisses::default().hit_ratio(), 0.0);
        assert_eq!(HitsMisses { hits: 1, misses: 3 }.hit_ratio(), 0.25);
    }
}
