//! Histograms of queries' times, of listeners and of the gateway together.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use sherwood_model::PartitionId;
use sherwood_model::query_times::{
    CLASSIC_BOUNDS_NS, LatencyHistogram, NativeBuckets, Operation, QueryKind, QueryTime,
};

use super::{Labels, family};
use crate::core::Core;

/// The partition's label of those that have no histograms of their own.
const OTHERS: &str = "other";

/// Encodes the times of all queries since the start.
pub(super) fn encode(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let times = core.times.read();
    // A partition may have the name that stands for the others.
    let mut named: BTreeMap<(&str, Operation, QueryTime), LatencyHistogram> = BTreeMap::new();
    for (QueryKind { partition, operation, time }, histogram) in &times {
        let name = |partition: PartitionId| core.names.partitions()[partition.index()].name.as_str();
        named.entry((partition.map_or(OTHERS, name), *operation, *time)).or_default().merge(histogram);
    }
    let (mut ended, mut queued) = (Vec::new(), Vec::new());
    for ((partition, operation, time), histogram) in named {
        let operation = operation.name().to_owned();
        let mut labels: Labels = vec![("partition", partition.to_owned()), ("operation", operation)];
        match time {
            QueryTime::Queued => queued.push((labels, Latencies(histogram))),
            QueryTime::Ended(outcome) => {
                labels.push(("outcome", outcome.name().to_owned()));
                ended.push((labels, Latencies(histogram)));
            }
        }
    }
    let help = "Time of a query for a key until it was answered; hits, and others that the cache alone \
                answers, are sampled: of 64 input batches one is timed";
    family(encoder, "query_duration_seconds", help, ended.into_iter())?;
    let help = "Time for which keys waited for the start of their call to a backend";
    family(encoder, "query_queue_seconds", help, queued.into_iter())
}

/// A histogram as a metric.
struct Latencies(LatencyHistogram);

impl EncodeMetric for Latencies {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Self(histogram) = self;
        let bounds = CLASSIC_BOUNDS_NS.iter().map(|&nanos| nanos as f64 / 1e9).chain([f64::INFINITY]);
        let classic: Vec<_> = bounds.zip(histogram.classic()).collect();
        let NativeBuckets { zero, buckets } = histogram.native();
        let (spans, deltas) = compressed(&buckets);
        let native = NativeHistogram {
            schema: LatencyHistogram::NATIVE_SCHEMA,
            zero_threshold: LatencyHistogram::ZERO_THRESHOLD_S,
            zero_count: zero,
            negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
            positive: NativeHistogramBuckets { spans: &spans, deltas: &deltas },
            created: None,
        };
        // Read at one moment: the counts agree.
        let count = histogram.count();
        encoder.encode_histogram_with_native::<NoLabelSet>(histogram.sum_s(), count, &classic, None, native)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Returns numbered buckets as a native histogram has them: spans of consecutive buckets, each with
/// the gap before it (for the first, its number) and its length, and the difference of each count
/// to the one before.
fn compressed(buckets: &[(i32, u64)]) -> (Vec<(i32, u32)>, Vec<i64>) {
    let mut spans: Vec<(i32, u32)> = Vec::new();
    let (mut next, mut before) = (0, 0);
    let mut deltas = Vec::with_capacity(buckets.len());
    for &(index, count) in buckets {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        // Counts are far below 2^63.
        deltas.push(count as i64 - before);
        (next, before) = (index + 1, count as i64);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_buckets_form_a_span() {
        let (spans, deltas) = compressed(&[(-3, 5), (-2, 7), (1, 7), (2, 1)]);
        assert_eq!(spans, [(-3, 2), (2, 2)]);
        assert_eq!(deltas, [5, 2, 0, -6]);
        assert_eq!(compressed(&[]), (vec![], vec![]));
    }
}
