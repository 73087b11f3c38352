//! The commands of `sherwood sim` for scenarios of backends, and those of RobinHood's paper.

pub(super) mod claims;
pub(super) mod hits;
pub(super) mod kept;
pub(super) mod learning;
pub(super) mod plotted;
pub(super) mod report;
pub(super) mod series;
pub(super) mod subject;
mod trace;
