//! Starts a node from a [`Setup`], and stops it.
//!
//! All checks that can refuse a setup run, and every port is bound, before the first thread starts.
//! Threads:
//!
//! ```text
//! sherwood-http-*    gateway, dispatchers, admin API (a work-stealing pool)
//! sherwood-mc-*, -rd-* memcached and Redis listeners, each thread with its own socket and event queue
//! sherwood-control   observe, decide, act every Δ; observes the SLO
//! sherwood-ending    waits for a listener that a reload has removed
//! sherwood-keeper    evicts what is over budget, in small steps, where listeners do not; returns memory
//! ```

mod check;
mod error;
mod ports;
mod reload;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;
use std::time::Duration;
use std::{io, mem};

use axum::{Router, middleware};
use sherwood_cache::{Cache, Partition};
use sherwood_config::{
    InstanceSetup, InstancesSetup, OTLP_CONNECTIONS_MAX, Protocol, ResourceSetup, SchedulerSetup,
    TenancySetup,
};
use sherwood_control::{Levels, Pin};
use sherwood_dispatch::AdmitChoice;
use sherwood_model::query_times::QueryTimes;
use sherwood_model::{BackendId, CachePlan, HotKeys, PartitionId, ResourceKind, SeededState, SloStanding};
use sherwood_policy::{Controller, Policy, StartSize, by_name};
use sherwood_ports::access::Refusals;
use sherwood_ports::http::Routers;
use sherwood_ports::tls::Certificates;
use sherwood_process::background::BackgroundTasks;
use sherwood_process::buffers::Buffers;
use sherwood_process::clock::Clock;
use sherwood_process::entropy::Entropy;
use sherwood_process::mapped::Mapped;
use sherwood_process::resident::{Limit, Watch};
use sherwood_tickets::{CALLS, Scheduler, Schedulers, TicketService, whole_message};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, watch};

use crate::admin;
use crate::backend::log_disk::LogDisk;
use crate::backend::{BackendDriver, BackendParts};
use crate::bus::{Bus, Connect};
use crate::classes::Classes;
use crate::cluster::{Cluster, ClusterRates, Statistics};
use crate::control::instances::{self, Instance, Ledger, Report};
use crate::control::{
    Actuator, AdmissionTargets, Backends, Control, ControlParts, Instances, Losses, ManagedStores, OwnCache,
    PlanRates, RateLimits, TenantRecord, Tiers,
};
use crate::core::Core;
use crate::deadlines::{DeadlineCounts, DeadlineRules};
use crate::listen::{self, Listeners, NodeBatchRequests};
use crate::names::Names;
use crate::observe::events::Events;
use crate::observe::history::{self, NodeHistory};
use crate::observe::recording::Recording;
use crate::observe::shadow::Shadow;
use crate::observe::telemetry::Telemetry;
use crate::observe::times::SharedRecorder;
use crate::observe::unread::UnreadDuplicates;
use crate::reload::ReloadRequests;
use crate::setup::{Setup, SnapshotSetup};
use crate::snapshot;
use crate::spans::{AttemptSpans, SPANS_BYTES_MAX, Spans};
use crate::tenants::{TenantCounters, TenantNetwork};
use crate::threads::{self, Keeper, Worker};
use crate::traces::{self, TraceIntake};
use sherwood_listener::{Address, BufferBytes, ClientBatches};

pub use error::StartError;
use ports::{Port, PortKind};

/// Timeout of the tasks of a stopping node; a task ends at its next await. A blocked name look-up
/// cannot be cancelled and is abandoned then, because the snapshot is still to be written.
const TASKS_END: Duration = Duration::from_secs(2);

/// The end of a node.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// The reason why a configured snapshot was not written; the next start is then cold.
    pub snapshot_error: Option<String>,
}

/// A running node. [`Node::stop`] drains it; dropping it ends it at once.
pub struct Node {
    core: Arc<Core>,
    admin: Option<SocketAddr>,
    otlp: Option<SocketAddr>,
    /// The scheme of the HTTP port: `http` or `https`.
    scheme: &'static str,
    stop: watch::Sender<bool>,
    listeners: Mutex<Listeners>,
    workers: Vec<Worker>,
    /// True once the runtime has run the last [check](Node::is_responsive).
    runtime_checked: Arc<AtomicBool>,
    /// The messages of the cluster; none for a node alone.
    bus: Mutex<Option<Bus>>,
    snapshot: Mutex<Option<SnapshotSetup>>,
    http: Vec<tokio::task::JoinHandle<io::Result<()>>>,
    runtime: Runtime,
}

