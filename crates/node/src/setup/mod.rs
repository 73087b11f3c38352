//! The setup of a node, with every name resolved: from a configuration, or put together by a
//! program.

mod configured;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sherwood_model::{BackendId, Slo, TenantId};
use sherwood_path::Rules;
use sherwood_store::Store;

use crate::config::{Protocol, Writes};
use crate::control::{InstancesSetup, Pin};
use crate::slos::SloSetup;
use crate::tls::TlsFiles;
use sherwood_listener::Address;

/// A node, before it is started.
pub struct Setup {
    /// The engine's options; `total_bytes` is the whole budget.
    pub cache: sherwood_cache::Options,
    /// Names of the tenants; the first is the default tenant's.
    pub tenants: Vec<String>,
    /// The backends, in the order of their ids.
    pub backends: Vec<BackendSetup>,
    /// The partitions, in the order of their ids.
    pub partitions: Vec<PartitionSetup>,
    /// Caches of others that are resized in place of our own, which is then only what the gateway
    /// uses; none resizes our own.
    pub instances: Option<InstancesSetup>,
    /// The global SLO.
    pub slo: Slo,
    /// SLOs per class and per tenant, beside the global one.
    pub slos: Vec<SloSetup>,
    /// Options of the policies and of the loop.
    pub control: sherwood_policy::Options,
    /// Name of the policy to start with.
    pub policy: String,
    /// Listeners.
    pub listeners: Vec<ListenerSetup>,
    /// Connections at once, over all of these listeners.
    pub listener_connections_max: usize,
    /// The address of admin API and gateway; none opens no port.
    pub admin: Option<SocketAddr>,
    /// Access control of that port.
    pub access: AccessSetup,
    /// HTTP connections at once; one more waits until another ends.
    pub http_connections_max: usize,
    /// Bytes that values on their way into answers, and the texts of answers, may take together.
    pub buffers_bytes_max: u64,
    /// Bytes by which resident memory may grow beyond the cache's total before the cache gives way;
    /// none lets it grow.
    pub slack_bytes: Option<u64>,
    /// The snapshot kept from a stop to the next start; none starts cold.
    pub snapshot: Option<SnapshotSetup>,
    /// Threads for the gateway, the dispatchers and the admin API.
    pub threads: usize,
    /// Seed of every random draw; the operating system's where none.
    pub seed: Option<u64>,
}

impl Setup {
    /// Returns the bytes to divide among the partitions.
    #[must_use]
    pub(crate) fn divided_bytes(&self) -> u64 {
        self.instances.as_ref().map_or(self.cache.total_bytes, |instances| instances.total_bytes)
    }

    /// The pins of all partitions; an instance gets the least it can be told to keep to.
    #[must_use]
    pub(crate) fn pins(&self) -> Vec<Pin> {
        let instances = self.instances.as_ref().map_or(&[][..], |instances| &instances.each);
        let least = |index: usize| instances.get(index).map_or(0, |instance| instance.kind.bytes_min());
        let pins = self.partitions.iter().map(|partition| partition.pin).enumerate();
        pins.map(|(index, pin)| Pin { min_bytes: pin.min_bytes.max(least(index)), ..pin }).collect()
    }
}

/// Who may come in through the HTTP port: by default every process of this machine, on loopback,
/// and no page of another site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessSetup {
    /// The certificate and key for TLS; none without TLS.
    pub tls: Option<TlsFiles>,
    /// A file of the tokens that requests have to show; none where nobody is asked for one.
    pub token_file: Option<PathBuf>,
    /// A file of tokens that may only read.
    pub read_token_file: Option<PathBuf>,
}

/// A backend, before the node is started.
pub struct BackendSetup {
    /// The name.
    pub name: String,
    /// Bounds and times of its dispatcher.
    pub dispatch: sherwood_dispatch::Options,
    /// The rules of keeping values and of serving stale ones.
    pub rules: Rules,
    /// When a fetch is late for queries that take stale values then; by default half of the SLO's
    /// bound, or half of the backend's time-out where that is less.
    pub late_after: Option<Duration>,
    /// The target of writes, and when they can be read everywhere.
    pub writes: Writes,
    /// The replicas' stores; none for a backend that is only looked up in the cache.
    pub stores: Vec<Arc<dyn Store>>,
}

/// A partition, before the node is started.
#[derive(Clone, Copy, Debug)]
pub struct PartitionSetup {
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The backend whose answers it holds.
    pub backend: BackendId,
    /// Bytes it starts with; an equal part of what is left where none.
    pub initial_bytes: Option<u64>,
    /// Least and most bytes.
    pub pin: Pin,
}

/// The file of a snapshot, and the backends it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSetup {
    /// The file. Beside it, one with `.part` at the end is being written, and one with `.read`
    /// being read.
    pub path: PathBuf,
    /// The longest time that writing may take.
    pub time_max: Duration,
    /// Stands for the configuration of the backends.
    pub fingerprint: u64,
}

/// A listener, before the node is started.
#[derive(Clone, Debug)]
pub struct ListenerSetup {
    /// The protocol.
    pub protocol: Protocol,
    /// The address or UNIX socket.
    pub bind: Address,
    /// A file of the names and passwords that clients have to give; none where nobody is asked for
    /// them.
    pub auth_file: Option<PathBuf>,
    /// Which partition a key goes to.
    pub route: RouteSetup,
    /// Fetches a miss from the backend where true.
    pub read_through: bool,
    /// Threads, each with an event queue and a socket of its own.
    pub threads: usize,
    /// Keeps each thread to one core where true.
    pub pin_threads: bool,
    /// A connection that is silent for this long is closed; never where none.
    pub idle_timeout: Option<Duration>,
}

/// Which partition a key goes to.
#[derive(Clone, Debug)]
pub enum RouteSetup {
    /// All keys to the default tenant's partition of this backend.
    Backend(BackendId),
    /// By the longest of these prefixes that the key begins with.
    Prefix(Vec<(String, BackendId)>),
}
