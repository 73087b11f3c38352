//! Tags by which items are invalidated together.
//!
//! A tag names something that many keys depend on: a user, a product, a template. An invalidation
//! by tag must not miss an item but may remove a few too many, since those are only fetched again.
//! An item therefore stores its tags as a Bloom filter of 64 bits, of the same size whatever the
//! tags are called.

use crate::SeededState;

/// A set of tags as a Bloom filter: it never misses a tag that was added, and reports one that was
/// not with a probability of about 1% when it holds three.
///
/// ```
/// use sherwood_model::Tags;
/// let tags: Tags = [&b"user:7"[..], b"page"].into_iter().collect();
/// assert!(tags.may_hold(b"user:7") && tags.may_hold(b"page"));
/// assert!(!tags.may_hold(b"user:8"));
/// assert!(Tags::NONE.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags(u64);

impl Tags {
    /// The empty set of tags.
    pub const NONE: Self = Self(0);

    /// Restores the set that [`bits`](Self::bits) returned.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits of the Bloom filter: equal sets of tags have equal bits, on every machine and in
    /// every version that reads the same files.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True if the set has no tag.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a tag, any byte string, to the set.
    pub fn add(&mut self, tag: &[u8]) {
        self.0 |= filter(tag);
    }

    /// True if `tag` was added; by chance also true for one that was not.
    #[must_use]
    pub fn may_hold(self, tag: &[u8]) -> bool {
        let filter = filter(tag);
        self.0 & filter == filter
    }
}

impl<'a> FromIterator<&'a [u8]> for Tags {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(tags: I) -> Self {
        let mut set = Self::NONE;
        tags.into_iter().for_each(|tag| set.add(tag));
        set
    }
}

/// The bits that one tag sets in the Bloom filter: three of 64, not necessarily distinct, drawn by
/// a hash function that is the same on every machine.
fn filter(tag: &[u8]) -> u64 {
    let hash = SeededState::new(0).hash_bytes(tag);
    [0, 6, 12].into_iter().fold(0, |bits, shift| bits | 1 << (hash >> shift & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_positives_of_a_set_of_three_tags_are_below_one_percent() {
        let claimed = (0..10_000).filter(|i: &u32| {
            let name = |n: u32| format!("tag:{i}:{n}");
            let tags: Tags = [name(0), name(1), name(2)].iter().map(|name| name.as_bytes()).collect();
            (0..3).for_each(|n| assert!(tags.may_hold(name(n).as_bytes())));
            tags.may_hold(name(3).as_bytes())
        });
        assert!(claimed.count() < 100);
    }

    #[test]
    fn empty_set_of_tags_holds_no_tag_not_even_the_empty_one() {
        assert!(!Tags::NONE.may_hold(b"") && Tags::NONE.is_empty());
        let mut tags = Tags::NONE;
        tags.add(b"");
        assert!(tags.may_hold(b"") && !tags.is_empty());
        assert_eq!(Tags::from_bits(tags.bits()), tags);
    }
}