impl Node {
    /// Binds every port that was not passed, then starts every thread.
    ///
    /// # Errors
    /// See [`StartError`]; nothing keeps running.
    pub fn start(mut setup: Setup) -> Result<Self, StartError> {
        let without_snapshot = setup.snapshot.as_ref().map(SnapshotSetup::try_out).transpose()?.flatten();
        if without_snapshot.is_some() {
            setup.snapshot = None;
        }
        let engine = Engine::new(&setup, Clock::start())?;
        let connect = setup.cluster.as_ref().map(Connect::new).transpose()?;
        let mut passed = mem::take(&mut setup.passed);
        let mut open = |kind, address| Port::open(kind, address, &setup.access, &mut passed);
        let admin = setup.admin.map(|address| open(admin_port(&setup), address)).transpose()?;
        let otlp = setup.otlp.map(|address| open(OTLP, address)).transpose()?;
        // Every port is bound, so that one in use is known before anything is served.
        let rounds = listen::decide_io(&setup.listeners)?;
        let mut bind = |listener| listen::bind(listener, setup.cache.item_bytes_max, rounds, &mut passed);
        let bound = setup.listeners.iter().map(&mut bind).collect::<Result<_, _>>()?;
        passed.finish(|| setup.addresses())?;
        let runtime = runtime(setup.threads).map_err(StartError::Thread)?;
        let entropy = Arc::clone(&engine.entropy);
        let parts = Parts::new(engine, &setup, runtime.handle())?;
        let resident_limit = setup.slack_bytes.and_then(|slack| Limit::start(setup.cache.total_bytes, slack));
        let resident_limit = resident_limit.map(Arc::new);
        let keeper = parts.keeper(resident_limit.clone());
        let keeper = threads::housekeeper(keeper).map_err(StartError::Thread)?;
        let (stop, stopping) = watch::channel(false);
        let core = Arc::new(parts.core(&setup, (keeper.thread(), resident_limit), stopping.clone())?);
        // Before the first request is served: see `snapshot`.
        if let Some(reason) = without_snapshot {
            core.events.warn("node", reason, serde_json::Value::Null);
        }
        if let Some(snapshot) = &setup.snapshot {
            snapshot::restore(snapshot, &core);
        }
        core.control().warn_of_idle_pins();
        start_tasks(&core, runtime.handle());
        let places = setup.listener_connections_max;
        let listeners = Mutex::new(Listeners::start(&core, &setup.listeners, bound, places, entropy)?);
        let control = control_thread(&core).map_err(StartError::Thread)?;
        let bus = core.cluster.as_ref().zip(connect);
        let bus = bus.map(|(cluster, connect)| Bus::start(&core, cluster, connect, runtime.handle()));
        Ok(Self {
            admin: address_of(admin.as_ref()),
            otlp: address_of(otlp.as_ref()),
            http: serve_http(admin, otlp, &core, &stopping, runtime.handle()),
            core,
            scheme: setup.access.scheme(),
            stop,
            listeners,
            workers: vec![control, keeper],
            runtime_checked: Arc::new(AtomicBool::new(true)),
            bus: Mutex::new(bus),
            snapshot: Mutex::new(setup.snapshot),
            runtime,
        })
    }

    /// Returns the address of the admin API and the gateway.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Returns the address of OTLP over gRPC.
    #[must_use]
    pub fn otlp(&self) -> Option<SocketAddr> {
        self.otlp
    }

    /// Returns the URL of the admin API and the gateway, such as `http://127.0.0.1:8080`.
    #[must_use]
    pub fn admin_url(&self) -> Option<String> {
        self.admin.map(|address| format!("{}://{address}", self.scheme))
    }

