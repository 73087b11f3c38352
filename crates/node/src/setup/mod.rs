//! Components and options of a node, with every name resolved: built from a configuration, or by a
//! program.

mod configured;

pub(crate) use configured::{fingerprint, listeners, slack_bytes};

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sherwood_cache::DeadlineOptions;
use sherwood_config::{
    AccessSetup, BatchMode, ClusterSetup, DeadlineRule, InstancesSetup, Protocol, ReplicationSetup,
    SchedulerSetup, SchedulerSource, SloSetup, SpanExport, SpanRule, StoresSetup, TenancySetup, TlsFiles,
    WriteThrough, Writes,
};
use sherwood_control::Pin;
use sherwood_model::{BackendId, Slo, TenantId};
use sherwood_path::{Rules, SharedTerms};
use sherwood_ports::PassedSockets;
use sherwood_store::{ServerAddress, Store};

use sherwood_listener::{Address, Io};

/// Options of a node that is not started yet.
pub struct Setup {
    /// Options of the cache; `total_bytes` is the whole budget.
    pub cache: sherwood_cache::Options,
    /// Names of the tenants, in the order of their ids; without `tenancy` the first is the default
    /// tenant's.
    pub tenants: Vec<String>,
    /// The tenants among which cache and resources are divided, each with a partition of every
    /// backend; none divides the cache among all partitions.
    pub tenancy: Option<TenancySetup>,
    /// The backends, in the order of their ids.
    pub backends: Vec<BackendSetup>,
    /// The partitions, in the order of their ids.
    pub partitions: Vec<PartitionSetup>,
    /// External caches that are resized instead of the node's own, which is then used only by the
    /// gateway; none resizes the node's own.
    pub instances: Option<InstancesSetup>,
    /// The global SLO, which covers all requests.
    pub slo: Slo,
    /// SLOs per class and per tenant, in addition to the global one.
    pub slos: Vec<SloSetup>,
    /// Deadlines of keys whose client states none.
    pub deadlines: Vec<DeadlineRule>,
    /// Schedulers that the HTTP port serves, with unique names.
    pub schedulers: Vec<SchedulerSetup>,
    /// The tiers of an application whose copies are chosen; none chooses no copies.
    pub replication: Option<ReplicationSetup>,
    /// The replicated stores that have managers; none without any.
    pub stores: Option<StoresSetup>,
    /// The node's place among others; none for a node alone.
    pub cluster: Option<ClusterSetup>,
    /// Options of the policies and of the loop.
    pub control: sherwood_policy::Options,
    /// Name of the policy to start with.
    pub policy: String,
    /// Listeners for clients of memcached and Redis.
    pub listeners: Vec<ListenerSetup>,
    /// Maximum of open connections, over all of these listeners.
    pub listener_connections_max: usize,
    /// Address of admin API and gateway; none opens no port.
    pub admin: Option<SocketAddr>,
    /// Address of OTLP over gRPC; none opens no port.
    pub otlp: Option<SocketAddr>,
    /// Export of spans of the node's own requests; none exports none.
    pub spans: Option<SpanExport>,
    /// Sockets that listen at some of these addresses already.
    pub passed: PassedSockets,
    /// TLS and tokens of the addresses of the admin API and of OTLP.
    pub access: AccessSetup,
    /// Maximum of open HTTP connections; further ones wait until another ends.
    pub http_connections_max: usize,
    /// Bytes that the values of answers in progress, and their encoded texts, may take together.
    pub buffers_bytes_max: u64,
    /// Bytes by which resident memory may exceed the cache's total before the cache shrinks; none
    /// sets no limit.
    pub slack_bytes: Option<u64>,
    /// Snapshot kept from a stop to the next start; none starts cold.
    pub snapshot: Option<SnapshotSetup>,
    /// Threads for the gateway, the dispatchers and the admin API.
    pub threads: usize,
    /// Seed of all random draws; none takes it from the operating system.
    pub seed: Option<u64>,
}

impl Setup {
    /// Most partitions among which one policy divides: all, or those of a tenant.
    #[must_use]
    pub(crate) fn partitions_per_policy(&self) -> usize {
        if self.tenancy.is_some() { self.backends.len() } else { self.partitions.len() }
    }

    /// Returns the tenants with this node's part of the total of each resource; none without
    /// tenants.
    #[must_use]
    pub(crate) fn own_tenancy(&self) -> Option<TenancySetup> {
        let own = self.cluster.as_ref().and_then(|cluster| {
            let at = cluster.nodes.iter().position(|node| *node == cluster.node)?;
            cluster.weights.get(at).copied()
        });
        let mut tenancy = self.tenancy.clone()?;
        tenancy.resources.iter_mut().for_each(|resource| resource.total_per_s *= own.unwrap_or(1.0));
        Some(tenancy)
    }

    /// Bytes that the policy divides.
    #[must_use]
    pub(crate) fn divided_bytes(&self) -> u64 {
        self.instances.as_ref().map_or(self.cache.total_bytes, |instances| instances.total_bytes)
    }

