//! The bound on preparing a kept statement anew.
//!
//! A connection keeps the statements that it has prepared, with what the server told of them: the
//! types of their parameters, and a plan for the tables as they were. A change of a table makes
//! both outdated, which shows in an error of the server, or in a key that has no form of the known
//! type. The statement is then prepared anew and the call goes on. Since any client can send such a
//! key, and an error can have another reason, this has a bound in time.

use std::time::Duration;

use tokio::time::Instant;

/// Time within which a statement of a connection is prepared anew at most once.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time at which a statement of one connection was last prepared anew.
#[derive(Debug, Default)]
pub(super) struct Renewal(Option<Instant>);

impl Renewal {
    /// Returns true, and counts it, if the statement may be prepared anew now.
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
