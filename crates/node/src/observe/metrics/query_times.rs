//! Histograms of the times of queries, for listeners and the gateway together.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use sherwood_model::PartitionId;
use sherwood_model::query_times::{CLASSIC_BOUNDS_NS, LatencyHistogram, Operation, QueryKind, QueryTime};

use super::samples::{Labels, family};
use crate::core::Core;

/// The partition label that stands for all partitions without histograms of their own.
const OTHERS: &str = "other";

/// A metric family of histograms.
pub(super) struct TimesFamily {
    /// The name of the family without the node's prefix.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) histograms: Vec<(Labels, LatencyHistogram)>,
}

/// Returns the histograms of the times of all queries since the start.
pub(super) fn read(core: &Core) -> [TimesFamily; 2] {
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
            QueryTime::Queued => queued.push((labels, histogram)),
            QueryTime::Ended(outcome) => {
                labels.push(("outcome", outcome.name().to_owned()));
                ended.push((labels, histogram));
            }
        }
    }
    let ended = TimesFamily {
        name: "query_duration_seconds",
        help: "Time of a query for a key until it was answered; hits, and others that the cache alone \
               answers, are sampled: of 64 input batches one is timed",
        histograms: ended,
    };
    let queued = TimesFamily {
        name: "query_queue_seconds",
        help: "Time for which keys waited for the start of their call to a backend",
        histograms: queued,
    };
    [ended, queued]
}

/// Encodes the histograms with their classic buckets.
pub(super) fn encode(times: &[TimesFamily], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    times.iter().try_for_each(|TimesFamily { name, help, histograms }| {
        let histograms = histograms.iter().map(|(labels, histogram)| (labels.clone(), Latencies(histogram)));
        family(encoder, name, help, histograms)
    })
}

/// A histogram, encoded as a metric with classic buckets.
struct Latencies<'a>(&'a LatencyHistogram);

impl EncodeMetric for Latencies<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let classic: Vec<_> = classic_buckets(self.0).collect();
        encoder.encode_histogram::<NoLabelSet>(self.0.sum_s(), self.0.count(), &classic, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Returns the classic buckets, each with its upper bound in seconds and its own count (not
/// cumulative).
pub(super) fn classic_buckets(histogram: &LatencyHistogram) -> impl Iterator<Item = (f64, u64)> {
    let bounds = CLASSIC_BOUNDS_NS.iter().map(|&nanos| nanos as f64 / 1e9).chain([f64::INFINITY]);
    bounds.zip(histogram.classic())
}
