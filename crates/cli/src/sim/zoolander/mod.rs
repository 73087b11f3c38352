//! The scenario of Zoolander, which has its own policies and settings.

mod report;
mod study;

pub(super) use report::sections;
pub(super) use study::{Diurnal, is_asked_for, policies};
