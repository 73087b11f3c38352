//! The resolved configuration: every value in range, every name resolved to an id.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sherwood_cache::{DeadlineOptions, Eviction};
use sherwood_model::{BackendId, Slo, TenantId};
use sherwood_path::{Acknowledge, Consistency, Rules, SharedTerms, WriteTo};
use sherwood_store::StoreOptions;

use super::setup::{
    AccessSetup, ClusterSetup, DeadlineRule, InstanceSetup, ReplicationSetup, SchedulerSetup,
    SchedulerSource, SloSetup, SpanExport, SpanRule, StoresSetup, TenancySetup, TlsFiles,
};
use sherwood_listener::{Address, Io, Protocol};

/// A valid configuration. Conditions of the machine, such as whether a port is free or a file can
/// be opened, are checked when the node starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The cache's memory.
    pub memory: Memory,
    /// `[memory] snapshot`; none starts cold.
    pub snapshot: Option<Snapshot>,
    /// Threads and connections.
    pub server: Server,
    /// Listeners, at most one per address.
    pub listeners: Vec<Listener>,
    /// Backends in the order of their [`BackendId`]; at least one.
    pub backends: Vec<BackendConfig>,
    /// Names in the order of their [`TenantId`]; the first is `default` where the tenants are not
    /// declared.
    pub tenants: Vec<String>,
    /// Partitions in the order of their `PartitionId`; every backend has one of the default tenant,
    /// or of each declared one. Their initial bytes sum to at most the total.
    pub partitions: Vec<Partition>,
    /// `[tenants]`, `[[tenant]]` and `[[resource]]`: the declared tenants and what is divided among
    /// them; none without these tables.
    pub tenancy: Option<TenancySetup>,
    /// `[slo]`: by default P99 over 60 s is at most 150 ms, observed every 5 s.
    pub slo: Slo,
    /// `[[slo.class]]` and `[[slo.tenant]]`, at most 32 of each.
    pub slos: Vec<SloSetup>,
    /// `[[deadline]]`, at most 64: deadlines of keys whose client states none.
    pub deadlines: Vec<DeadlineRule>,
    /// `[[scheduler]]`, at most 64: the schedulers that the HTTP port serves.
    pub schedulers: Vec<SchedulerSetup>,
    /// `[control]`: policy and period of the control loop.
    pub control: Control,
    /// `[replication]`: the tiers whose copies are chosen; none without the table.
    pub replication: Option<ReplicationSetup>,
    /// `[stores]`: the replicated stores with managers; none without the table, or with `manager =
    /// "none"`.
    pub stores: Option<StoresSetup>,
    /// `[cluster]`: the node's place among others; none for a node alone.
    pub cluster: Option<ClusterSetup>,
    /// Address of the admin API and the gateway; none when they are off.
    pub admin: Option<SocketAddr>,
    /// Address of OTLP over gRPC; none when it is off.
    pub otlp: Option<SocketAddr>,
    /// `[otlp] export`: where spans of the node's own requests go; none exports none.
    pub spans: Option<SpanExport>,
    /// TLS and tokens of the admin and OTLP addresses; beyond loopback both are required.
    pub access: AccessSetup,
}

/// `[memory]`: the cache's size and its use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Bytes for keys, values, index and metadata, 1 MiB to 64 TiB; 64 MiB by default.
    pub total_bytes: u64,
    /// Largest value in bytes, 1 KiB to 128 MiB and at most the total; 1 MiB by default.
    pub item_bytes_max: u32,
    /// Eviction policy within a partition; S3-FIFO by default.
    pub eviction: Eviction,
    /// Bytes that requests and answers of the gateway and values fetched for listeners may take
    /// together, over all clients and in addition to the total, 32 MiB to 64 TiB; 256 MiB by
    /// default.
    pub buffers_bytes_max: u64,
    /// Share of the keys that miss ratio curves are drawn from, 0 (no curves) to 1; 1/32 by
    /// default.
    pub mrc_sample_ratio: f64,
}

/// `[memory] snapshot`: the cache's contents, kept from a stop to the next start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Path of the snapshot file.
    pub path: PathBuf,
    /// Time limit of writing the snapshot, 100 ms to 10 min; 10 s by default.
    pub time_max: Duration,
}

impl Memory {
    /// Bytes that the node may take in addition to the total, the embedded stores and the buffers
    /// of connections: 64 MiB, or 15% of the total if that is more.
    #[must_use]
    pub fn slack_bytes(&self) -> u64 {
        (self.total_bytes / 100 * 15).max(64 << 20)
    }
}

/// Default of `[memory] buffers`, bytes.
pub const BUFFERS_BYTES_MAX: u64 = 256 << 20;

/// Maximum of open HTTP connections; further ones wait until another ends. A gateway's clients keep
/// their connections open, so a small number is enough.
pub const HTTP_CONNECTIONS_MAX: usize = 1_024;
/// Open connections of OTLP over gRPC at most, apart from those.
pub const OTLP_CONNECTIONS_MAX: usize = 64;

