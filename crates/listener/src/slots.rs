//! Places for clients, each with a token that names its client and never another one.
//!
//! The system hands tokens back with its events, and wake-ups from other threads carry them too;
//! both may come after the client has gone and its place has been taken. So a token holds the place
//! and how often it was taken before.

/// Names one taken place of [`Slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(u64);

impl Token {
    fn new(index: usize, serial: u32) -> Self {
        Self((index as u64) << 32 | u64::from(serial))
    }

    /// As a number.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// From the number it was made.
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

/// A growing number of places; as many as were ever taken at a time.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// Wraps around after 2^32 clients of one place, when no token of its first one is left.
    serial: u32,
    value: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    /// Takes a place for what `make` makes of its token. O(1) amortised.
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

    /// What is in a place, if it is still the token's.
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index())?;
        slot.value.as_mut().filter(|_| slot.serial == token.serial())
    }

    /// Gives a place up.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index()).filter(|slot| slot.serial == token.serial())?;
        let value = slot.value.take()?;
        slot.serial = slot.serial.wrapping_add(1);
        self.free.push(token.index());
        Some(value)
    }

    /// How many places are taken.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Everything there is, with its token. O(places).
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
    fn a_token_is_for_one_value_only() {
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
