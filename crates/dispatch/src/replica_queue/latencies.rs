//! The speed of a server, as far as its queue knows it.

use std::time::Duration;

use sherwood_model::{DemandKind, Instant};

use super::window::Window;
use super::work::{KeyTimes, Work};
use sherwood_model::Percent;

/// Latencies of a server, and the calls that it works on.
#[derive(Clone, Debug)]
pub(super) struct Latencies<T> {
    reads: Window,
    writes: Window,
    started: Vec<Started<T>>,
    /// Number of latencies that were ignored because no call takes so long.
    dropped: u64,
}

/// A call that the server works on.
#[derive(Clone, Copy, Debug)]
struct Started<T> {
    entry: T,
    at: Instant,
    kind: DemandKind,
    keys: u32,
}

impl<T: Copy + PartialEq> Latencies<T> {
    pub(super) fn new(alpha: Percent, beta: Percent) -> Self {
        let window = || Window::new(alpha, beta);
        Self { reads: window(), writes: window(), started: Vec::new(), dropped: 0 }
    }

    pub(super) fn start(&mut self, now: Instant, entry: T, kind: DemandKind, keys: u32) {
        self.started.push(Started { entry, at: now, kind, keys });
    }

    /// Notes that a call has ended, and its latency if that says something about the server. Linear
    /// in the calls that the server works on.
    pub(super) fn complete(&mut self, entry: T, took: Option<Duration>) {
        let Some(place) = self.started.iter().position(|started| started.entry == entry) else { return };
        let Started { kind, keys, .. } = self.started.swap_remove(place);
        let Some(took) = took else { return };
        if took > LATENCY_MAX {
            self.dropped += 1;
            return;
        }
        let window = match kind {
            DemandKind::Read => &mut self.reads,
            DemandKind::Write => &mut self.writes,
        };
        window.note(took / keys.max(1));
    }

    /// Returns the number of latencies that the quantiles are of.
    #[cfg(test)]
    pub(super) fn measured(&self) -> u64 {
        self.reads.total() + self.writes.total()
    }

    pub(super) fn set_beta(&mut self, beta: Percent) {
        self.reads.set_beta(beta);
        self.writes.set_beta(beta);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the times per key below which calls cannot be expected to take.
    pub(super) fn quickest(&self) -> KeyTimes {
        KeyTimes { read: self.reads.low(), write: self.writes.low() }
    }

    /// Returns the times per key that estimates assume.
    pub(super) fn expected(&self) -> KeyTimes {
        KeyTimes { read: self.reads.high(), write: self.writes.high() }
    }

    /// Returns the time until the calls that the server works on are expected to end, summed up. A
    /// call that has taken longer than expected is expected to end now.
    pub(super) fn remaining(&self, now: Instant) -> Duration {
        let times = self.expected();
        let left = |started: &Started<T>| {
            Work::new(started.kind, started.keys).time(times).saturating_sub(now - started.at)
        };
        self.started.iter().map(left).fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// Longest latency that counts, the largest timeout of a backend. A longer one comes from a clock
/// that was set, or from a client that reports nonsense.
const LATENCY_MAX: Duration = Duration::from_secs(600);
