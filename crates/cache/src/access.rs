//! Who asks, when, and how urgently.

use sherwood_model::{Instant, TenantId};

/// What comes with every access to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time, read by the driver once per batch of input.
    pub now: Instant,
    /// The recency queue the item moves to. A class the cache was not built with counts as the last
    /// one.
    pub class: DeadlineClass,
    /// Who asks. The partition says who pays.
    pub tenant: TenantId,
    /// Marks of this access.
    pub flags: AccessFlags,
}

impl Access {
    /// An access at `now` by the default tenant without a deadline.
    #[must_use]
    pub const fn at(now: Instant) -> Self {
        Self { now, class: DeadlineClass(0), tenant: TenantId(0), flags: AccessFlags::NONE }
    }
}

/// A range of deadlines with a recency queue of its own, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadlineClass(pub u8);

/// What is special about an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessFlags(u8);

impl AccessFlags {
    /// An ordinary access.
    pub const NONE: Self = Self(0);
    /// Not a use: a `get` or a [`Change::Amend`](crate::Change::Amend) leaves the recency and
    /// [`Marks::USED`](crate::Marks::USED) as they are. Hits and misses are counted all the same.
    pub const KEEP_RECENCY: Self = Self(1);
    /// Finds a [`Kind::Graced`](crate::Kind::Graced) item for as long after it expired as its
    /// partition's grace.
    pub const SEE_STALE: Self = Self(1 << 1);
    /// Finds a [`Kind::Absent`](crate::Kind::Absent) item.
    pub const SEE_ABSENT: Self = Self(1 << 2);
    /// Finds a [`Kind::Place`](crate::Kind::Place), whose value is empty.
    pub const SEE_PLACES: Self = Self(1 << 3);

    /// These and those of `flags`.
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

    pub(crate) const fn sees_places(self) -> bool {
        self.has(Self::SEE_PLACES)
    }

    const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}