    /// Returns the addresses of a protocol's listeners, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self, protocol: Protocol) -> Vec<Address> {
        self.listeners().addresses(protocol)
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().expect("no panics while held")
    }

    /// Returns the last percentile of the global SLO, and its counts of observations and
    /// violations.
    #[must_use]
    pub fn slo(&self) -> SloStanding {
        self.core.telemetry.slo().1
    }

    /// Starts the SLO's counts anew, for a measurement that starts now.
    pub fn restart_slo(&self) {
        self.core.telemetry.restart_slo(self.core.clock.now());
    }

    /// Returns the latest events, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<crate::observe::events::Event> {
        self.core.events.latest()
    }

    /// Returns the sums over each backend's partitions, in the order of the backends.
    #[must_use]
    pub fn backend_usage(&self) -> Vec<BackendUsage> {
        let now = self.core.clock.now();
        let usage = |(index, name): (usize, &String)| {
            let backend = BackendId::from_index(index);
            let mut usage = BackendUsage { name: name.clone(), ..BackendUsage::default() };
            for (i, partition) in self.core.names.partitions().iter().enumerate() {
                if partition.backend == backend {
                    let held = self.core.usage(sherwood_model::PartitionId::from_index(i));
                    usage.allocated_bytes += held.budget_bytes;
                    usage.used_bytes += held.used_bytes;
                    usage.hits += held.hits;
                    usage.misses += held.misses;
                }
            }
            usage.query_p99 = self.core.telemetry.query_sketch(now, backend).quantile(0.99);
            usage
        };
        self.core.names.backends().iter().enumerate().map(usage).collect()
    }

    /// Stops accepting connections, waits for requests in flight (at most five seconds), ends every
    /// thread, and writes the snapshot if configured.
    pub fn stop(self) -> Stopped {
        let Self {
            core,
            admin: _,
            otlp: _,
            scheme: _,
            stop,
            listeners,
            workers,
            runtime_checked: _,
            bus,
            snapshot,
            http,
            runtime,
        } = self;
        core.events.say("node", "shutting down".to_owned(), serde_json::json!({ "draining": true }));
        stop.send_replace(true);
        listeners.into_inner().expect("no panics while held").stop();
        for port in http {
            if let Ok(Err(error)) = runtime.block_on(port) {
                tracing::error!("an HTTP port ended early: {error}");
            }
        }
        // The requests in flight have ended.
        if let Some(spans) = &core.spans {
            runtime.block_on(spans.flush());
        }
        if let Some(bus) = bus.into_inner().expect("no panics while held") {
            end_shared_writes(&core);
            runtime.block_on(bus.leave());
        }
        workers.into_iter().for_each(Worker::stop);
        // Abandoned fetches could still fill the cache.
        runtime.shutdown_timeout(TASKS_END);
        let snapshot = snapshot.into_inner().expect("no panics while held");
        let kept = snapshot.map_or(Ok(()), |snapshot| snapshot::keep(&snapshot, &core));
        Stopped { snapshot_error: kept.err() }
    }
}

/// Starts the tasks that run for as long as the node.
fn start_tasks(core: &Arc<Core>, runtime: &Handle) {
    for scheduler in core.schedulers.iter() {
        runtime.spawn(Arc::clone(scheduler).wake_up());
    }
    runtime.spawn(traces::run(Arc::clone(core)));
    let report = Report { names: Arc::clone(&core.names), events: Arc::clone(&core.events) };
    instances::start(&core.instances, &report, runtime);
    if let Some(rates) = &core.rates {
        runtime.spawn(Arc::clone(rates).run());
    }
}

/// Ends all writes to shared backends, so that what may still land is announced. Further ones are
/// refused.
fn end_shared_writes(core: &Core) {
    core.cluster.iter().for_each(|cluster| cluster.end_writes());
    let shared = core.cluster.iter().flat_map(|cluster| cluster.shared_backends());
    shared.filter_map(|backend| core.backend(backend)).for_each(|backend| {
        backend.shut_down();
    });
}

/// Starts the control thread, which also ends clients' batches, fades hot keys, and once a second
/// publishes the node's statistics, takes a reading for the history and reports duplicates that are
/// not read.
fn control_thread(core: &Arc<Core>) -> io::Result<Worker> {
    let recorded = Arc::clone(core);
    let mut unread = UnreadDuplicates::default();
    let record = move |now| {
        unread.report(&recorded);
        recorded.batches.expire(now);
        recorded.hot_keys.fade(now);
        if let Some(statistics) = &recorded.statistics {
            let report = recorded.control().report();
            statistics.publish(now, recorded.telemetry.collected(), report);
        }
        history::record(&recorded, now)
    };
    threads::control(core.clock, Arc::clone(&core.telemetry), Arc::clone(&core.control), record)
}

/// The port of OTLP over gRPC. Chosen: exporters keep one connection each, and a large site has a
/// collector between them and the node.
const OTLP: PortKind = PortKind {
    name: "OTLP over gRPC",
    settings: "[otlp] bind",
    speaks_http2: true,
    connections_max: OTLP_CONNECTIONS_MAX,
};

