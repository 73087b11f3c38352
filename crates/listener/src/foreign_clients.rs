//! The rate of lines in the log about clients that speak another protocol than their listener.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sherwood_model::Instant;

/// Least time between two lines about such clients.
const BETWEEN_LINES: Duration = Duration::from_secs(60);

/// The time of the last line in the log about clients of another protocol.
#[derive(Debug, Default)]
pub(super) struct ForeignClients {
    /// Nanoseconds, plus one; 0 before the first line.
    logged_at: AtomicU64,
    /// Clients that came since and were not logged.
    unlogged: AtomicU64,
}

impl ForeignClients {
    /// Counts a client. Returns the number of clients before it that were not logged if a line is
    /// due.
    pub(super) fn note(&self, now: Instant) -> Option<u64> {
        let (last, now) = (self.logged_at.load(Relaxed), now.as_nanos().saturating_add(1));
        let due = last == 0 || now.saturating_sub(last) >= BETWEEN_LINES.as_nanos() as u64;
        if due && self.logged_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok() {
            return Some(self.unlogged.swap(0, Relaxed));
        }
        self.unlogged.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_another_protocol_are_logged_once_a_minute() {
        let clients = ForeignClients::default();
        let at = Instant::from_secs;
        let noted = [0, 1, 59, 60, 61, 200].map(|second| clients.note(at(second)));
        assert_eq!(noted, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
