//! Changes of keys.

/// A change to the value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Stores this value under the key.
    Put(V),
    /// Deletes the key.
    Delete,
}
