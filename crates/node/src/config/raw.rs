//! The configuration file as parsed: its tables and keys, each value with its place, not yet
//! validated.
//!
//! These structs are the only list of keys: the reader refuses all others, and
//! `sherwood.example.toml` is tested against them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use sherwood_store::{Secret, TlsOptions};
use toml::Spanned;

use super::units::{ByteSize, Span};

/// A value that may be absent from the configuration file, with its place there.
pub(super) type Key<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFile {
    pub(super) memory: RawMemory,
    pub(super) server: RawServer,
    pub(super) listener: Vec<Spanned<RawListener>>,
    pub(super) backend: Vec<Spanned<RawBackend>>,
    pub(super) partition: Vec<Spanned<RawPartition>>,
    pub(super) tenants: Key<RawTenants>,
    pub(super) tenant: Vec<Spanned<RawTenant>>,
    pub(super) resource: Vec<Spanned<RawResource>>,
    pub(super) slo: RawSlo,
    pub(super) deadline: Vec<Spanned<RawDeadline>>,
    pub(super) scheduler: Vec<Spanned<RawScheduler>>,
    pub(super) control: RawControl,
    pub(super) admin: RawAdmin,
    pub(super) otlp: RawOtlp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMemory {
    pub(super) total: Key<ByteSize>,
    pub(super) max_item_size: Key<ByteSize>,
    pub(super) eviction: Key<String>,
    pub(super) buffers: Key<ByteSize>,
    pub(super) mrc_sample: Key<f64>,
    pub(super) snapshot: Key<RawSnapshot>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSnapshot {
    pub(super) path: Key<String>,
    pub(super) max_time: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawServer {
    pub(super) threads: Key<u64>,
    pub(super) max_connections: Key<u64>,
    pub(super) idle_timeout: Key<Span>,
    pub(super) pin_threads: Key<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawListener {
    pub(super) protocol: Key<String>,
    pub(super) bind: Key<String>,
    pub(super) permissions: Key<String>,
    pub(super) auth_file: Key<String>,
    pub(super) tls: Key<RawServerTls>,
    pub(super) network: Key<String>,
    pub(super) tenant: Key<String>,
    pub(super) route: Key<String>,
    pub(super) backend: Key<String>,
    pub(super) mode: Key<String>,
    pub(super) write_first: Key<String>,
    pub(super) write_admit: Key<bool>,
}

impl RawListener {
    /// Creates a listener with only a protocol.
    pub(super) fn speaking(protocol: &str) -> Self {
        Self { protocol: Some(Spanned::new(0..0, protocol.to_owned())), ..Self::default() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawBackend {
    pub(super) name: Key<String>,
    pub(super) prefix: Key<String>,
    pub(super) timeout: Key<Span>,
    pub(super) ttl: Key<Span>,
    pub(super) ttl_rules: Key<Vec<Spanned<RawTtlRule>>>,
    pub(super) ttl_jitter: Key<f64>,
    pub(super) negative_ttl: Key<Span>,
    pub(super) stale: RawStale,
    pub(super) writes: RawWrites,
    pub(super) dispatch: RawDispatch,
    pub(super) ramp: Key<RawRamp>,
    pub(super) deadlines: Key<RawDeadlineClasses>,
    pub(super) store: Key<RawStore>,
    pub(super) replicas: Key<Vec<Spanned<RawStore>>>,
    pub(super) spans: Key<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTtlRule {
    pub(super) prefix: Key<String>,
    pub(super) ttl: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStale {
    pub(super) while_revalidate: Key<Span>,
    pub(super) if_error: Key<Span>,
    pub(super) keep: Key<Span>,
    pub(super) after: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWrites {
    pub(super) to: Key<String>,
    pub(super) settle: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDispatch {
    pub(super) queue: Key<String>,
    pub(super) balance: Key<String>,
    pub(super) admit: Key<String>,
    pub(super) copies: Key<String>,
    pub(super) alpha: Key<f64>,
    pub(super) beta: Key<f64>,
    pub(super) target: Key<f64>,
    pub(super) target_delay: Key<Span>,
    pub(super) extra_ratio: Key<f64>,
    pub(super) extra_burst: Key<u32>,
    pub(super) batch_keys_max: Key<u32>,
    pub(super) in_flight_calls_max: Key<u32>,
    pub(super) queued_calls_max: Key<u32>,
    pub(super) waiters_max: Key<u32>,
    pub(super) retry: RawRetry,
    pub(super) probe: RawProbe,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRamp {
    pub(super) start: Key<u32>,
    pub(super) grow: Key<f64>,
    pub(super) wait: Key<f64>,
    pub(super) interval: Key<Span>,
    pub(super) settle: Key<Span>,
}

/// The table `deadlines` of a `[[backend]]`: the deadline classes of its partitions.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDeadlineClasses {
    pub(super) classes: Key<u32>,
    pub(super) upto: Key<Span>,
    pub(super) bounds: Key<Vec<Span>>,
    pub(super) step: Key<f64>,
    pub(super) cost: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRetry {
    pub(super) per_call_max: Key<u32>,
    pub(super) ratio: Key<f64>,
    pub(super) burst: Key<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawProbe {
    pub(super) failures_max: Key<u32>,
    pub(super) interval_min: Key<Span>,
    pub(super) interval_max: Key<Span>,
}

/// Keys of every kind of store. The keys that a kind accepts are checked during resolution, so that
/// the error can name the kind.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStore {
    pub(super) kind: Key<String>,
    pub(super) path: Key<String>,
    pub(super) query: Key<String>,
    pub(super) cache_bytes: Key<ByteSize>,
    pub(super) n: Key<u64>,
    pub(super) bytes: Key<ByteSize>,
    pub(super) latency: Key<Span>,
    pub(super) threads: Key<u64>,
    pub(super) queued_calls_max: Key<u64>,
    pub(super) address: Key<String>,
    pub(super) user: Key<String>,
    pub(super) password_file: Key<String>,
    pub(super) password_env: Key<String>,
    pub(super) write: Key<String>,
    pub(super) delete: Key<String>,
    pub(super) tls: Key<RawTls>,
    pub(super) connections_max: Key<u64>,
    pub(super) connect_timeout: Key<Span>,
    pub(super) answer_timeout: Key<Span>,
    pub(super) value_max: Key<ByteSize>,
    pub(super) url: Key<String>,
    pub(super) headers: Key<BTreeMap<String, RawHeader>>,
    pub(super) key_prefix: Key<String>,
    pub(super) db: Key<u64>,
    pub(super) ttl: Key<String>,
    pub(super) write_ttl: Key<Span>,
    pub(super) database: Key<String>,
    pub(super) value: Key<String>,
    pub(super) ttl_column: Key<String>,
    pub(super) tags_column: Key<String>,
    pub(super) table: Key<String>,
    pub(super) region: Key<String>,
    pub(super) endpoint: Key<String>,
    pub(super) key_attribute: Key<String>,
    pub(super) value_attribute: Key<String>,
    pub(super) consistent: Key<bool>,
    pub(super) credentials: Key<RawCredentials>,
    pub(super) tickets: Key<RawTickets>,
}

/// The scheduler of a replica: its URL alone, or with the access to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a URL, or { url = \"https://host:port\", token_file = \"run/token\" }"
)]
pub(super) enum RawTickets {
    Url(String),
    Access(RawTicketsAccess),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTicketsAccess {
    pub(super) url: String,
    pub(super) token_file: Option<PathBuf>,
    pub(super) tls: TlsOptions,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTls {
    pub(super) ca: Key<String>,
    pub(super) cert: Key<String>,
    pub(super) key: Key<String>,
    pub(super) server_name: Key<String>,
}

/// The places of AWS credentials.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCredentials {
    pub(super) access_key_id: Key<Secret>,
    pub(super) secret_access_key: Key<Secret>,
    pub(super) session_token: Key<Secret>,
}

/// Value of a header: literal, or read from a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, or { file = \"run/token\", prefix = \"Bearer \" }")]
pub(super) enum RawHeader {
    Text(String),
    File(RawHeaderFile),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHeaderFile {
    pub(super) file: PathBuf,
    #[serde(default)]
    pub(super) prefix: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPartition {
    pub(super) tenant: Key<String>,
    pub(super) backend: Key<String>,
    pub(super) min: Key<ByteSize>,
    pub(super) max: Key<ByteSize>,
    pub(super) initial: Key<ByteSize>,
    pub(super) dry_run: Key<bool>,
    pub(super) cache: Key<RawInstance>,
}

/// The table `cache` of a `[[partition]]`: an external cache to resize.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawInstance {
    pub(super) kind: Key<String>,
    pub(super) address: Key<String>,
    pub(super) user: Key<String>,
    pub(super) password_file: Key<String>,
}

/// The table `[tenants]`: the division of cache and resources among tenants.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTenants {
    pub(super) policy: Key<String>,
    pub(super) period: Key<Span>,
    pub(super) window: Key<Span>,
    pub(super) salt: Key<f64>,
    pub(super) apply_over: Key<f64>,
    pub(super) lend: Key<bool>,
    pub(super) conserving: Key<bool>,
    pub(super) over: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTenant {
    pub(super) name: Key<String>,
    pub(super) users: Key<Vec<Spanned<String>>>,
    pub(super) prefix: Key<String>,
    pub(super) weight: Key<f64>,
    pub(super) min: Key<ByteSize>,
    /// Shares of the cache (`cache`) and of resources, by name.
    pub(super) base: Key<BTreeMap<String, Spanned<f64>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawResource {
    pub(super) name: Key<String>,
    pub(super) kind: Key<String>,
    pub(super) backend: Key<String>,
    pub(super) unit: Key<RawUnit>,
    pub(super) legs: Key<String>,
    pub(super) total: Key<RawTotal>,
}

/// The unit of a resource: by name, or a number of bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected \"dynamodb\", \"count\", or { bytes = 4096 }")]
pub(super) enum RawUnit {
    Name(String),
    Bytes(RawUnitBytes),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUnitBytes {
    pub(super) bytes: ByteSize,
}

/// The units per second of a resource; for bytes also written as a size.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected units per second, such as 3000, or bytes, such as \"50MiB\"")]
pub(super) enum RawTotal {
    Units(f64),
    Bytes(ByteSize),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSlo {
    pub(super) percentile: Key<f64>,
    pub(super) bound: Key<Span>,
    pub(super) window: Key<Span>,
    pub(super) observe: Key<Span>,
    pub(super) class: Vec<Spanned<RawScopedSlo>>,
    pub(super) tenant: Vec<Spanned<RawScopedSlo>>,
}

/// An SLO of a class of requests or of a tenant.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawScopedSlo {
    pub(super) name: Key<String>,
    pub(super) percentile: Key<f64>,
    pub(super) bound: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDeadline {
    pub(super) backend: Key<String>,
    pub(super) prefix: Key<String>,
    pub(super) tenant: Key<String>,
    pub(super) within: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawScheduler {
    pub(super) name: Key<String>,
    pub(super) slots: Key<u64>,
    pub(super) timeout: Key<Span>,
    pub(super) tickets_max: Key<u64>,
    pub(super) alpha: Key<f64>,
    pub(super) beta: Key<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawControl {
    pub(super) policy: Key<String>,
    pub(super) delta: Key<Span>,
    pub(super) rbc_window: Key<Span>,
    pub(super) band: Key<Vec<f64>>,
    pub(super) tax: Key<f64>,
    pub(super) dry_run: Key<bool>,
    pub(super) guard: RawGuard,
    pub(super) tao: RawTao,
    pub(super) cliffhanger: RawCliffhanger,
    pub(super) fair: RawFair,
    pub(super) lama: RawLama,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawGuard {
    pub(super) enabled: Key<bool>,
    pub(super) worse: Key<f64>,
    pub(super) miss_rise: Key<f64>,
    pub(super) blame: Key<f64>,
    pub(super) freeze: Key<Span>,
    pub(super) memory: Key<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTao {
    pub(super) learn: Key<Span>,
    pub(super) mode: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCliffhanger {
    pub(super) shadow: Key<f64>,
    pub(super) credit: Key<ByteSize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFair {
    pub(super) mode: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLama {
    pub(super) mode: Key<String>,
    pub(super) grid: Key<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmin {
    pub(super) bind: Key<String>,
    pub(super) tls: Key<RawServerTls>,
    pub(super) token_file: Key<String>,
    pub(super) read_token_file: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawServerTls {
    pub(super) cert: Key<String>,
    pub(super) key: Key<String>,
    pub(super) client_ca: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawOtlp {
    pub(super) bind: Key<String>,
    pub(super) export: Key<RawSpanExport>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSpanExport {
    pub(super) endpoint: Key<String>,
    pub(super) protocol: Key<String>,
    pub(super) sample_ratio: Key<f64>,
    pub(super) timeout: Key<Span>,
    pub(super) headers_file: Key<String>,
    pub(super) tls: TlsOptions,
}
