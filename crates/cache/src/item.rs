//! What goes in and what comes out.

use sherwood_model::Instant;
use thiserror::Error;

/// A value, or only its size.
///
/// A simulator holds tens of millions of items and never looks at a value, so it declares sizes. Both are charged alike.
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
    /// Unique to this stored value; larger than that of every value stored before. Reading and touching keep it.
    pub cas: u64,
    /// When it dies, if ever.
    pub expires: Option<Instant>,
}

/// An item to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewItem<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's 32 bits.
    pub flags: u32,
    /// When it dies, if ever; at or before now, it is dead at once.
    pub expires: Option<Instant>,
}

impl<'a> NewItem<'a> {
    /// These bytes, without flags or expiry.
    #[must_use]
    pub const fn bytes(value: &'a [u8]) -> Self {
        Self { value: Value::Bytes(value), flags: 0, expires: None }
    }

    /// A value of `bytes` that is not stored, without flags or expiry.
    #[must_use]
    pub const fn declared(bytes: u32) -> Self {
        Self { value: Value::Declared(bytes), flags: 0, expires: None }
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
    },
    /// Keep the value and its CAS, set a new expiry and refresh the recency. Nothing where there is no item.
    Touch(Option<Instant>),
    /// Remove the item, if there is one.
    Remove,
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
    /// The item alone is charged more than its partition may hold (than the total, where all share).
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
