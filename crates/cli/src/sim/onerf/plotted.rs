//! Data for the plots of a run: a subset of the observations.

use serde::{Deserialize, Serialize};
use sherwood_sim::{BackendSample, Sample};

/// Observations over time, as columns. Values are rounded to four digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct Series {
    /// Minutes since the measurement began, for each observation of the SLO.
    pub(in crate::sim) minute: Vec<f64>,
    /// P50 of request latency; none when no request ended.
    pub(in crate::sim) p50_ms: Vec<Option<f64>>,
    pub(in crate::sim) p90_ms: Vec<Option<f64>>,
    pub(in crate::sim) p99_ms: Vec<Option<f64>>,
    /// The backends in the order of their ids.
    pub(in crate::sim) backends: Vec<BackendSeries>,
}

/// Values of a backend once a minute: at the first observation in or after that minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::sim) struct BackendSeries {
    pub(in crate::sim) name: String,
    pub(in crate::sim) query_p99_ms: Vec<Option<f64>>,
    pub(in crate::sim) blocking_ratio: Vec<f64>,
    pub(in crate::sim) allocation_bytes: Vec<f64>,
}

impl Series {
    /// Extracts the columns from `samples`; `names` are those of the backends.
    pub(in crate::sim) fn of(names: impl Iterator<Item = String>, samples: &[Sample]) -> Self {
        let column = |value: fn(&Sample) -> Option<f64>| {
            samples.iter().map(|sample| value(sample).map(rounded)).collect()
        };
        let minutes: Vec<&Sample> = samples
            .iter()
            .enumerate()
            .filter(|&(index, sample)| begins(index.checked_sub(1).map(|before| &samples[before]), sample))
            .map(|(_, sample)| sample)
            .collect();
        let backend = |(index, name): (usize, String)| {
            let of = |value: fn(&BackendSample) -> f64| {
                minutes.iter().map(|sample| rounded(value(&sample.backends[index]))).collect()
            };
            let p99 = |sample: &&Sample| sample.backends[index].query_p99_ms.map(rounded);
            BackendSeries {
                name,
                query_p99_ms: minutes.iter().map(p99).collect(),
                blocking_ratio: of(|backend| backend.blocking_ratio),
                allocation_bytes: of(|backend| backend.allocation_bytes),
            }
        };
        Self {
            minute: samples.iter().map(|sample| rounded(sample.minute)).collect(),
            p50_ms: column(|sample| sample.p50_ms),
            p90_ms: column(|sample| sample.p90_ms),
            p99_ms: column(|sample| sample.p99_ms),
            backends: names.enumerate().map(backend).collect(),
        }
    }
}

/// Returns true for the first sample of a minute; a sample on the boundary belongs to the new
/// minute.
fn begins(before: Option<&Sample>, sample: &Sample) -> bool {
    let minute = |sample: &Sample| (sample.minute + 1e-9).floor();
    minute(sample) >= 1.0 && before.is_none_or(|before| minute(before) < minute(sample))
}

/// Rounds to four digits using the decimal notation, because logarithms differ between machines.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plotted_values_are_rounded_to_four_digits() {
        assert_eq!([1234.56, 0.0123456, 7.0, 0.0].map(rounded), [1235.0, 0.01235, 7.0, 0.0]);
        assert_eq!(rounded(123_456_789.0), 123_500_000.0);
    }

    #[test]
    fn plotted_backends_have_a_value_for_each_minute() {
        let backend = BackendSample {
            limit: 1.0,
            waiting: 0,
            query_p99_ms: None,
            blocking_ratio: 0.5,
            hit_ratio: None,
            allocation_bytes: 1e6,
            used_bytes: 1.0,
        };
        let sample = |number: u32| Sample {
            minute: f64::from(number + 1) / 12.0,
            p50_ms: None,
            p90_ms: None,
            p99_ms: Some(f64::from(number)),
            violated: false,
            backends: vec![BackendSample { allocation_bytes: f64::from(number), ..backend }],
        };
        let samples: Vec<_> = (0..30).map(sample).collect();
        let series = Series::of(["b01".to_owned()].into_iter(), &samples);
        assert_eq!((series.p99_ms.len(), series.p99_ms[3]), (30, Some(3.0)));
        assert_eq!(series.backends[0].allocation_bytes, [11.0, 23.0], "minutes 1 and 2");
    }
}
