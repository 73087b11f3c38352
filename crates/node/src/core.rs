//! The state shared by the daemon's request handlers and threads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sherwood_cache::{Access, Cache, Usage};
use sherwood_config::TenancySetup;
use sherwood_dispatch::FetchError;
use sherwood_model::query_times::QueryTimes;
use sherwood_model::{BackendId, HotKeys, Instant, PartitionId, ResourceKind, TenantId};
use sherwood_path::{ChangedKeys, SharedValues};
use sherwood_ports::access::Refusals;
use sherwood_ports::http::HasBuffers;
use sherwood_ports::tls::Certificates;
use sherwood_process::background::BackgroundTasks;
use sherwood_process::buffers::Buffers;
use sherwood_process::clock::Clock;
use sherwood_process::resident::Limit;
use sherwood_tickets::Scheduler;
use tokio::sync::{Semaphore, watch};

use crate::backend::{BackendDriver, Changes, FetchKey};
use crate::classes::Classes;
use crate::cluster::{Cluster, ClusterRates, Statistics};
use crate::control::instances::Instance;
use crate::control::{Control, Losses, Quotas};
use crate::deadlines::{DeadlineCounts, DeadlineRules};
use crate::names::Names;
use crate::observe::events::Events;
use crate::observe::history::NodeHistory;
use crate::observe::recording::Recording;
use crate::observe::shadow::Shadow;
use crate::observe::telemetry::Telemetry;
use crate::observe::times::SharedRecorder;
use crate::reload::ReloadRequests;
use crate::spans::Spans;
use crate::tenants::{TenantCounters, TenantNetwork};
use crate::traces::TraceIntake;
use sherwood_listener::{Address, ClientBatches, KeySet, Meter, Reading};