fn admin_port(setup: &Setup) -> PortKind {
    PortKind {
        name: "the admin API",
        settings: "--admin, [admin] bind",
        speaks_http2: !setup.schedulers.is_empty(),
        connections_max: setup.http_connections_max,
    }
}

/// Starts to serve the admin port and the OTLP port.
fn serve_http(
    admin: Option<Port>,
    otlp: Option<Port>,
    core: &Arc<Core>,
    stopping: &watch::Receiver<bool>,
    runtime: &Handle,
) -> Vec<tokio::task::JoinHandle<io::Result<()>>> {
    let admin = admin.map(|port| {
        let routers = Routers { http1: router(Arc::clone(core)), http2: grpc(core) };
        port.serve(routers, core, stopping.clone(), runtime)
    });
    let otlp =
        otlp.map(|port| port.serve(traces::routers(Arc::clone(core)), core, stopping.clone(), runtime));
    admin.into_iter().chain(otlp).collect()
}

/// The cache of a node, and the actuator that divides it.
struct Engine {
    clock: Clock,
    entropy: Arc<Entropy>,
    policy: Box<dyn Policy>,
    budgets: Vec<u64>,
    cache: Arc<Cache>,
    memory: Arc<Mapped>,
    /// The rates of tenants' traffic, if it has any.
    network: Option<Arc<TenantNetwork>>,
    times: Arc<QueryTimes>,
}

impl Engine {
    /// Creates the empty cache of a setup.
    fn new(setup: &Setup, clock: Clock) -> Result<Self, StartError> {
        let entropy = Arc::new(setup.seed.map_or_else(Entropy::from_system, Entropy::seeded));
        setup.control.validate(setup.divided_bytes(), setup.partitions_per_policy())?;
        let policy = by_name(&setup.policy, &setup.control)?;
        let budgets = start_budgets(setup)?;
        let own = match &setup.instances {
            None => budgets.clone(),
            // With external instances, the node's own cache keeps a fixed division.
            Some(_) => {
                let equal = vec![StartSize::default(); setup.partitions.len()];
                setup.control.start_budgets(setup.cache.total_bytes, &equal)?
            }
        };
        let memory = Arc::new(Mapped::default());
        let cache = Arc::new(cache(setup, &own, &entropy, Arc::clone(&memory))?);
        if policy.starts_shared() && !setup.control.dry_run {
            cache.apply(&CachePlan::Shared).expect("always accepted");
        }
        let network = setup.tenancy.as_ref().and_then(|tenancy| TenantNetwork::new(tenancy, clock));
        let network = network.map(Arc::new);
        Ok(Self { clock, entropy, policy, budgets, cache, memory, network, times: Arc::default() })
    }
}

/// Components shared with background threads, built before [`Core`].
struct Parts {
    engine: Engine,
    shadow: Arc<Shadow>,
    recording: Arc<Recording>,
    backends: Vec<Option<Arc<BackendDriver>>>,
    schedulers: Arc<[Arc<Scheduler>]>,
    cluster: Option<Arc<Cluster>>,
    buffers: Arc<Buffers>,
    background: Arc<BackgroundTasks>,
    spans: Option<Arc<Spans>>,
}

impl Parts {
    /// Creates the parts around `engine`, with the backends' tasks on `runtime`.
    fn new(engine: Engine, setup: &Setup, runtime: &Handle) -> Result<Self, StartError> {
        let hash = SeededState::new(engine.entropy.draw());
        let shadow = Arc::new(Shadow::new(setup.cache.total_bytes, engine.cache.partitions(), hash)?);
        let recording = Arc::new(Recording::new());
        let spans = setup.spans.as_ref();
        let spans = spans.map(|export| Spans::start(export, setup.access.scheme(), runtime)).transpose()?;
        let cluster = setup.cluster.clone();
        let cluster = cluster.map(|of| Cluster::new(of, &setup.backends, engine.clock, &engine.entropy));
        let backends =
            backends(setup, &engine, (&shadow, &recording), (spans.as_ref(), cluster.as_ref()), runtime)?;
        let schedulers = schedulers(&setup.schedulers, &engine)?;
        let buffers = Buffers::new(setup.buffers_bytes_max);
        let tickets: usize = schedulers.iter().map(|scheduler| scheduler.bytes_max()).sum();
        buffers.add_uncounted((tickets + spans.as_ref().map_or(0, |_| SPANS_BYTES_MAX)) as u64);
        let background = Arc::new(BackgroundTasks::new(Arc::clone(&engine.cache)));
        Ok(Self { engine, shadow, recording, backends, schedulers, cluster, buffers, background, spans })
    }

