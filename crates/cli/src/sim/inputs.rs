//! Inputs that identify runs.

use serde::{Deserialize, Serialize};

/// All inputs of a run; equal inputs give equal results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inputs {
    /// Version of Sherwood with a hash of the simulation's sources.
    pub(super) version: String,
    pub(super) scenario: String,
    /// Hash of the scenario file; none for a built-in scenario.
    pub(super) document: Option<String>,
    pub(super) policy: String,
    pub(super) seed: u64,
    pub(super) scale: String,
    /// Settings as typed, in order: later ones take precedence.
    pub(super) settings: Vec<String>,
}

/// Returns the version of Sherwood with a hash of the simulation's sources.
pub(super) fn version() -> String {
    concat!(env!("CARGO_PKG_VERSION"), "+", env!("SHERWOOD_SOURCES")).to_owned()
}

/// Removes duplicates and keeps the order.
pub(super) fn distinct<T: Clone + PartialEq>(given: &[T]) -> Vec<T> {
    let mut distinct = Vec::with_capacity(given.len());
    for one in given {
        if !distinct.contains(one) {
            distinct.push(one.clone());
        }
    }
    distinct
}
