//! The interface between a blocking engine and one thread of a store's pool.

use bytes::Bytes;

use crate::Cause;

/// The state of an engine for one thread of a store: a read connection, a handle or scratch memory.
/// Its calls block.
pub(crate) trait Session: Send + 'static {
    /// Reads `keys` and answers in their order. `pause` is called between keys, and may park the
    /// thread.
    fn get_many(&mut self, keys: &[Bytes], pause: &mut dyn FnMut()) -> Result<Vec<Option<Bytes>>, Cause>;

    /// The reason why the engine is read-only; none if it accepts writes.
    fn read_only(&self) -> Option<Cause> {
        None
    }

    /// Writes one key; once it returns, the write survives a crash.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Cause>;

    /// Removes one key, which may be absent; once it returns, the removal survives a crash.
    fn delete(&mut self, key: &[u8]) -> Result<(), Cause>;
}
