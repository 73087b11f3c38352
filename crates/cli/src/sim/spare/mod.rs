//! Scenarios of sPARE, which have their own policies and settings.

mod figures;
mod frontier;
mod report;
mod study;

pub(super) use frontier::frontier;
pub(super) use report::sections;
pub(super) use study::{Application, is_asked_for, policies, values};
