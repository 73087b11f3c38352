//! Options of the control loop and their validation.

mod error;
mod policies;

use std::time::Duration;

use serde::Deserialize;
use sherwood_model::Band;

use crate::bounds::Bounds;
use crate::tax::{Millionths, Tax};
use crate::{GuardOptions, PartitionObservation};

pub use error::OptionsError;
pub use policies::{CliffhangerOptions, FairMode, FairOptions, LamaMode, LamaOptions, TaoMode, TaoOptions};

/// Number of pages of a cache: pages of 1 MiB at 32 GiB, as in RobinHood, and proportionally
/// smaller ones for a smaller cache.
const PAGES: u64 = 32_768;

/// Accepted range of the control interval `delta` and of `rbc_window`.
const INTERVAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3_600);

/// Options of the control loop and of the policies. The defaults are RobinHood's (OSDI'18), scaled
/// to the cache's size.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Time between two decisions (the control interval), in seconds when read; 1 ms to 1 h.
    /// Applied by the driver.
    #[serde(deserialize_with = "seconds")]
    pub delta: Duration,
    /// Time over which requests, look-ups and request blocking counts are counted for a decision
    /// (the RBC window), in seconds when read; 1 ms to 1 h. Applied by the driver.
    #[serde(deserialize_with = "seconds")]
    pub rbc_window: Duration,
    /// Band of request latency whose requests count as slow, in percentiles.
    pub band: Band,
    /// Part of every partition that goes to the pool each round, 0 to 0.5; for policies without a
    /// pool, the largest part of the total that a round moves.
    pub tax: f64,
    /// Least size (floor) of a partition without a pin, in pages.
    pub floor_pages: u64,
    /// Size of a page, the unit of tax and gifts, in bytes; none for a 32,768th of the total, at
    /// least one byte.
    pub page_bytes: Option<u64>,
    /// Rule for the remainder when gifts from the pool are rounded to whole pages.
    pub rounding: Rounding,
    /// A partition whose unfilled bytes exceed this share of its used bytes gets no gift; 0 or
    /// more, infinity to switch the rule off.
    pub unfilled_ratio_max: f64,
    /// True to decide and report without applying.
    pub dry_run: bool,
    /// Schedule of policy `offline_opt`: sizes of all partitions, each set for a period.
    pub offline_opt: Vec<SizeStage>,
    /// Schedule of policy `bubble_wrap`: the policy that divides, and the totals, each for a
    /// period.
    pub bubble_wrap: Option<BubbleWrap>,
    /// Options of the guard, which rolls back to an earlier allocation; none to switch it off.
    pub guard: Option<GuardOptions>,
    /// Options of policy `tao`.
    pub tao: TaoOptions,
    /// Options of policy `cliffhanger`.
    pub cliffhanger: CliffhangerOptions,
    /// Options of policy `fair`.
    pub fair: FairOptions,
    /// Options of policy `lama`.
    pub lama: LamaOptions,
}

/// Rules for the remainder when gifts from the pool of paid tax are rounded to whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rounding {
    /// A page each to the largest remainders, so that gifts are proportional to within a page.
    #[default]
    Largest,
    /// All to the first partition with room, with or without a claim, as in RobinHood's published
    /// code.
    First,
}

/// Sizes of all partitions for one period of a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeStage {
    /// End of the stage, in seconds since the policy was chosen; the last stage does not end.
    pub until_s: f64,
    /// Budget of each partition in bytes, in the order of their ids.
    pub budgets_bytes: Vec<u64>,
}

/// A policy in a cache whose total follows a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BubbleWrap {
    /// Name of the policy that divides the total; not `bubble_wrap`.
    pub policy: String,
    /// The totals of the periods, in order.
    pub stages: Vec<TotalStage>,
}

/// A total size of the cache for one period of a schedule.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TotalStage {
    /// End of the stage, in seconds since the policy was chosen; the last stage does not end.
    pub until_s: f64,
    /// Bytes to divide, at most the cache's total.
    pub total_bytes: u64,
}

/// Initial size and pins of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartSize {
    /// The requested budget in bytes; none for an equal part of what the others leave.
    pub initial_bytes: Option<u64>,
    /// Least bytes that policies may give the partition (minimum pin).
    pub min_bytes: u64,
    /// Most bytes that policies may give the partition (maximum pin); none for no limit.
    pub max_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delta: Duration::from_secs(5),
            rbc_window: Duration::from_secs(60),
            band: Band::TAIL,
            tax: 0.01,
            floor_pages: 30,
            page_bytes: None,
            rounding: Rounding::Largest,
            unfilled_ratio_max: 0.3,
            dry_run: false,
            offline_opt: Vec::new(),
            bubble_wrap: None,
            guard: None,
            tao: TaoOptions::default(),
            cliffhanger: CliffhangerOptions::default(),
            fair: FairOptions::default(),
            lama: LamaOptions::default(),
        }
    }
}

