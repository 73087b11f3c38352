//! Sizes of the objects of a trace while somebody asks for them.
//!
//! A trace says with each access how large the object is. The answer to a call needs it when the
//! call is done, and nobody afterwards: what a cache holds, it knows itself. So memory is that of
//! the live requests, however many objects a trace has.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sherwood_model::{BackendId, SeededState};
use sherwood_path::Query;

use crate::key::Key;

/// Of an object that no cache may keep: more than any cache takes.
pub(crate) const UNCACHEABLE: u32 = u32::MAX;

/// Objects that live requests ask for.
pub(crate) struct Sizes(HashMap<(BackendId, u64), Size, SeededState>);

#[derive(Clone, Copy)]
struct Size {
    /// As the latest request says.
    bytes: u32,
    /// Times that live requests ask for it.
    asked: u32,
}

impl Sizes {
    pub(crate) fn new() -> Self {
        Self(HashMap::with_hasher(SeededState::new(0)))
    }

    /// A request asks for objects of these sizes, in the order of its keys.
    pub(crate) fn ask(&mut self, queries: &[Query<Key>], bytes: &[u32]) {
        let keys =
            queries.iter().flat_map(|query| query.keys.iter().map(|key| (query.backend, key.object())));
        for (object, &bytes) in keys.zip(bytes) {
            let size = self.0.entry(object).or_insert(Size { bytes, asked: 0 });
            *size = Size { bytes, asked: size.asked + 1 };
        }
    }

    /// A request that asked for an object has ended.
    pub(crate) fn end(&mut self, backend: BackendId, key: Key) {
        if let Entry::Occupied(mut size) = self.0.entry((backend, key.object())) {
            size.get_mut().asked -= 1;
            if size.get().asked == 0 {
                size.remove();
            }
        }
    }

    /// Bytes of an object; 0 for one that nobody waits for any more.
    pub(crate) fn bytes(&self, backend: BackendId, key: Key) -> u32 {
        self.0.get(&(backend, key.object())).map_or(0, |size| size.bytes)
    }

    /// Objects that are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
