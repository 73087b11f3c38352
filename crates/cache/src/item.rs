//! What goes in and what comes out.

use std::borrow::Cow;

use sherwood_model::{Instant, Tags};
use thiserror::Error;

/// A value, or only its size.
///
/// A simulator holds tens of millions of items and never looks at a value, so it declares sizes.
/// Both are charged alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// A value of this many bytes that is not stored.
    Declared(u32),
}

impl Value<'_> {
    /// Size in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Declared(bytes) => *bytes as usize,
        }
    }

    /// Whether the size is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An item as a reader sees it, borrowed while its shard is locked: copy what is needed and return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's 32 bits, kept as they came.
    pub flags: u32,
    /// Unique to this stored value; larger than that of every value stored before. Reading and
    /// touching keep it. Neither holds for a number that the caller gave ([`Change::StoreMarked`],
    /// [`Change::Amend`]).
    pub cas: u64,
    /// When it dies, if ever; when it became stale or will, where it is [`Kind::Graced`].
    pub expires: Option<Instant>,
    /// Who sees it, and for how long.
    pub kind: Kind,
    /// What it may be invalidated by, beside its key.
    pub tags: Tags,
    /// What is noted about it; always [`Marks::NONE`] for a declared size.
    pub marks: Marks,
    /// When it was last used or stored, before this access; under S3-FIFO, where a use leaves no
    /// time, when it was stored. [`Cache::since`](crate::Cache::since) turns it into a time.
    pub last_use: Use,
}

impl Item<'_> {
    /// Since when it is stale, if it is at `now`: the time it was good for is over. Only an access
    /// that [sees stale items](crate::AccessFlags::SEE_STALE) finds one.
    #[must_use]
    pub fn stale_since(&self, now: Instant) -> Option<Instant> {
        self.expires.filter(|&expires| expires <= now)
    }
}

/// Who sees an item, and for how long.
///
/// To an access that does not see it, it is as an item that has expired: none. Whatever that access
/// stores takes its place, and a removal takes it out; a mere look leaves it to those who see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Everybody, until it expires.
    #[default]
    Plain,
    /// Everybody until it expires; then, for the [grace](crate::Partition::grace) of its partition,
    /// an access that [sees stale items](crate::AccessFlags::SEE_STALE). One stored without an
    /// expiry is [`Kind::Plain`].
    Graced,
    /// Word that there is no value, good until it expires: only an access that [sees
    /// it](crate::AccessFlags::SEE_ABSENT).
    Absent,
    /// No value and no word of one, but a place that somebody has been told to fill: only an access
    /// that [sees places](crate::AccessFlags::SEE_PLACES). To others there is none, so whoever has
    /// a value may store it.
    Place,
}

/// Eight bits noted about an item. One is the cache's; the others mean what the caller wants them
/// to.
///
/// A value stored without marks has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub(crate) u8);

impl Marks {
    /// Nothing is noted.
    pub const NONE: Self = Self(0);
    /// A `get` has found the item since its value was stored. The cache sets it; it stays while the
    /// value does, and a [`Change::Amend`] sets it or not.
    pub const USED: Self = Self(1 << 7);

    /// The caller's mark number `number`.
    ///
    /// # Panics
    /// When `number` is not 0 to 6; at compile time, where the mark is a constant.
    #[must_use]
    pub const fn of_caller(number: u8) -> Self {
        assert!(number < 7, "a caller has seven marks, numbered from 0");
        Self(1 << number)
    }

    /// Whether all of `marks` are set.
    #[must_use]
    pub const fn contains(self, marks: Self) -> bool {
        self.0 & marks.0 == marks.0
    }

    /// These and those of `marks`.
    #[must_use]
    pub const fn with(self, marks: Self) -> Self {
        Self(self.0 | marks.0)
    }

    /// Those of these that are in `marks`.
    #[must_use]
    pub const fn only(self, marks: Self) -> Self {
        Self(self.0 & marks.0)
    }

    /// These but those of `marks`.
    #[must_use]
    pub const fn without(self, marks: Self) -> Self {
        Self(self.0 & !marks.0)
    }
}

