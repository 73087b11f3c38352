//! A backend of the model: number, popularity and size of its objects, and its service time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use sherwood_model::{BackendId, SplitMix64};

use super::service::ServiceLaw;
use crate::draw::normal_from_bits;
use crate::unique;

/// A backend of the workload model: its objects and its service time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendModel {
    /// Number in the document, from 1 and in order; see [`BackendModel::backend_id`].
    pub id: u16,
    /// Name of the backend, such as `b01`.
    pub name: String,
    /// Resource of the backend that a scenario's limits reduce.
    #[serde(default)]
    pub kind: LimitedResource,
    /// Catalogue size N by profile; empty where requests come from a trace.
    #[serde(default, deserialize_with = "unique::map")]
    pub objects: BTreeMap<String, u64>,
    /// Exponent of the catalogue's [`crate::Popularity`]; none where requests come from a trace.
    pub zipf_alpha: Option<f64>,
    /// Probability that a query reads a new object that is never read again (ids N, N+1, …); none
    /// where requests come from a trace.
    pub unique_fraction: Option<f64>,
    /// Sizes of the objects; none where the trace has them.
    pub size: Option<SizeLaw>,
    /// Time that a call of the backend takes.
    pub service: ServiceLaw,
    /// Results for this backend in a simulation of the model, for comparison.
    pub expect: Option<Expectation>,
    /// Figures of this backend that the RobinHood paper published, for checking.
    pub table1: Option<PublishedRow>,
}

/// The resource that makes a backend slow when it is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedResource {
    /// Processor time: a recommender that multiplies matrices.
    Cpu,
    /// Disk operations: a database with joins.
    Io,
    /// Look-ups: a key-value store.
    #[default]
    Kv,
}

/// Log-normal object sizes, exp(mu + sigma z) clamped to a range, a fixed function of backend and
/// object.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeLaw {
    /// Name of the distribution; always `lognormal`.
    pub dist: String,
    /// Mean size after clamping, in bytes.
    pub mean_bytes: f64,
    /// Mean of the logarithm of the size, mu.
    pub ln_mu: f64,
    /// Standard deviation of the logarithm of the size, sigma.
    pub ln_sigma: f64,
    /// Size of the smallest object, in bytes; at least 1.
    pub min: u32,
    /// Size of the largest object, in bytes.
    pub max: u32,
}

/// Results for one backend in a simulation of the model, at the profiles that are `verified`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Hit ratio under one least-recently-used cache that all backends share.
    pub hit_ratio_shared_lru: f64,
    /// P99 latency of queries that miss, in milliseconds, without limits.
    pub query_p99_ms_unlimited: f64,
}

/// The figures of one backend in table 1 of the RobinHood paper.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Queries to this backend in percent of all queries.
    pub query_pct: f64,
    /// Requests that query this backend in percent of all requests, those without queries included.
    pub request_pct: f64,
    /// Mean number of queries to this backend in requests that query it.
    pub mean_batch: f64,
    /// Mean number of backends queried by a request that queries this one.
    pub mean_fanout: f64,
}

impl BackendModel {
    /// The backend's id in the program: its number minus one.
    #[must_use]
    pub const fn backend_id(&self) -> BackendId {
        BackendId(self.id - 1)
    }

    /// Size in bytes of `object`, an id below 2^40; independent of the profile and of popularity.
    ///
    /// The normal quantile is taken at (floor(h / 2^11) + 1/2) / 2^53, where h is SplitMix64's
    /// output for the state id 2^40 + object. Sizes are rounded to whole bytes; 0 without a size
    /// law.
    #[must_use]
    pub fn object_bytes(&self, object: u64) -> u32 {
        let bits = SplitMix64::new((u64::from(self.id) << 40).wrapping_add(object)).next_u64();
        let Some(SizeLaw { ln_mu, ln_sigma, min, max, .. }) = self.size else { return 0 };
        let bytes = libm::exp(ln_mu + ln_sigma * normal_from_bits(bits));
        libm::round(bytes.clamp(f64::from(min), f64::from(max))) as u32
    }

    /// Time for which a call for `items` objects occupies a worker at a resource `limit` in (0, 1],
    /// determined by the 64 random bits `draw`.
    ///
    /// By the law it is (base + per item × items) X / limit, with X = exp(sigma z - sigma²/2), z
    /// the standard normal quantile of `draw` and sigma² = ln(1 + cv²), which makes X log-normal
    /// with mean 1. With measured times it is (the measured quantile of `draw` + per item × (items
    /// - 1)) / limit. Saturates at `Duration::MAX` for a limit of 0.
    #[must_use]
    pub fn service_time(&self, items: u32, limit: f64, draw: u64) -> Duration {
        let ms = self.service.ms(items, draw) / limit;
        Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
    }
}
