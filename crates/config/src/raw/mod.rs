//! The configuration file as parsed: its tables and keys, each value with its place, not yet
//! validated.
//!
//! These structs are the only list of keys: the reader refuses all others, and
//! `sherwood.example.toml` is tested against them. Their comments and attributes are the reference:
//! the file's JSON Schema and a page of the book are made of them (`schema`). A comment says what a
//! key sets; links in it are relative to the book's pages. Besides those of JSON Schema there are
//! these attributes, which only people read:
//!
//! - `x-min` and `x-max` are the range of a size or duration; tested, as `default` is;
//! - `x-default` says in words what happens without the key;
//! - `x-required` marks a key that must be set in its table; it becomes JSON Schema's list of them;
//! - `x-kinds` are the kinds of stores that have the key.

mod backend;
mod cluster;
mod control;
mod store;
mod tenants;
mod text_or_table;

use schemars::JsonSchema;
use serde::Deserialize;
use sherwood_store::TlsOptions;

use super::spanned::Spanned;
use super::units::{ByteSize, Span};

#[cfg(test)]
pub(super) use backend::RawTtlRule;
pub(super) use backend::{
    RawBackend, RawDeadlineClasses, RawDispatch, RawHedge, RawLog, RawProbe, RawRamp, RawRetry, RawShared,
    RawStale, RawWrites,
};
pub(super) use cluster::{RawBus, RawBusTls, RawCluster};
pub(super) use control::{
    RawCliffhanger, RawControl, RawDeadline, RawFair, RawForecast, RawGuard, RawLama, RawReplication,
    RawScheduler, RawScopedSlo, RawSlo, RawStores, RawTao,
};
pub(super) use store::{
    RawCredentials, RawHeader, RawHeaderFile, RawStore, RawTickets, RawTicketsAccess, RawTls,
};
pub(super) use tenants::{RawInstance, RawPartition, RawResource, RawTenant, RawTenants, RawTotal, RawUnit};

/// A value that may be absent from the configuration file, with its place there.
pub(crate) type Key<T> = Option<Spanned<T>>;

/// The configuration of a node of Sherwood.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawFile {
    pub(crate) memory: RawMemory,
    pub(crate) server: RawServer,
    pub(crate) listener: Vec<Spanned<RawListener>>,
    pub(crate) backend: Vec<Spanned<RawBackend>>,
    pub(crate) partition: Vec<Spanned<RawPartition>>,
    pub(crate) tenants: Key<RawTenants>,
    pub(crate) tenant: Vec<Spanned<RawTenant>>,
    pub(crate) resource: Vec<Spanned<RawResource>>,
    pub(crate) slo: RawSlo,
    pub(crate) deadline: Vec<Spanned<RawDeadline>>,
    pub(crate) scheduler: Vec<Spanned<RawScheduler>>,
    pub(crate) control: RawControl,
    pub(crate) replication: Key<RawReplication>,
    pub(crate) stores: Key<RawStores>,
    pub(crate) cluster: Key<RawCluster>,
    pub(crate) admin: RawAdmin,
    pub(crate) otlp: RawOtlp,
}

/// Memory of the node.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawMemory {
    /// Bytes for keys, values, index and metadata of everything cached. Flag: `--memory`.
    #[schemars(extend("default" = "64MiB", "x-min" = "1MiB", "x-max" = "64TiB"))]
    pub(crate) total: Key<ByteSize>,
    /// The largest value, at most the total. Flag: `--max-item-size`.
    #[schemars(extend("default" = "1MiB", "x-min" = "1KiB", "x-max" = "128MiB"))]
    pub(crate) max_item_size: Key<ByteSize>,
    /// The order in which a partition evicts its items: `"s3-fifo"`, which keeps items that were
    /// used again, or `"lru"` for strict least recently used. Flag: `--eviction`.
    #[schemars(extend("default" = "s3-fifo", "enum" = ["s3-fifo", "lru"]))]
    pub(crate) eviction: Key<String>,
    /// Memory for the answers and fetched values of all clients together, in addition to the total;
    /// watched keys and queued commands take up to half of it.
    #[schemars(extend("default" = "256MiB", "x-min" = "32MiB", "x-max" = "64TiB"))]
    pub(crate) buffers: Key<ByteSize>,
    /// Share of the keys that are sampled for [miss ratio curves](miss-ratio-curves.md); 0 keeps
    /// none.
    #[schemars(extend("default" = 0.03125), range(min = 0.0, max = 1.0))]
    pub(crate) mrc_sample: Key<f64>,
    /// A [warm](guard-rails.md#starting-warm) next start: the node saves its cache on shutdown.
    #[schemars(extend("x-default" = "every start is cold"))]
    pub(crate) snapshot: Key<RawSnapshot>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSnapshot {
    /// The file. It contains keys and values in plain text, and only its owner may read it.
    #[schemars(extend("x-required" = true))]
    pub(crate) path: Key<String>,
    /// Limit of the time that writing takes; the most recently used items are written first.
    #[schemars(extend("default" = "10s", "x-min" = "100ms", "x-max" = "10m"))]
    pub(crate) max_time: Key<Span>,
}