/// A moment in the order of all uses of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use(pub(crate) u64);

/// An item to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewItem<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's 32 bits.
    pub flags: u32,
    /// When it dies, if ever; at or before now, it is dead at once, or stale where it is
    /// [`Kind::Graced`].
    pub expires: Option<Instant>,
    /// Who sees it, and for how long.
    pub kind: Kind,
    /// What it may be invalidated by; any are charged like 8 bytes of value.
    pub tags: Tags,
}

impl<'a> NewItem<'a> {
    /// These bytes, without flags, expiry or tags.
    #[must_use]
    pub const fn bytes(value: &'a [u8]) -> Self {
        Self::plain(Value::Bytes(value))
    }

    /// A value of `bytes` that is not stored, without flags, expiry or tags.
    #[must_use]
    pub const fn declared(bytes: u32) -> Self {
        Self::plain(Value::Declared(bytes))
    }

    /// Word that there is no value, which should expire.
    #[must_use]
    pub const fn absent() -> Self {
        Self { kind: Kind::Absent, ..Self::bytes(b"") }
    }

    const fn plain(value: Value<'a>) -> Self {
        Self { value, flags: 0, expires: None, kind: Kind::Plain, tags: Tags::NONE }
    }
}

/// What an atomic read-modify-write does with the item it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Nothing: value, expiry and recency stay.
    Keep,
    /// Store this value, whose bytes were there before the item was seen.
    Store(NewItem<'a>),
    /// Store a value that was computed from the item seen.
    StoreOwned {
        /// The new value.
        value: Vec<u8>,
        /// The client's 32 bits.
        flags: u32,
        /// When it dies, if ever.
        expires: Option<Instant>,
        /// What it may be invalidated by: as a rule what the item seen was.
        tags: Tags,
    },
    /// Store a value with marks, and with a CAS of the caller's own if it gives one. An own CAS is
    /// charged like 8 bytes of value.
    StoreMarked {
        /// The new value.
        value: Cow<'a, [u8]>,
        /// The client's 32 bits.
        flags: u32,
        /// When it dies, if ever.
        expires: Option<Instant>,
        /// Who sees it, and for how long.
        kind: Kind,
        /// What it may be invalidated by.
        tags: Tags,
        /// What is noted about it.
        marks: Marks,
        /// Its CAS; none for the next of the cache's.
        cas: Option<u64>,
    },
    /// Keep the value, the client's bits, kind and tags, set all else, and refresh the recency
    /// unless the access says not to. Nothing where there is no item, and no marks or CAS for a
    /// declared size.
    Amend {
        /// When it dies, if ever.
        expires: Option<Instant>,
        /// What is noted about it.
        marks: Marks,
        /// Its CAS.
        cas: NewCas,
    },
    /// Keep the value and its CAS, set a new expiry and refresh the recency. Nothing where there is
    /// no item.
    Touch(Option<Instant>),
    /// Remove the item, if there is one.
    Remove,
}

/// What becomes of the CAS of an item whose value stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewCas {
    /// It stays too.
    Keep,
    /// The next of the cache's.
    Next,
    /// A number of the caller's own.
    Given(u64),
}

/// Why an item was not stored. Trying again helps only after a plan has given the partition more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The key is longer than the cache was built for.
    #[error("cannot store a key of {bytes} bytes: keys have at most {max}")]
    KeyTooLong {
        /// Length of the key.
        bytes: usize,
        /// `key_bytes_max`.
        max: u16,
    },
    /// The value is larger than the cache was built for.
    #[error("cannot store a value of {bytes} bytes: values have at most {max}, raise the largest item size")]
    ValueTooLarge {
        /// Size of the value.
        bytes: usize,
        /// `item_bytes_max`.
        max: u32,
    },
    /// The item alone is charged more than its partition may hold (than the total, where all
    /// share).
    #[error(
        "cannot store an item charged {charge} bytes in a budget of {budget_bytes}: give the partition more"
    )]
    OverBudget {
        /// What it would be charged.
        charge: u64,
        /// What the partition may hold.
        budget_bytes: u64,
    },
}
