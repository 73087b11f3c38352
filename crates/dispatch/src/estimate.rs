//! Expectations about calls.

use sherwood_model::Instant;

/// Expectation of a [`ReplicaQueue`](crate::ReplicaQueue) about a call that it is asked about.
///
/// It takes the same percentile of the latest latencies for every key that is in flight or waits;
/// several workers share the work evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Expected time of the start of the call.
    pub starts_at: Instant,
    /// Expected time of the end of the call.
    pub completes_at: Instant,
    /// True if that is no later than the call's deadline.
    pub meets_deadline: bool,
    /// True if a call that waits would meet its deadline without this one, and not with it.
    pub breaks_another: bool,
    /// True if a worker is idle and nothing waits, so that the call delays no other.
    pub starts_at_once: bool,
}

impl Estimate {
    /// Returns true if the call is expected to meet its deadline and to let others meet theirs.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.meets_deadline && !self.breaks_another
    }

    /// Returns true if a client with both estimates should rather go where this one comes from: it
    /// alone [fits](Self::fits), or both or none do and it ends earlier.
    ///
    /// Guo, Wong, Wong, Shi and Xu, "`MicroFuge`: a middleware approach to providing performance
    /// isolation in cloud storage systems" (2014), section II-B.
    #[must_use]
    pub fn is_better_than(&self, other: &Self) -> bool {
        if self.fits() == other.fits() { self.completes_at < other.completes_at } else { self.fits() }
    }
}
