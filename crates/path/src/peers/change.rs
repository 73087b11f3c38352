//! Changes of shared backends, as nodes announce them.

use sherwood_model::BackendId;

use super::message::Announced;

/// A change of a shared backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedChange<K> {
    /// The backend.
    pub backend: BackendId,
    /// The keys whose values may have changed.
    pub keys: ChangedKeys<K>,
}

/// Keys of a shared backend whose values may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedKeys<K> {
    /// This key was written or deleted.
    Key(K),
    /// This key may still be written, for as long as the backend's timeout: the outcome of a write
    /// is unknown.
    Unsettled(K),
    /// The keys with this prefix.
    Prefix(Box<[u8]>),
    /// The keys whose values have this tag.
    Tag(Box<[u8]>),
    /// All keys.
    All,
    /// Keys of a backend that this node does not have, or does not share: the change has its number
    /// and no effect.
    None,
}

/// Bytes of a change in a message beside its key, about.
const FIELDS_BYTES: usize = 12;

impl<K: AsRef<[u8]> + Clone> Announced for SharedChange<K> {
    fn bytes(&self) -> usize {
        let key = match &self.keys {
            ChangedKeys::Key(key) | ChangedKeys::Unsettled(key) => key.as_ref().len(),
            ChangedKeys::Prefix(bytes) | ChangedKeys::Tag(bytes) => bytes.len(),
            ChangedKeys::All | ChangedKeys::None => 0,
        };
        key + FIELDS_BYTES
    }
}
