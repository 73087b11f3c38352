//! The kept data of finished runs.

use sherwood_sim::Results;

use super::plotted::Series;
use crate::sim::{comparison, study};

/// A finished run.
pub(in crate::sim) type Kept = study::Kept<Results, Series>;

/// Runs that differ in their seeds alone.
pub(in crate::sim) type Group<'a> = comparison::Group<'a, Results, Series>;

/// The finished runs of policies in scenarios.
pub(in crate::sim) type Comparison = comparison::Comparison<Results, Series>;
