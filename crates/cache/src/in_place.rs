//! Memory of large items that is used outside the cache: while a value is being received, and while
//! it is being sent.
//!
//! A large item lies in a block of its own, which never changes once the item is stored. So a value
//! can be received into the block that will hold it ([`Reserved`], then [`Received`]), and a block
//! can be read without the lock of its shard ([`Pinned`]). Eviction, replacement, removal and a
//! flush take a pinned item out of the cache, its index and its budget at once, as they do any
//! other; only its memory stays until the last pin is dropped. Moving a record moves its slot,
//! never the block.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::memory::{Block, RUN_STEP, Supply};

/// Bytes by which a block of received bytes may exceed key and value to be kept with the item. The
/// rest of the command, and less than a page that every block may have left over.
const EXCESS_BYTES_MAX: usize = 2 * RUN_STEP;
/// Bytes reserved beyond those that are known to come, for what may follow a value in its command.
const SPARE_BYTES: usize = 128;

/// Reserved memory for bytes that are being received. They are in no item, and their memory is
/// released when this is dropped.
#[derive(Debug)]
pub struct Reserved {
    block: Block,
    /// Bytes of the block that can be filled.
    bytes_max: usize,
    filled: usize,
    counted: Counted,
}

/// Bytes that count as reserved until this is dropped.
#[derive(Debug)]
struct Counted {
    supply: Arc<Supply>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.supply.unreserve(self.bytes);
    }
}

impl Reserved {
    /// Reserves memory unless more than `total_max` bytes would be reserved in all.
    pub(crate) fn new(supply: &Arc<Supply>, bytes_max: usize, total_max: u64) -> Option<Self> {
        let bytes = bytes_max.checked_add(SPARE_BYTES)?.next_multiple_of(RUN_STEP);
        supply.reserve(bytes as u64, total_max).then(|| Self {
            block: supply.block(bytes),
            bytes_max,
            filled: 0,
            counted: Counted { supply: Arc::clone(supply), bytes: bytes as u64 },
        })
    }

    /// The room for the bytes that are still missing; empty if there are none.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.block[self.filled..self.bytes_max]
    }

    /// Adds the first `bytes` bytes of [`room`](Self::room) to those that were received.
    ///
    /// # Panics
    /// If the room is smaller.
    pub fn add(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes_max - self.filled, "{bytes} bytes exceed the reserved room");
        self.filled += bytes;
    }

    /// Ends receiving: the bytes do not change any more, and an item can keep them.
    #[must_use]
    pub fn finish(self) -> Received {
        let Self { block, filled, counted, .. } = self;
        Received { block: Arc::new(block), filled, counted }
    }
}

impl Deref for Reserved {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[..self.filled]
    }
}

/// Received bytes in a block of the cache's memory, which a large item stored from them keeps. They
/// count as reserved until this is dropped.
pub struct Received {
    block: Arc<Block>,
    filled: usize,
    counted: Counted,
}

impl Received {
    /// Continues receiving if the block has room for `bytes_max` bytes in all and no item keeps it:
    /// the command goes on behind its value, as with an expiry in the Redis protocol.
    ///
    /// # Errors
    /// Returns the received bytes unchanged if they do not fit or are in use.
    pub fn reopen(self, bytes_max: usize) -> Result<Reserved, Self> {
        let Self { block, filled, counted } = self;
        if bytes_max > block.size() {
            return Err(Self { block, filled, counted });
        }
        match Arc::try_unwrap(block) {
            Ok(block) => {
                // Also for parts of the command of which the length is not known yet.
                let bytes_max = bytes_max.max(filled + SPARE_BYTES).min(block.size());
                Ok(Reserved { block, bytes_max, filled, counted })
            }
            Err(block) => Err(Self { block, filled, counted }),
        }
    }

    /// The block as the run of an item with this key and value, if both lie in it and it is hardly
    /// larger.
    pub(crate) fn run_of(&self, key: &[u8], value: &[u8]) -> Option<Run> {
        let (key_at, value_at) = (self.offset_of(key)?, self.offset_of(value)?);
        let excess = self.block.size().checked_sub(key.len() + value.len())?;
        (excess <= EXCESS_BYTES_MAX).then(|| Run { block: Arc::clone(&self.block), key_at, value_at })
    }

    fn offset_of(&self, part: &[u8]) -> Option<u32> {
        let at = part.as_ptr().addr().checked_sub(self.block.start().addr().get())?;
        if at.checked_add(part.len())? > self.filled {
            return None;
        }
        u32::try_from(at).ok()
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[..self.filled]
    }
}

impl PartialEq for Received {
    /// True for the same bytes in the same place.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block) && self.filled == other.filled
    }
}

impl Eq for Received {}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("filled", &self.filled).finish_non_exhaustive()
    }
}

/// The value of a large item, readable for as long as this exists, whatever happens to the item.
/// Its memory stays allocated meanwhile, beside the bytes that the cache accounts for.
#[derive(Clone)]
pub struct Pinned {
    block: Arc<Block>,
    value: Range<usize>,
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block[self.value.clone()]
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("bytes", &self.value.len()).finish_non_exhaustive()
    }
}

