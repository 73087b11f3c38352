//! Metrics as lists of samples.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use sherwood_dispatch::Stats;

/// A label and its value on one sample.
pub(super) type Labels = Vec<(&'static str, String)>;

/// The name and statistics of a backend.
pub(super) type BackendStats = (String, Stats);

pub(super) fn one<T>(value: T) -> Vec<(Labels, T)> {
    vec![(Vec::new(), value)]
}

pub(super) fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<(Labels, u64)>,
) -> fmt::Result {
    family(encoder, name, help, samples.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value))))
}

pub(super) fn amounts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<(Labels, f64)>,
) -> fmt::Result {
    let samples = samples.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value)));
    family(encoder, name, help, samples)
}

pub(super) fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<(Labels, f64)>,
) -> fmt::Result {
    family(encoder, name, help, samples.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value))))
}

pub(super) fn family<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (Labels, M)>,
) -> fmt::Result {
    let mut samples = samples.peekable();
    let Some((_, first)) = samples.peek() else { return Ok(()) };
    let mut metric = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (labels, value) in samples {
        if labels.is_empty() {
            return value.encode(metric);
        }
        value.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
