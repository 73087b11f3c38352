//! Scenario `microfuge`, which has its own policies and settings.

mod frontier;
mod isolation;
mod report;
mod study;
mod summary;

pub(super) use frontier::{Bounds, frontier};
pub(super) use isolation::values;
pub(super) use report::sections;
pub(super) use study::{Microfuge, is_asked_for, policies};
