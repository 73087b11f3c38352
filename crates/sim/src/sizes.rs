//! Sizes of a trace's objects while live requests read them.
//!
//! A trace records the size of the object with each access. The answer of a call needs it when the
//! call completes, and no later: a cache knows the sizes of its items. Memory is therefore
//! proportional to the live requests, however many objects a trace has.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sherwood_model::{BackendId, SeededState};
use sherwood_path::Query;

use crate::key::Key;

/// Size of an object that may not be cached: larger than any cache accepts.
pub(crate) const UNCACHEABLE: u32 = u32::MAX;

/// Sizes of the objects of live requests.
pub(crate) struct Sizes(HashMap<(BackendId, u64), Size, SeededState>);

#[derive(Clone, Copy)]
struct Size {
    /// Size in the latest request that reads the object, bytes.
    bytes: u32,
    /// Number of times that unfinished requests read the object.
    asked: u32,
}

impl Sizes {
    pub(crate) fn new() -> Self {
        Self(HashMap::with_hasher(SeededState::new(0)))
    }

    /// Adds a request that reads objects of these sizes, in the order of its keys.
    pub(crate) fn ask(&mut self, queries: &[Query<Key>], bytes: &[u32]) {
        let keys =
            queries.iter().flat_map(|query| query.keys.iter().map(|key| (query.backend, key.object())));
        for (object, &bytes) in keys.zip(bytes) {
            let size = self.0.entry(object).or_insert(Size { bytes, asked: 0 });
            *size = Size { bytes, asked: size.asked + 1 };
        }
    }

    /// Removes an object of a request that has ended.
    pub(crate) fn end(&mut self, backend: BackendId, key: Key) {
        if let Entry::Occupied(mut size) = self.0.entry((backend, key.object())) {
            size.get_mut().asked -= 1;
            if size.get().asked == 0 {
                size.remove();
            }
        }
    }

    /// Returns the bytes of an object; 0 if no unfinished request reads it.
    pub(crate) fn bytes(&self, backend: BackendId, key: Key) -> u32 {
        self.0.get(&(backend, key.object())).map_or(0, |size| size.bytes)
    }

    /// Number of objects with a known size.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