impl Options {
    /// Checks every option, by itself and against a cache of `total_bytes` with `partitions`
    /// partitions.
    ///
    /// # Errors
    /// The first invalid option, with the accepted range.
    pub fn validate(&self, total_bytes: u64, partitions: usize) -> Result<(), OptionsError> {
        for (key, interval) in [("delta", self.delta), ("rbc_window", self.rbc_window)] {
            if !INTERVAL.contains(&interval) {
                return Err(OptionsError::Interval { key, seconds: interval.as_secs_f64() });
            }
        }
        let Band { low, high } = self.band;
        if !(0.0 <= low && low < high && high <= 100.0) {
            return Err(OptionsError::Band { low, high });
        }
        if !(0.0..=0.5).contains(&self.tax) {
            return Err(OptionsError::Tax(self.tax));
        }
        if self.unfilled_ratio_max.is_nan() || self.unfilled_ratio_max < 0.0 {
            return Err(OptionsError::Unfilled(self.unfilled_ratio_max));
        }
        self.validate_sizes(total_bytes, partitions)?;
        self.validate_stages(partitions)?;
        self.tao.validate(partitions)?;
        self.cliffhanger.validate()?;
        self.guard.map_or(Ok(()), |guard| guard.validate())?;
        self.lama.validate()
    }

    fn validate_sizes(&self, total_bytes: u64, partitions: usize) -> Result<(), OptionsError> {
        let page_bytes = self.page_bytes(total_bytes);
        if page_bytes == 0 || page_bytes > total_bytes {
            return Err(OptionsError::Page { page_bytes, total_bytes });
        }
        let floor_bytes = self.floor_bytes(total_bytes);
        if u128::from(floor_bytes) * partitions as u128 > u128::from(total_bytes) {
            return Err(OptionsError::Floor { floor_bytes, partitions, total_bytes });
        }
        Ok(())
    }

    fn validate_stages(&self, partitions: usize) -> Result<(), OptionsError> {
        for (stage, SizeStage { until_s: _, budgets_bytes }) in self.offline_opt.iter().enumerate() {
            if budgets_bytes.len() != partitions {
                return Err(OptionsError::Sizes { stage, sizes: budgets_bytes.len(), partitions });
            }
        }
        Ok(())
    }

    /// The unit of tax and gifts in a cache of `total_bytes`: as configured, else a 32,768th of the
    /// total to the nearest byte.
    #[must_use]
    pub fn page_bytes(&self, total_bytes: u64) -> u64 {
        self.page_bytes.unwrap_or_else(|| (total_bytes / PAGES + total_bytes % PAGES / (PAGES / 2)).max(1))
    }

    /// Least bytes (floor) of a partition without a pin, in a cache of `total_bytes`.
    #[must_use]
    pub fn floor_bytes(&self, total_bytes: u64) -> u64 {
        self.floor_pages.saturating_mul(self.page_bytes(total_bytes))
    }

    /// Initial budgets: the requested sizes, and equal parts of the rest for the other partitions,
    /// within floors and pins. They sum to the total unless every partition requested a size and
    /// these leave bytes free.
    ///
    /// # Errors
    /// Pins that contradict each other; initial sizes or minimums above the total.
    pub fn start_budgets(&self, total_bytes: u64, sizes: &[StartSize]) -> Result<Vec<u64>, OptionsError> {
        let floor = self.floor_bytes(total_bytes);
        check_pins(total_bytes, floor, sizes)?;
        let initial_bytes: u128 = sizes.iter().filter_map(|size| size.initial_bytes).map(u128::from).sum();
        if initial_bytes > total_bytes.into() {
            return Err(OptionsError::Initial { initial_bytes, total_bytes });
        }
        let bounds = Bounds::new(total_bytes, floor, &sizes.iter().map(StartSize::seen).collect::<Vec<_>>());
        let open = sizes.iter().filter(|size| size.initial_bytes.is_none()).count();
        let free = total_bytes - u64::try_from(initial_bytes).expect("at most the total");
        let part = free.checked_div(open as u64).unwrap_or(0);
        let wanted: Vec<u64> = sizes.iter().map(|size| size.initial_bytes.unwrap_or(part)).collect();
        Ok(if open == 0 { bounds.fit_under(&wanted) } else { bounds.fit(&wanted) })
    }

    /// Largest number of bytes that a step towards other budgets moves.
    pub(crate) fn step_bytes(&self, total_bytes: u64) -> u128 {
        Millionths::from_ratio(self.tax).of(total_bytes)
    }

    pub(crate) fn tax(&self, total_bytes: u64) -> Tax {
        Tax {
            ratio: Millionths::from_ratio(self.tax),
            page_bytes: self.page_bytes(total_bytes),
            rounding: self.rounding,
        }
    }
}

impl StartSize {
    fn seen(&self) -> PartitionObservation {
        let Self { initial_bytes: _, min_bytes, max_bytes } = *self;
        let unpinned = PartitionObservation::new(sherwood_model::TenantId(0), sherwood_model::BackendId(0));
        PartitionObservation { min_bytes, max_bytes, ..unpinned }
    }
}

