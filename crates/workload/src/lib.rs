//! Workloads: request mixes, popularity, arrivals, trace readers.
//!
//! A measurement is repeatable only if its load is. Everything here is therefore a pure function of
//! options and a seed: the load generator, the demo and the simulator draw the same requests, on
//! any machine. Randomness comes from a named generator ([`Rng`], xoshiro256++), because the
//! "standard" generators of libraries change between versions; logarithms and powers come from
//! `libm`, because those of the platform differ in the last bit.
//!
//! - [`onerf`]: the request mix, the backends and the slowdown scenarios of a OneRF-like service.
//! - [`KeyValue`]: single gets and sets over a Zipf-distributed key space.
//! - [`tenants`]: scenarios of several tenants that share a cache and backends, whose loads change.
//! - [`ScrambledZipf`], [`deadline_of`], [`deadline_between`], [`ReadTimes`]: the keys, deadlines
//!   and store of MicroFuge's evaluation with YCSB.
//! - [`ValueSizes`]: distributions of value sizes, parsed from text.
//! - [`trace`]: readers of recorded accesses (cache2k, oracleGeneral, Twitter) and recorded
//!   requests (RobinHood).
//! - [`fit`]: the popularity law behind a miss ratio curve.
//! - [`Arrivals`], [`Popularity`], [`SplitMix64`], [`uniform`], [`normal_quantile`]: building
//!   blocks.
//!
//! The crate reads no clock, no file and no environment: readers take any `BufRead`, arrivals
//! return gaps.

mod arrivals;
mod deadlines;
mod draw;
mod fit;
mod key_value;
pub mod onerf;
mod popularity;
mod scrambled_zipf;
pub mod tenants;
pub mod trace;
mod unique;
mod value_sizes;

pub use arrivals::{Arrivals, ArrivalsError};
pub use deadlines::{ReadTimes, deadline_between, deadline_of};
pub use draw::{Rng, normal_quantile, rng_from_seed, standard_normal, uniform};
pub use fit::{Fit, fit};
pub use key_value::{KeyNames, KeyValue, KeyValueError, KeyValueOptions, Operation};
pub use popularity::Popularity;
pub use scrambled_zipf::ScrambledZipf;
pub use sherwood_model::SplitMix64;
pub use value_sizes::{ValueSizes, ValueSizesError};
