//! Values on their way into an answer, bounded in sum: those of one answer, and those of all.

use bytes::Bytes;

use crate::buffers::Hold;

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// As it will be answered.
    Bytes(Bytes),
    /// There is one, but it was not wanted, or there was no room for it.
    Withheld(Lack),
}

/// What there was not enough room in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The answer, which holds so many bytes of values.
    Answer,
    /// The budget that all answers share.
    Node,
}

/// The number of bytes that may still be held.
#[derive(Debug)]
pub(super) struct Room {
    left: usize,
    hold: Hold,
}

impl Room {
    /// Room for `bytes`, as long as `hold` finds them in the budget.
    pub(super) fn new(bytes: usize, hold: Hold) -> Self {
        Self { left: bytes, hold }
    }

    /// Takes room for a value of `bytes`, which takes `memory` bytes as it is held.
    pub(super) fn take(&mut self, bytes: usize, memory: usize) -> Result<(), Lack> {
        let left = self.left.checked_sub(bytes).ok_or(Lack::Answer)?;
        if !self.hold.take(memory) {
            return Err(Lack::Node);
        }
        self.left = left;
        Ok(())
    }

    /// Holds what `value` gives, of `bytes` bytes, if there is room for it.
    pub(super) fn hold(&mut self, bytes: usize, value: impl FnOnce() -> Bytes) -> Held {
        match self.take(bytes, bytes) {
            Ok(()) => Held::Bytes(value()),
            Err(lack) => Held::Withheld(lack),
        }
    }

    /// The part taken from the budget.
    pub(super) fn into_hold(self) -> Hold {
        self.hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;

    #[test]
    fn a_value_that_does_not_fit_leaves_the_room_to_smaller_ones() {
        let mut room = Room::new(3, Buffers::new(100).hold());
        let value = || Bytes::from_static(b"ab");
        assert_eq!(room.hold(2, value), Held::Bytes(value()));
        assert_eq!(room.hold(2, || unreachable!("not read")), Held::Withheld(Lack::Answer));
        assert_eq!((room.take(1, 1), room.take(0, 0), room.take(1, 1)), (Ok(()), Ok(()), Err(Lack::Answer)));
    }

    #[test]
    fn a_spent_budget_is_told_from_a_full_answer() {
        let mut room = Room::new(100, Buffers::new(10).hold());
        assert_eq!(room.hold(11, || unreachable!("not read")), Held::Withheld(Lack::Node));
        assert_eq!((room.take(100, 10), room.take(0, 1)), (Ok(()), Err(Lack::Node)));
    }
}