    /// Returns the parts of the node that the housekeeper works on.
    fn keeper(&self, limit: Option<Arc<Limit>>) -> Keeper {
        Keeper {
            cache: Arc::clone(&self.engine.cache),
            memory: Arc::clone(&self.engine.memory),
            shadow: Arc::clone(&self.shadow),
            buffers: Arc::clone(&self.buffers),
            background: Arc::clone(&self.background),
            clock: self.engine.clock,
            watch: limit.map(Watch::new),
        }
    }

    /// Returns the parts of the node that the control loop observes and reports to.
    fn control_parts(
        &self,
        setup: &Setup,
        names: &Arc<Names>,
        deadlines: &Arc<DeadlineCounts>,
    ) -> ControlParts {
        let Engine { clock, cache, .. } = &self.engine;
        let of_partitions = names.partitions().iter().map(|partition| partition.backend).collect();
        let (backends, slos) = ((setup.backends.len(), of_partitions), (setup.slo, &setup.slos[..]));
        let rbc_window = setup.control.rbc_window;
        let telemetry = Telemetry::new(backends, slos, rbc_window, clock.now());
        let events = Arc::new(Events::new(*clock));
        let statistics = setup.cluster.as_ref().map(|cluster| {
            Arc::new(Statistics::new(cluster, names, rbc_window, (*clock, Arc::clone(&events))))
        });
        ControlParts {
            clock: *clock,
            names: Arc::clone(names),
            cache: Arc::clone(cache),
            telemetry: Arc::new(if statistics.is_some() { telemetry.collecting() } else { telemetry }),
            shadow: Arc::clone(&self.shadow),
            events,
            losses: Arc::default(),
            admission: AdmissionTargets::new(&self.backends, Arc::clone(deadlines)),
            tiers: setup.replication.clone().and_then(|tiers| Tiers::new(tiers, &self.backends)),
            stores: setup.stores.clone().and_then(|of| ManagedStores::new(of, setup.slo, &self.backends)),
            statistics,
        }
    }

    /// Returns an actuator for the node's own cache and the rates of tenants, or for external cache
    /// `instances` if there are any; also the rates that are shared with other nodes.
    fn actuator(
        &self,
        setup: &Setup,
        instances: &[Arc<Instance>],
        counters: Option<&Arc<TenantCounters>>,
        keeper: Thread,
    ) -> (Box<dyn Actuator>, Option<Arc<ClusterRates>>) {
        let plans_for = Backends(self.backends.clone());
        if !instances.is_empty() {
            let instances = Instances::new(setup.divided_bytes(), instances.to_vec(), plans_for);
            return (Box::new(instances), None);
        }
        let cache = (Arc::clone(&self.engine.cache), setup.partitions.len());
        let shared = self.shared_rates(setup, counters);
        let rates = self.plan_rates(shared.as_ref(), setup);
        (Box::new(OwnCache::new(cache, keeper, rates, plans_for)), shared)
    }

    /// Returns the rates that the node shares with the others of its cluster; none for a node
    /// alone, or without resources.
    fn shared_rates(
        &self,
        setup: &Setup,
        counters: Option<&Arc<TenantCounters>>,
    ) -> Option<Arc<ClusterRates>> {
        let tenancy = setup.tenancy.as_ref().filter(|tenancy| !tenancy.resources.is_empty())?;
        let (cluster, counters) = (Arc::clone(self.cluster.as_ref()?), Arc::clone(counters?));
        let limits = self.limits(&tenancy.resources);
        Some(ClusterRates::new(cluster, tenancy, limits, counters, self.engine.clock))
    }

    /// Returns the target of a plan's rates.
    fn plan_rates(&self, shared: Option<&Arc<ClusterRates>>, setup: &Setup) -> PlanRates {
        let resources = setup.tenancy.as_ref().map_or(&[][..], |tenancy| &tenancy.resources);
        let own = || PlanRates::Own(self.limits(resources));
        shared.cloned().map_or_else(own, PlanRates::Cluster)
    }

