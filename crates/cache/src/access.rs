//! Who asks, when, and how urgently.

use sherwood_model::{Instant, TenantId};

/// What comes with every access to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time, read by the driver once per batch of input.
    pub now: Instant,
    /// The recency queue the item moves to. A class the cache was not built with counts as the last one.
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
    /// Not a use: a `get` or a [`Change::Amend`](crate::Change::Amend) leaves the recency and [`Marks::USED`](crate::Marks::USED)
    /// as they are. Hits and misses are counted all the same.
    pub const KEEP_RECENCY: Self = Self(1);

    pub(crate) const fn keeps_recency(self) -> bool {
        self.0 & Self::KEEP_RECENCY.0 != 0
    }
}