    /// The addresses that the node listens at, each after its kind.
    #[must_use]
    pub(crate) fn addresses(&self) -> Vec<String> {
        let listener = |listener: &ListenerSetup| format!("{} {}", listener.protocol.name(), listener.bind);
        let port = |kind, address: Option<SocketAddr>| address.map(|address| format!("{kind} {address}"));
        let ports = [port("admin", self.admin), port("otlp", self.otlp)];
        self.listeners.iter().map(listener).chain(ports.into_iter().flatten()).collect()
    }

    /// Pins of all partitions; the minimum of an external cache is at least the least size it
    /// accepts.
    #[must_use]
    pub(crate) fn pins(&self) -> Vec<Pin> {
        let instances = self.instances.as_ref().map_or(&[][..], |instances| &instances.each);
        let least = |index: usize| instances.get(index).map_or(0, |instance| instance.kind.bytes_min());
        let pins = self.partitions.iter().map(|partition| partition.pin).enumerate();
        pins.map(|(index, pin)| Pin { min_bytes: pin.min_bytes.max(least(index)), ..pin }).collect()
    }
}

/// A backend, before the node is started.
pub struct BackendSetup {
    /// Unique name of the backend.
    pub name: String,
    /// Limits and times of the backend's dispatcher.
    pub dispatch: sherwood_dispatch::Options,
    /// Deadline classes of each of the backend's partitions.
    pub deadlines: DeadlineOptions,
    /// Time-to-live rules of the backend's values, and use of stale ones.
    pub rules: Rules,
    /// Time after which a fetch counts as late, for queries that then accept a stale value; by
    /// default half of the SLO's bound, or half of the backend's timeout if that is less.
    pub late_after: Option<Duration>,
    /// Replicas that are written to, and the replication delay after a write.
    pub writes: Writes,
    /// The stores as duplicates of partitions; none if the node does not keep them equal.
    pub duplicates: Option<sherwood_config::Duplicates>,
    /// Terms on which the nodes of the cluster cache the backend's values; none if each node caches
    /// them on its own.
    pub shared: Option<SharedTerms>,
    /// The stores, one per replica; empty for a backend that is only looked up in the cache.
    pub stores: Vec<Arc<dyn Store>>,
    /// The address of each store's server, for spans; empty if none is known.
    pub servers: Vec<Option<ServerAddress>>,
    /// The scheduler of each store, whose tickets calls need; empty if they need none.
    pub tickets: Vec<SchedulerSource>,
    /// The client spans of traces that are the backend's queries.
    pub spans: SpanRule,
}

/// A partition, before the node is started.
#[derive(Clone, Copy, Debug)]
pub struct PartitionSetup {
    /// Tenant that the partition belongs to.
    pub tenant: TenantId,
    /// Backend whose values the partition holds.
    pub backend: BackendId,
    /// Initial bytes; none takes an equal part of what is left.
    pub initial_bytes: Option<u64>,
    /// The operator's limits for the partition's size.
    pub pin: Pin,
}

/// Place of a snapshot, and the backends it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSetup {
    /// The file. A snapshot being written has the suffix `.part`, one being read `.read`.
    pub path: PathBuf,
    /// Time limit of writing the snapshot.
    pub time_max: Duration,
    /// Fingerprint of the backends' configuration.
    pub fingerprint: u64,
}

/// A listener, before the node is started.
#[derive(Clone, Debug)]
pub struct ListenerSetup {
    /// Protocol of the listener's clients.
    pub protocol: Protocol,
    /// Address or UNIX socket of the listener.
    pub bind: Address,
    /// File of the names and passwords that clients must give; none requires no password.
    pub auth_file: Option<PathBuf>,
    /// Files of the listener's TLS; none if its clients speak without.
    pub tls: Option<TlsFiles>,
    /// Tenant of all clients; none if it depends on their user or on the key.
    pub tenant: Option<TenantId>,
    /// Selection of the backend for a key.
    pub route: RouteSetup,
    /// True if a miss is fetched from the backend.
    pub read_through: bool,
    /// Handling of writes that go to the backend; none if they change the cache alone.
    pub write_through: Option<WriteThrough>,
    /// Counting of clients' batches as requests.
    pub requests: BatchMode,
    /// The class of these requests, one that has an SLO; none if they have none.
    pub class: Option<String>,
    /// Number of databases that clients of Redis can select, 1 to 16; more than one only with
    /// look-aside.
    pub databases: u8,
    /// Threads, each with an event queue and a socket of its own.
    pub threads: usize,
    /// True if each thread is pinned to one core.
    pub pin_threads: bool,
    /// The way in which the threads receive and send.
    pub io: Io,
    /// Time without input after which a connection is closed; none never closes it.
    pub idle_timeout: Option<Duration>,
}

/// Selection of the backend for a key.
#[derive(Clone, Debug)]
pub enum RouteSetup {
    /// Selects this backend for all keys.
    Backend(BackendId),
    /// Selects by the longest of these prefixes that the key begins with.
    Prefix(Vec<(String, BackendId)>),
}