fn check_pins(total_bytes: u64, floor: u64, sizes: &[StartSize]) -> Result<(), OptionsError> {
    let contradicts = |size: &StartSize| size.max_bytes.filter(|&max| max < size.min_bytes);
    if let Some((partition, max_bytes)) =
        sizes.iter().enumerate().find_map(|(i, size)| Some((i, contradicts(size)?)))
    {
        return Err(OptionsError::Pins { partition, min_bytes: sizes[partition].min_bytes, max_bytes });
    }
    let least = |size: &StartSize| size.min_bytes.max(floor.min(size.max_bytes.unwrap_or(u64::MAX)));
    let min_bytes: u128 = sizes.iter().map(|size| u128::from(least(size))).sum();
    if min_bytes > total_bytes.into() {
        return Err(OptionsError::Minimums { min_bytes, total_bytes });
    }
    Ok(())
}

pub(crate) fn seconds<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(input)?;
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        serde::de::Error::custom(format_args!(
            "cannot wait {seconds} s: a positive number of seconds is needed"
        ))
    })
}

/// Checks that a schedule is not empty and that the times of its stages are ascending.
pub(crate) fn check_times(key: &'static str, until_s: &[f64]) -> Result<(), OptionsError> {
    let rises = |i: usize| until_s[i] > if i == 0 { 0.0 } else { until_s[i - 1] };
    if until_s.is_empty() {
        return Err(OptionsError::Stages { key, stage: 0 });
    }
    (0..until_s.len()).find(|&i| !rises(i)).map_or(Ok(()), |stage| Err(OptionsError::Stages { key, stage }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn page_is_a_mebibyte_at_32_gib_and_at_least_one_byte() {
        let options = Options::default();
        assert_eq!(options.page_bytes(32 * GIB), 1 << 20);
        assert_eq!(options.floor_bytes(32 * GIB), 30 << 20);
        assert_eq!(
            (options.page_bytes(0), options.page_bytes(49_151), options.page_bytes(49_152)),
            (1, 1, 2)
        );
    }

    #[test]
    fn default_options_are_valid_for_a_thousand_partitions() {
        assert_eq!(Options::default().validate(GIB, 1_000), Ok(()));
        assert!(matches!(Options::default().validate(GIB, 1_100), Err(OptionsError::Floor { .. })));
    }

    #[test]
    fn control_loop_option_out_of_range_is_refused() {
        let check = |options: Options| options.validate(GIB, 20).unwrap_err();
        let default = Options::default;
        assert_eq!(check(Options { tax: 0.6, ..default() }), OptionsError::Tax(0.6));
        assert!(matches!(check(Options { tax: f64::NAN, ..default() }), OptionsError::Tax(_)));
        let error = check(Options { delta: Duration::ZERO, ..default() });
        assert_eq!(error.to_string(), "cannot use delta = 0 s: the accepted range is 0.001 to 3600 s");
        let upside_down = Band { low: 99.5, high: 98.5 };
        assert!(matches!(check(Options { band: upside_down, ..default() }), OptionsError::Band { .. }));
        assert!(matches!(check(Options { page_bytes: Some(0), ..default() }), OptionsError::Page { .. }));
        assert!(matches!(
            check(Options { unfilled_ratio_max: -1.0, ..default() }),
            OptionsError::Unfilled(_)
        ));
        let stage = SizeStage { until_s: 1.0, budgets_bytes: vec![1; 19] };
        assert!(matches!(
            check(Options { offline_opt: vec![stage], ..default() }),
            OptionsError::Sizes { .. }
        ));
    }

    #[test]
    fn options_are_read_in_seconds_and_unknown_keys_refused() {
        let read = |text| serde_json::from_str::<Options>(text);
        let options = read(r#"{"delta": 0.125, "band": [99, 100], "tax": 0.02}"#).expect("valid");
        assert_eq!(options.delta, Duration::from_millis(125));
        assert_eq!(options.band, Band { low: 99.0, high: 100.0 });
        assert!(read(r#"{"taxes": 0.02}"#).unwrap_err().to_string().contains("unknown field `taxes`"));
        assert!(read(r#"{"delta": -1}"#).is_err());
    }

    #[test]
    fn initial_sizes_are_kept_and_the_rest_is_shared_equally() {
        let options = Options { floor_pages: 0, ..Options::default() };
        let asked = |bytes| StartSize { initial_bytes: Some(bytes), ..StartSize::default() };
        let open = StartSize::default();
        let start = |sizes: &[StartSize]| options.start_budgets(1_000, sizes);
        assert_eq!(start(&[open, open, open]), Ok(vec![334, 333, 333]));
        assert_eq!(start(&[asked(100), open, open]), Ok(vec![100, 450, 450]));
        assert_eq!(start(&[asked(100), asked(200)]), Ok(vec![100, 200]), "the rest stays free");
        assert!(matches!(start(&[asked(600), asked(600)]), Err(OptionsError::Initial { .. })));
        let pinned = StartSize { min_bytes: 20, max_bytes: Some(10), ..open };
        assert!(matches!(start(&[pinned]), Err(OptionsError::Pins { .. })));
        let heavy = StartSize { min_bytes: 2_000, ..open };
        assert!(matches!(start(&[heavy]), Err(OptionsError::Minimums { .. })));
    }
}
