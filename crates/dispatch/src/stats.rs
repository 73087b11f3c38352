//! Statistics of a dispatcher.

use std::time::Duration;

use sherwood_model::ReplicaId;

use crate::RampStanding;
use sherwood_model::Percent;

/// A snapshot of one dispatcher's counters and present state.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Counts since the dispatcher was created.
    pub counters: Counters,
    /// Waiters without a result, at most `waiters_max`.
    pub waiters: u32,
    /// Keys that at least one waiter waits for.
    pub keys: usize,
    /// Keys in `keys` whose fetch a new request would join; the others were invalidated in flight.
    pub joinable_keys: usize,
    /// Calls queued or in flight.
    pub calls: usize,
    /// Calls in `calls` that wait for any replica of the tier
    /// ([`Options::has_tokens`](crate::Options::has_tokens)).
    pub calls_for_any_replica: u32,
    /// Leases that wait or hold a slot; each of them is also counted in `calls`.
    pub leases: u32,
    /// The percentile of latencies that estimates use at present (β).
    pub beta: Percent,
    /// State of the ramp, which limits the misses of a cold cache; none if it is not configured.
    pub ramp: Option<RampStanding>,
    /// Attempts that a fetch has at once, by its plan.
    pub factor: u8,
    /// Time after which a fetch has one more attempt at present; none if it has none, or while too
    /// few latencies are known.
    pub hedge: Option<Duration>,
    /// Time that replicas have lately spent on attempts whose answer was not needed, as a share of
    /// that of the others: over the last one to two minutes. 0 while fetches have one attempt.
    pub extra_load_ratio: f64,
    /// Statistics of each replica, in the order of their ids.
    pub replicas: Vec<ReplicaStats>,
}

/// Counts that only grow. Every requested key ends in one of the four ways below or is still in
/// flight: `asked = answered + timed_out + failed + refused +` [`Stats::waiters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requested keys; a key requested several times counts each time.
    pub asked: u64,
    /// Keys in `asked` that were already in flight and joined that call.
    pub joined: u64,
    /// Keys that ended with the backend's answer: a value, or none.
    pub answered: u64,
    /// Keys that timed out.
    pub timed_out: u64,
    /// Keys that ended with a failed call.
    pub failed: u64,
    /// Keys that ended before any call was made for them, because of a bound, a dispatch
    /// rule, or all replicas being down.
    pub refused: u64,
    /// Keys in `refused` that the ramp refused, which limits the misses of a cold cache.
    pub ramped: u64,
    /// Keys in `refused` that the admission rule refused.
    pub rejected: u64,
    /// Keys in `rejected` whose fetch had a deadline.
    pub rejected_with_deadline: u64,
    /// Keys in `refused` that were beyond their tenant's rate.
    pub over_rate: u64,
    /// Calls made, retries included.
    pub calls: u64,
    /// Retries, counted when they were given to a replica.
    pub retries: u64,
    /// Extra attempts besides retries, counted when they were given to a replica.
    pub copies: u64,
    /// Calls that were cancelled while a replica worked on them: at the timeout, or because another
    /// attempt had answered.
    pub cancelled_calls: u64,
    /// Replies that were ignored: late, repeated, or without a call.
    pub late_replies: u64,
    /// Probes sent to replicas that were down.
    pub probes: u64,
    /// Attempts that have ended.
    pub attempts: AttemptCounts,
    /// Time that replicas spent on attempts whose answer was not needed, since another attempt had
    /// answered: those that were unused, or cancelled after their start.
    pub wasted: Duration,
}

/// The reason for which an attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    /// The first attempt of a fetch.
    First,
    /// An attempt that follows a failure of all others.
    Retry,
    /// An attempt beside others: a copy or a hedge.
    Copy,
}

/// The way in which an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A key took its answer.
    Used,
    /// Other attempts had answered all of its keys before.
    Unused,
    /// It failed, or had no answer by the timeout.
    Failed,
    /// It was cancelled after its start, because it was no longer needed.
    Cancelled,
    /// It left its queue before its start.
    Withdrawn,
}

/// Numbers of attempts that have ended, by kind and outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptCounts([[u64; AttemptOutcome::ALL.len()]; AttemptKind::ALL.len()]);

impl AttemptKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::First, Self::Retry, Self::Copy];

    /// Returns the name of the kind, as metrics have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::Copy => "copy",
        }
    }
}

impl AttemptOutcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [Self::Used, Self::Unused, Self::Failed, Self::Cancelled, Self::Withdrawn];

    /// Returns the name of the outcome, as metrics have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Unused => "unused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl AttemptCounts {
    /// Returns the number of attempts of this kind with this outcome.
    #[must_use]
    pub const fn get(&self, kind: AttemptKind, outcome: AttemptOutcome) -> u64 {
        self.0[kind as usize][outcome as usize]
    }

    pub(crate) fn add(&mut self, kind: AttemptKind, outcome: AttemptOutcome) {
        self.0[kind as usize][outcome as usize] += 1;
    }
}

/// Statistics of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStats {
    /// The replica that the statistics are about.
    pub replica: ReplicaId,
    /// True if the replica is up and gets calls.
    pub up: bool,
    /// Number of times that the replica went down.
    pub downs: u64,
    /// Calls that the replica works on, at most `in_flight_calls_max`.
    pub in_flight_calls: u32,
    /// Calls that wait for the replica, at most `queued_calls_max`.
    pub queued_calls: u32,
    /// Number of times that a call was deferred because it could not meet its deadline.
    pub deferred_calls: u64,
    /// Number of latencies that were ignored because no call takes so long.
    pub dropped_latencies: u64,
}
