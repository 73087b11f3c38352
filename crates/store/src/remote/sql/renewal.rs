//! The limit on how often a kept statement is prepared again.
//!
//! A connection keeps the statements that it has prepared, with what the server reported about
//! them: the types of their parameters, and a plan for the tables at that time. A change of a table
//! makes both outdated, which shows in an error of the server, or in a key that is not valid for
//! the known type. The statement is then prepared again and the call goes on. Since any client can
//! send such a key, and an error can have another reason, this happens at most once in an interval.

use std::time::Duration;

use tokio::time::Instant;

/// Interval in which a statement of a connection is prepared again at most once.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time at which a statement of one connection was last prepared again.
#[derive(Debug, Default)]
pub(super) struct Renewal(Option<Instant>);

impl Renewal {
    /// Returns true if the statement may be prepared again now, and records the time.
    pub(super) fn allow(&mut self) -> bool {
        let now = Instant::now();
        let is_allowed = self.0.is_none_or(|last| now - last >= INTERVAL);
        if is_allowed {
            self.0 = Some(now);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn statement_may_be_prepared_again_at_most_once_a_second() {
        let mut renewal = Renewal::default();
        assert!(renewal.allow() && !renewal.allow());
        tokio::time::advance(INTERVAL - Duration::from_millis(1)).await;
        assert!(!renewal.allow());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(renewal.allow() && !renewal.allow());
    }
}