/// `[server]`: threads and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Threads of each listener, and as many for the HTTP port, 1 to 256; none means one per core.
    pub threads: Option<u16>,
    /// Connections open at a time over all `[[listener]]`s, 1 to 65,536; 1,024 by default. HTTP has
    /// its own bound, [`HTTP_CONNECTIONS_MAX`].
    pub connections_max: u32,
    /// Idle time after which a listener closes a connection, 1 s to 365 d; none, the default, never
    /// closes it.
    pub idle_timeout: Option<Duration>,
    /// True if each thread of a listener is pinned to one core; false by default.
    pub pin_threads: bool,
    /// The way in which listeners' threads receive and send.
    pub io: Io,
}

/// `[[listener]]`: an address that clients of memcached or Redis connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Protocol of the listener.
    pub protocol: Protocol,
    /// UNIX socket or address. An address beyond loopback is accepted only with a password file or
    /// client certificates, and with TLS or `network = "trusted"`.
    pub bind: Address,
    /// File of the names and passwords that clients must give; none if no password is required.
    pub auth_file: Option<PathBuf>,
    /// Files of the listener's TLS; none if its clients speak without.
    pub tls: Option<TlsFiles>,
    /// Tenant of all clients of the listener; none if it depends on the client's user, or on the
    /// key.
    pub tenant: Option<TenantId>,
    /// Selection of the backend for a key.
    pub route: Route,
    /// Handling of misses and writes.
    pub mode: Mode,
    /// Counting of clients' batches as requests.
    pub requests: BatchMode,
    /// The class of these requests, one of those that have an SLO; none if they have none.
    pub class: Option<String>,
    /// Number of databases that clients of Redis can select, 1 to 16; 1 by default.
    pub databases: u8,
}

/// Counting of the batches of a listener's clients as requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchMode {
    /// They count while no requests are told by other means.
    #[default]
    Auto,
    /// They always count.
    Always,
    /// They never count.
    Never,
}

/// Selection of the backend that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By the prefix of the key. A key without a known prefix belongs to the backend with the empty
    /// prefix, or to none.
    Prefix,
    /// Every key belongs to one backend.
    Backend(BackendId),
}

/// Handling of misses and writes by a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reports the miss; the client queries the backend itself.
    LookAside,
    /// Fetches the value from the backend's store.
    ReadThrough,
    /// Fetches as well, and writes to the backend's store.
    WriteThrough(WriteThrough),
}

/// Order of a write-through listener's writes, and what the cache keeps of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteThrough {
    /// True if the cache has the value before the store.
    pub cache_first: bool,
    /// True if the cache keeps the value of a key that it does not have.
    pub admit: bool,
}

/// `[[backend]]`: a source of values, its stores and its rules.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendConfig {
    /// Unique name of 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Prefix of the backend's keys; no prefix may begin with another, except that every prefix
    /// begins with the empty one. None if keys are not routed to the backend by prefix.
    pub prefix: Option<String>,
    /// Limits, retries and probes of the backend's dispatcher, with the timeout of its queries: 1
    /// ms to 10 min, 2 s by default.
    pub dispatch: sherwood_dispatch::Options,
    /// Deadline classes of each of the backend's partitions: by default one, with the table
    /// `deadlines` ten up to 100 ms.
    pub deadlines: DeadlineOptions,
    /// Time-to-live of the backend's values, and use of stale ones.
    pub freshness: Freshness,
    /// Replicas that are written to, and the replication delay after a write.
    pub writes: Writes,
    /// `shared`: the terms on which the nodes of the cluster cache its values; none if each node
    /// caches them on its own.
    pub shared: Option<SharedTerms>,
    /// `duplicates`: the replicas as duplicates of partitions of the keys; none if the node does
    /// not replicate its writes in order.
    pub duplicates: Option<Duplicates>,
    /// The stores, one per replica, in the order of their ids; empty for a plain cache, at most 64.
    pub replicas: Vec<StoreOptions>,
    /// The scheduler of each replica, whose tickets calls need; empty if they need none.
    pub tickets: Vec<SchedulerSource>,
    /// Client spans of traces that are the backend's queries: those with the attributes of `spans`
    /// (1 to 16, of at most 256 bytes each), by default those that name the store's system.
    pub spans: SpanRule,
}

/// Keys of a `[[backend]]` for the time-to-live of values and the use of stale ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Freshness {
    /// `ttl` (1 ms to 365 days; by default none: values live until evicted), `ttl_rules` (at most
    /// 64, 0 to 365 days), `ttl_jitter` (0 to 0.5, by default 0.1), `negative_ttl` (up to 365 days,
    /// 0 by default) and `stale` (up to 7 days each; 0 by default, except `keep`: 60 s).
    pub rules: Rules,
    /// `stale.after`, up to 10 min: time after which a fetch counts as late, for queries that then
    /// accept a stale value. By default half of the SLO's bound, or half of the backend's timeout
    /// if that is less.
    pub late_after: Option<Duration>,
}

