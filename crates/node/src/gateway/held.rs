//! Values on their way into an answer, bounded in sum.

use bytes::Bytes;

/// A key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// As it will be answered.
    Bytes(Bytes),
    /// There is one, but it was not wanted, or there was no room for it.
    Withheld,
}

/// How many bytes of values may still be held.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes room for `bytes`, if there is so much.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        match self.0.checked_sub(bytes) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    /// Holds what `value` gives, of `bytes` bytes, if there is room for it.
    pub(super) fn hold(&mut self, bytes: usize, value: impl FnOnce() -> Bytes) -> Held {
        if self.take(bytes) { Held::Bytes(value()) } else { Held::Withheld }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_leaves_the_room_to_smaller_ones() {
        let mut room = Room::new(3);
        let value = || Bytes::from_static(b"ab");
        assert_eq!(room.hold(2, value), Held::Bytes(value()));
        assert_eq!(room.hold(2, || unreachable!("not read")), Held::Withheld);
        assert!(room.take(1) && room.take(0) && !room.take(1));
    }
}
