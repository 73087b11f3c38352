//! The policies: RobinHood, its authors' variants, and the simple ones to compare with.
//!
//! The variants are those of the authors' public controller, under their names there, to measure what each part of
//! RobinHood is worth. All of them share the tax round; they differ in the weights, and in when a partition counts as
//! not filled ([`Fill`]).

mod critical;
mod fill;
mod fixed;
mod hit_ratio;
mod latency;
mod prototype;
mod request_rate;
mod timed;

pub(crate) use critical::{Critical, CriticalSlope, CriticalSmooth};
pub(crate) use fixed::{Equal, Shared, Static};
pub(crate) use hit_ratio::HitRatio;
pub(crate) use latency::Latency;
pub(crate) use prototype::Prototype;
pub(crate) use request_rate::RequestRate;
pub(crate) use timed::{BubbleWrapped, OfflineOpt};

use fill::Fill;

#[cfg(test)]
mod tests;
