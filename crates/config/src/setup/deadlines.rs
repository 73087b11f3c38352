//! Deadlines that the configuration sets for keys.

use std::time::Duration;

use sherwood_model::{BackendId, TenantId};

/// A deadline for keys of some backends and tenants, `[[deadline]]` in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineRule {
    /// The backend of the keys; none for all backends.
    pub backend: Option<BackendId>,
    /// Prefix of the keys within their backend; empty for all keys.
    pub prefix: String,
    /// The tenant that asks for the keys; none for all tenants.
    pub tenant: Option<TenantId>,
    /// Time within which an answer is wanted, from the arrival of the request.
    pub within: Duration,
}
