//! The errors of work that may not wait.

use std::time::Duration;

use thiserror::Error;

/// The reason why a tenant's work was refused at once. Trying again later can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TenantRefusal {
    /// The tenant's part of what may wait is used, and so is what is common to all.
    #[error(
        "its part of the {limit} that may wait, and what is common to all tenants, are used; try again in {retry_in:?}, slow down, or raise the tenant's rate"
    )]
    Full {
        /// Most that may wait, of all tenants.
        limit: u32,
        /// Time until what waits now has started, if no other tenant lends.
        retry_in: Duration,
    },
    /// The tenant's rate allows no start in the time for which the work may wait.
    #[error(
        "it allows a start in {starts_in:?}, which is longer than the request may wait; try again then, slow down, or raise the tenant's rate"
    )]
    TooLate {
        /// Time until the start.
        starts_in: Duration,
    },
}

impl TenantRefusal {
    /// Returns the time after which the work would start, if nothing else comes before it.
    #[must_use]
    pub fn retry_in(self) -> Duration {
        match self {
            Self::Full { retry_in, .. } => retry_in,
            Self::TooLate { starts_in } => starts_in,
        }
    }
}
