//! Events of the node, as text, for the log and for subscribers.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde::Serialize;
use sherwood_process::clock::Clock;
use tokio::sync::broadcast;

/// Events kept per subscriber; one that falls further behind is told how many it missed.
const BACKLOG: usize = 256;
/// Latest events kept for the status page.
const KEPT: usize = 64;

/// An event of the node.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Wall time of the event, milliseconds since 1970.
    pub unix_ms: u64,
    /// The kind: `decision`, `guard`, `pin`, `resize`, `backend`, `policy`, `stores` or `node`.
    pub kind: &'static str,
    /// The message, one sentence.
    pub message: String,
    /// The event's details for programs.
    pub data: serde_json::Value,
    /// True if an operator should look into it: the log has it as a warning.
    #[serde(skip)]
    pub warns: bool,
}

/// Log of events: sends them to subscribers and keeps the latest.
#[derive(Debug)]
pub(crate) struct Events {
    clock: Clock,
    sender: broadcast::Sender<Event>,
    latest: Mutex<VecDeque<Event>>,
}

impl Events {
    /// Creates an empty log whose times are those of `clock`.
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, sender: broadcast::channel(BACKLOG).0, latest: Mutex::default() }
    }

    /// Emits an event with the present time.
    pub(crate) fn say(&self, kind: &'static str, message: String, data: serde_json::Value) {
        self.emit_now(kind, message, data, false);
    }

    /// Emits an event with the present time that an operator should look into.
    pub(crate) fn warn(&self, kind: &'static str, message: String, data: serde_json::Value) {
        self.emit_now(kind, message, data, true);
    }

    fn emit_now(&self, kind: &'static str, message: String, data: serde_json::Value, warns: bool) {
        let unix_ms = u64::try_from(self.clock.unix(self.clock.now()).as_millis()).unwrap_or(u64::MAX);
        self.emit(Event { unix_ms, kind, message, data, warns });
    }

    /// Logs the event in one line and sends it to the subscribers. A repetition of the previous
    /// event, with the same message and moves, replaces it among the latest and is logged at debug
    /// level, so that a periodic decision without changes does not hide other events. A decision
    /// that moves bytes is never a repetition, since its moves start from different sizes.
    fn emit(&self, event: Event) {
        let mut latest = self.latest.lock().expect("no panics while held");
        if latest.back().is_some_and(|last| says_the_same(last, &event)) {
            tracing::debug!(kind = event.kind, data = %event.data, "{}", event.message);
            latest.pop_back();
        } else if event.warns {
            tracing::warn!(kind = event.kind, data = %event.data, "{}", event.message);
        } else {
            tracing::info!(kind = event.kind, data = %event.data, "{}", event.message);
        }
        if latest.len() == KEPT {
            latest.pop_front();
        }
        latest.push_back(event.clone());
        drop(latest);
        // Sending fails without subscribers, which is fine.
        let _ = self.sender.send(event);
    }

    /// Subscribes to later events; a subscriber that falls 256 behind misses some and is told how
    /// many.
    #[must_use]
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.sender.subscribe()
    }

    /// The latest events, oldest first, at most 64.
    #[must_use]
    pub(crate) fn latest(&self) -> Vec<Event> {
        self.latest.lock().expect("no panics while held").iter().cloned().collect()
    }
}

/// Returns whether both events have the same message and the same moves. Other figures of a
/// decision, such as bytes still to be moved after an earlier one, may differ between two equal
/// decisions.
fn says_the_same(a: &Event, b: &Event) -> bool {
    a.kind == b.kind && a.message == b.message && a.data.get("moves") == b.data.get("moves")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn repeated_event_is_kept_once_unless_it_moves_bytes() {
        let events = Events::new(Clock::start());
        let emit = |unix_ms, data: Value| {
            let message = "moved 1.0 MiB".to_owned();
            events.emit(Event { unix_ms, kind: "decision", message, data, warns: false });
        };
        emit(1, json!({"moves": []}));
        emit(2, json!({"moves": [], "pending_bytes": 7}));
        emit(3, json!({"moves": [{"before_bytes": 3, "after_bytes": 2}]}));
        emit(4, json!({"moves": [{"before_bytes": 2, "after_bytes": 1}]}));
        let kept: Vec<_> = events.latest().iter().map(|event| event.unix_ms).collect();
        assert_eq!(kept, [2, 3, 4]);
    }
}