/// Threads and connections.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServer {
    /// Threads of each listener, and as many for the HTTP port. Flag: `--threads`.
    #[schemars(extend("x-default" = "one a core"), range(min = 1, max = 256))]
    pub(crate) threads: Key<u64>,
    /// Connections open at a time over all listeners; the HTTP port has 1,024 of its own. Flag:
    /// `--max-connections`.
    #[schemars(extend("default" = 1024), range(min = 1, max = 65_536))]
    pub(crate) max_connections: Key<u64>,
    /// Idle time after which a listener's connection is closed, after twice that at the latest.
    #[schemars(extend("x-default" = "never", "x-min" = "1s", "x-max" = "365d"))]
    pub(crate) idle_timeout: Key<Span>,
    /// Pins each thread of a listener to one core. Flag: `--pin`.
    #[schemars(extend("default" = false))]
    pub(crate) pin_threads: Key<bool>,
    /// Receive from and send to connections that are ready together in one system call each, by
    /// [io_uring](configuration.md#io_uring) (from Linux 6.1), or in calls of their own. Flag:
    /// `--io`.
    #[schemars(extend("default" = "auto", "enum" = ["auto", "epoll", "io_uring"]))]
    pub(crate) io: Key<String>,
}

/// A socket that clients of memcached or Redis connect to. Without any, only the admin API and its
/// gateway are available.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawListener {
    /// [memcached's](memcached.md) text and binary protocol, or [Redis'](redis.md) RESP2 and RESP3.
    #[schemars(extend("default" = "memcached", "enum" = ["memcached", "redis"]))]
    pub(crate) protocol: Key<String>,
    /// Address and port, or `unix:` and a path of at most 107 bytes; a socket that [systemd
    /// passes](operations.md#sockets) for it is used. Addresses beyond loopback need
    /// [authentication](security.md).
    #[schemars(extend("x-required" = true))]
    pub(crate) bind: Key<String>,
    /// Permissions of a UNIX socket's file, as in chmod: users with write permission may connect.
    #[schemars(extend("default" = "0700"), regex(pattern = "^[0-7]{3,4}$"))]
    pub(crate) permissions: Key<String>,
    /// Names and passwords of clients, [a line each](security.md#a-token-and-a-password).
    #[schemars(extend("x-default" = "no authentication"))]
    pub(crate) auth_file: Key<String>,
    /// [TLS](security.md#tls-for-listeners) for all its clients; not for UNIX sockets.
    #[schemars(extend("x-default" = "no TLS"))]
    pub(crate) tls: Key<RawServerTls>,
    /// Machines that may connect without TLS: `"loopback"`, or `"trusted"` for others, over a
    /// network without eavesdroppers.
    #[schemars(extend("default" = "loopback", "enum" = ["loopback", "trusted"]))]
    pub(crate) network: Key<String>,
    /// The [tenant](tenants.md#the-tenant-of-a-client) of all its clients.
    #[schemars(extend("x-default" = "told by the user, or by the prefix of the key"))]
    pub(crate) tenant: Key<String>,
    /// `"prefix"`: the prefix of a key selects its backend.
    #[schemars(extend("x-default" = "by prefix where a backend has one", "enum" = ["prefix"]))]
    pub(crate) route: Key<String>,
    /// The backend of all its keys, instead of `route`.
    #[schemars(extend("x-default" = "the only one"))]
    pub(crate) backend: Key<String>,
    /// `"look-aside"`: a miss is answered as a miss; `"read-through"`: it is fetched from the
    /// backend; `"write-through"`: so it is, and writes [go to the
    /// backend](memcached.md#reading-and-writing-through). A backend without a `store` is a plain
    /// cache in each mode.
    #[schemars(extend("default" = "look-aside", "enum" = ["look-aside", "read-through", "write-through"]))]
    pub(crate) mode: Key<String>,
    /// The side that a write-through listener writes first: `"store"`, or `"cache"`, from which a
    /// write that fails removes the value.
    #[schemars(extend("default" = "store", "enum" = ["store", "cache"]))]
    pub(crate) write_first: Key<String>,
    /// Databases that clients of Redis can [`SELECT`](redis.md#several-databases); more than one
    /// only with `mode = "look-aside"`.
    #[schemars(extend("default" = 1), range(min = 1, max = 16))]
    pub(crate) databases: Key<u64>,
    /// True if the cache keeps written values of keys that it does not have.
    #[schemars(extend("default" = true))]
    pub(crate) write_admit: Key<bool>,
    /// Counting of its clients' [batches](how-it-decides.md#plain-cache-clients) as requests:
    /// `"auto"`, while no request came by gateway, reports or traces within `rbc_window`;
    /// `"batches"`, always; or `"off"`, never.
    #[schemars(extend("default" = "auto", "enum" = ["auto", "batches", "off"]))]
    pub(crate) requests: Key<String>,
    /// The class of these requests, for the SLO of a `[[slo.class]]`.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) class: Key<String>,
}

