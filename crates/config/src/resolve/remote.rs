//! Stores that are servers: `store = { kind = "memcached" }` and similar.

use std::path::PathBuf;
use std::time::Duration;

use crate::spanned::Spanned;
use sherwood_store::{
    CassandraOptions, HeaderValue, HttpOptions, MemcachedOptions, RedisOptions, RemoteOptions, Secret,
    SqlOptions, SqlValue, StoreOptions, TlsOptions, ZookeeperOptions,
};

use super::backends::refuse_reserved;
use super::stores::{counts, sizes};
use crate::problem::{Origin, Problems};
use crate::raw::{Key, RawHeader, RawHeaderFile, RawStore, RawTls};
use crate::scope::{Given, Setting, given, in_range, one_of};
use crate::units::{ByteSize, Span};

const CONNECTIONS: Setting = Setting::new("[[backend]]", "store.connections_max", "4");
const QUEUED: Setting = Setting::new("[[backend]]", "store.queued_calls_max", "1024");
const VALUE: Setting = Setting::new("[[backend]]", "store.value_max", "\"16MiB\"");
const CONNECT: Setting = Setting::new("[[backend]]", "store.connect_timeout", "\"1s\"");
const ANSWER: Setting = Setting::new("[[backend]]", "store.answer_timeout", "\"1500ms\"");
const WRITE_TTL: Setting = Setting::new("[[backend]]", "store.write_ttl", "\"1h\"");
const DB: Setting = Setting::new("[[backend]]", "store.db", "0");
const SQL_VALUE: Setting = Setting::new("[[backend]]", "store.value", "\"column\"");
const TTL: Setting = Setting::new("[[backend]]", "store.ttl", "\"server\"");

/// Meaning of the key `address` of a store.
const ADDRESS: &str = "where its server is";

/// Maximum time-to-live of written values: memcached takes longer ones for a date.
const WRITE_TTL_MAX: Duration = Duration::from_secs(30 * 86_400);

pub(super) fn memcached(
    raw: &RawStore,
    origin: &Origin,
    problems: &mut Problems<'_>,
) -> Option<MemcachedOptions> {
    let address = address(raw, origin, "127.0.0.1:11211", problems)?;
    let MemcachedOptions { remote, .. } = MemcachedOptions::new("");
    Some(MemcachedOptions {
        address,
        key_prefix: key_prefix(raw, problems),
        user: text(&raw.user),
        password: password(raw, problems),
        write_ttl_s: write_ttl_s(raw, problems),
        remote: self::remote(raw, remote, problems),
    })
}

pub(super) fn redis(raw: &RawStore, origin: &Origin, problems: &mut Problems<'_>) -> Option<RedisOptions> {
    let address = address(raw, origin, "127.0.0.1:6379", problems)?;
    let RedisOptions { db, remote, .. } = RedisOptions::new("");
    // `"server"` is the only value; without the key the server's TTL is not read.
    let ttl_of_server = raw.ttl.is_some() && one_of(problems, TTL, given(&raw.ttl), &[("server", true)]);
    Some(RedisOptions {
        address,
        key_prefix: key_prefix(raw, problems),
        db: in_range(problems, DB, given(&raw.db), db.into(), 0..=u64::from(u16::MAX)) as u16,
        user: text(&raw.user),
        password: password(raw, problems),
        ttl_of_server,
        write_ttl_s: write_ttl_s(raw, problems),
        remote: self::remote(raw, remote, problems),
    })
}

pub(super) fn zookeeper(
    raw: &RawStore,
    origin: &Origin,
    problems: &mut Problems<'_>,
) -> Option<ZookeeperOptions> {
    let default = ZookeeperOptions::new(address(raw, origin, "127.0.0.1:2181", problems)?);
    Some(ZookeeperOptions {
        root: text(&raw.root).unwrap_or(default.root),
        user: text(&raw.user),
        password: password(raw, problems),
        remote: self::remote(raw, default.remote, problems),
        address: default.address,
    })
}

pub(super) fn cassandra(
    raw: &RawStore,
    origin: &Origin,
    problems: &mut Problems<'_>,
) -> Option<CassandraOptions> {
    let address = address(raw, origin, "127.0.0.1:9042", problems);
    let mut needed = |key, said| self::needed(text(key), said, origin, problems);
    let keyspace = needed(&raw.keyspace, ("keyspace", "where its table is", "shop"));
    let table = needed(&raw.table, ("table", "which table has its items", "profiles"));
    let default = CassandraOptions::new(address?, keyspace?, table?);
    Some(CassandraOptions {
        user: text(&raw.user),
        password: password(raw, problems),
        remote: self::remote(raw, default.remote.clone(), problems),
        ..default
    })
}

pub(super) fn http(raw: &RawStore, origin: &Origin, problems: &mut Problems<'_>) -> Option<HttpOptions> {
    let said = ("url", "what is read", "http://127.0.0.1:8000/items/{key}");
    let url = needed(text(&raw.url), said, origin, problems)?;
    let HttpOptions { remote, .. } = HttpOptions::new("");
    let headers = given(&raw.headers).map(|headers| headers.value).unwrap_or_default();
    let value = |header| match header {
        RawHeader::Text(text) => HeaderValue::Text(text),
        RawHeader::File(RawHeaderFile { file, prefix }) => HeaderValue::File { file, prefix },
    };
    Some(HttpOptions {
        url,
        write: text(&raw.write),
        delete: text(&raw.delete),
        headers: headers.into_iter().map(|(name, header)| (name, value(header))).collect(),
        remote: self::remote(raw, remote, problems),
    })
}

