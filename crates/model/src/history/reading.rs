//! State of a node at one moment.

use std::time::Duration;

use crate::{Instant, RequestSnapshot, SloStanding};

/// Latency of requests at three percentiles; none without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// The median.
    pub p50: Option<Duration>,
    /// The latency that 90% of the requests do not exceed.
    pub p90: Option<Duration>,
    /// The latency that 99% of the requests do not exceed.
    pub p99: Option<Duration>,
}

impl From<&RequestSnapshot> for Percentiles {
    fn from(requests: &RequestSnapshot) -> Self {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|quantile| requests.quantile(quantile));
        Self { p50, p90, p99 }
    }
}

/// State of a node as its history keeps it. Counters count since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The time of the reading.
    pub at: Instant,
    /// Latency of requests at the latest observation of the global SLO.
    pub latency: Percentiles,
    /// Number of requests.
    pub requests: u64,
    /// Number of decisions of the control loop.
    pub decisions: u64,
    /// The global SLO, and those of classes and tenants.
    pub slos: Vec<SloStanding>,
    /// The backends, by id.
    pub backends: Vec<BackendReading>,
    /// Bytes of each partition, by id.
    pub partitions: Vec<u64>,
    /// Deadlines met and missed, by class.
    pub deadlines: Vec<DeadlineCounters>,
    /// Normalized throughput of each tenant, by id; none if it is not measured.
    pub tenants: Vec<Option<f64>>,
}

/// State of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendReading {
    /// Look-ups that ended in the cache.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Requests of the band that the backend blocked, at the latest observation of the global SLO.
    pub blocking: u64,
}

/// Keys with a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineCounters {
    /// Keys answered in time.
    pub met: u64,
    /// Keys answered later, or not at all.
    pub missed: u64,
}