impl RawListener {
    /// Creates a listener with only a protocol.
    pub(super) fn speaking(protocol: &str) -> Self {
        Self { protocol: Some(Spanned::new(0..0, protocol.to_owned())), ..Self::default() }
    }
}

/// The HTTP port of [admin API](admin-api.md) and gateway.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAdmin {
    /// The address, or `"off"`. One beyond loopback needs `tls` and `token_file`. Flag: `--admin`.
    #[schemars(extend("default" = "127.0.0.1:8080"))]
    pub(crate) bind: Key<String>,
    /// [TLS](security.md) 1.2 and 1.3.
    #[schemars(extend("x-default" = "no TLS"))]
    pub(crate) tls: Key<RawServerTls>,
    /// Tokens with full access, one a line, in a file that other users cannot read.
    #[schemars(extend("x-default" = "no authentication"))]
    pub(crate) token_file: Key<String>,
    /// Tokens that may only `GET`.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) read_token_file: Key<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawServerTls {
    /// PEM file of the certificate, with the intermediate ones.
    #[schemars(extend("x-required" = true))]
    pub(crate) cert: Key<String>,
    /// PEM file of its key, which other users cannot read.
    #[schemars(extend("x-required" = true))]
    pub(crate) key: Key<String>,
    /// PEM file of the authorities of the certificates that clients must show.
    #[schemars(extend("x-default" = "none required"))]
    pub(crate) client_ca: Key<String>,
}

/// [OpenTelemetry](opentelemetry.md): spans by OTLP.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawOtlp {
    /// The address of OTLP over gRPC, with TLS and tokens of `[admin]`.
    #[schemars(extend("x-default" = "off"))]
    pub(crate) bind: Key<String>,
    /// [Spans](opentelemetry.md#spans-of-the-gateways-requests) of the gateway's requests and their
    /// queries, to a collector.
    #[schemars(extend("x-default" = "off"))]
    pub(crate) export: Key<RawSpanExport>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSpanExport {
    /// URL of the collector, http or https. For `"http/protobuf"`, `/v1/traces` is the path if it
    /// has none.
    #[schemars(extend("x-required" = true))]
    pub(crate) endpoint: Key<String>,
    /// Protocol of the collector.
    #[schemars(extend("default" = "grpc", "enum" = ["grpc", "http/protobuf"]))]
    pub(crate) protocol: Key<String>,
    /// Share of requests that have spans, among those whose caller sends no `traceparent`; of the
    /// others the caller decides.
    #[schemars(extend("default" = 0.01), range(min = 0.0, max = 1.0))]
    pub(crate) sample_ratio: Key<f64>,
    /// Time limit of an export with its retries, after which its spans are dropped.
    #[schemars(extend("default" = "10s", "x-min" = "100ms", "x-max" = "60s"))]
    pub(crate) timeout: Key<Span>,
    /// Headers for the collector, one `name: value` a line, in a file that other users cannot read.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) headers_file: Key<String>,
    /// TLS options for https.
    #[schemars(with = "RawTls", extend("x-default" = "the system's authorities"))]
    pub(crate) tls: TlsOptions,
}
