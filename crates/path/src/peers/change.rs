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

/// Longest key, prefix or tag of a change. Caches have shorter keys.
const BYTES_MAX: usize = 4_096;

impl<K: AsRef<[u8]>> ChangedKeys<K> {
    /// Returns the keys within the bounds of messages: none if no cached key can be so long.
    #[must_use]
    pub fn bounded(self) -> Self {
        match self {
            Self::Key(key) | Self::Unsettled(key) if key.as_ref().len() > BYTES_MAX => Self::None,
            Self::Prefix(prefix) if prefix.len() > BYTES_MAX => Self::None,
            Self::Tag(tag) if tag.len() > BYTES_MAX => Self::All,
            keys => keys,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded_and_a_tag_that_is_too_long_stands_for_all() {
        let long = vec![b'x'; BYTES_MAX + 1];
        let bounded = |keys: ChangedKeys<Vec<u8>>| keys.bounded();
        assert_eq!(bounded(ChangedKeys::Key(long.clone())), ChangedKeys::None);
        assert_eq!(bounded(ChangedKeys::Unsettled(long.clone())), ChangedKeys::None);
        assert_eq!(bounded(ChangedKeys::Prefix(long.clone().into())), ChangedKeys::None);
        assert_eq!(bounded(ChangedKeys::Tag(long.clone().into())), ChangedKeys::All);
        let longest = ChangedKeys::Key(long[1..].to_vec());
        assert_eq!(longest.clone().bounded(), longest);
    }
}
