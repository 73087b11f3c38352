//! Options of the guard, which rolls back moves that made requests slower.

use std::time::Duration;

use serde::Deserialize;

use crate::OptionsError;
use crate::options::seconds;

/// Options of the guard. The defaults are chosen: a quarter is more than the 99th percentile moves
/// between two seconds of a steady load, two rounds of tax never raise the misses by a tenth, and
/// with half of the blame no other backend blocks more.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuardOptions {
    /// The percentile of request latency that is monitored, 1 to 99.99: the SLO's.
    pub percentile: f64,
    /// Largest tail of request latency that is harmless, in seconds when read: the SLO's bound.
    #[serde(deserialize_with = "seconds")]
    pub bound: Duration,
    /// Least increase of the tail of request latency over that of the last good allocation, as a
    /// part of the latter; 0.01 to 100.
    pub worse_ratio: f64,
    /// Least increase of a partition's miss ratio over that under the last good allocation, as a
    /// part of the latter; 0.01 to 100.
    pub miss_rise_ratio: f64,
    /// Least share of the slow requests blocked by the backends of partitions that lost bytes and
    /// miss more often; 0.01 to 1.
    pub blame_ratio: f64,
    /// Time for which the restored allocation is kept after a rollback, in seconds when read; 1 ms
    /// to 1 d.
    #[serde(deserialize_with = "seconds")]
    pub freeze: Duration,
    /// Time for which a good allocation may be rolled back to, in seconds when read; 1 ms to 1 d.
    #[serde(deserialize_with = "seconds")]
    pub memory: Duration,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self {
            percentile: 99.0,
            bound: Duration::from_millis(150),
            worse_ratio: 0.25,
            miss_rise_ratio: 0.1,
            blame_ratio: 0.5,
            freeze: Duration::from_secs(600),
            memory: Duration::from_secs(1_800),
        }
    }
}

/// Longest accepted `freeze` and `memory`.
const DAY: Duration = Duration::from_secs(86_400);

impl GuardOptions {
    /// Checks every option.
    ///
    /// # Errors
    /// The first option out of range, with the accepted range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let Self { percentile, bound: _, worse_ratio, miss_rise_ratio, blame_ratio, freeze, memory } = *self;
        let range = |key, value: f64, min: f64, max: f64| {
            let refusal = OptionsError::Guard { key, value, min, max };
            if (min..=max).contains(&value) { Ok(()) } else { Err(refusal) }
        };
        range("percentile", percentile, 1.0, 99.99)?;
        range("worse_ratio", worse_ratio, 0.01, 100.0)?;
        range("miss_rise_ratio", miss_rise_ratio, 0.01, 100.0)?;
        range("blame_ratio", blame_ratio, 0.01, 1.0)?;
        let day = DAY.as_secs_f64();
        range("freeze", freeze.as_secs_f64(), 0.001, day)?;
        range("memory", memory.as_secs_f64(), 0.001, day)
    }
}
