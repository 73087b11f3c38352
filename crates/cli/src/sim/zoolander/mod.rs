//! The scenarios of Zoolander, which have policies and settings of their own.

mod model;
mod model_report;
mod report;
mod study;

pub(super) use model::Model;
pub(super) use model_report::sections as model_sections;
pub(super) use report::sections;
pub(super) use study::{Diurnal, asked_for, policies};
