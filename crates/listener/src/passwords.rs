//! Names and passwords of a listener's clients.

use sherwood_model::TenantId;

/// The names and passwords that a listener accepts.
pub trait Passwords: Send + Sync {
    /// Returns the tenant of `user` if it has this password. Takes the same time whether the
    /// password is right or not, and whether the user is known or not.
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId>;
}
