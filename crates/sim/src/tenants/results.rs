//! Results of a run, judged against a run of `baseline`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::record::Measured;

/// Figures of the measured part of a run; the fields of `sherwood sim run --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The scenario's name.
    pub scenario: String,
    /// The name of the policy between the tenants.
    pub policy: String,
    /// The name of the policy within each tenant, if there is one.
    pub within: Option<String>,
    /// The seed of every draw.
    pub seed: u64,
    /// Factor of keys, cache and rates.
    pub scale: f64,
    /// Requests that were answered.
    pub requests: u64,
    /// Least of the tenants' normalized throughputs.
    pub normalized_least: f64,
    /// Least throughput, in multiples of its baseline, that the last decision predicted; 1 without
    /// a decision.
    pub predicted_gain: f64,
    /// Upper bound of the gain of any division, by the last decision, if the policy has one.
    pub bound: Option<f64>,
    /// Number of decisions, and of those that were applied.
    pub decisions: u64,
    /// Number of decisions that were applied.
    pub applied: u64,
    /// The tenants in the order of the scenario.
    pub tenants: Vec<ByTenant>,
    /// The resources in the order of the scenario.
    pub resources: Vec<ByResource>,
    /// False if the run stopped before its end.
    pub complete: bool,
}

/// Figures of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByTenant {
    /// The tenant's name.
    pub name: String,
    /// Requests per second that were answered.
    pub throughput: f64,
    /// The throughput divided by that in the run of `baseline` over the same seconds; 1 if both are
    /// 0.
    pub normalized: f64,
    /// The same, of the ten seconds in which it is least.
    pub normalized_min: f64,
    /// Share of the reads that were hits.
    pub hit_ratio: f64,
    /// Share of the reads that the miss ratio curve predicts to be hits with the cache that the
    /// tenant has at the end; none without a curve.
    pub predicted_hit_ratio: Option<f64>,
    /// Median latency of the answered requests.
    pub p50_ms: f64,
    /// 99th percentile of latency.
    pub p99_ms: f64,
    /// 99.9th percentile of latency.
    pub p999_ms: f64,
    /// Share of the requests that were refused or failed.
    pub refused_ratio: f64,
    /// Cache and rates at the end.
    pub holdings: Holdings,
}

/// Cache and rates of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holdings {
    /// Bytes of cache, of all partitions of the tenant.
    pub cache_bytes: u64,
    /// Units per second by the name of the resource.
    pub rates: BTreeMap<String, f64>,
}

/// Figures of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByResource {
    /// The resource's name.
    pub name: String,
    /// Units per second of all tenants together.
    pub total: f64,
    /// Share of the total that each tenant used, in the order of the tenants.
    pub used_ratio: Vec<f64>,
}

impl Results {
    /// Sets the throughputs that are normalized by those of a run of `baseline` of the same length.
    /// `measured` has the figures of this run, `base` those of the baseline.
    pub fn judge(&mut self, measured: &Measured, base: &Measured) {
        let normalized = normalized(measured, base);
        self.normalized_least = normalized.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
        for (tenant, pair) in self.tenants.iter_mut().zip(normalized) {
            (tenant.normalized, tenant.normalized_min) = pair;
        }
    }
}

/// Returns the normalized throughput of each tenant, and the least of ten seconds.
pub(super) fn normalized(measured: &Measured, base: &Measured) -> Vec<(f64, f64)> {
    let of_tenant = |(index, tenant): (usize, &super::TenantMeasured)| {
        let Some(base_tenant) = base.tenants.get(index) else { return (1.0, 1.0) };
        let rates = tenant.requests as f64 / measured.seconds.max(1e-9);
        let base_rates = base_tenant.requests as f64 / base.seconds.max(1e-9);
        let buckets = tenant.by_10s.iter().zip(&base_tenant.by_10s);
        let least = buckets.map(|(&ours, &theirs)| ratio(ours as f64, theirs as f64)).reduce(f64::min);
        let whole = ratio(rates, base_rates);
        (whole, least.unwrap_or(whole))
    };
    measured.tenants.iter().enumerate().map(of_tenant).collect()
}

/// Returns the ratio of two throughputs; 1 if both are 0.
fn ratio(ours: f64, theirs: f64) -> f64 {
    match (ours > 0.0, theirs > 0.0) {
        (_, true) => ours / theirs,
        (false, false) => 1.0,
        // A request in ten seconds instead of none.
        (true, false) => ours,
    }
}

#[cfg(test)]
mod tests {
    use super::super::TenantMeasured;
    use super::*;

    fn measured(seconds: f64, by_10s: &[u64]) -> Measured {
        let tenant = TenantMeasured {
            name: "a".to_owned(),
            requests: by_10s.iter().sum(),
            by_10s: by_10s.to_vec(),
            refused: 0,
            hits: 0,
            reads: 0,
            p50_ms: 0.0,
            p99_ms: 0.0,
            p999_ms: 0.0,
        };
        Measured { seconds, tenants: vec![tenant] }
    }

    #[test]
    fn throughput_is_divided_by_that_of_the_same_seconds_of_the_baseline() {
        let ours = measured(4.0, &[100, 90, 200]);
        assert_eq!(normalized(&ours, &measured(4.0, &[60, 100, 100])), [(1.5, 0.9)]);
        assert_eq!(normalized(&ours, &ours), [(1.0, 1.0)]);
    }

    #[test]
    fn tenant_without_requests_keeps_its_baseline_of_none() {
        let none = measured(10.0, &[0]);
        assert_eq!(normalized(&none, &none), [(1.0, 1.0)]);
        assert_eq!(normalized(&none, &measured(10.0, &[5])), [(0.0, 0.0)]);
    }
}
