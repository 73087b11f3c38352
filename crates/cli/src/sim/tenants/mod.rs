//! Scenarios of tenants, which have their own policies and settings.

mod figures;
mod report;
mod study;
mod subject;
mod summary;

pub(super) use report::sections;
pub(super) use study::{is_asked_for, policies};
pub(super) use subject::Subject;