/// Options of MySQL, MariaDB and PostgreSQL, distinguished by `port`.
pub(super) fn sql(
    raw: &RawStore,
    origin: &Origin,
    port: &str,
    problems: &mut Problems<'_>,
) -> Option<SqlOptions> {
    let query = "SELECT id, body FROM item WHERE id IN (:keys)";
    let mut needed = |key, said| {
        let text = text(key).filter(|text| !text.trim().is_empty());
        self::needed(text, said, origin, problems)
    };
    let address = format!("127.0.0.1:{port}");
    let address = needed(&raw.address, ("address", ADDRESS, &address));
    let user = needed(&raw.user, ("user", "who logs in", "sherwood"));
    let database = needed(&raw.database, ("database", "where its tables are", "shop"));
    let query = needed(&raw.query, ("query", "what is read for a key", query));
    let default = SqlOptions::new(address?, user?, database?, query?);
    let values = [("column", SqlValue::Column), ("json", SqlValue::Json)];
    Some(SqlOptions {
        password: password(raw, problems),
        write: text(&raw.write),
        delete: text(&raw.delete),
        value: one_of(problems, SQL_VALUE, given(&raw.value), &values),
        ttl_column: text(&raw.ttl_column),
        tags_column: text(&raw.tags_column),
        remote: self::remote(raw, default.remote.clone(), problems),
        ..default
    })
}

/// Checks the parts of the options that can be validated without files and servers.
pub(super) fn check(options: &StoreOptions, origin: &Origin, problems: &mut Problems<'_>) {
    if let Err(cause) = options.validate() {
        problems.add(origin, format!("[[backend]] store: {cause}"));
    }
}

pub(super) fn remote(raw: &RawStore, default: RemoteOptions, problems: &mut Problems<'_>) -> RemoteOptions {
    let RemoteOptions {
        tls: _,
        connections_max,
        queued_calls_max,
        value_bytes_max,
        connect_timeout_ms,
        answer_timeout_ms,
    } = default;
    let connections = counts(RemoteOptions::CONNECTIONS_MAX);
    let queued = counts(StoreOptions::QUEUED_CALLS_MAX);
    let values = sizes(RemoteOptions::VALUE_BYTES_MAX);
    let value = ByteSize(value_bytes_max);
    let (connections_max, queued_calls_max) = (connections_max.into(), queued_calls_max.into());
    RemoteOptions {
        tls: given(&raw.tls).map(|tls| self::tls(&tls.value)),
        connections_max: in_range(
            problems,
            CONNECTIONS,
            given(&raw.connections_max),
            connections_max,
            connections,
        ) as u16,
        queued_calls_max: in_range(problems, QUEUED, given(&raw.queued_calls_max), queued_calls_max, queued)
            as u32,
        value_bytes_max: in_range(problems, VALUE, given(&raw.value_max), value, values).0,
        connect_timeout_ms: milliseconds(problems, CONNECT, given(&raw.connect_timeout), connect_timeout_ms),
        answer_timeout_ms: milliseconds(problems, ANSWER, given(&raw.answer_timeout), answer_timeout_ms),
    }
}

fn milliseconds(
    problems: &mut Problems<'_>,
    setting: Setting,
    given: Option<Given<Span>>,
    default: u64,
) -> u64 {
    let span = |ms| Span(Duration::from_millis(ms));
    let (min, max) = RemoteOptions::TIMEOUT_MS.into_inner();
    in_range(problems, setting, given, span(default), span(min)..=span(max)).0.as_millis() as u64
}

fn tls(raw: &RawTls) -> TlsOptions {
    let RawTls { ca, cert, key, server_name } = raw;
    let path = |key: &Key<String>| text(key).map(PathBuf::from);
    TlsOptions { ca: path(ca), cert: path(cert), key: path(key), server_name: text(server_name) }
}

fn address(raw: &RawStore, origin: &Origin, example: &str, problems: &mut Problems<'_>) -> Option<String> {
    needed(text(&raw.address), ("address", ADDRESS, example), origin, problems)
}

/// Returns the text of a key that the store cannot do without; its absence is a problem. The key
/// has a name, says something about the store, and could be set to an example.
pub(super) fn needed(
    text: Option<String>,
    (name, says, example): (&str, &str, &str),
    origin: &Origin,
    problems: &mut Problems<'_>,
) -> Option<String> {
    if text.is_none() {
        let message =
            format!("[[backend]] store has no {name}; it must say {says}: set {name} = \"{example}\"");
        problems.add(origin, message);
    }
    text
}

/// Returns the prefix of the keys of a store; empty without one.
fn key_prefix(raw: &RawStore, problems: &mut Problems<'_>) -> String {
    let Some(Given { value, origin }) = given(&raw.key_prefix) else { return String::new() };
    refuse_reserved("store.key_prefix", &value, &origin, problems);
    value
}

fn password(raw: &RawStore, problems: &mut Problems<'_>) -> Option<Secret> {
    match (given(&raw.password_file), given(&raw.password_env)) {
        (Some(_), Some(Given { origin, .. })) => {
            let message =
                "[[backend]] store has both password_file and password_env; it must have one: remove one";
            problems.add(&origin, message);
            None
        }
        (Some(file), None) => Some(Secret::File(file.value.into())),
        (None, env) => env.map(|env| Secret::Env(env.value)),
    }
}

fn write_ttl_s(raw: &RawStore, problems: &mut Problems<'_>) -> Option<u32> {
    let second = Span(Duration::from_secs(1));
    let ttl = given(&raw.write_ttl)?;
    let ttl = in_range(problems, WRITE_TTL, Some(ttl), second, second..=Span(WRITE_TTL_MAX)).0;
    // Rounds up: servers count whole seconds.
    Some(ttl.as_secs() as u32 + u32::from(ttl.subsec_nanos() > 0))
}

pub(super) fn text(key: &Key<String>) -> Option<String> {
    key.as_ref().map(Spanned::get_ref).cloned()
}
