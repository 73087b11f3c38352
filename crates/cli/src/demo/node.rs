//! The demo's node: one cache in front of twenty backends with the capacity of remote servers.

use std::sync::Arc;
use std::time::Duration;

use sherwood_config::{SpanRule, Writes};
use sherwood_control::Pin;
use sherwood_model::{BackendId, TenantId};
use sherwood_node::{BackendSetup, PartitionSetup, Rules, Setup};
use sherwood_store::Store;
use sherwood_workload::onerf::{Limits, Model, Walk};

use super::paced::{Paced, PacedOptions, Timer};
use super::share::LoadShare;
use super::time::Times;

/// Name of the workload's scale that a single machine can run.
pub(crate) const PROFILE: &str = "demo";
/// Name of a scenario in which backends slow down four times in a row.
pub(crate) const SCENARIO: &str = "onerf-spikes";

/// Depth of the limits: the service time that a limit adds is multiplied by it, so 1 is the
/// workload's own depth and 0 means no limits.
///
/// Calibrated with `shared-lru` alone, seeds 101 to 105, before any other policy was tried, such
/// that it violates the SLO in 20 to 40% of the observations, as the paper's OneRF did in 30%.
/// `docs/benchmarks.md` has the runs.
const DEPTH: f64 = 1.1;

/// Threads of the node, as in a sidecar.
const THREADS: u16 = 2;

/// The twenty backends and their limits.
pub(crate) struct Backends {
    stores: Vec<Arc<Paced>>,
    limits: Limits,
}

impl Backends {
    /// Puts each of `stores` behind the workers of its backend in the model.
    pub(crate) fn new(
        model: &Model,
        stores: Vec<Arc<dyn Store>>,
        share: LoadShare,
        seed: u64,
        timer: &Timer,
    ) -> Self {
        let options = PacedOptions { profile: PROFILE, share, seed };
        let paced = |(store, backend)| Arc::new(Paced::new(store, backend, options, timer));
        let scenario = model.scenario(SCENARIO).expect("the model that is built in has the scenario");
        let stores = stores.into_iter().zip(model.backends()).map(paced).collect();
        Self { stores, limits: scenario.limits(Walk::Given) }
    }

    /// Sets every backend's limit to that of the scenario's `minute`, which is negative while the
    /// cache warms up.
    pub(crate) fn set_minute(&self, minute: f64) {
        for (index, store) in self.stores.iter().enumerate() {
            store.stand_in(minute >= 0.0);
            let slowdown = 1.0 / self.limits.limit(BackendId::from_index(index), minute);
            store.set_capacity_ratio(1.0 / (1.0 + DEPTH * (slowdown - 1.0)));
        }
    }

    /// Remaining share of each backend's capacity.
    pub(crate) fn capacity_ratios(&self) -> Vec<f64> {
        self.stores.iter().map(|store| store.capacity_ratio()).collect()
    }

    /// Number of calls waiting for a worker, for each backend.
    pub(crate) fn waiting(&self) -> Vec<u32> {
        self.stores.iter().map(|store| store.waiting()).collect()
    }

    /// Processor time that all stores have used for real work.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.stores.iter().map(|store| store.cpu_time()).sum()
    }
}

/// Creates the setup of the node in front of `backends`.
pub(crate) fn setup(model: &Model, backends: &Backends, policy: &str, times: &Times, seed: u64) -> Setup {
    let profile = model.profile(PROFILE).expect("the model that is built in has the profile");
    let timeout = model.timeout();
    let backend = |(store, backend): (&Arc<Paced>, &sherwood_workload::onerf::BackendModel)| BackendSetup {
        name: backend.name.clone(),
        dispatch: dispatch(timeout),
        deadlines: sherwood_cache::DeadlineOptions::ONE,
        writes: Writes::default(),
        duplicates: None,
        shared: None,
        rules: Rules::default(),
        late_after: None,
        stores: vec![Arc::clone(store) as Arc<dyn Store>],
        servers: Vec::new(),
        tickets: Vec::new(),
        spans: SpanRule::default(),
    };
    let partition = |index| PartitionSetup {
        tenant: TenantId(0),
        backend: BackendId::from_index(index),
        initial_bytes: None,
        pin: Pin::default(),
    };
    Setup {
        cache: cache(profile.cache_bytes_per_server),
        tenants: vec!["default".to_owned()],
        tenancy: None,
        backends: backends.stores.iter().zip(model.backends()).map(backend).collect(),
        partitions: (0..model.backends().len()).map(partition).collect(),
        slo: times.slo(&model.slo()),
        slos: Vec::new(),
        deadlines: Vec::new(),
        schedulers: Vec::new(),
        replication: None,
        stores: None,
        cluster: None,
        instances: None,
        snapshot: None,
        control: sherwood_policy::Options {
            delta: times.delta,
            rbc_window: times.window,
            ..sherwood_policy::Options::default()
        },
        policy: policy.to_owned(),
        listeners: Vec::new(),
        listener_connections_max: 0,
        admin: None,
        otlp: None,
        spans: None,
        passed: sherwood_node::PassedSockets::default(),
        access: sherwood_config::AccessSetup::default(),
        http_connections_max: 8_192,
        // The process also runs the load and the backends, so its memory says nothing about the
        // cache.
        buffers_bytes_max: sherwood_config::BUFFERS_BYTES_MAX,
        slack_bytes: None,
        threads: usize::from(THREADS),
        seed: Some(seed),
    }
}

fn cache(total_bytes: u64) -> sherwood_cache::Options {
    sherwood_cache::Options {
        // RobinHood was measured on an LRU cache.
        eviction: sherwood_cache::Eviction::Lru,
        // As a node's by default, for the curves on the dashboard.
        ghost_rate: 1.0 / 32.0,
        ..sherwood_cache::Options::sized(total_bytes, THREADS)
    }
}

/// Sends one call per request and backend, as the workload defines it; the remote server has the
/// queue.
fn dispatch(timeout: Duration) -> sherwood_dispatch::Options {
    sherwood_dispatch::Options {
        batch_keys_max: 300,
        in_flight_calls_max: 4_096,
        queued_calls_max: 4_096,
        waiters_max: 1_000_000,
        timeout,
        ..sherwood_dispatch::Options::default()
    }
}
