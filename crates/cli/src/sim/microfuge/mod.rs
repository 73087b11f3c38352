//! Scenario `microfuge`, whose policies and settings are its own.

mod frontier;
mod isolation;
mod report;
mod study;
mod summary;

pub(super) use frontier::{Bounds, frontier};
pub(super) use isolation::values;
pub(super) use report::sections;
pub(super) use study::{Microfuge, is_asked_for, policies};