    fn limits(&self, resources: &[ResourceSetup]) -> RateLimits {
        RateLimits::new(resources, &self.backends, self.engine.network.as_ref())
    }

    /// Returns the counters of the tenants; none without tenants.
    fn counters(&self, names: &Names, tenancy: Option<&Arc<TenancySetup>>) -> Option<Arc<TenantCounters>> {
        let at = (&self.backends[..], self.engine.network.clone());
        Some(Arc::new(TenantCounters::new(Arc::clone(&self.engine.cache), names, at, tenancy?)))
    }

    /// Builds the core; the housekeeper's thread is woken when there is something to evict, at the
    /// latest when the process exceeds this limit.
    fn core(
        self,
        setup: &Setup,
        (keeper, resident_limit): (Thread, Option<Arc<Limit>>),
        stopping: watch::Receiver<bool>,
    ) -> Result<Core, StartError> {
        let (names, tenancy) = (Arc::new(names(setup)), setup.own_tenancy().map(Arc::new));
        let deadlines: Arc<DeadlineCounts> = Arc::default();
        let (parts, instances) = (self.control_parts(setup, &names, &deadlines), instances_of(setup));
        let counters = self.counters(&names, tenancy.as_ref());
        let (actuator, rates) = self.actuator(setup, &instances, counters.as_ref(), keeper);
        let Self { engine, shadow, recording, backends, schedulers, cluster, buffers, background, .. } = self;
        let Engine { clock, entropy, policy, budgets, cache, memory: _, network, times } = engine;
        let levels = levels(setup, policy, budgets, &names, tenancy.clone().zip(counters.clone()))?;
        let quotas = levels.1.as_ref().map(|tenants| Arc::clone(tenants.quotas()));
        let (telemetry, losses, events, statistics) = observed(&parts);
        let control = start_control(setup, levels, actuator, parts);
        Ok(Core {
            batches: batches(setup, clock, &telemetry, &names, entropy.draw()),
            hot_keys: Arc::new(HotKeys::new(setup.partitions.len(), entropy.draw())),
            clock,
            names,
            cache,
            backends,
            telemetry,
            statistics,
            shadow,
            recording,
            events,
            history: history_of(setup),
            classes: Classes::default(),
            deadline_rules: DeadlineRules::new(setup.deadlines.clone()),
            deadlines,
            schedulers,
            cluster,
            rates,
            tenancy,
            network,
            counters,
            quotas,
            traced: trace_intake(setup, &buffers),
            spans: self.spans,
            buffers,
            resident_limit,
            background,
            control,
            losses,
            instances,
            event_streams: Arc::new(Semaphore::new(admin::STREAMS_MAX)),
            request_times: SharedRecorder::new(&times),
            times,
            meters: Mutex::default(),
            aside: Arc::new(Semaphore::new(1)),
            refusals: Arc::new(Refusals::default()),
            certificates: Certificates::default(),
            walks: Arc::new(Semaphore::new(1)),
            reloads: ReloadRequests::default(),
            stopping,
        })
    }
}

/// Returns the parts of the control loop that others use, too.
fn observed(parts: &ControlParts) -> (Arc<Telemetry>, Arc<Losses>, Arc<Events>, Option<Arc<Statistics>>) {
    let ControlParts { telemetry, losses, events, statistics, .. } = parts;
    (Arc::clone(telemetry), Arc::clone(losses), Arc::clone(events), statistics.clone())
}

/// Creates the control loop, and applies the plan that it starts from.
fn start_control(
    setup: &Setup,
    levels: (Levels, Option<TenantRecord>),
    actuator: Box<dyn Actuator>,
    parts: ControlParts,
) -> Arc<Mutex<Control>> {
    let control = Control::new(levels, setup.control.clone(), setup.pins(), actuator, parts);
    control.start().expect("the baselines fit the cache");
    Arc::new(Mutex::new(control))
}

/// Returns the levels that divide the cache, and the record of the tenants, if there are any.
fn levels(
    setup: &Setup,
    policy: Box<dyn Policy>,
    budgets: Vec<u64>,
    names: &Names,
    tenants: Option<(Arc<TenancySetup>, Arc<TenantCounters>)>,
) -> Result<(Levels, Option<TenantRecord>), StartError> {
    let Some((tenancy, counters)) = tenants else {
        let names = names.partitions().iter().map(|partition| partition.name.clone()).collect();
        return Ok((Levels::One(Box::new(Controller::new(policy, &setup.control, names, budgets))), None));
    };
    let (bytes, divided) = (setup.divided_bytes(), (names, &budgets[..]));
    let (levels, record) = TenantRecord::open(tenancy, bytes, &*policy, &setup.control, divided, counters)?;
    Ok((Levels::Two(Box::new(levels)), Some(record)))
}

