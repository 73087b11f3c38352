//! Items, as stored and as read.

use std::borrow::Cow;

use sherwood_model::{Instant, Tags};
use thiserror::Error;

use crate::in_place::{Pinned, Received, Run};

/// A value, or only its size.
///
/// A simulator holds tens of millions of items and never reads a value, so it declares sizes. Both
/// are charged equally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A stored value, as bytes.
    Bytes(&'a [u8]),
    /// A value of this many bytes that is not stored.
    Declared(u32),
}

impl Value<'_> {
    /// Size of the value in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Declared(bytes) => *bytes as usize,
        }
    }

    /// True if the value has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An item as read, borrowed while its shard is locked: copy what is needed and return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's flags: 32 bits, returned as they were stored.
    pub flags: u32,
    /// Number for compare-and-swap: unique to this stored value and larger than that of every value
    /// stored before; kept by reads and touches. Neither holds for a number given by the caller
    /// ([`Change::StoreMarked`], [`Change::Amend`]).
    pub cas: u64,
    /// Time of expiry, if any; for an [`ItemKind::Graced`] item the time at which it becomes stale.
    pub expires: Option<Instant>,
    /// Plain, kept for a grace after its expiry, a negative entry, or a placeholder to be filled.
    pub kind: ItemKind,
    /// Tags by which the item can be invalidated, beside its key.
    pub tags: Tags,
    /// Marks of the item; always [`Marks::NONE`] for a declared size.
    pub marks: Marks,
    /// The block of a large item.
    pub(crate) run: Option<&'a Run>,
    /// Last use or store before this access; under S3-FIFO, which records no time of use, the
    /// store. [`Cache::since`](crate::Cache::since) converts it into a duration.
    pub last_use: Use,
}

impl Item<'_> {
    /// Returns the value of an item that has a block of its own, above 8 KiB of key and value, to
    /// be read after the shard is unlocked; none for smaller items: copy those.
    #[must_use]
    pub fn pin(&self) -> Option<Pinned> {
        self.run.map(|run| run.pin(self.value.len()))
    }

    /// Returns the time since which the item is stale, if it is stale at `now`. Only an access with
    /// [`SEE_STALE`](crate::AccessFlags::SEE_STALE) finds a stale item.
    #[must_use]
    pub fn stale_since(&self, now: Instant) -> Option<Instant> {
        self.expires.filter(|&expires| expires <= now)
    }
}

/// Visibility of an item to accesses, over time.
///
/// An access that does not see an item treats it like an expired one. A store by such an access
/// replaces it and a removal removes it; a read leaves it for accesses that see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ItemKind {
    /// Visible to every access until it expires.
    #[default]
    Plain,
    /// Visible to every access until it expires; then, for the [grace](crate::Partition::grace) of
    /// its partition, to an access with [`SEE_STALE`](crate::AccessFlags::SEE_STALE). Without an
    /// expiry it is stored as [`ItemKind::Plain`].
    Graced,
    /// A negative entry (the key has no value), valid until it expires: visible only to an access
    /// with [`SEE_ABSENT`](crate::AccessFlags::SEE_ABSENT).
    Absent,
    /// A placeholder without a value that a client has been told to fill: visible only to an access
    /// with [`SEE_PLACEHOLDERS`](crate::AccessFlags::SEE_PLACEHOLDERS). Other accesses find no item
    /// and may store a value.
    Placeholder,
}

/// Eight bits of marks of an item. One is set by the cache; the caller defines the others.
///
/// A value stored without marks has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(pub(crate) u8);

/// The mark of an item that a caller declared old, whatever time it has left: every look-up finds
/// it stale. It is the caller's mark number 0.
pub const OUTDATED: Marks = Marks::of_caller(0);

impl Marks {
    /// The empty set of marks.
    pub const NONE: Self = Self(0);
    /// Set by the cache when a `get` finds the item. Kept as long as its value; a [`Change::Amend`]
    /// overwrites it.
    pub const USED: Self = Self(1 << 7);

    /// Returns the caller's mark `number`.
    ///
    /// # Panics
    /// If `number` is not 0 to 6; at compile time if the mark is a constant.
    #[must_use]
    pub const fn of_caller(number: u8) -> Self {
        assert!(number < 7, "a caller has seven marks, numbered from 0");
        Self(1 << number)
    }

    /// True if all of `marks` are set.
    #[must_use]
    pub const fn contains(self, marks: Self) -> bool {
        self.0 & marks.0 == marks.0
    }

    /// Returns these marks and `marks` together.
    #[must_use]
    pub const fn with(self, marks: Self) -> Self {
        Self(self.0 | marks.0)
    }

    /// Returns the marks that are also in `marks`.
    #[must_use]
    pub const fn only(self, marks: Self) -> Self {
        Self(self.0 & marks.0)
    }

