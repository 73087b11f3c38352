//! The times of loans between nodes.

use std::time::Duration;

/// The times of loans and of changes. All nodes of a cluster have the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Time for which a borrower uses a loan, from the stamp of its request.
    pub(super) loan: Duration,
    /// Time after which a lender has the units back, from its answer on.
    pub(super) returns_after: Duration,
    /// Time for which a new process has no rates, since an earlier one may have lent them.
    pub(super) forgets_after: Duration,
    /// Time after which a node that does not answer a new process counts as stopped.
    pub(super) silent_at_start: Duration,
    /// Time after which a node that does not answer after a change of the nodes counts as stopped.
    pub(super) silent_at_change: Duration,
}

/// A tenant that becomes busy has its units back after a loan, so a loan is short. It outlives the
/// loss of four of the requests that renew it.
const LOAN: Duration = Duration::from_millis(500);

/// By this part of a loan, a lender's end is later. The clocks of two nodes run within 1% of the
/// time, so that they differ by 1.01 / 0.99 = 2.02% at most; this is 3.1%.
const MARGIN: u32 = 32;

/// Units of an idle tenant that are not lent, as a part of its own: it starts with these when it
/// becomes busy. With a sixteenth, one tenant of many nodes still gets 15/16 of a total.
pub(super) const KEPT_RATIO: f64 = 1.0 / 16.0;

/// Time between two looks at the use. Loans grow and are renewed this often.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time after which a node is asked for more again that gave less than it was asked for. Meanwhile
/// the others are asked for what is missing.
pub(super) const MORE_AFTER: Duration = Duration::from_millis(150);

/// Time after which a node that has not answered is not asked for more for a while.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// Least time between two answers to a node.
pub(super) const ANSWER_GAP: Duration = Duration::from_millis(50);

/// Most rates in a message.
pub(super) const AMOUNTS_MAX: usize = 256;

/// Most pairs of a tenant and a node that a resource's units are lent to, and borrowed from.
pub(super) const LOANS_MAX: usize = 4_096;

/// Most other nodes, and most nodes beside them that are told that they have no part.
pub(super) const NODES_MAX: usize = 64;

impl Default for Terms {
    fn default() -> Self {
        let returns_after = LOAN + LOAN / MARGIN;
        Self {
            loan: LOAN,
            returns_after,
            forgets_after: returns_after,
            silent_at_start: Duration::from_secs(2),
            silent_at_change: Duration::from_secs(60),
        }
    }
}
