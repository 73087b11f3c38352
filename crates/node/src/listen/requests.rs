//! Requests made of listeners' batches, counted like those of the gateway.

use std::sync::Arc;
use std::time::Duration;

use sherwood_listener::{BatchRequests, KeyEnd};
use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId, TenantId};
use sherwood_process::clock::Clock;

use crate::names::Names;
use crate::observe::telemetry::Telemetry;
use crate::slos::Counted;

/// Counts requests made of batches.
pub(crate) struct NodeBatchRequests {
    clock: Clock,
    telemetry: Arc<Telemetry>,
    partitions: Vec<PartitionOwner>,
}

/// The backend and the tenant of a partition, and the SLOs that its requests count for.
struct PartitionOwner {
    backend: BackendId,
    timeout: Duration,
    tenant: TenantId,
    counted: Counted,
}

impl NodeBatchRequests {
    /// Creates one for the partitions `names`; `timeout` returns that of a backend.
    pub(crate) fn new(
        clock: Clock,
        telemetry: &Arc<Telemetry>,
        names: &Names,
        timeout: impl Fn(BackendId) -> Duration,
    ) -> Self {
        let owner = |partition: &crate::names::PartitionName| PartitionOwner {
            backend: partition.backend,
            timeout: timeout(partition.backend),
            tenant: partition.tenant,
            counted: telemetry.slos().counted(None, partition.tenant),
        };
        let partitions = names.partitions().iter().map(owner).collect();
        Self { clock, telemetry: Arc::clone(telemetry), partitions }
    }
}

impl BatchRequests for NodeBatchRequests {
    fn come_by_other_means(&self) -> bool {
        self.telemetry.has_told_requests(self.clock.now())
    }

    fn backend(&self, partition: PartitionId) -> (BackendId, Duration) {
        let owner = &self.partitions[partition.index()];
        (owner.backend, owner.timeout)
    }

    fn count(
        &self,
        at: Instant,
        partition: PartitionId,
        class: Option<u16>,
        request: FinishedRequest,
        times: u64,
    ) {
        let owner = &self.partitions[partition.index()];
        let counted = owner.counted.of_class(class);
        self.telemetry.batches(self.clock.now(), at, counted, request.of(owner.tenant), times);
    }

    fn record_queries(&self, partition: PartitionId, latency: Duration, keys: u64, end: KeyEnd) {
        let (backend, now) = (self.partitions[partition.index()].backend, self.clock.now());
        self.telemetry.latency(now, partition, latency, keys);
        if end != KeyEnd::Hit {
            self.telemetry.miss(now, backend, latency, keys);
        }
    }
}
