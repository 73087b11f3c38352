//! A node at one moment, from the answers of its admin API.

use std::time::Duration;

use serde::Deserialize;

use crate::admin::AdminClient;
use crate::exit::Failure;

/// Seconds of history that are asked for: as many as a wide screen has columns.
const HISTORY_S: u64 = 180;

/// The answers of a node at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) history: History,
    pub(super) partitions: Vec<Partition>,
    pub(super) slo: Slo,
    pub(super) control: Control,
    pub(super) backends: Vec<BackendNow>,
    /// The keys that are read most.
    pub(super) hot_keys: Told<Vec<HotKeys>>,
    /// The place in a cluster; none of a node alone.
    pub(super) cluster: Told<Option<Cluster>>,
}

/// Answer to a question that is not always asked: the reason if the node does not tell, none if it
/// was not asked.
pub(super) type Told<T> = Option<Result<T, String>>;

/// Answer that only one list shows, and that is asked for only while that list is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Also {
    /// Hot keys, which a token may not see.
    Keys,
    Cluster,
}

/// The answer of `GET /v1/history`, as far as it is shown.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct History {
    pub(super) version: String,
    pub(super) now_ms: u64,
    pub(super) started_ms: u64,
    pub(super) cache_total_bytes: u64,
    pub(super) requests: Requests,
    pub(super) backends: Vec<Backend>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) events: Vec<Event>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Requests {
    pub(super) p50_ms: Vec<Option<f64>>,
    pub(super) p90_ms: Vec<Option<f64>>,
    pub(super) p99_ms: Vec<Option<f64>>,
    pub(super) per_s: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) blocking: Vec<Option<f64>>,
    pub(super) query_p99_ms: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Tenant {
    pub(super) name: String,
    /// Throughput in relation to that of the baseline.
    pub(super) normalized: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Event {
    pub(super) unix_ms: u64,
    pub(super) message: String,
}

/// An element of the answer of `GET /v1/partitions`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Partition {
    pub(super) name: String,
    pub(super) backend: String,
    pub(super) allocated_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) latency_ms: Option<Latency>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Latency {
    pub(super) p99: f64,
}

/// An element of the answer of `GET /v1/backends`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct BackendNow {
    pub(super) name: String,
    pub(super) keys: BackendKeys,
    pub(super) replica_states: Vec<Replica>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(super) struct BackendKeys {
    pub(super) asked: u64,
    pub(super) failed: u64,
    pub(super) timed_out: u64,
    pub(super) rejected: u64,
    pub(super) stale: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Replica {
    pub(super) up: bool,
    pub(super) in_flight: u32,
    pub(super) waiting: u32,
}

/// An element of the answer of `GET /v1/hot-keys`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct HotKeys {
    pub(super) partition: String,
    pub(super) keys: Vec<Share>,
}

/// A key and its part of the reads of its partition.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Share {
    pub(super) key: String,
    pub(super) encoding: String,
    pub(super) share_ratio: f64,
    /// The part of it that may be another key's.
    pub(super) error_ratio: f64,
}

/// The answer of `GET /v1/cluster`, as far as it is shown.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Cluster {
    /// Name of the node that answers.
    pub(super) node: String,
    pub(super) peers: Vec<Peer>,
    pub(super) shared: Vec<Shared>,
    pub(super) statistics: Statistics,
    /// Rates that others lend to the node, and that it lends to others.
    pub(super) loans: Vec<Loan>,
    pub(super) lent: Vec<Loan>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Peer {
    pub(super) node: String,
    pub(super) seen_s: Option<f64>,
    pub(super) trusted_s: Option<f64>,
    pub(super) answered: bool,
    pub(super) lacks_us: bool,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Shared {
    pub(super) backend: String,
    pub(super) trusted_s: f64,
    pub(super) writes_in_s: Option<f64>,
    pub(super) untrusted: u64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Statistics {
    pub(super) from: Option<String>,
    pub(super) age_s: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Loan {
    pub(super) resource: String,
    /// The other node.
    pub(super) node: String,
    pub(super) units_per_s: f64,
}

/// The answer of `GET /v1/slo`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Slo {
    pub(super) percentile: f64,
    pub(super) bound_ms: f64,
    pub(super) current_ms: Option<f64>,
    pub(super) violation_ratio: f64,
    pub(super) classes: Vec<ClassSlo>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct ClassSlo {
    pub(super) name: String,
    pub(super) percentile: f64,
    pub(super) bound_ms: f64,
    pub(super) current_ms: Option<f64>,
}

/// The answer of `GET /v1/control`, as far as it is shown.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Control {
    pub(super) policy: String,
    pub(super) dry_run: bool,
    pub(super) between: Option<String>,
    pub(super) guard: Option<Guard>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub(super) struct Guard {
    pub(super) frozen_s: Option<f64>,
}

impl Seen {
    /// Asks a node, whose clock showed `now_ms` at the last time, for what it is now, and for what
    /// one list shows beside that.
    ///
    /// # Errors
    /// If the node does not answer, or not as a node of this version.
    pub(super) fn ask(node: &AdminClient, now_ms: u64, also: Option<Also>) -> Result<Self, Failure> {
        let after_ms = now_ms.saturating_sub(HISTORY_S * 1000);
        Ok(Self {
            history: node.get(&format!("/v1/history?step_s=1&after_ms={after_ms}"))?,
            partitions: node.get("/v1/partitions")?,
            slo: node.get("/v1/slo")?,
            control: node.get("/v1/control")?,
            backends: node.get("/v1/backends")?,
            hot_keys: told(also == Some(Also::Keys), || node.get("/v1/hot-keys?max=5")),
            cluster: told(also == Some(Also::Cluster), || node.find("/v1/cluster")),
        })
    }

    /// Time since the node started.
    pub(super) fn uptime(&self) -> Duration {
        Duration::from_millis(self.history.now_ms.saturating_sub(self.history.started_ms))
    }
}

/// Asks where that is wanted. The rest is shown whatever comes of it.
fn told<T>(is_wanted: bool, ask: impl FnOnce() -> Result<T, Failure>) -> Told<T> {
    is_wanted.then(|| ask().map_err(|failure| failure.to_string()))
}

/// Returns the latest value of a column.
pub(super) fn last(column: &[Option<f64>]) -> Option<f64> {
    column.last().copied().flatten()
}
