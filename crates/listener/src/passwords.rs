//! Names and passwords of a listener's clients.

/// The names and passwords that a listener accepts.
pub trait Passwords: Send + Sync {
    /// Returns true if `user` has this password. Takes the same time whether the password is right
    /// or not.
    fn know(&self, user: &[u8], password: &[u8]) -> bool;
}