/// The block of a large item, with the places of key and value in it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) block: Arc<Block>,
    pub(crate) key_at: u32,
    pub(crate) value_at: u32,
}

impl PartialEq for Run {
    /// True for the same bytes in the same place.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
            && (self.key_at, self.value_at) == (other.key_at, other.value_at)
    }
}

impl Eq for Run {}

impl Run {
    /// Writes key and value into a new block.
    pub(crate) fn copy_of(key: &[u8], value: &[u8], supply: &Arc<Supply>) -> Self {
        let bytes = key.len() + value.len();
        // Never empty, since an item without key and value fits a slot.
        let mut block = supply.block(bytes.next_multiple_of(RUN_STEP));
        block[..key.len()].copy_from_slice(key);
        block[key.len()..bytes].copy_from_slice(value);
        Self { block: Arc::new(block), key_at: 0, value_at: key.len() as u32 }
    }

    pub(crate) fn key(&self, bytes: usize) -> &[u8] {
        &self.block[self.key_at as usize..][..bytes]
    }

    pub(crate) fn value(&self, bytes: usize) -> &[u8] {
        &self.block[self.value_at as usize..][..bytes]
    }

    pub(crate) fn pin(&self, bytes: usize) -> Pinned {
        let start = self.value_at as usize;
        Pinned { block: Arc::clone(&self.block), value: start..start + bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::memory::Heap;

    const TOTAL_MAX: u64 = 64 << 10;

    fn supply() -> Arc<Supply> {
        Supply::new(Arc::new(Heap))
    }

    fn received(supply: &Arc<Supply>, bytes: &[u8]) -> Received {
        let mut reserved = Reserved::new(supply, bytes.len(), TOTAL_MAX).expect("it is within the limit");
        for part in bytes.chunks(1000) {
            reserved.room()[..part.len()].copy_from_slice(part);
            reserved.add(part.len());
        }
        assert!(reserved.room().is_empty());
        assert_eq!(&reserved[..], bytes);
        reserved.finish()
    }

    #[test]
    fn reserved_memory_is_limited_and_released_when_dropped_or_received() {
        let supply = supply();
        let bytes = |steps: usize| steps * RUN_STEP - SPARE_BYTES;
        let one = Reserved::new(&supply, bytes(15), TOTAL_MAX).expect("it is within the limit");
        assert!(Reserved::new(&supply, bytes(1) + 1, TOTAL_MAX).is_none());
        let other = Reserved::new(&supply, bytes(1), TOTAL_MAX).expect("it fits exactly");
        drop(other.finish());
        drop(one);
        assert_eq!(supply.held(), 0);
        assert!(Reserved::new(&supply, bytes(16), TOTAL_MAX).is_some());
    }

    #[test]
    fn received_bytes_are_continued_within_their_block_unless_an_item_keeps_it() {
        let supply = supply();
        let text = [&b"k"[..], &[b'v'; 20_000], b"\r\n"].concat();
        let mut more = received(&supply, &text).reopen(text.len() + 4).expect("there is room");
        more.room()[..4].copy_from_slice(b"EX 9");
        more.add(4);
        let bytes = more.finish();
        assert_eq!(&bytes[text.len()..], b"EX 9");
        assert_eq!(supply.reserved(), 20_480, "it counts once");
        let bytes = bytes.reopen(1 << 20).expect_err("it is longer than the block");
        let run = bytes.run_of(&bytes[..1], &bytes[1..20_001]).expect("it lies in the block");
        assert!(bytes.reopen(text.len() + 8).is_err(), "an item keeps it");
        assert_eq!((run.value(20_000), supply.reserved()), (&[b'v'; 20_000][..], 0));
    }

    #[test]
    fn item_keeps_received_bytes_only_if_key_and_value_fill_nearly_all_of_them() {
        let supply = supply();
        let text = [&b"set key "[..], &[b'v'; 20_000], b"\r\n"].concat();
        let bytes = received(&supply, &text);
        let run = bytes.run_of(&bytes[4..7], &bytes[8..20_008]).expect("it lies in the block");
        assert_eq!((run.key(3), run.value(20_000)), (&b"key"[..], &[b'v'; 20_000][..]));
        assert!(bytes.run_of(&bytes[4..7], &bytes[8..9_000]).is_none(), "most of the block would be unused");
        assert!(bytes.run_of(b"key", &bytes[8..20_008]).is_none(), "the key lies elsewhere");
        let held = supply.held();
        drop(bytes);
        assert_eq!(supply.held(), held, "the item holds the block");
        drop(run);
        assert_eq!(supply.held(), 0);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of threads")]
    fn pinned_value_stays_readable_in_another_thread_after_its_item_is_gone() {
        let supply = supply();
        let run = Run::copy_of(b"key", &[7; 10_000], &supply);
        let pinned = run.pin(10_000);
        let reader = thread::spawn(move || pinned.iter().all(|&byte| byte == 7));
        drop(run);
        assert!(reader.join().expect("it does not panic"));
        assert_eq!(supply.held(), 0);
    }
}
