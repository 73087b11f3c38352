//! Statistics of a dispatcher.

use sherwood_model::ReplicaId;

use crate::RampStanding;

/// A snapshot of one dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Everything since it was made.
    pub counters: Counters,
    /// Waiters that have not been told yet, at most `waiters_max`.
    pub waiters: u32,
    /// Keys they wait for, each at least by one.
    pub keys: usize,
    /// Keys in `keys` whose fetch a new request would join; the others were invalidated in flight.
    pub joinable_keys: usize,
    /// Calls queued or in flight.
    pub calls: usize,
    /// The ramp; none where there is none.
    pub ramp: Option<RampStanding>,
    /// Each replica, in the order of their ids.
    pub replicas: Vec<ReplicaStats>,
}

/// Monotone counts. Every key asked for ends in one of the four ways below or is still waited for:
/// `asked = answered + timed_out + failed + refused +` [`Stats::waiters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys asked for, each as often as it was.
    pub asked: u64,
    /// Keys in `asked` that were already in flight and joined that call.
    pub joined: u64,
    /// Ended with the backend's word: a value, or that there is none.
    pub answered: u64,
    /// Ended by the time-out.
    pub timed_out: u64,
    /// Ended by a failed call.
    pub failed: u64,
    /// Ended before any call was made for them: a bound, the route, or no replica up.
    pub refused: u64,
    /// Keys in `refused` that the ramp refused.
    pub ramped: u64,
    /// Calls made, retries included.
    pub calls: u64,
    /// Calls made again after a failure, when they were given to a replica.
    pub retries: u64,
    /// Extra attempts besides retries, when they were given to a replica.
    pub copies: u64,
    /// Calls given up by the time-out while a replica worked on them.
    pub cancelled_calls: u64,
    /// Ignored replies: late, repeated, or without a call.
    pub late_replies: u64,
    /// Probes sent.
    pub probes: u64,
}

/// Statistics of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStats {
    /// Which one.
    pub replica: ReplicaId,
    /// True if it gets calls.
    pub up: bool,
    /// Times that it went down.
    pub downs: u64,
    /// Calls it works on, at most `in_flight_calls_max`.
    pub in_flight_calls: u32,
    /// Calls that wait for it, at most `queued_calls_max`.
    pub queued_calls: u32,
}
