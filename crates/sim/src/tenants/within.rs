//! The policy within each tenant, and what it observes.

use std::time::Duration;

use sherwood_control::CacheSeen;
use sherwood_model::{FinishedRequest, Instant, LatencyWindow, PartitionId, RequestSnapshot, TenantId};
use sherwood_policy::{Controller, Needs, Observation, Options, RequestLog, by_name};
use sherwood_workload::tenants::Scenario;

use super::key::Key;
use super::part::Part;
use super::setup::{Setup, SetupError};
use crate::world::Node;

/// Names of the policies that can be used within tenants: those that need no curves.
pub(super) const WITHIN: [&str; 4] = ["robinhood", "fair", "equal", "static"];
/// Interval of decisions within tenants, a node's default.
pub(super) const DECIDE_EVERY: Duration = Duration::from_secs(5);
/// Time of the past that decisions within tenants take into account, a node's default.
const WINDOW: Duration = Duration::from_secs(60);
/// Policy of tenants whose cache is divided as it was at first.
const STATIC: &str = "static";

/// Returns a controller for each tenant, with the tenant's partitions, which have equal budgets.
pub(super) fn controllers(
    setup: &Setup,
    scenario: &Scenario,
    parts: &[Part],
) -> Result<Vec<(Controller, Vec<PartitionId>)>, SetupError> {
    let options = Options::default();
    let name = setup.knobs.within.as_deref().unwrap_or(STATIC);
    let mut controllers = Vec::new();
    for (index, tenant) in scenario.tenants.iter().enumerate() {
        let of_tenant = |(_, part): &(usize, &Part)| part.tenant == TenantId::from_index(index);
        let own = parts.iter().enumerate().filter(of_tenant);
        let partitions: Vec<PartitionId> = own.map(|(index, _)| PartitionId::from_index(index)).collect();
        let names = tenant.loads.iter().map(|load| format!("{}/{}", tenant.name, load.backend)).collect();
        let budgets = vec![tenant.cache.0 / partitions.len() as u64; partitions.len()];
        let policy = by_name(name, &options)?;
        controllers.push((Controller::new(policy, &options, names, budgets), partitions));
    }
    Ok(controllers)
}

/// Requests of each tenant, and queries of each partition.
pub(super) struct Statistics {
    backends: usize,
    tenants: Vec<RequestLog>,
    queries: Vec<LatencyWindow>,
}

impl Statistics {
    pub(super) fn new(scenario: &Scenario, parts: &[Part]) -> Self {
        Self {
            backends: scenario.backends.len(),
            tenants: vec![RequestLog::new(WINDOW, WINDOW); scenario.tenants.len()],
            queries: vec![LatencyWindow::new(WINDOW); parts.len()],
        }
    }

    /// Records a finished request of a tenant.
    pub(super) fn request(&mut self, now: Instant, tenant: TenantId, request: FinishedRequest) {
        self.tenants[tenant.index()].record(now, now, request);
    }

    /// Records the latency of an operation.
    pub(super) fn operation(&mut self, now: Instant, partition: PartitionId, latency: Duration) {
        self.queries[partition.index()].record_times(now, latency, 1);
    }

    /// Returns the observation of all partitions, and of each tenant's requests, at `now`.
    pub(super) fn observe(&self, now: Instant, needs: &Needs, node: &Node<Key>) -> CacheSeen {
        let requests = |log: &RequestLog| {
            let finished = RequestSnapshot::from(log.for_decision(now));
            Observation::of_requests(&finished, needs, self.backends)
        };
        let mut seen = node.cache_seen(now);
        for (index, (partition, queries)) in seen.partitions.iter_mut().zip(&self.queries).enumerate() {
            let (counts, _) = node.asked(PartitionId::from_index(index));
            partition.misses = counts.misses + counts.joined;
            partition.query_p99 = queries.sketch(now).quantile(0.99);
        }
        CacheSeen { requests: self.tenants.iter().map(requests).collect(), ..seen }
    }
}
