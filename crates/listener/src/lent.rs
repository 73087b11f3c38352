//! Buffers of a thread, lent to one connection at a time.
//!
//! Most turns leave no bytes behind, so the buffers that a turn needs belong to the thread. Bytes
//! that one connection leaves in them must never reach another one. So a shared buffer is only
//! accessible through [`Lendable::lend`]: its guard gets an empty buffer and empties it when
//! dropped, at every exit of a turn: its end, an early return, an error or a panic.

use std::ops::{Deref, DerefMut};

/// A buffer whose contents can be discarded.
pub(super) trait Empty {
    /// Makes the bytes in the buffer unreachable, and may keep its memory.
    fn empty(&mut self);

    /// Returns the bytes of memory that the buffer uses.
    fn capacity(&self) -> usize;
}

/// A buffer that a thread lends to one connection at a time, always empty.
#[derive(Debug)]
pub(super) struct Lendable<B>(B);

impl<B: Empty> Lendable<B> {
    /// Wraps an empty buffer, which can then be lent.
    pub(super) fn new(buffer: B) -> Self {
        Self(buffer)
    }

    /// Lends the buffer, empty, until the guard is dropped.
    pub(super) fn lend(&mut self) -> Lent<'_, B> {
        // It is empty already, unless a guard was forgotten instead of dropped.
        self.0.empty();
        Lent(&mut self.0)
    }

    /// Returns the bytes of memory that the buffer uses.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// A guard of a lent buffer, which empties it when dropped.
#[derive(Debug)]
pub(super) struct Lent<'a, B: Empty>(&'a mut B);

impl<B: Empty> Deref for Lent<'_, B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.0
    }
}

impl<B: Empty> DerefMut for Lent<'_, B> {
    fn deref_mut(&mut self) -> &mut B {
        self.0
    }
}

impl<B: Empty> Drop for Lent<'_, B> {
    fn drop(&mut self) {
        self.0.empty();
    }
}

impl Empty for Vec<u8> {
    fn empty(&mut self) {
        self.clear();
    }

    fn capacity(&self) -> usize {
        self.capacity()
    }
}

/// A buffer of fixed size to read input into. Its memory is initialised once, but only bytes that
/// were read since it was emptied can be reached.
#[derive(Debug, Default)]
pub(super) struct ReadBuffer {
    memory: Box<[u8]>,
    filled: usize,
}

impl ReadBuffer {
    /// Creates a buffer of `bytes`, all of them free.
    pub(super) fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes].into(), filled: 0 }
    }

    /// Returns the number of free bytes.
    pub(super) fn free(&self) -> usize {
        self.memory.len() - self.filled
    }

    /// Calls `read` with the next `bytes` bytes of the buffer, of which it fills the start and
    /// returns how many. `bytes` is at least 1 and at most [`free`](Self::free).
    pub(super) fn fill<E>(
        &mut self,
        bytes: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        assert!((1..=self.free()).contains(&bytes), "{bytes} bytes of {} that are free", self.free());
        let read = read(&mut self.memory[self.filled..self.filled + bytes])?;
        self.filled += read.min(bytes);
        Ok(read)
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.filled]
    }
}

impl Empty for ReadBuffer {
    fn empty(&mut self) {
        self.filled = 0;
    }

    fn capacity(&self) -> usize {
        self.memory.len()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn fill(buffer: &mut ReadBuffer, bytes: &[u8]) {
        let read = buffer.fill::<()>(4, |memory| {
            memory[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        });
        assert_eq!(read, Ok(bytes.len()));
    }

    #[test]
    fn shared_buffer_is_lent_empty_after_an_error_a_panic_and_a_forgotten_guard() {
        let mut buffer = Lendable::new(Vec::new());
        let mut use_it = |ends: fn(Lent<'_, Vec<u8>>) -> Result<(), ()>| {
            let mut lent = buffer.lend();
            assert!(lent.is_empty());
            lent.extend_from_slice(b"secret");
            ends(lent)
        };
        assert_eq!(use_it(|_| Ok(())), Ok(()));
        assert_eq!(use_it(|_| Err(())), Err(()));
        assert!(catch_unwind(AssertUnwindSafe(|| use_it(|_| panic!("in a turn")))).is_err());
        let forgotten = use_it(|lent| {
            std::mem::forget(lent);
            Ok(())
        });
        assert_eq!(forgotten, Ok(()));
        assert_eq!(use_it(|_| Ok(())), Ok(()));
    }

    #[test]
    fn memory_of_a_lent_buffer_is_kept_unless_it_is_taken() {
        let mut buffer = Lendable::new(Vec::with_capacity(100));
        buffer.lend().extend_from_slice(b"answer");
        assert!(buffer.capacity() >= 100);
        let mut lent = buffer.lend();
        lent.extend_from_slice(b"owed");
        assert_eq!(std::mem::take(&mut *lent), b"owed");
        drop(lent);
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn only_bytes_read_since_the_read_buffer_was_emptied_can_be_reached() {
        let mut buffer = Lendable::new(ReadBuffer::new(8));
        let mut lent = buffer.lend();
        fill(&mut lent, b"pass");
        fill(&mut lent, b"word");
        assert_eq!((&lent[..], lent.free()), (&b"password"[..], 0));
        drop(lent);
        let mut lent = buffer.lend();
        assert_eq!(&lent[..], b"");
        assert_eq!(lent.fill(4, |_| Err("reset")), Err("reset"));
        fill(&mut lent, b"hi");
        assert_eq!((&lent[..], lent.free()), (&b"hi"[..], 6));
    }
}
