//! Scenarios of tenants, whose policies and settings are their own.

mod figures;
mod report;
mod study;
mod subject;
mod summary;

pub(super) use report::sections;
pub(super) use study::{is_asked_for, policies};
pub(super) use subject::Subject;
