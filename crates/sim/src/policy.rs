//! Look-up of policies by name.

use thiserror::Error;

/// Error for a name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{of} no policy {name:?}; choose one of {known}")]
pub struct PolicyError {
    /// Subject and verb of the message, such as `the scenario microfuge has`.
    pub of: &'static str,
    /// The name given.
    pub name: String,
    /// The names that can be chosen, as a list.
    pub known: String,
}

/// Returns the policy called `name`; `name_of` returns the name of a policy.
pub(crate) fn by_name<P: Copy>(
    of: &'static str,
    policies: &[P],
    name_of: fn(&P) -> &'static str,
    name: &str,
) -> Result<P, PolicyError> {
    policies.iter().find(|policy| name_of(policy) == name).copied().ok_or_else(|| PolicyError {
        of,
        name: name.to_owned(),
        known: policies.iter().map(name_of).collect::<Vec<_>>().join(", "),
    })
}