impl Default for Freshness {
    fn default() -> Self {
        let rules = Rules { jitter_ratio: 0.1, keep_stale: Duration::from_secs(60), ..Rules::default() };
        Self { rules, late_after: None }
    }
}

/// Maximum age past its freshness at which a query may accept a value; also the maximum time that
/// an expired value is kept.
pub const STALE_OK_MAX: Duration = Duration::from_secs(7 * 86_400);

/// `writes = { … }` of a `[[backend]]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Replicas that are written to.
    pub to: WriteTo,
    /// Time after an acknowledged write for which a replica may still return the old value, up to 1
    /// h; 0 by default. Values of the key fetched in that time are not cached; if only the first
    /// replica is written to, they are fetched from it.
    pub settle: Duration,
}

/// `duplicates` of a `[[backend]]`, with what belongs to it: a store that the node replicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicates {
    /// Number of partitions of the keys, 1 to 64; 1 by default.
    pub partitions: u16,
    /// Number of replicas of each partition, 1 to 8.
    pub duplicates: u8,
    /// The earlier writes that a read reflects; by default those of its session.
    pub consistency: Consistency,
    /// Number of duplicates that must have a write before it is acknowledged; by default all.
    pub acknowledge: Acknowledge,
    /// `log.entries`: upper bound of the writes in the log of a partition, 1 to 10,000,000; 100,000
    /// by default.
    pub entries_max: u32,
    /// `log.bytes`: upper bound of the bytes of their keys and values, 1 KiB to 64 GiB; 64 MiB by
    /// default.
    pub bytes_max: u64,
    /// `log.path`: the directory in which the logs are kept; in memory only by default.
    pub path: Option<PathBuf>,
}

/// `[[partition]]`: the part of the cache for one tenant's values of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The backend's name for the default tenant, `tenant:backend` for others.
    pub name: String,
    /// Tenant that the partition belongs to.
    pub tenant: TenantId,
    /// Backend whose values the partition holds.
    pub backend: BackendId,
    /// Lower limit of the partition's budget, bytes; 0 by default.
    pub bytes_min: u64,
    /// Upper limit of the partition's budget, bytes; the total by default.
    pub bytes_max: u64,
    /// True if the partition's budget stays as it is and the policy's decision is only reported.
    pub dry_run: bool,
    /// External cache that is resized in place of the partition. Either all partitions have one, or
    /// none.
    pub instance: Option<InstanceSetup>,
    /// The initial budget, computed by [`sherwood_policy::Options::start_budgets`].
    pub initial_bytes: u64,
}

/// `[control]`: the loop that divides the cache's memory among partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// Name of the allocation policy; `robinhood` by default.
    pub policy: String,
    /// Time from one decision to the next; 5 s by default.
    pub delta: Duration,
    /// Age of the oldest request that is counted for its blocking backend, the one of its slowest
    /// query; 60 s by default.
    pub rbc_window: Duration,
    /// Range of request latencies, as percentiles in percent, in which blocking backends are
    /// counted; 98.5 and 99.5 by default.
    pub band: (f64, f64),
    /// Share of every partition that each decision collects and gives out anew, 0 to 0.5; 0.01 by
    /// default.
    pub tax_ratio: f64,
    /// True if decisions are reported but no memory is moved.
    pub dry_run: bool,
    /// `[control.guard]`, none when it is switched off; its percentile and bound are those of
    /// `[slo]`.
    pub guard: Option<sherwood_policy::GuardOptions>,
    /// `[control.tao]`: options of the policy `tao`.
    pub tao: sherwood_policy::TaoOptions,
    /// `[control.cliffhanger]`: options of the policy `cliffhanger`.
    pub cliffhanger: sherwood_policy::CliffhangerOptions,
    /// `[control.fair]`: options of the policy `fair`.
    pub fair: sherwood_policy::FairOptions,
    /// `[control.lama]`: options of the policy `lama`.
    pub lama: sherwood_policy::LamaOptions,
}

impl Config {
    /// Bytes the embedded stores keep in memory, all replicas together; not part of
    /// [`Memory::total_bytes`].
    #[must_use]
    pub fn stores_bytes(&self) -> u64 {
        let stores = self.backends.iter().flat_map(|backend| &backend.replicas);
        stores.fold(0, |sum, store| sum.saturating_add(store.cache_bytes()))
    }

    /// Number of open files of the node when every connection is in use, including connections to
    /// backends' servers: one each, and a hundred for everything else.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        let stores = self.backends.iter().flat_map(|backend| &backend.replicas);
        let to_servers: u64 = stores.map(|store| u64::from(store.connections_max())).sum();
        let http = HTTP_CONNECTIONS_MAX + self.otlp.map_or(0, |_| OTLP_CONNECTIONS_MAX);
        u64::from(self.server.connections_max) + http as u64 + to_servers + 100
    }
}
