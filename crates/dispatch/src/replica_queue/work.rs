//! The work that calls are for a server.

use std::ops::{AddAssign, SubAssign};
use std::time::Duration;

use sherwood_model::DemandKind;

/// Keys of waiting calls, by the kind of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    reads: u64,
    writes: u64,
}

/// Time that a server takes for one key, by the kind of access.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyTimes {
    pub(super) read: Duration,
    pub(super) write: Duration,
}

impl Work {
    pub(super) fn new(kind: DemandKind, keys: u32) -> Self {
        let keys = u64::from(keys);
        match kind {
            DemandKind::Read => Self { reads: keys, writes: 0 },
            DemandKind::Write => Self { reads: 0, writes: keys },
        }
    }

    /// Returns the time that a server takes for this work if it does one key after the other.
    #[inline]
    pub(super) fn time(&self, times: KeyTimes) -> Duration {
        // A key takes at most 18 minutes, so that its nanoseconds fit.
        let of = |keys: u64, each: Duration| keys.saturating_mul(each.as_nanos() as u64);
        Duration::from_nanos(of(self.reads, times.read).saturating_add(of(self.writes, times.write)))
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, more: Self) {
        self.reads += more.reads;
        self.writes += more.writes;
    }
}

impl SubAssign for Work {
    fn sub_assign(&mut self, less: Self) {
        self.reads -= less.reads;
        self.writes -= less.writes;
    }
}