/// Creates the batches of listeners' clients, whose requests `telemetry` records.
fn batches(
    setup: &Setup,
    clock: Clock,
    telemetry: &Arc<Telemetry>,
    names: &Names,
    seed: u64,
) -> Arc<ClientBatches> {
    let timeout = |backend: BackendId| setup.backends[backend.index()].dispatch.timeout;
    let requests = NodeBatchRequests::new(clock, telemetry, names, timeout);
    Arc::new(ClientBatches::new(names.partitions().len(), seed, Arc::new(requests)))
}

fn history_of(setup: &Setup) -> NodeHistory {
    let classes: Vec<_> = setup.backends.iter().map(|backend| backend.deadlines.classes).collect();
    NodeHistory::new(&classes)
}

fn trace_intake(setup: &Setup, buffers: &Arc<Buffers>) -> TraceIntake {
    let rules = setup.backends.iter().map(|backend| (backend.spans.clone(), backend.dispatch.timeout));
    TraceIntake::new(rules, buffers)
}

/// Usage of a backend's partitions, summed.
#[derive(Clone, Debug, Default)]
pub struct BackendUsage {
    /// The backend's name.
    pub name: String,
    /// Budgets of the backend's partitions, bytes.
    pub allocated_bytes: u64,
    /// Bytes charged for the items in the backend's partitions.
    pub used_bytes: u64,
    /// Look-ups that found an item, since the start.
    pub hits: u64,
    /// Look-ups that found none, since the start.
    pub misses: u64,
    /// P99 of query latency in the control loop's window of recent requests.
    pub query_p99: Option<Duration>,
}

fn start_budgets(setup: &Setup) -> Result<Vec<u64>, sherwood_policy::OptionsError> {
    if setup.tenancy.is_some() {
        // The plan that gives tenants their baselines divides each of them in these proportions.
        let part = setup.divided_bytes() / setup.partitions.len().max(1) as u64;
        return Ok(setup
            .partitions
            .iter()
            .map(|partition| partition.initial_bytes.unwrap_or(part))
            .collect());
    }
    let sizes: Vec<_> = setup
        .partitions
        .iter()
        .zip(setup.pins())
        .map(|(partition, Pin { min_bytes, max_bytes, .. })| StartSize {
            initial_bytes: partition.initial_bytes,
            min_bytes,
            max_bytes,
        })
        .collect();
    setup.control.start_budgets(setup.divided_bytes(), &sizes)
}

/// The external instances, one for each partition; none if the node has a cache of its own.
fn instances_of(setup: &Setup) -> Vec<Arc<Instance>> {
    let Some(InstancesSetup { total_bytes, each }) = &setup.instances else { return Vec::new() };
    let ledger = Arc::new(Ledger::new(*total_bytes, each.len()));
    let instance = |(index, setup): (usize, &InstanceSetup)| {
        Instance::new(setup.clone(), PartitionId::from_index(index), Arc::clone(&ledger))
    };
    each.iter().enumerate().map(instance).collect()
}

fn cache(
    setup: &Setup,
    budgets: &[u64],
    entropy: &Entropy,
    memory: Arc<Mapped>,
) -> Result<Cache, sherwood_cache::OptionsError> {
    let partition = |(partition, &budget_bytes): (&crate::setup::PartitionSetup, &u64)| {
        let crate::setup::BackendSetup { rules, deadlines, .. } = &setup.backends[partition.backend.index()];
        let (grace, deadlines) = (rules.grace(), *deadlines);
        let metered = setup.tenancy.as_ref().map(|tenancy| tenancy.units(partition.backend).reads);
        Partition {
            grace,
            deadlines,
            metered,
            ..Partition::new(partition.tenant, partition.backend, budget_bytes)
        }
    };
    let partitions: Vec<_> = setup.partitions.iter().zip(budgets).map(partition).collect();
    let hash = SeededState::new(entropy.draw());
    Cache::with_memory(setup.cache, &partitions, hash, memory)
}

