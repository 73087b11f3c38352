//! Prometheus' protobuf format, the only Prometheus format with native histograms.
//!
//! The crate prometheus-client supports this format, too, but compiles the definition at each
//! build, with sixteen crates that nothing else needs. So the messages are declared here, with only
//! the fields that a node uses, and filled from the text that prometheus-client encodes. Histograms
//! are filled from their counters instead, because the text has only their classic buckets.

use prost::Message;
use sherwood_model::query_times::{LatencyHistogram, NativeBuckets};

use super::query_times::{TimesFamily, classic_buckets};

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "Kind", tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Kind {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// The value of a counter or of a gauge.
#[derive(Clone, Copy, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
}

/// A classic (cumulative) histogram bucket.
#[derive(Clone, Copy, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
}

/// A run of consecutive buckets of a native histogram.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct BucketSpan {
    /// Number of empty buckets since the end of the span before; for the first span, the index of
    /// its first bucket.
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// Encodes the metric families of the OpenMetrics text `open`, each preceded by its length. The
/// histograms of `times` replace the families that have the same names after `prefix`. O(bytes of
/// the text).
pub(super) fn encode(open: &str, prefix: &str, times: &[TimesFamily]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in families(open, prefix, times) {
        family.encode_length_delimited(&mut bytes).expect("memory takes everything");
    }
    bytes
}

fn families(open: &str, prefix: &str, times: &[TimesFamily]) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    let mut help = "";
    for line in open.lines() {
        if let Some((_, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = text;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (kind, suffix) = match kind {
                "counter" => (Kind::Counter, "_total"),
                "histogram" => (Kind::Histogram, ""),
                // A node has no other types.
                _ => (Kind::Gauge, ""),
            };
            let plain = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
            let times = times.iter().find(|times| Some(times.name) == plain);
            let histograms = times.map_or(&[][..], |times| &times.histograms);
            let metric = histograms.iter().map(|(labels, histogram)| Metric {
                label: labels.iter().map(|(name, value)| LabelPair::new(name, value)).collect(),
                histogram: Some(Histogram::of(histogram)),
                ..Metric::default()
            });
            families.push(MetricFamily {
                name: format!("{name}{suffix}"),
                help: help.to_owned(),
                kind: kind.into(),
                metric: metric.collect(),
            });
        } else if let Some(family) = families.last_mut().filter(|family| family.kind() != Kind::Histogram) {
            family.metric.extend(Metric::of_line(line, family.kind()));
        }
    }
    families
}

impl Metric {
    /// Parses a line into a metric; none if the line has no sample.
    fn of_line(line: &str, kind: Kind) -> Option<Self> {
        let (name, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
        let number = Some(Number { value: value.parse().ok()? });
        let label = name.split_once('{').map_or_else(Vec::new, |(_, labels)| labels_of(labels));
        let metric = Self { label, ..Self::default() };
        Some(if kind == Kind::Counter {
            Self { counter: number, ..metric }
        } else {
            Self { gauge: number, ..metric }
        })
    }
}

/// Parses labels of the form `name="value",…}`. Quotes, backslashes and line feeds in values are
/// escaped.
fn labels_of(mut text: &str) -> Vec<LabelPair> {
    let mut labels = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut chars = rest.chars();
        while let Some(char) = chars.next().filter(|&char| char != '"') {
            value.push(match char {
                '\\' => chars.next().map_or('\\', |escaped| if escaped == 'n' { '\n' } else { escaped }),
                char => char,
            });
        }
        labels.push(LabelPair::new(name, &value));
        text = chars.as_str().trim_start_matches(',');
    }
    labels
}

impl LabelPair {
    fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: value.to_owned() }
    }
}

