//! Slots for clients, each with a token that never names another client.
//!
//! Events carry tokens, and so do wake-ups from other threads. Both may arrive after the client has
//! gone and its slot has been reused. So a token holds the slot and a serial number.

/// The token of a value in [`Slots`], never used for another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(u64);

impl Token {
    fn new(index: usize, serial: u32) -> Self {
        Self((index as u64) << 32 | u64::from(serial))
    }

    /// Returns the token as a number, for the event queue.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// Returns the token that was converted to a number.
    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    fn index(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn serial(self) -> u32 {
        self.0 as u32
    }
}

/// A growing list of slots for values, as long as the largest number of values at a time.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// The number of values that the slot had before; wraps around after 2^32, when no token of the
    /// first one is left.
    serial: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Stores the value that `make` creates from its token. O(1) amortised.
    pub(super) fn insert(&mut self, make: impl FnOnce(Token) -> T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { serial: 0, value: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let token = Token::new(index, slot.serial);
        slot.value = Some(make(token));
        token
    }

    /// Returns the value that a token names, unless it was removed.
    pub(super) fn get(&self, token: Token) -> Option<&T> {
        let slot = self.slots.get(token.index()).filter(|slot| slot.serial == token.serial())?;
        slot.value.as_ref()
    }

    /// Returns the value that a token names, unless it was removed, to be changed.
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index())?;
        slot.value.as_mut().filter(|_| slot.serial == token.serial())
    }

    /// Removes the value that a token names.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index()).filter(|slot| slot.serial == token.serial())?;
        let value = slot.value.take()?;
        slot.serial = slot.serial.wrapping_add(1);
        self.free.push(token.index());
        Some(value)
    }

    /// Returns the number of values in the slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Iterates over all values with their tokens. O(slots).
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let token = Token::new(index, slot.serial);
            slot.value.as_mut().map(|value| (token, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_of_a_removed_value_names_no_later_value() {
        let mut slots = Slots::default();
        let (first, second) = (slots.insert(|_| 'a'), slots.insert(|_| 'b'));
        assert_eq!((slots.remove(first), slots.remove(first), slots.len()), (Some('a'), None, 1));
        let third = slots.insert(|token| {
            assert_ne!(token, first, "the place is the same, the token is not");
            'c'
        });
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.get_mut(third), Some(&mut 'c'));
        assert_eq!(Token::from_number(third.number()), third);
        let all: Vec<_> = slots.iter_mut().map(|(token, value)| (token, *value)).collect();
        assert_eq!(all, [(third, 'c'), (second, 'b')]);
        assert_eq!(slots.get_mut(Token::from_number(u64::MAX)), None);
    }
}
