//! Errors in the options of the control loop.

use thiserror::Error;

/// Reason why options are refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OptionsError {
    /// The control interval or the time window of counts is out of range.
    #[error("cannot use {key} = {seconds} s: the accepted range is 0.001 to 3600 s")]
    Interval {
        /// Name of the option: `delta` or `rbc_window`.
        key: &'static str,
        /// The interval given, in seconds.
        seconds: f64,
    },
    /// The percentile band of slow requests is empty or outside of 0 to 100.
    #[error("cannot use band = [{low}, {high}]: two percentiles with 0 <= low < high <= 100 are needed")]
    Band {
        /// Lower percentile of the band, inclusive.
        low: f64,
        /// Upper percentile of the band, exclusive.
        high: f64,
    },
    /// The tax is not a share of 0 to 1, or is too large.
    #[error("cannot use tax = {0}: the accepted range is 0 to 0.5 of a partition per round")]
    Tax(f64),
    /// The limit `unfilled_ratio_max` is negative or NaN.
    #[error("cannot use unfilled_ratio_max = {0}: it must be 0 or more (inf switches the rule off)")]
    Unfilled(f64),
    /// An option of the guard (which rolls back harmful moves) is out of its range.
    #[error("cannot use guard.{key} = {value}: the accepted range is {min} to {max}")]
    Guard {
        /// Name of the option.
        key: &'static str,
        /// The value given; in seconds for a duration.
        value: f64,
        /// Least accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },
    /// The page size is 0 or above the total.
    #[error(
        "cannot use page_bytes = {page_bytes}: the accepted range is 1 to the total of {total_bytes} bytes"
    )]
    Page {
        /// The page size given, in bytes.
        page_bytes: u64,
        /// Total of the cache in bytes.
        total_bytes: u64,
    },
    /// The floors of all partitions exceed the total.
    #[error(
        "cannot keep a floor of {floor_bytes} bytes for each of {partitions} partitions in {total_bytes} bytes: lower \
         floor_pages or page_bytes, merge partitions or give the cache more memory"
    )]
    Floor {
        /// Least bytes of one partition (the floor).
        floor_bytes: u64,
        /// Number of partitions.
        partitions: usize,
        /// Total of the cache in bytes.
        total_bytes: u64,
    },
    /// Minimum pins of all partitions, with the floor for those without, exceed the total.
    #[error(
        "cannot keep minimums of {min_bytes} bytes in {total_bytes} bytes: lower some or give the cache more memory"
    )]
    Minimums {
        /// Sum of the minimum pins and floors in bytes.
        min_bytes: u128,
        /// Total of the cache in bytes.
        total_bytes: u64,
    },
    /// A partition's maximum pin is below its minimum pin.
    #[error(
        "cannot pin partition {partition} between {min_bytes} and {max_bytes} bytes: its minimum exceeds its maximum"
    )]
    Pins {
        /// Number of the partition in the order of the configuration, from 0.
        partition: usize,
        /// Minimum pin of the partition in bytes.
        min_bytes: u64,
        /// Maximum pin of the partition in bytes.
        max_bytes: u64,
    },
    /// Initial sizes exceed the total.
    #[error(
        "cannot start with {initial_bytes} bytes in {total_bytes} bytes: lower an initial size or give the cache more memory"
    )]
    Initial {
        /// Sum of the initial sizes in bytes.
        initial_bytes: u128,
        /// Total of the cache in bytes.
        total_bytes: u64,
    },
    /// An option that is a share of the total is out of range.
    #[error("cannot use {key} = {ratio}: the accepted range is {min} to {max} of the total")]
    Ratio {
        /// Name of the option: `cliffhanger.shadow` or `lama.grid`.
        key: &'static str,
        /// The share given.
        ratio: f64,
        /// Least accepted value.
        min: f64,
        /// Largest accepted value.
        max: f64,
    },
    /// The credit of a hit in a shadow queue (option of `cliffhanger`) is out of range.
    #[error("cannot use cliffhanger.credit_bytes = {0}: the accepted range is 1 to 1073741824")]
    Credit(u64),
    /// The learning time of `tao` is out of range.
    #[error("cannot use tao.learn = {seconds} s: the accepted range is 0.001 to 604800 s")]
    Learn {
        /// The learning time given, in seconds.
        seconds: f64,
    },
    /// The list of known sizes of policy `tao` has a number of elements other than that of the
    /// partitions.
    #[error("cannot use tao.budgets_bytes: it names {sizes} sizes for {partitions} partitions")]
    Learnt {
        /// Number of sizes given.
        sizes: usize,
        /// Number of partitions.
        partitions: usize,
    },
    /// A timed list is empty or its times are not ascending.
    #[error(
        "cannot follow {key}: it needs at least one stage, each ending later than the one before (stage {stage} does not)"
    )]
    Stages {
        /// Policy whose option is the timed list: `offline_opt` or `bubble_wrap`.
        key: &'static str,
        /// The first invalid stage, from 0.
        stage: usize,
    },
    /// A stage of `offline_opt` does not have one size per partition.
    #[error("cannot follow offline_opt: stage {stage} names {sizes} sizes for {partitions} partitions")]
    Sizes {
        /// Number of the stage, from 0.
        stage: usize,
        /// Number of sizes given.
        sizes: usize,
        /// Number of partitions.
        partitions: usize,
    },
}