impl Histogram {
    fn of(histogram: &LatencyHistogram) -> Self {
        let mut cumulative_count = 0;
        let bucket = classic_buckets(histogram).map(|(upper_bound, count)| {
            cumulative_count += count;
            Bucket { cumulative_count, upper_bound }
        });
        let bucket = bucket.collect();
        let NativeBuckets { zero, buckets } = histogram.native();
        let (positive_span, positive_delta) = compressed(&buckets);
        Self {
            sample_count: histogram.count(),
            sample_sum: histogram.sum_s(),
            bucket,
            schema: LatencyHistogram::NATIVE_SCHEMA,
            zero_threshold: LatencyHistogram::ZERO_THRESHOLD_S,
            zero_count: zero,
            positive_span,
            positive_delta,
        }
    }
}

/// Encodes pairs of bucket index and count as spans of consecutive buckets, and as the difference
/// of each count to the one before.
fn compressed(buckets: &[(i32, u64)]) -> (Vec<BucketSpan>, Vec<i64>) {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let (mut next, mut before) = (0, 0);
    let mut deltas = Vec::with_capacity(buckets.len());
    for &(index, count) in buckets {
        match spans.last_mut() {
            Some(span) if index == next => span.length += 1,
            _ => spans.push(BucketSpan { offset: index - next, length: 1 }),
        }
        // Counts are far below 2^63.
        deltas.push(count as i64 - before);
        (next, before) = (index + 1, count as i64);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sherwood_model::PartitionId;
    use sherwood_model::query_times::{Operation, QueryKind, QueryOutcome, QueryTimes};

    use super::*;

    #[test]
    fn consecutive_histogram_buckets_are_encoded_as_one_span() {
        let (spans, deltas) = compressed(&[(-3, 5), (-2, 7), (1, 7), (2, 1)]);
        let span = |offset, length| BucketSpan { offset, length };
        assert_eq!(spans, [span(-3, 2), span(2, 2)]);
        assert_eq!(deltas, [5, 2, 0, -6]);
        assert_eq!(compressed(&[]), (vec![], vec![]));
    }

    #[test]
    fn protobuf_metric_families_have_the_same_samples_as_the_text_format() {
        let text = "# HELP sherwood_hits Found\n# TYPE sherwood_hits counter\n\
                    sherwood_hits_total{partition=\"a,b=\\\"{}\\\\n\\n\",kind=\"\"} 7\n\
                    # HELP sherwood_level It may have no limit\n# TYPE sherwood_level gauge\nsherwood_level +Inf\n\
                    # HELP sherwood_times Seconds\n# TYPE sherwood_times histogram\n\
                    sherwood_times_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let counted = QueryTimes::default();
        let kind = QueryKind::ended(PartitionId(0), Operation::Get, QueryOutcome::Hit);
        counted.recorder().record(kind, Duration::from_millis(1), 1);
        let histogram = counted.read().remove(&kind).expect("it was recorded");
        let histograms = vec![(vec![("partition", "a".to_owned())], histogram)];
        let times = [TimesFamily { name: "times", help: "Seconds", histograms }];
        let families = families(text, "sherwood", &times);
        let [hits, level, times] = &families[..] else { panic!("{families:?}") };
        assert_eq!((hits.name.as_str(), hits.help.as_str()), ("sherwood_hits_total", "Found"));
        let labels = [LabelPair::new("partition", "a,b=\"{}\\n\n"), LabelPair::new("kind", "")];
        assert_eq!(hits.metric[0].label, labels);
        assert_eq!(hits.metric[0].counter, Some(Number { value: 7.0 }));
        assert_eq!(
            (level.kind(), level.metric[0].gauge),
            (Kind::Gauge, Some(Number { value: f64::INFINITY }))
        );
        let [Metric { label, histogram: Some(times), .. }] = &times.metric[..] else { panic!("{times:?}") };
        assert_eq!((label[0].value.as_str(), times.sample_count, times.bucket.len()), ("a", 1, 20));
        assert_eq!(times.bucket.last().map(|bucket| bucket.cumulative_count), Some(1));
    }
}
