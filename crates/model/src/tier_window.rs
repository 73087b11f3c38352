//! A backend's calls in a measuring window.

use std::time::Duration;

/// The calls of a backend in a measuring window, as a tier of an application has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierWindow {
    /// Number of servers (M).
    pub servers: u32,
    /// Cores of each server (V).
    pub cores: u32,
    /// Tokens of each server (C): calls that may be in flight there; 0 if there are none.
    pub tokens: u32,
    /// Length of the window so far.
    pub length: Duration,
    /// Requests, without copies and retries.
    pub arrivals: u64,
    /// Requests and connections of clients that hold tokens.
    pub connections: u64,
    /// Core time of a call (T); zero without a call that has ended.
    pub demand: Duration,
    /// Time for which a call holds its token (TK); zero without a call that has ended.
    pub held: Duration,
    /// Requests that were answered.
    pub requests: u64,
    /// Mean latency of those.
    pub mean: Duration,
    /// 95th percentile of their latencies.
    pub p95: Duration,
    /// 99th percentile of their latencies.
    pub p99: Duration,
}
