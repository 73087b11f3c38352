//! Values held for an answer, bounded per answer and in sum over all answers.

use bytes::Bytes;
use sherwood_process::buffers::Hold;

/// A key's value in an answer, or the reason it is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The value, which the answer holds.
    Bytes(Bytes),
    /// There is a value, but the request did not want it or there was no room for it.
    Withheld(Lack),
}

/// The bound for which a value is left out of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The bound of values in one answer.
    Answer,
    /// The budget of bytes that all answers share.
    Node,
}

/// The number of bytes of values that an answer may still hold.
#[derive(Debug)]
pub(super) struct Room {
    left: usize,
    hold: Hold,
}

impl Room {
    /// Creates room for `bytes`, each taken from the shared budget through `hold`.
    pub(super) fn new(bytes: usize, hold: Hold) -> Self {
        Self { left: bytes, hold }
    }

    /// Takes room for a value of `bytes` in the answer, which uses `memory` bytes while it is held.
    pub(super) fn take(&mut self, bytes: usize, memory: usize) -> Result<(), Lack> {
        let left = self.left.checked_sub(bytes).ok_or(Lack::Answer)?;
        if !self.hold.take(memory) {
            return Err(Lack::Node);
        }
        self.left = left;
        Ok(())
    }

    /// Holds the value that `value` returns, of `bytes` bytes, if there is room for it.
    pub(super) fn hold(&mut self, bytes: usize, value: impl FnOnce() -> Bytes) -> Held {
        match self.take(bytes, bytes) {
            Ok(()) => Held::Bytes(value()),
            Err(lack) => Held::Withheld(lack),
        }
    }

    /// Returns the part taken from the shared budget.
    pub(super) fn into_hold(self) -> Hold {
        self.hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherwood_process::buffers::Buffers;

    #[test]
    fn value_too_large_for_an_answer_leaves_room_for_smaller_ones() {
        let mut room = Room::new(3, Buffers::new(100).hold());
        let value = || Bytes::from_static(b"ab");
        assert_eq!(room.hold(2, value), Held::Bytes(value()));
        assert_eq!(room.hold(2, || unreachable!("not read")), Held::Withheld(Lack::Answer));
        assert_eq!((room.take(1, 1), room.take(0, 0), room.take(1, 1)), (Ok(()), Ok(()), Err(Lack::Answer)));
    }

    #[test]
    fn exhausted_buffer_budget_is_told_apart_from_a_full_answer() {
        let mut room = Room::new(100, Buffers::new(10).hold());
        assert_eq!(room.hold(11, || unreachable!("not read")), Held::Withheld(Lack::Node));
        assert_eq!((room.take(100, 10), room.take(0, 1)), (Ok(()), Err(Lack::Node)));
    }
}
