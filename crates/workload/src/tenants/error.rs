//! The errors of a scenario document.

use thiserror::Error;

/// Reason why a scenario of tenants was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScenarioError {
    /// The document is not of the expected form.
    #[error("scenario of tenants: {reason}")]
    Form {
        /// The reader's reason, with the position.
        reason: String,
    },
    /// A value is out of its range.
    #[error("scenario of tenants: {at} is {found}; it must be {accepted}")]
    Value {
        /// Place in the document, such as `tenants[3].loads[0].zipf`.
        at: String,
        /// The value found.
        found: String,
        /// The accepted values.
        accepted: &'static str,
    },
}
