//! Backends whose values several nodes of a cluster cache.

mod fetch_times;
mod shared;
mod terms;

pub use shared::SharedValues;
pub use terms::{SharedTerms, WithoutBus};
