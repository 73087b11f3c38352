//! The waiters of a key.

use std::{iter, vec};

/// At least one waiter, in order of arrival. Most keys have a single one, which needs no
/// allocation.
///
/// ```
/// use sherwood_dispatch::Waiters;
/// let mut waiters = Waiters::new(1);
/// waiters.push(2);
/// assert_eq!(waiters.len(), 2);
/// assert_eq!(waiters.into_iter().collect::<Vec<_>>(), [1, 2]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiters<W> {
    first: W,
    /// Waiters after the first. Boxed since they are rare: a dispatcher holds as many lists as keys
    /// are in flight.
    others: Option<Box<Others<W>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Others<W>(Vec<W>);

impl<W> Waiters<W> {
    /// Creates the list with its first waiter.
    #[must_use]
    pub const fn new(first: W) -> Self {
        Self { first, others: None }
    }

    /// Adds a waiter. The caller bounds the number of waiters.
    pub fn push(&mut self, waiter: W) {
        self.others.get_or_insert_with(|| Box::new(Others(Vec::new()))).0.push(waiter);
    }

    /// Returns the waiters, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = &W> {
        iter::once(&self.first).chain(self.others.iter().flat_map(|others| &others.0))
    }

    /// Returns the number of waiters, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        1 + self.others.as_ref().map_or(0, |others| others.0.len())
    }
}

impl<W> IntoIterator for Waiters<W> {
    type Item = W;
    type IntoIter = iter::Chain<iter::Once<W>, vec::IntoIter<W>>;

    fn into_iter(self) -> Self::IntoIter {
        let others = self.others.map_or_else(Vec::new, |others| others.0);
        iter::once(self.first).chain(others)
    }
}
