//! Parameters of an access: time, deadline class and flags.

use sherwood_model::{DeadlineClass, Instant};

/// Parameters of an access to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time, read by the driver once per batch of input.
    pub now: Instant,
    /// The class of the caller's deadline, whose recency queue the item moves to; a class beyond
    /// those of the partition counts as its last one. None without a deadline: an item keeps its
    /// class, and a new one gets the last class.
    pub class: Option<DeadlineClass>,
    /// Flags of this access.
    pub flags: AccessFlags,
}

impl Access {
    /// Returns an access at `now` without a deadline.
    #[must_use]
    pub const fn at(now: Instant) -> Self {
        Self { now, class: None, flags: AccessFlags::NONE }
    }
}

/// Flags of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessFlags(u8);

impl AccessFlags {
    /// The empty set of flags.
    pub const NONE: Self = Self(0);
    /// Does not count as a use: a `get` or a [`Change::Amend`](crate::Change::Amend) leaves the
    /// recency and [`Marks::USED`](crate::Marks::USED) unchanged. Hits and misses are counted
    /// nevertheless.
    pub const KEEP_RECENCY: Self = Self(1);
    /// Finds an [`ItemKind::Graced`](crate::ItemKind::Graced) item after its expiry, for as long as
    /// its partition's grace.
    pub const SEE_STALE: Self = Self(1 << 1);
    /// Finds an [`ItemKind::Absent`](crate::ItemKind::Absent) item.
    pub const SEE_ABSENT: Self = Self(1 << 2);
    /// Finds an [`ItemKind::Placeholder`](crate::ItemKind::Placeholder), whose value is empty.
    pub const SEE_PLACEHOLDERS: Self = Self(1 << 3);
    /// Tells, with a store, that it follows a miss for which the caller waited past its deadline.
    /// The class of the access learns from it; without a class the flag has no effect.
    pub const DEADLINE_MISSED: Self = Self(1 << 4);

    /// Returns these flags and `flags` together.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    pub(crate) const fn keeps_recency(self) -> bool {
        self.has(Self::KEEP_RECENCY)
    }

    pub(crate) const fn sees_stale(self) -> bool {
        self.has(Self::SEE_STALE)
    }

    pub(crate) const fn sees_absent(self) -> bool {
        self.has(Self::SEE_ABSENT)
    }

    pub(crate) const fn sees_placeholders(self) -> bool {
        self.has(Self::SEE_PLACEHOLDERS)
    }

    pub(crate) const fn tells_missed_deadline(self) -> bool {
        self.has(Self::DEADLINE_MISSED)
    }

    const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}
