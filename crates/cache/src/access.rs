//! Parameters of an access: time, deadline class, tenant and flags.

use sherwood_model::{Instant, TenantId};

/// Parameters of an access to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time, read by the driver once per batch of input.
    pub now: Instant,
    /// The recency queue that the item moves to. A class beyond those of the cache counts as the
    /// last one.
    pub class: DeadlineClass,
    /// Tenant that makes the access. The item is charged to the partition's tenant.
    pub tenant: TenantId,
    /// Flags of this access.
    pub flags: AccessFlags,
}

impl Access {
    /// Returns an access at `now` by the default tenant without a deadline.
    #[must_use]
    pub const fn at(now: Instant) -> Self {
        Self { now, class: DeadlineClass(0), tenant: TenantId(0), flags: AccessFlags::NONE }
    }
}

/// A range of deadlines with its own recency queue, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadlineClass(pub u8);

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

    const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}
