//! Choice of the statistics node that a node follows.
//!
//! Where a cluster has statistics nodes, each of them publishes a snapshot of what all nodes
//! observed once a second, and all nodes decide on the snapshots of the same one. Nothing is
//! elected: every node reads the same list in the same order, so a later node of the list is a hot
//! standby of those before it.

use std::time::Duration;

use sherwood_model::Instant;

/// Age from which a snapshot is not followed. Chosen: two snapshots in a row may be lost before a
/// node changes to the next statistics node.
pub const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(3);

/// Returns the position of the statistics node to follow at `now`: the first one whose latest
/// snapshot is younger than 3 s. None if there is no such node; the node then decides on its own
/// observations.
///
/// `snapshots` has the time of each statistics node's latest snapshot, in the order of the
/// configured list; none for a node that sent no snapshot. A time after `now` counts as `now`.
///
/// ```
/// use sherwood_control::followed;
/// use sherwood_model::Instant;
/// let at = Instant::from_secs;
/// assert_eq!(followed(at(9), [Some(at(7)), Some(at(9))]), Some(0));
/// assert_eq!(followed(at(10), [Some(at(7)), Some(at(9))]), Some(1), "the first one is silent");
/// assert_eq!(followed(at(12), [Some(at(7)), Some(at(9)), None]), None);
/// ```
#[must_use]
pub fn followed(now: Instant, snapshots: impl IntoIterator<Item = Option<Instant>>) -> Option<usize> {
    let is_fresh = |at: Option<Instant>| at.is_some_and(|at| now.since(at) < SNAPSHOT_AGE_MAX);
    snapshots.into_iter().position(is_fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_statistics_node_with_a_snapshot_younger_than_three_seconds_is_followed() {
        let now = Instant::from_secs(100);
        let ago = |millis| Some(now - Duration::from_millis(millis));
        assert_eq!(followed(now, []), None);
        assert_eq!(followed(now, [None, None]), None);
        assert_eq!(followed(now, [ago(2_999), ago(0)]), Some(0), "the newest does not win");
        assert_eq!(followed(now, [ago(3_000), ago(2_999)]), Some(1));
        assert_eq!(followed(now, [None, ago(3_000), ago(1)]), Some(2));
        assert_eq!(followed(now, [ago(3_000), ago(60_000)]), None);
    }

    #[test]
    fn snapshot_of_a_later_time_counts_as_one_of_now() {
        let now = Instant::from_secs(1);
        assert_eq!(followed(now, [Some(Instant::NEVER)]), Some(0));
    }
}
