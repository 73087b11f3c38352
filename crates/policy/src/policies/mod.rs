//! The policies: RobinHood, the variants of its authors, the algorithms it was compared with, and
//! simple baselines.
//!
//! The variants are those of the authors' public controller, under the same names, to measure the
//! contribution of each part of RobinHood. All of them share the tax round; they differ in the
//! weights and in the rule for unfilled partitions ([`Fill`]).

mod cliffhanger;
mod critical;
mod fair;
mod fill;
mod fixed;
mod hit_ratio;
mod lama;
mod latency;
mod prototype;
mod request_rate;
mod tao;
mod timed;

pub(crate) use cliffhanger::Cliffhanger;
pub(crate) use critical::{Critical, CriticalSlope, CriticalSmooth};
pub(crate) use fair::Fair;
pub(crate) use fixed::{Equal, Shared, Static};
pub(crate) use hit_ratio::HitRatio;
pub(crate) use lama::Lama;
pub(crate) use latency::Latency;
pub(crate) use prototype::Prototype;
pub(crate) use request_rate::RequestRate;
pub(crate) use tao::Tao;
pub(crate) use timed::{BubbleWrapped, OfflineOpt};

use fill::Fill;

#[cfg(test)]
mod tests;
