//! `store = { … }` and `replicas = [ … ]`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_store::{ComputeOptions, KvOptions, SqliteOptions, StoreOptions, SyntheticOptions};

use super::{dynamodb, remote};
use crate::problem::{Origin, Problems};
use crate::raw::{RawBackend, RawStore};
use crate::scope::{Given, Setting, bytes, either, given, in_range, unknown};
use crate::units::{ByteSize, Span};

const KIND: Setting = Setting::new("[[backend]]", "store.kind", "\"kv\"");
const CACHE: Setting = Setting::new("[[backend]]", "store.cache_bytes", "\"4MiB\"");
const N: Setting = Setting::new("[[backend]]", "store.n", "32");
const BYTES: Setting = Setting::new("[[backend]]", "store.bytes", "\"4KiB\"");
const LATENCY: Setting = Setting::new("[[backend]]", "store.latency", "\"5ms\"");
const THREADS: Setting = Setting::new("[[backend]]", "store.threads", "2");
const QUEUED: Setting = Setting::new("[[backend]]", "store.queued_calls_max", "1024");

/// Kinds of stores that execute their calls on threads of the node.
const THREADED: &[&str] = &["kv", "sqlite", "compute"];

/// Kinds of stores that are servers, and those of them with several connections.
const REMOTE: &[&str] =
    &["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "zookeeper", "cassandra"];
const POOLED: &[&str] = &["memcached", "redis", "http", "mysql", "postgres", "dynamodb", "cassandra"];

/// Kinds of stores, as the configuration names them.
const KINDS: &[&str] = &joined::<12>(THREADED, &joined::<9>(&["synthetic"], REMOTE));

/// Kinds of stores that bound the calls in flight or queued.
const QUEUES: &[&str] = &joined::<11>(THREADED, REMOTE);

/// Server names and the kind whose protocol they speak.
const ALSO: &[(&str, &str)] = &[("mariadb", "mysql"), ("valkey", "redis")];

/// Maximum of replicas of one backend.
const REPLICAS_MAX: usize = 64;

/// Joins two lists of kinds of stores, which have `N` together; a build with another number fails.
const fn joined<const N: usize>(first: &[&'static str], second: &[&'static str]) -> [&'static str; N] {
    let mut kinds = [""; N];
    let (start, end) = kinds.split_at_mut(first.len());
    start.copy_from_slice(first);
    end.copy_from_slice(second);
    kinds
}

/// Stores of one backend, one per replica; refused ones are left out.
pub(super) fn resolve(backend: &RawBackend, problems: &mut Problems<'_>) -> Vec<Given<StoreOptions>> {
    let listed = backend.replicas.as_ref();
    if let (Some(_), Some(replicas)) = (&backend.store, listed) {
        let message = "[[backend]] has both store and replicas; it must have one of them: make the store one of the replicas";
        problems.add(&bytes(replicas), message);
    }
    let replicas = listed.map_or(&[][..], |replicas| replicas.get_ref());
    if let (Some(list), true) = (listed, replicas.is_empty() || replicas.len() > REPLICAS_MAX) {
        let count = replicas.len();
        let message = format!(
            "[[backend]] replicas has {count} stores; it must have 1 to {REPLICAS_MAX}: list each once"
        );
        problems.add(&bytes(list), message);
    }
    let stores = backend.store.iter().chain(replicas.iter().take(REPLICAS_MAX));
    stores.filter_map(|store| Some(Given { value: one(store, problems)?, origin: bytes(store) })).collect()
}

fn one(store: &Spanned<RawStore>, problems: &mut Problems<'_>) -> Option<StoreOptions> {
    let origin = bytes(store);
    let raw = store.get_ref();
    let Some(kind) = given(&raw.kind) else {
        let message =
            format!("[[backend]] store has no kind; it must be {}: set kind = \"kv\"", either(KINDS));
        problems.add(&origin, message);
        return None;
    };
    refuse_foreign_keys(raw, &kind.value, problems);
    let options = match kind.value.as_str() {
        "kv" => kv(raw, &origin, problems).map(StoreOptions::Kv),
        "sqlite" => sqlite(raw, &origin, problems).map(StoreOptions::Sqlite),
        "compute" => Some(StoreOptions::Compute(compute(raw, problems))),
        "synthetic" => Some(StoreOptions::Synthetic(synthetic(raw, problems))),
        "memcached" => remote::memcached(raw, &origin, problems).map(StoreOptions::Memcached),
        "redis" => remote::redis(raw, &origin, problems).map(StoreOptions::Redis),
        "http" => remote::http(raw, &origin, problems).map(StoreOptions::Http),
        "mysql" => remote::sql(raw, &origin, "3306", problems).map(StoreOptions::MySql),
        "postgres" => remote::sql(raw, &origin, "5432", problems).map(StoreOptions::Postgres),
        "dynamodb" => dynamodb::resolve(raw, &origin, problems).map(StoreOptions::DynamoDb),
        "zookeeper" => remote::zookeeper(raw, &origin, problems).map(StoreOptions::Zookeeper),
        "cassandra" => remote::cassandra(raw, &origin, problems).map(StoreOptions::Cassandra),
        other => {
            match ALSO.iter().find(|(name, _)| *name == other) {
                Some((name, known)) => {
                    let what = format!("[[backend]] store.kind is \"{name}\"; it speaks as \"{known}\" does");
                    problems.add(&kind.origin, format!("{what}: set kind = \"{known}\""));
                }
                None => unknown(problems, KIND, &kind, KINDS),
            }
            None
        }
    }?;
    if !options.is_embedded() {
        remote::check(&options, &origin, problems);
    }
    Some(options)
}

fn kv(raw: &RawStore, origin: &Origin, problems: &mut Problems<'_>) -> Option<KvOptions> {
    let KvOptions { path, cache_bytes, threads, queued_calls_max } =
        KvOptions::new(self::path(raw, origin, problems)?);
    Some(KvOptions {
        path,
        cache_bytes: self::cache_bytes(raw, cache_bytes, problems),
        threads: self::threads(raw, threads, problems),
        queued_calls_max: self::queued_calls_max(raw, queued_calls_max, problems),
    })
}

fn sqlite(raw: &RawStore, origin: &Origin, problems: &mut Problems<'_>) -> Option<SqliteOptions> {
    let query = given(&raw.query);
    if let Some(Given { origin, .. }) = query.as_ref().filter(|query| query.value.trim().is_empty()) {
        let message = "[[backend]] store.query is empty; it must be a statement with the parameter ?1: leave it out to \
                       use the store's own tables";
        problems.add(origin, message);
    }
    let SqliteOptions { path, query: _, cache_bytes, threads, queued_calls_max } =
        SqliteOptions::new(self::path(raw, origin, problems)?);
    Some(SqliteOptions {
        path,
        query: query.map(|query| query.value),
        cache_bytes: self::cache_bytes(raw, cache_bytes, problems),
        threads: self::threads(raw, threads, problems),
        queued_calls_max: self::queued_calls_max(raw, queued_calls_max, problems),
    })
}

fn compute(raw: &RawStore, problems: &mut Problems<'_>) -> ComputeOptions {
    let ComputeOptions { n, bytes, threads, queued_calls_max } = ComputeOptions::default();
    ComputeOptions {
        n: in_range(problems, N, given(&raw.n), n.into(), counts(ComputeOptions::N)) as u16,
        bytes: value_bytes(raw, bytes, problems),
        threads: self::threads(raw, threads, problems),
        queued_calls_max: self::queued_calls_max(raw, queued_calls_max, problems),
    }
}

fn synthetic(raw: &RawStore, problems: &mut Problems<'_>) -> SyntheticOptions {
    let SyntheticOptions { bytes, latency_us } = SyntheticOptions::default();
    let span = |us| Span(Duration::from_micros(us));
    let accepted = span(*SyntheticOptions::LATENCY_US.start())..=span(*SyntheticOptions::LATENCY_US.end());
    let latency = in_range(problems, LATENCY, given(&raw.latency), span(latency_us), accepted);
    SyntheticOptions { bytes: value_bytes(raw, bytes, problems), latency_us: latency.0.as_micros() as u64 }
}

fn value_bytes(raw: &RawStore, default: u32, problems: &mut Problems<'_>) -> u32 {
    let accepted = sizes(ComputeOptions::BYTES);
    in_range(problems, BYTES, given(&raw.bytes), ByteSize(default.into()), accepted).0 as u32
}

fn path(raw: &RawStore, origin: &Origin, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let path = given(&raw.path).filter(|path| !path.value.is_empty());
    if path.is_none() {
        let message =
            "[[backend]] store has no path; it must name where its data is kept: set path = \"data/catalog\"";
        problems.add(origin, message);
    }
    path.map(|path| PathBuf::from(path.value))
}

fn cache_bytes(raw: &RawStore, default: u64, problems: &mut Problems<'_>) -> u64 {
    let accepted = sizes(StoreOptions::CACHE_BYTES);
    in_range(problems, CACHE, given(&raw.cache_bytes), ByteSize(default), accepted).0
}

fn threads(raw: &RawStore, default: u16, problems: &mut Problems<'_>) -> u16 {
    in_range(problems, THREADS, given(&raw.threads), default.into(), counts(StoreOptions::THREADS)) as u16
}

fn queued_calls_max(raw: &RawStore, default: u32, problems: &mut Problems<'_>) -> u32 {
    let accepted = counts(StoreOptions::QUEUED_CALLS_MAX);
    in_range(problems, QUEUED, given(&raw.queued_calls_max), default.into(), accepted) as u32
}

/// Widens a store's accepted range to the type of numbers in a file.
pub(super) fn counts<T: Copy + Into<u64>>(accepted: RangeInclusive<T>) -> RangeInclusive<u64> {
    (*accepted.start()).into()..=(*accepted.end()).into()
}

/// Widens a store's accepted range of sizes as [`counts`] does.
pub(super) fn sizes<T: Copy + Into<u64>>(accepted: RangeInclusive<T>) -> RangeInclusive<ByteSize> {
    ByteSize((*accepted.start()).into())..=ByteSize((*accepted.end()).into())
}

/// Joins the kinds of stores for a message: `a`, `a and b`, `a, b and c`.
fn listed(kinds: &[&str]) -> String {
    match kinds {
        [kinds @ .., last] if !kinds.is_empty() => format!("{} and {last}", kinds.join(", ")),
        kinds => kinds.join(""),
    }
}

/// Returns the configuration keys that only some kinds of stores accept. Each comes with its
/// position in the file, if it is set, and with the kinds that accept it.
fn keys_of_kinds(raw: &RawStore) -> Vec<(&'static str, Option<Origin>, &'static [&'static str])> {
    let RawStore { kind: _, path, query, cache_bytes, n, bytes: size, latency, threads, .. } = raw;
    let RawStore { queued_calls_max, .. } = raw;
    let RawStore { address, user, password_file, password_env, write, delete, tls, connections_max, .. } =
        raw;
    let RawStore { connect_timeout, answer_timeout, value_max, url, headers, key_prefix, .. } = raw;
    let RawStore { db, ttl, write_ttl, database, value, ttl_column, tags_column, .. } = raw;
    let RawStore { table, region, endpoint, key_attribute, value_attribute, .. } = raw;
    let RawStore { consistent, credentials, root, keyspace, .. } = raw;
    let (disk, joins, computes) =
        (&["kv", "sqlite"][..], &["sqlite", "mysql", "postgres"][..], &["compute"][..]);
    let (made, redis, http) = (&["compute", "synthetic"][..], &["redis"][..], &["http"][..]);
    let caches = &["memcached", "redis"][..];
    let servers = &["memcached", "redis", "mysql", "postgres", "zookeeper", "cassandra"][..];
    let (dynamodb, valued) = (&["dynamodb"][..], &["mysql", "postgres", "dynamodb"][..]);
    let (databases, written) = (&["mysql", "postgres"][..], &["http", "mysql", "postgres"][..]);
    vec![
        ("path", path.as_ref().map(bytes), disk),
        ("query", query.as_ref().map(bytes), joins),
        ("cache_bytes", cache_bytes.as_ref().map(bytes), disk),
        ("n", n.as_ref().map(bytes), computes),
        ("bytes", size.as_ref().map(bytes), made),
        ("latency", latency.as_ref().map(bytes), &["synthetic"][..]),
        ("queued_calls_max", queued_calls_max.as_ref().map(bytes), QUEUES),
        ("threads", threads.as_ref().map(bytes), THREADED),
        ("address", address.as_ref().map(bytes), servers),
        ("user", user.as_ref().map(bytes), servers),
        ("password_file", password_file.as_ref().map(bytes), servers),
        ("password_env", password_env.as_ref().map(bytes), servers),
        ("write", write.as_ref().map(bytes), written),
        ("delete", delete.as_ref().map(bytes), written),
        ("tls", tls.as_ref().map(bytes), REMOTE),
        ("connections_max", connections_max.as_ref().map(bytes), POOLED),
        ("connect_timeout", connect_timeout.as_ref().map(bytes), REMOTE),
        ("answer_timeout", answer_timeout.as_ref().map(bytes), REMOTE),
        ("value_max", value_max.as_ref().map(bytes), REMOTE),
        ("url", url.as_ref().map(bytes), http),
        ("headers", headers.as_ref().map(bytes), http),
        ("key_prefix", key_prefix.as_ref().map(bytes), caches),
        ("db", db.as_ref().map(bytes), redis),
        ("ttl", ttl.as_ref().map(bytes), redis),
        ("write_ttl", write_ttl.as_ref().map(bytes), caches),
        ("database", database.as_ref().map(bytes), databases),
        ("value", value.as_ref().map(bytes), valued),
        ("ttl_column", ttl_column.as_ref().map(bytes), databases),
        ("tags_column", tags_column.as_ref().map(bytes), databases),
        ("table", table.as_ref().map(bytes), &["dynamodb", "cassandra"][..]),
        ("region", region.as_ref().map(bytes), dynamodb),
        ("endpoint", endpoint.as_ref().map(bytes), dynamodb),
        ("key_attribute", key_attribute.as_ref().map(bytes), dynamodb),
        ("value_attribute", value_attribute.as_ref().map(bytes), dynamodb),
        ("consistent", consistent.as_ref().map(bytes), dynamodb),
        ("credentials", credentials.as_ref().map(bytes), dynamodb),
        ("keyspace", keyspace.as_ref().map(bytes), &["cassandra"][..]),
        ("root", root.as_ref().map(bytes), &["zookeeper"][..]),
    ]
}

/// Refuses configuration keys that this kind of store does not accept, since they would have no
/// effect.
fn refuse_foreign_keys(raw: &RawStore, kind: &str, problems: &mut Problems<'_>) {
    for (key, origin, kinds) in keys_of_kinds(raw) {
        let known = KINDS.contains(&kind);
        if let Some(origin) = origin.filter(|_| known && !kinds.contains(&kind)) {
            let has = listed(kinds);
            problems.add(
                &origin,
                format!("[[backend]] store.{key} is a key of {has} stores, not of {kind}: remove it"),
            );
        }
    }
}
