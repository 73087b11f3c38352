//! What an engine does for one thread of a pool.

use bytes::Bytes;

use crate::Cause;

/// One thread's way into an engine: a read connection, a handle, scratch memory. It blocks.
pub(crate) trait Session: Send + 'static {
    /// Reads `keys`, answering in their order. `pause` is called between keys: it may park the
    /// thread.
    fn get_many(&mut self, keys: &[Bytes], pause: &mut dyn FnMut()) -> Result<Vec<Option<Bytes>>, Cause>;

    /// Why it takes no writes; none where it does.
    fn read_only(&self) -> Option<Cause> {
        None
    }

    /// Writes one key; on return it survives a crash.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Cause>;

    /// Removes one key, which may be absent; on return the removal survives a crash.
    fn delete(&mut self, key: &[u8]) -> Result<(), Cause>;
}