    /// Returns these marks without those in `marks`.
    #[must_use]
    pub const fn without(self, marks: Self) -> Self {
        Self(self.0 & !marks.0)
    }
}

/// A point in the order of all uses (hits, stores and touches) of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use(pub(crate) u64);

/// An item to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewItem<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's flags: 32 bits, returned as they were stored.
    pub flags: u32,
    /// Time of expiry, if any; at or before now the item is dead at once, or stale if it is
    /// [`ItemKind::Graced`].
    pub expires: Option<Instant>,
    /// Plain, kept for a grace after its expiry, a negative entry, or a placeholder to be filled.
    pub kind: ItemKind,
    /// Tags by which the item can be invalidated; a non-empty set is charged like 8 bytes of value.
    pub tags: Tags,
    /// Received bytes in which key and value may lie. A large item keeps their block then, instead
    /// of copying key and value into another one.
    pub received: Option<&'a Received>,
}

impl<'a> NewItem<'a> {
    /// Returns an item of these bytes, without flags, expiry or tags.
    #[must_use]
    pub const fn bytes(value: &'a [u8]) -> Self {
        Self::plain(Value::Bytes(value))
    }

    /// Returns an item with a declared size of `bytes`, without flags, expiry or tags.
    #[must_use]
    pub const fn declared(bytes: u32) -> Self {
        Self::plain(Value::Declared(bytes))
    }

    /// Returns a negative entry, which should be given an expiry.
    #[must_use]
    pub const fn absent() -> Self {
        Self { kind: ItemKind::Absent, ..Self::bytes(b"") }
    }

    const fn plain(value: Value<'a>) -> Self {
        Self { value, flags: 0, expires: None, kind: ItemKind::Plain, tags: Tags::NONE, received: None }
    }
}

/// The change that an atomic read-modify-write applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// No change: value, expiry and recency stay.
    Keep,
    /// Store this item, whose value was borrowed before the old item was read.
    Store(NewItem<'a>),
    /// Store a value computed from the item read.
    StoreOwned {
        /// The new value.
        value: Vec<u8>,
        /// The client's flags: 32 bits, returned as they were stored.
        flags: u32,
        /// Time of expiry, if any.
        expires: Option<Instant>,
        /// Tags by which the item can be invalidated; usually those of the item read.
        tags: Tags,
    },
    /// Store a value with marks, and with the caller's CAS if given, which is charged like 8 bytes
    /// of value.
    StoreMarked {
        /// The new value.
        value: Cow<'a, [u8]>,
        /// The client's flags: 32 bits, returned as they were stored.
        flags: u32,
        /// Time of expiry, if any.
        expires: Option<Instant>,
        /// Plain, kept for a grace after its expiry, a negative entry, or a placeholder to be
        /// filled.
        kind: ItemKind,
        /// Tags by which the item can be invalidated.
        tags: Tags,
        /// Marks of the item.
        marks: Marks,
        /// Number for compare-and-swap (CAS) of the value; none for the next number of the cache.
        cas: Option<u64>,
    },
    /// Keep the value, the client's bits, kind and tags, set everything else, and refresh the
    /// recency unless the access says otherwise. No effect without an item; a declared size gets
    /// neither marks nor CAS.
    Amend {
        /// Time of expiry, if any.
        expires: Option<Instant>,
        /// Marks of the item.
        marks: Marks,
        /// Number for compare-and-swap (CAS) that the kept value has from now on.
        cas: NewCas,
    },
    /// Keep the value and its CAS, set a new expiry and refresh the recency. No effect without an
    /// item.
    Touch(Option<Instant>),
    /// Remove the item, if there is one.
    Remove,
}

/// New number for compare-and-swap (CAS) of an item whose value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewCas {
    /// The number stays as it is.
    Keep,
    /// The next number of the cache's own counter.
    Next,
    /// A number given by the caller.
    Given(u64),
}

/// Reason why an item was not stored. A retry can succeed only after a plan has given the partition
/// more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The key is longer than the cache's limit.
    #[error("cannot store a key of {bytes} bytes: keys have at most {max}")]
    KeyTooLong {
        /// Length of the key.
        bytes: usize,
        /// The limit: option `key_bytes_max`.
        max: u16,
    },
    /// The value is larger than the cache's limit.
    #[error("cannot store a value of {bytes} bytes: values have at most {max}, raise the largest item size")]
    ValueTooLarge {
        /// Size of the value.
        bytes: usize,
        /// The limit: option `item_bytes_max`.
        max: u32,
    },
    /// The item's charge exceeds its partition's budget (the total under `Shared`).
    #[error(
        "cannot store an item charged {charge} bytes in a budget of {budget_bytes}: give the partition more"
    )]
    OverBudget {
        /// Charge of the item in bytes.
        charge: u64,
        /// Budget of the partition in bytes.
        budget_bytes: u64,
    },
}
