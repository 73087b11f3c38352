//! Options of single policies.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

use super::{OptionsError, seconds};

/// Accepted range of the time for which `tao` learns: up to a week.
const LEARN: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 3_600);
/// Accepted range of the size of a shadow queue (record of the keys evicted last) as a share of the
/// total.
const SHADOW: RangeInclusive<f64> = 0.0001..=0.5;
/// Accepted range of the bytes that a hit in a shadow queue moves to its partition: up to a
/// gibibyte.
const CREDIT: RangeInclusive<u64> = 1..=1 << 30;
/// Accepted range of the unit in which `lama` divides: at most a thousand units, because its time
/// grows with their square.
const GRID: RangeInclusive<f64> = 0.001..=0.1;

/// Options of policy `tao`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaoOptions {
    /// Time for which RobinHood decides before the sizes are frozen, in seconds when read; 1 ms to
    /// a week.
    #[serde(deserialize_with = "seconds")]
    pub learn: Duration,
    /// Rule for the sizes that are frozen after learning.
    pub mode: TaoMode,
    /// Sizes known in advance, in the order of the partitions' ids; nothing is learnt then. Empty
    /// to learn.
    pub budgets_bytes: Vec<u64>,
}

/// The sizes that `tao` freezes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaoMode {
    /// The mean of each partition's size over the learning time.
    #[default]
    Mean,
    /// The sizes at the end of the learning time.
    Snapshot,
}

/// Options of policy `cliffhanger`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CliffhangerOptions {
    /// Size of each partition's shadow queue (record of the keys evicted last) as a share of the
    /// total, 0.0001 to 0.5.
    pub shadow: f64,
    /// Bytes that one hit in a shadow queue moves to its partition, 1 B to 1 GiB.
    pub credit_bytes: u64,
}

/// Options of policy `fair`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FairOptions {
    /// Method of making the partitions' miss ratios equal.
    pub mode: FairMode,
}

/// Methods by which `fair` makes the partitions' miss ratios equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FairMode {
    /// The pool of tax paid in each round goes to the partitions that hit less than the mean.
    #[default]
    Feedback,
    /// Steps towards the sizes at which all miss ratio curves have the same value.
    Waterfill,
}

/// Options of policy `lama`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LamaOptions {
    /// Cost that the division of the cache is to minimise.
    pub mode: LamaMode,
    /// The unit in which space is divided, as a share of the space to divide, 0.001 to 0.1.
    pub grid: f64,
}

/// The cost that `lama` minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LamaMode {
    /// The largest 99th percentile of query latency of any partition, then the objective of
    /// [`LamaMode::Sum`].
    #[default]
    Minmax,
    /// The sum over all misses of their backend's 99th percentile of latency.
    Sum,
    /// No cost is minimised and no curve is needed: the pool of tax paid in each round goes to the
    /// partitions with slow queries.
    Threshold,
}

impl Default for TaoOptions {
    fn default() -> Self {
        Self { learn: Duration::from_secs(36 * 60), mode: TaoMode::default(), budgets_bytes: Vec::new() }
    }
}

impl Default for CliffhangerOptions {
    fn default() -> Self {
        Self { shadow: 0.01, credit_bytes: 4_096 }
    }
}

impl Default for LamaOptions {
    fn default() -> Self {
        Self { mode: LamaMode::default(), grid: 0.005 }
    }
}

impl TaoOptions {
    pub(super) fn validate(&self, partitions: usize) -> Result<(), OptionsError> {
        if !LEARN.contains(&self.learn) {
            return Err(OptionsError::Learn { seconds: self.learn.as_secs_f64() });
        }
        let sizes = self.budgets_bytes.len();
        if sizes != 0 && sizes != partitions {
            return Err(OptionsError::Learnt { sizes, partitions });
        }
        Ok(())
    }
}

impl CliffhangerOptions {
    pub(super) fn validate(&self) -> Result<(), OptionsError> {
        if !CREDIT.contains(&self.credit_bytes) {
            return Err(OptionsError::Credit(self.credit_bytes));
        }
        in_range("cliffhanger.shadow", self.shadow, SHADOW)
    }
}

impl LamaOptions {
    pub(super) fn validate(&self) -> Result<(), OptionsError> {
        in_range("lama.grid", self.grid, GRID)
    }
}

fn in_range(key: &'static str, ratio: f64, range: RangeInclusive<f64>) -> Result<(), OptionsError> {
    if range.contains(&ratio) {
        return Ok(());
    }
    Err(OptionsError::Ratio { key, ratio, min: *range.start(), max: *range.end() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    fn refusal(options: Options) -> String {
        options.validate(1 << 30, 20).expect_err("refused").to_string()
    }

    #[test]
    fn policy_option_out_of_range_is_refused_with_the_range() {
        let default = Options::default;
        let tao = TaoOptions { learn: Duration::ZERO, ..TaoOptions::default() };
        assert!(refusal(Options { tao, ..default() }).contains("0.001 to 604800 s"));
        let tao = TaoOptions { budgets_bytes: vec![1; 19], ..TaoOptions::default() };
        assert!(refusal(Options { tao, ..default() }).contains("19 sizes for 20 partitions"));
        let cliffhanger = CliffhangerOptions { shadow: f64::NAN, ..CliffhangerOptions::default() };
        assert!(refusal(Options { cliffhanger, ..default() }).contains("0.0001 to 0.5 of the total"));
        let cliffhanger = CliffhangerOptions { credit_bytes: 0, ..CliffhangerOptions::default() };
        assert!(refusal(Options { cliffhanger, ..default() }).contains("credit_bytes = 0"));
        let lama = LamaOptions { grid: 0.0001, ..LamaOptions::default() };
        assert!(
            refusal(Options { lama, ..default() })
                .contains("lama.grid = 0.0001: the accepted range is 0.001 to 0.1")
        );
    }

    #[test]
    fn each_policy_reads_its_own_table_of_options() {
        let text = r#"{"tao": {"learn": 60, "mode": "snapshot"}, "cliffhanger": {"credit_bytes": 1},
            "fair": {"mode": "waterfill"}, "lama": {"mode": "sum"}}"#;
        let options: Options = serde_json::from_str(text).expect("valid");
        assert_eq!((options.tao.learn.as_secs(), options.tao.mode), (60, TaoMode::Snapshot));
        assert_eq!((options.cliffhanger.credit_bytes, options.cliffhanger.shadow), (1, 0.01));
        assert_eq!((options.fair.mode, options.lama.mode), (FairMode::Waterfill, LamaMode::Sum));
        assert!(serde_json::from_str::<Options>(r#"{"lama": {"mode": "best"}}"#).is_err());
    }
}