/// The state shared by all handlers and threads.
pub(crate) struct Core {
    pub(crate) clock: Clock,
    pub(crate) names: Arc<Names>,
    pub(crate) cache: Arc<Cache>,
    /// The drivers of the backends by id; none for a backend without a store, which is only looked
    /// up in the cache.
    pub(crate) backends: Vec<Option<Arc<BackendDriver>>>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Statistics of all nodes; none without `[cluster]`.
    pub(crate) statistics: Option<Arc<Statistics>>,
    pub(crate) shadow: Arc<Shadow>,
    /// The recording for a simulation, while one is being made.
    pub(crate) recording: Arc<Recording>,
    pub(crate) events: Arc<Events>,
    /// The recent past, for the dashboard.
    pub(crate) history: NodeHistory,
    pub(crate) classes: Classes,
    /// Deadlines of keys whose client states none.
    pub(crate) deadline_rules: DeadlineRules,
    /// Counts of deadlines met and missed.
    pub(crate) deadlines: Arc<DeadlineCounts>,
    /// The schedulers of storage servers that the node serves.
    pub(crate) schedulers: Arc<[Arc<Scheduler>]>,
    /// The declared tenants; none without any, like the counters and quotas.
    pub(crate) tenancy: Option<Arc<TenancySetup>>,
    /// The rates of tenants' traffic; none if it has none.
    pub(crate) network: Option<Arc<TenantNetwork>>,
    /// The counters of the tenants.
    pub(crate) counters: Option<Arc<TenantCounters>>,
    /// Holdings of the tenants.
    pub(crate) quotas: Option<Arc<Quotas>>,
    /// The traces whose spans are being collected.
    pub(crate) traced: TraceIntake,
    /// The sampler and exporter of spans of the node's own requests; none if none are exported.
    pub(crate) spans: Option<Arc<Spans>>,
    /// The budget of bytes held for clients.
    pub(crate) buffers: Arc<Buffers>,
    /// The limit of resident memory above which the node evicts; none without one.
    pub(crate) resident_limit: Option<Arc<Limit>>,
    /// The cache's background work that listeners may do.
    pub(crate) background: Arc<BackgroundTasks>,
    pub(crate) control: Arc<Mutex<Control>>,
    /// Ordered losses: flushes and invalidations of most of a backend.
    pub(crate) losses: Arc<Losses>,
    /// The external caches that are resized in place of the node's own, one for each partition;
    /// empty if the node has its own.
    pub(crate) instances: Vec<Arc<Instance>>,
    /// Permits for readers of the event stream.
    pub(crate) event_streams: Arc<Semaphore>,
    /// The batches of listeners' clients, of which requests are made.
    pub(crate) batches: Arc<ClientBatches>,
    /// The counts of the keys that are read most.
    pub(crate) hot_keys: Arc<HotKeys>,
    /// The times of queries.
    pub(crate) times: Arc<QueryTimes>,
    /// The times of the gateway's queries.
    pub(crate) request_times: SharedRecorder,
    /// The listeners' counters, by address; empty until they serve.
    pub(crate) meters: Mutex<Vec<(Address, Meter)>>,
    /// Lets one piece of blocking admin work run at a time.
    pub(crate) aside: Arc<Semaphore>,
    /// Counts of the requests that the HTTP port refused.
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) certificates: Certificates,
    /// Lets one walk through the whole cache run at a time; walks take longer than other admin
    /// work.
    pub(crate) walks: Arc<Semaphore>,
    /// The node's place in a cluster; none for a node alone.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// Rates of tenants that the nodes share; none for a node alone, or without resources.
    pub(crate) rates: Option<Arc<ClusterRates>>,
    /// Requests for reloads of the configuration.
    pub(crate) reloads: ReloadRequests,
    /// True from the moment the node begins to drain.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Core {
    /// Returns the driver of `backend`, if it has a store.
    pub(crate) fn backend(&self, backend: BackendId) -> Option<&Arc<BackendDriver>> {
        self.backends[backend.index()].as_ref()
    }

    /// Returns the partition in which a key of `backend` is looked up for `tenant`: the tenant's
    /// own, or else the default tenant's. Tenants that only partitions name share items and space
    /// with the default tenant where they have no partition; declared tenants have one of every
    /// backend. None when neither has a partition for the backend.
    pub(crate) fn partition(&self, tenant: TenantId, backend: BackendId) -> Option<PartitionId> {
        let of = |tenant| self.names.partition_id(tenant, backend);
        of(tenant).or_else(|| of(self.names.default_tenant().filter(|_| self.tenancy.is_none())?))
    }

    /// Returns the usage of a partition, in the node's own cache or in an instance.
    pub(crate) fn usage(&self, partition: PartitionId) -> Usage {
        match self.instances.get(partition.index()) {
            Some(instance) => instance.usage(),
            None => self.cache.usage(partition),
        }
    }

    /// Runs `change`, which stores or removes `key` in the cache, fences the key, so that no
    /// earlier fetch fills it afterwards, and announces the change to the other nodes. It returns
    /// false if the value has stayed, which is not announced.
    pub(crate) fn write(&self, partition: PartitionId, key: &[u8], change: impl FnOnce() -> bool) {
        if self.change(partition, key, change) {
            let backend = self.names.partitions()[partition.index()].backend;
            self.announce(backend, ChangedKeys::Key(Bytes::copy_from_slice(key)));
        }
    }

    /// Removes a key of a backend from the cache, for all tenants, and fences it, so that no fetch
    /// in flight brings it back; also in the other nodes. Returns the number of items removed here.
    pub(crate) fn remove_for_all(&self, backend: BackendId, key: &[u8]) -> u64 {
        let access = Access::at(self.clock.now());
        let mut removed = 0;
        for partition in self.partitions_of(backend) {
            self.fill(partition, key, || {
                removed += u64::from(self.cache.remove(partition, key, &access));
                true
            });
        }
        self.announce(backend, ChangedKeys::Key(Bytes::copy_from_slice(key)));
        removed
    }

    /// Runs `change` as [`write`](Self::write) does, without an announcement: the backend's store
    /// has not changed.
    pub(crate) fn fill(&self, partition: PartitionId, key: &[u8], change: impl FnOnce() -> bool) {
        self.change(partition, key, change);
    }

    /// Runs `change`, and fences the key. Returns whether other nodes that cache the key have to
    /// know: not if its present value has stayed.
    fn change(&self, partition: PartitionId, key: &[u8], change: impl FnOnce() -> bool) -> bool {
        let backend = self.names.partitions()[partition.index()].backend;
        let make = || match self.backend(backend) {
            Some(backend) => backend.write(partition, key, change),
            None => change(),
        };
        let Some(shared) = self.shared(backend) else { return make() };
        let (began, before) = (self.clock.now(), self.version(partition, key));
        make() && shared.handle_change(began, partition, key, (before, self.version(partition, key)))
    }

    /// Returns the number of a key's present value, which no other value has; none if there is
    /// none.
    fn version(&self, partition: PartitionId, key: &[u8]) -> Option<u64> {
        self.cache.peek(partition, key, &Access::at(self.clock.now()), |item| item.cas)
    }

    /// Returns true while no change of a shared backend may be acknowledged, since other nodes
    /// would miss it.
    pub(crate) fn refuses_changes(&self, backend: BackendId) -> bool {
        self.shared(backend).is_some_and(|shared| shared.writes_from(self.clock.now()).is_some())
    }

    /// Drops the cached value of a key of a shared backend if it may not be trusted.
    pub(crate) fn drop_untrusted(&self, partition: PartitionId, key: &[u8]) {
        let Some(shared) = self.shared(self.names.partitions()[partition.index()].backend) else { return };
        let now = self.clock.now();
        let doubted = shared.doubted(now);
        if doubted.is_some_and(|shared| shared.stale_since(now, partition, key).is_some()) {
            self.cache.remove(partition, key, &Access::at(now));
        }
    }

    /// Announces a change of a backend to the other nodes, if they cache its values.
    pub(crate) fn announce(&self, backend: BackendId, keys: ChangedKeys<Bytes>) {
        if let Some(cluster) = &self.cluster {
            cluster.announce(backend, keys);
        }
    }

    /// Runs `change`, which flushes a partition from the time `at` on, as
    /// [`flush_own`](Self::flush_own) does, and announces that to the other nodes.
    pub(crate) fn flush<R>(&self, partition: PartitionId, at: Instant, change: impl FnOnce() -> R) -> R {
        let flushed = self.flush_own(partition, at, change);
        self.announce(self.names.partitions()[partition.index()].backend, ChangedKeys::All);
        flushed
    }

    /// Runs `change`, which flushes a partition from the time `at` on, and fences the partition: no
    /// fetch from before `at` fills it afterwards.
    pub(crate) fn flush_own<R>(&self, partition: PartitionId, at: Instant, change: impl FnOnce() -> R) -> R {
        self.losses.note(at);
        match self.backend(self.names.partitions()[partition.index()].backend) {
            Some(backend) => backend.flush(partition, at, change),
            None => change(),
        }
    }

    /// Runs `change`, which may change the keys `written` and flushes the partitions `flushed` from
    /// the time `at` on, fences them, and announces them to the other nodes: the flushes, and the
    /// shared keys that it returns, whose values have not stayed. The locks of their backends are
    /// held meanwhile, taken in the order of the backends' ids.
    pub(crate) fn write_all(
        &self,
        written: &[(PartitionId, &[u8])],
        flushed: &[PartitionId],
        at: Instant,
        change: &mut dyn FnMut() -> KeySet,
    ) {
        let mut by_backend: BTreeMap<BackendId, Changes> = BTreeMap::new();
        let backend_of = |partition: PartitionId| self.names.partitions()[partition.index()].backend;
        for &(partition, key) in written {
            let changes = by_backend.entry(backend_of(partition)).or_default();
            changes.written.push(FetchKey { partition, key: Bytes::copy_from_slice(key) });
        }
        for &partition in flushed {
            self.losses.note(at);
            by_backend.entry(backend_of(partition)).or_default().flushed.push(partition);
        }
        let changes: Vec<_> = by_backend.into_iter().collect();
        let (began, mut before, mut changed) = (self.clock.now(), Vec::new(), KeySet::new());
        self.write_nested(&changes, at, &mut || {
            before = self.shared_versions(&changes);
            changed = change();
        });
        for (shared, FetchKey { partition, key }, before) in before {
            let versions = (before, self.version(*partition, key));
            if changed.remove(&(*partition, key.clone()))
                && shared.handle_change(began, *partition, key, versions)
            {
                self.announce(backend_of(*partition), ChangedKeys::Key(key.clone()));
            }
        }
        for (backend, Changes { flushed, .. }) in &changes {
            flushed.first().into_iter().for_each(|_| self.announce(*backend, ChangedKeys::All));
        }
    }

    /// Returns the keys to be written of shared backends, with the versions of their present
    /// values.
    fn shared_versions<'c>(
        &self,
        changes: &'c [(BackendId, Changes)],
    ) -> Vec<(&Arc<SharedValues>, &'c FetchKey, Option<u64>)> {
        let mut versions = Vec::new();
        for (backend, Changes { written, .. }) in changes {
            let Some(shared) = self.shared(*backend) else { continue };
            let of = |key: &'c FetchKey| (shared, key, self.version(key.partition, &key.key));
            versions.extend(written.iter().map(of));
        }
        versions
    }

    /// Runs `change` under the locks of these backends. The depth is at most the number of
    /// backends.
    fn write_nested(&self, changes: &[(BackendId, Changes)], at: Instant, change: &mut dyn FnMut()) {
        let Some(((id, first), rest)) = changes.split_first() else { return change() };
        match self.backend(*id) {
            Some(backend) => backend.write_all(first, at, || self.write_nested(rest, at, change)),
            None => self.write_nested(rest, at, change),
        }
    }

    /// Returns the reason of a failed fetch, for people; one because of a rate names its resource.
    pub(crate) fn reason(&self, backend: BackendId, error: &FetchError) -> String {
        let tenancy = self.tenancy.as_ref().filter(|_| matches!(error, FetchError::OverRate(_)));
        match tenancy.and_then(|tenancy| tenancy.resource(ResourceKind::Reads(backend))) {
            Some(resource) => format!("{error} (resource `{}`)", resource.name),
            None => error.to_string(),
        }
    }

    /// Returns whether the node drains: requests in flight end, and clients should send further
    /// ones to another node.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Returns the trust in the cached values of a backend, if other nodes cache them, too.
    pub(crate) fn shared(&self, backend: BackendId) -> Option<&Arc<SharedValues>> {
        self.cluster.as_ref()?.shared(backend)
    }

    /// The partitions of `backend`, those of all tenants.
    pub(crate) fn partitions_of(&self, backend: BackendId) -> impl Iterator<Item = PartitionId> + '_ {
        let all = self.names.partitions().iter().enumerate();
        all.filter(move |(_, partition)| partition.backend == backend)
            .map(|(index, _)| PartitionId::from_index(index))
    }

    /// Replaces the listeners' counters by those of other listeners.
    pub(crate) fn set_meters(&self, meters: Vec<(Address, Meter)>) {
        *self.meters.lock().unwrap_or_else(PoisonError::into_inner) = meters;
    }

    /// Returns the addresses of the listeners, and their counters now.
    pub(crate) fn listeners_seen(&self) -> Vec<(String, Reading)> {
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter().filter_map(|(address, meter)| Some((address.to_string(), meter.read()?))).collect()
    }

    /// Locks the control loop.
    pub(crate) fn control(&self) -> std::sync::MutexGuard<'_, Control> {
        self.control.lock().expect("no panics while held")
    }
}

impl HasBuffers for Core {
    fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }
}
