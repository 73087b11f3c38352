//! Counts of messages on the bus.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The direction of a message on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// Counts of messages on the bus since the start.
#[derive(Debug, Default)]
pub(crate) struct BusCounters {
    sent: Counter,
    received: Counter,
}

/// Counts of the messages of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BusCounts {
    /// Messages sent to the server, or received and understood.
    pub(crate) messages: u64,
    /// Bytes of their contents.
    pub(crate) bytes: u64,
    /// Messages that were not sent, because there was no connection, or could not be used.
    pub(crate) dropped: u64,
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
}

impl BusCounters {
    /// Counts a message of this many bytes.
    pub(crate) fn count(&self, direction: Direction, bytes: usize) {
        let Counter { messages, bytes: sum, .. } = self.of(direction);
        messages.fetch_add(1, Relaxed);
        sum.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts messages that were dropped.
    pub(crate) fn count_dropped(&self, direction: Direction, messages: u64) {
        self.of(direction).dropped.fetch_add(messages, Relaxed);
    }

    /// Returns the counts of a direction.
    pub(crate) fn read(&self, direction: Direction) -> BusCounts {
        let Counter { messages, bytes, dropped } = self.of(direction);
        let [messages, bytes, dropped] = [messages, bytes, dropped].map(|counter| counter.load(Relaxed));
        BusCounts { messages, bytes, dropped }
    }

    fn of(&self, direction: Direction) -> &Counter {
        match direction {
            Direction::Sent => &self.sent,
            Direction::Received => &self.received,
        }
    }
}
