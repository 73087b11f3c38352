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

/// Marks of an access. There is none yet; the place is kept so that callers need not change for the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessFlags(());

impl AccessFlags {
    /// An ordinary access.
    pub const NONE: Self = Self(());
}
