//! Names and passwords of a listener's clients.

use sherwood_model::TenantId;

/// Most refused lines before the login per connection; the last one closes it. Some clients request
/// the version or send a few commands before they log in.
pub(super) const REFUSALS_MAX: u8 = 16;

/// The names and passwords that a listener accepts.
pub trait Passwords: Send + Sync {
    /// Returns the tenant of `user` if it has this password. Takes the same time whether the
    /// password is right or not, and whether the user is known or not.
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId>;
}
