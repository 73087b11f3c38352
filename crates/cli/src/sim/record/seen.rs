//! What a node was seen to do: the answers of its admin API.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::admin::Admin;
use crate::exit::Failure;

/// A node over the time that it was watched.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) recording: Recording,
    pub(super) slo: Slo,
    /// At the beginning and at the end.
    pub(super) partitions: [Vec<Partition>; 2],
    /// By partition; those that there are.
    pub(super) curves: BTreeMap<String, Curve>,
}

/// `/v1/recording`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Recording {
    pub(super) recorded_s: f64,
    pub(super) total_bytes: u64,
    pub(super) slo_observe_s: f64,
    pub(super) hit_latency_ms: Option<f64>,
    pub(super) requests: Vec<Kind>,
    pub(super) other_requests: u64,
    pub(super) backends: Vec<Backend>,
}

/// Requests that ask the same backends.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Kind {
    pub(super) requests: u64,
    pub(super) keys: BTreeMap<String, Keys>,
}

/// Keys of a request.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Keys {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) timeout_ms: Option<f64>,
    pub(super) replicas: Option<u64>,
    /// Of all replicas together.
    pub(super) calls_at_once_max: Option<u64>,
    pub(super) calls: u64,
    pub(super) call_ms: Vec<(f64, f64)>,
}

/// `/v1/slo`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Slo {
    pub(super) percentile: f64,
    pub(super) bound_ms: f64,
    pub(super) window_s: f64,
}

/// One of `/v1/partitions`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Partition {
    pub(super) name: String,
    pub(super) backend: String,
    pub(super) used_bytes: u64,
    pub(super) items: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

/// `/v1/mrc/{partition}`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Curve {
    pub(super) bytes: Vec<u64>,
    pub(super) miss_ratio: Vec<f64>,
    pub(super) sampled_accesses: u64,
    pub(super) unique: u64,
}

/// What asking a busy node before and after the time may take: two answers that are waited for.
const TO_ASK: Duration = Duration::from_secs(120);

impl Seen {
    /// Watches a node until `wait` comes back, after `time`; none where it says so. A node that is not asked any more stops by itself.
    pub(super) fn watch(
        admin: &Admin,
        time: Duration,
        wait: impl FnOnce() -> bool,
    ) -> Result<Option<Self>, Failure> {
        admin.ask("POST", &format!("/v1/recording?for_s={}", (time + TO_ASK).as_secs()))?;
        let seen = Self::look(admin, wait);
        // Whatever came of it, the node is to stop noting.
        let ended = admin.ask("DELETE", "/v1/recording");
        let seen = seen?;
        ended.map(|_| seen)
    }

    fn look(admin: &Admin, wait: impl FnOnce() -> bool) -> Result<Option<Self>, Failure> {
        let before = admin.get("/v1/partitions")?;
        if !wait() {
            return Ok(None);
        }
        let recording = admin.get("/v1/recording")?;
        let after: Vec<Partition> = admin.get("/v1/partitions")?;
        // A node may keep no curves, and says so.
        let curve = |partition: &Partition| {
            let curve = admin.get(&format!("/v1/mrc/{}", partition.name)).ok()?;
            Some((partition.name.clone(), curve))
        };
        let curves = after.iter().filter_map(curve).collect();
        Ok(Some(Self { recording, slo: admin.get("/v1/slo")?, partitions: [before, after], curves }))
    }
}
