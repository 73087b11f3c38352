//! The connector to Redis and Valkey, with version 2 of their protocol, which all versions support.
//!
//! A read is an `MGET`, so that a call is one request. If times to live are wanted, a `PTTL` of
//! each key is sent before it: a value may then be newer than its time to live, but not older.
//! Clusters are not supported: the redirection of a cluster is an error with a remedy.

mod commands;
mod exchange;
mod scan;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use sherwood_wire::resp::client;

use commands::RedisCommands;
use exchange::{Outcome, Request};
use scan::Scan;

use super::changes::{Commands, Connection, Stored};
use super::host::HostPort;
use super::options::{self, RemoteOptions};
use super::pipeline::{Access, Operation, Pool};
use super::secret::{Password, Secret};
use super::socket::Endpoint;
use super::{CHECK_KEY, Each, all, named_each};
use crate::{
    Attempt, BoxFuture, Cause, ChangeConnection, CopyConnection, Duplicate, Found, KeyAnswers, KeyPages,
    OpenCause, Report, Store, StoreError, StoreKind,
};

/// Default port of Redis.
pub(super) const PORT: u16 = 6379;

/// Options of a Redis or Valkey server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisOptions {
    /// Host and port; the port is 6379 by default.
    pub address: String,
    /// Prefix of every key; empty by default.
    #[serde(default)]
    pub key_prefix: String,
    /// Number of the database, 0 to 65,535; 0 by default.
    #[serde(default)]
    pub db: u16,
    /// User who logs in; `default` if there is only a `password`.
    #[serde(default)]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// True if values are fresh for the server's time to live, which is read with every value;
    /// false by default.
    #[serde(default)]
    pub ttl_of_server: bool,
    /// Seconds after which written values expire, 1 to 2,592,000 (30 days); without it they do not
    /// expire.
    #[serde(default)]
    pub write_ttl_s: Option<u32>,
    /// Options of the connections to the server.
    #[serde(default)]
    pub remote: RemoteOptions,
}

impl RedisOptions {
    /// Defaults for the server at `address`.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            key_prefix: String::new(),
            db: 0,
            user: None,
            password: None,
            ttl_of_server: false,
            write_ttl_s: None,
            remote: RemoteOptions::default(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        self.remote.validate()?;
        options::check_write_ttl(self.write_ttl_s)?;
        HostPort::parse("address", &self.address, PORT)?;
        if self.user.is_some() && self.password.is_none() { Err(options::half_a_login()) } else { Ok(()) }
    }
}

/// A store whose values are on a Redis or Valkey server.
pub(crate) struct Redis {
    name: Arc<str>,
    pool: Pool<Request>,
    commands: RedisCommands,
    ttl_of_server: bool,
    value_bytes_max: u64,
    db: u16,
    details: Vec<String>,
}

impl Redis {
    pub(crate) fn open(name: &str, options: &RedisOptions) -> Result<Self, OpenCause> {
        options.validate()?;
        let RedisOptions { address, key_prefix, db, user, password, ttl_of_server, write_ttl_s, remote } =
            options;
        let endpoint = Endpoint::new(HostPort::parse("address", address, PORT)?, remote)?;
        let password = password.as_ref().map(Password::open).transpose()?;
        let mut details = self::options::details(&endpoint, remote);
        details.extend(user.as_ref().map(|user| format!("logged in as {user}")));
        let (user, selected) = (user.clone(), *db);
        let greeting = move |password: Option<&str>| {
            let login = password.map(|password| login(user.as_deref(), password));
            let select = (selected != 0).then(|| request(&[b"SELECT", selected.to_string().as_bytes()]));
            let requests = login.into_iter().chain(select);
            requests.map(|request| Operation::new(Access::Write, request, 1, Request::ok())).collect()
        };
        Ok(Self {
            name: name.into(),
            pool: Pool::new(endpoint, remote, password, Box::new(greeting)),
            commands: RedisCommands {
                key_prefix: Bytes::copy_from_slice(key_prefix.as_bytes()),
                write_ttl: write_ttl_s.map(|seconds| Duration::from_secs(seconds.into())),
                value_bytes_max: remote.value_bytes_max,
            },
            ttl_of_server: *ttl_of_server,
            value_bytes_max: remote.value_bytes_max,
            db: *db,
            details,
        })
    }

    async fn send(&self, access: Access, request: Bytes, exchange: Request) -> Result<Outcome, Cause> {
        self.pool.call(Operation::new(access, request, 1, exchange)).await
    }

    async fn read(&self, keys: Vec<Bytes>) -> Result<Vec<Each>, Cause> {
        // The server is checked by a read as for keys: a user may be able to log in but not to
        // read.
        if keys.is_empty() {
            let prepared = self.read_some(vec![CHECK_KEY.into()]).await.and_then(all);
            return match prepared {
                // The check key is not among the user's keys, but others may be.
                Err(Cause::Forbidden { .. }) => Ok(Vec::new()),
                prepared => prepared.map(|_| Vec::new()),
            };
        }
        self.read_some(keys).await
    }

    /// Reads one or more keys by an `MGET`.
    async fn read_some(&self, keys: Vec<Bytes>) -> Result<Vec<Each>, Cause> {
        let keys: Vec<Bytes> = keys.into_iter().map(|key| self.commands.prefixed(&key)).collect();
        let mut out = self.ttl_requests(&keys);
        client::mget(&mut out, keys.iter().map(|key| &key[..]));
        let exchange = Request::values(keys.len(), self.ttl_of_server, self.value_bytes_max);
        match self.pool.call(Operation::new(Access::Read, out.into(), keys.len(), exchange)).await {
            // An `MGET` is refused as a whole if any key is forbidden, without naming it.
            Err(Cause::Forbidden { .. }) if keys.len() > 1 => self.read_alone(&keys).await,
            outcome => outcome.map(|outcome| outcome.values),
        }
    }