fn names(setup: &Setup) -> Names {
    let pairs: Vec<_> =
        setup.partitions.iter().map(|partition| (partition.tenant, partition.backend)).collect();
    let backends = setup.backends.iter().map(|backend| backend.name.clone()).collect();
    Names::new(backends, setup.tenants.clone(), &pairs)
}

fn backends(
    setup: &Setup,
    engine: &Engine,
    (shadow, recording): (&Arc<Shadow>, &Arc<Recording>),
    (spans, cluster): (Option<&Arc<Spans>>, Option<&Arc<Cluster>>),
    runtime: &Handle,
) -> Result<Vec<Option<Arc<BackendDriver>>>, StartError> {
    let start = |(index, backend): (usize, &crate::setup::BackendSetup)| {
        if backend.stores.is_empty() {
            return Ok(None);
        }
        let id = BackendId::from_index(index);
        let own = setup.partitions.iter().enumerate().filter(|(_, partition)| partition.backend == id);
        let schedulers = if backend.tickets.is_empty() {
            None
        } else {
            let may_reject = backend.dispatch.admit != AdmitChoice::Open;
            let sources = backend.tickets.clone();
            Some(Arc::new(Schedulers::open(sources, may_reject, engine.clock, runtime.clone())?))
        };
        let tenants = setup.tenancy.as_ref().map(TenancySetup::dispatched);
        let parts = BackendParts {
            id,
            name: backend.name.clone(),
            options: sherwood_dispatch::Options { tenants, ..backend.dispatch },
            rules: backend.rules.clone(),
            late_after: backend.late_after.unwrap_or(setup.slo.bound.min(backend.dispatch.timeout) / 2),
            writes: backend.writes,
            duplicates: backend.duplicates.clone(),
            logs: LogDisk::open(backend.duplicates.as_ref())?,
            units: setup.tenancy.as_ref().map(|tenancy| tenancy.units(id)).unwrap_or_default(),
            written_resource: written_resource(setup, id),
            partitions: own.map(|(index, _)| PartitionId::from_index(index)).collect(),
            network: engine.network.clone(),
            replicas: backend.stores.clone(),
            schedulers,
            cluster: cluster.cloned(),
            recording: Arc::clone(recording),
            spans: spans.map(|spans| {
                let (stores, servers) = (&backend.stores, &backend.servers);
                AttemptSpans::new(Arc::clone(spans), engine.clock, &backend.name, stores, servers)
            }),
            times: SharedRecorder::new(&engine.times),
        };
        BackendDriver::start(
            parts,
            Arc::clone(&engine.cache),
            Arc::clone(shadow),
            engine.clock,
            Arc::clone(&engine.entropy),
            runtime.clone(),
        )
        .map(Some)
        .map_err(|error| StartError::Dispatch { backend: backend.name.clone(), error })
    };
    setup.backends.iter().enumerate().map(start).collect()
}

/// Returns the name of the resource that limits tenants' writes to a backend, if there is one.
fn written_resource(setup: &Setup, backend: BackendId) -> Option<Arc<str>> {
    let resource = setup.tenancy.as_ref()?.resource(ResourceKind::Writes(backend))?;
    Some(resource.name.as_str().into())
}

fn schedulers(setups: &[SchedulerSetup], engine: &Engine) -> Result<Arc<[Arc<Scheduler>]>, StartError> {
    let create = |setup: &SchedulerSetup| {
        let created = Scheduler::new(setup.clone(), engine.clock, engine.entropy.draw());
        created.map_err(|error| StartError::Scheduler { scheduler: setup.name.clone(), error })
    };
    setups.iter().map(create).collect()
}

fn runtime(threads: usize) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("sherwood-http")
        .enable_all()
        .build()
}

fn address_of(port: Option<&Port>) -> Option<SocketAddr> {
    port.map(|port| port.address)
}

/// The routes of the HTTP port.
fn router(core: Arc<Core>) -> Router {
    admin::router(core)
}

/// The routes of the HTTP port over HTTP/2; none if there is nothing to serve by it.
fn grpc(core: &Core) -> Option<Router> {
    let service = TicketService::server(Arc::clone(&core.schedulers), core.stopping.clone());
    let whole = middleware::from_fn_with_state(Arc::clone(&core.buffers), whole_message);
    (!core.schedulers.is_empty()).then(|| Router::new().route_service(CALLS, service).layer(whole))
}

#[cfg(test)]
#[path = "../../tests/start/mod.rs"]
mod tests;