    /// Reads keys of which the server forbids some: one `MGET` each, sent together, so that each
    /// has its own result.
    async fn read_alone(&self, keys: &[Bytes]) -> Result<Vec<Each>, Cause> {
        let mut out = self.ttl_requests(keys);
        keys.iter().for_each(|key| client::mget(&mut out, std::iter::once(&key[..])));
        let exchange = Request::values_alone(keys.len(), self.ttl_of_server, self.value_bytes_max);
        Ok(self.pool.call(Operation::new(Access::Read, out.into(), keys.len(), exchange)).await?.values)
    }

    /// The `PTTL` requests for the times to live of `keys`, which are sent before a read; empty if
    /// the store does not use them.
    fn ttl_requests(&self, keys: &[Bytes]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.ttl_of_server {
            keys.iter().for_each(|key| client::request(&mut out, &[b"PTTL", key]));
        }
        out
    }

    async fn write(&self, key: &[u8], value: &[u8]) -> Result<(), Cause> {
        let stored = Stored { value, flags: 0, ttl: self.commands.write_ttl() };
        self.pool.call(self.commands.set(key, stored)?).await.map(drop)
    }

    async fn report(&self) -> Result<Report, Cause> {
        let mut details = self.details.clone();
        let info = request(&[b"INFO", b"server"]);
        let server = match self.send(Access::Read, info, Request::text(self.value_bytes_max)).await {
            Ok(outcome) => product(&outcome.text),
            // A user with read permissions only may not execute it.
            Err(Cause::Credentials { .. } | Cause::Forbidden { .. } | Cause::Statement { .. }) => {
                "Redis or Valkey, which does not tell this user its version".to_owned()
            }
            Err(cause) => return Err(cause),
        };
        self.read(Vec::new()).await?;
        if let Ok(outcome) = self.send(Access::Read, request(&[b"DBSIZE"]), Request::number()).await {
            details.push(format!("database {}: {} keys", self.db, outcome.number));
        }
        Ok(Report { server, details })
    }

    fn named<T>(&self, attempt: Attempt, result: Result<T, Cause>) -> Result<T, StoreError> {
        result.map_err(|cause| StoreError::new(Arc::clone(&self.name), StoreKind::Redis, attempt, cause))
    }
}

impl Store for Redis {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Redis
    }

    /// False if times to live are both written and read: a read may return another one than the
    /// write set.
    fn answers_as_written(&self) -> bool {
        !(self.ttl_of_server && self.commands.write_ttl.is_some())
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move { self.named(attempt, self.read(keys).await.and_then(all)) })
    }

    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move {
            Ok(named_each(&self.name, StoreKind::Redis, self.named(attempt, self.read(keys).await)?))
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.named(Attempt::Put, self.write(&key, &value).await) })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let removed = self.pool.call(self.commands.removal(&key)).await;
            self.named(Attempt::Delete, removed.map(drop))
        })
    }

    fn as_duplicate(&self) -> Option<&dyn Duplicate> {
        Some(self)
    }

    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        Box::pin(async move { self.named(Attempt::Check, self.report().await) })
    }
}

impl Duplicate for Redis {
    fn connect(&self, partition: u32) -> BoxFuture<'_, Result<Box<dyn ChangeConnection>, StoreError>> {
        Box::pin(async move {
            let connection = Connection::open(&self.name, &self.commands, &self.pool).await?;
            Ok(Box::new(connection.for_partition(partition)) as Box<dyn ChangeConnection>)
        })
    }

    fn connect_for_copy(&self) -> BoxFuture<'_, Result<Box<dyn CopyConnection>, StoreError>> {
        Box::pin(async move {
            let connection = Connection::open(&self.name, &self.commands, &self.pool).await?;
            Ok(Box::new(connection) as Box<dyn CopyConnection>)
        })
    }

    fn walk(&self) -> BoxFuture<'_, Result<Box<dyn KeyPages>, StoreError>> {
        Box::pin(async move {
            let session = self.named(Attempt::Connect, self.pool.session().await)?;
            let scan = Scan::new(Arc::clone(&self.name), session, self.commands.key_prefix.clone());
            Ok(Box::new(scan) as Box<dyn KeyPages>)
        })
    }
}

fn request(args: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(args.iter().map(|arg| arg.len() + 16).sum());
    client::request(&mut out, args);
    out.into()
}

fn login(user: Option<&str>, password: &str) -> Bytes {
    match user {
        None => request(&[b"AUTH", password.as_bytes()]),
        Some(user) => request(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
    }
}

/// Returns product and version from the server section of `INFO`.
fn product(info: &str) -> String {
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().chars().take(64).collect::<String>())
    };
    match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "a server that speaks Redis's protocol and does not say which it is".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_and_version_are_read_from_info() {
        let valkey = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n";
        assert_eq!(product(valkey), "Valkey 9.0.1");
        assert_eq!(product("# Server\r\nredis_version:7.0.15\r\n"), "Redis 7.0.15");
        assert!(product("").contains("does not say"));
    }

    #[test]
    fn redis_options_with_a_user_but_no_password_are_refused() {
        let options = RedisOptions { user: Some("a".into()), ..RedisOptions::new("h") };
        assert!(options.validate().unwrap_err().to_string().contains("password_file"));
    }
}
