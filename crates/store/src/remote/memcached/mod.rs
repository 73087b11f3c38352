//! The connector to memcached, with its text protocol.
//!
//! A read is a `get` of many keys, so that a call is one request; each value comes with its flags.
//! A key that memcached cannot hold, of more than 250 bytes or with a blank in it, is absent when
//! read and refused when written.

mod commands;
mod dump;
mod exchange;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use sherwood_wire::memcached::client::{self, Answer, Item, Key};
use sherwood_wire::memcached::{Exptime, StorageVerb};

use commands::MemcachedCommands;
use dump::Dump;
use exchange::{Outcome, Request};

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

/// Default port of memcached.
pub(super) const PORT: u16 = 11211;

/// Options of a memcached server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemcachedOptions {
    /// Host and port; the port is 11211 by default.
    pub address: String,
    /// Prefix of every key; empty by default.
    #[serde(default)]
    pub key_prefix: String,
    /// User for the ASCII authentication of memcached 1.5.15 and later (`-Y`); with `password`.
    #[serde(default)]
    pub user: Option<String>,
    /// The password of `user`.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Seconds after which written values expire, 1 to 2,592,000 (30 days); without it they stay
    /// until they are evicted.
    #[serde(default)]
    pub write_ttl_s: Option<u32>,
    /// Options of the connections to the server.
    #[serde(default)]
    pub remote: RemoteOptions,
}

impl MemcachedOptions {
    /// Defaults for the server at `address`.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            key_prefix: String::new(),
            user: None,
            password: None,
            write_ttl_s: None,
            remote: RemoteOptions::default(),
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OpenCause> {
        let Self { address, key_prefix, user, password, write_ttl_s, remote } = self;
        remote.validate()?;
        options::check_write_ttl(*write_ttl_s)?;
        HostPort::parse("address", address, PORT)?;
        if user.is_some() != password.is_some() {
            return Err(options::half_a_login());
        }
        if user.as_ref().is_some_and(|user| user.contains(' ') || user.is_empty()) {
            let detail = "it is empty or has a blank in it, where memcached ends the name".to_owned();
            return Err(OpenCause::Remote { option: "user", detail, remedy: "choose another name" });
        }
        if key_prefix.is_empty() {
            return Ok(());
        }
        Key::new(key_prefix.as_bytes()).map(drop).map_err(|error| OpenCause::Remote {
            option: "key_prefix",
            detail: error.to_string(),
            remedy: "choose a short one without blanks",
        })
    }
}

/// A store whose values are on a memcached server.
pub(crate) struct Memcached {
    name: Arc<str>,
    pool: Pool<Request>,
    commands: MemcachedCommands,
    value_bytes_max: u32,
    answer_timeout: Duration,
    details: Vec<String>,
}

impl Memcached {
    pub(crate) fn open(name: &str, options: &MemcachedOptions) -> Result<Self, OpenCause> {
        options.validate()?;
        let MemcachedOptions { address, key_prefix, user, password, write_ttl_s, remote } = options;
        let endpoint = Endpoint::new(HostPort::parse("address", address, PORT)?, remote)?;
        let password = password.as_ref().map(Password::open).transpose()?;
        let mut details = self::options::details(&endpoint, remote);
        details.extend(user.as_ref().map(|user| format!("logged in as {user}")));
        let user = user.clone().unwrap_or_default();
        let greeting = move |password: Option<&str>| {
            let login = password
                .map(|password| Operation::new(Access::Write, login(&user, password), 1, Request::Login));
            login.into_iter().collect()
        };
        // The validated range ends below 4 GiB.
        let value_bytes_max = u32::try_from(remote.value_bytes_max).unwrap_or(u32::MAX);
        Ok(Self {
            name: name.into(),
            pool: Pool::new(endpoint, remote, password, Box::new(greeting)),
            commands: MemcachedCommands {
                key_prefix: Bytes::copy_from_slice(key_prefix.as_bytes()),
                write_ttl: write_ttl_s.map(|seconds| Duration::from_secs(seconds.into())),
                value_bytes_max,
            },
            value_bytes_max,
            answer_timeout: remote.answer_timeout(),
            details,
        })
    }

    /// Sends a request about at most one key.
    async fn send(
        &self,
        attempt: Attempt,
        access: Access,
        request: Vec<u8>,
        exchange: Request,
    ) -> Result<Outcome, StoreError> {
        self.call(attempt, Operation::new(access, request.into(), 1, exchange)).await
    }

    async fn call(&self, attempt: Attempt, operation: Operation<Request>) -> Result<Outcome, StoreError> {
        self.pool.call(operation).await.map_err(|cause| self.error(attempt, cause))
    }

    fn error(&self, attempt: Attempt, cause: Cause) -> StoreError {
        StoreError::new(Arc::clone(&self.name), StoreKind::Memcached, attempt, cause)
    }

    /// The key that is read to check the server; only the prefix if that leaves no room for a key.
    fn check_key(&self) -> Bytes {
        let key = self.commands.prefixed(CHECK_KEY.as_bytes());
        if Key::new(&key).is_ok() { key } else { self.commands.key_prefix.clone() }
    }

    async fn read(&self, keys: Vec<Bytes>) -> Result<Vec<Each>, StoreError> {
        let attempt = Attempt::Get { keys: keys.len() };
        let asked = keys.len();
        let mut places = Vec::with_capacity(keys.len());
        let mut sent = Vec::with_capacity(keys.len());
        for (at, key) in keys.into_iter().enumerate() {
            let key = self.commands.prefixed(&key);
            if Key::new(&key).is_ok() {
                places.push(at);
                sent.push(key);
            }
        }
        if sent.is_empty() {
            // There are no keys to read, but the server is checked by a read as for keys.
            sent.push(self.check_key());
        }
        let mut request = Vec::new();
        for keys in sent.chunks(exchange::KEYS_PER_LINE_MAX) {
            client::get(&mut request, keys.iter().filter_map(|key| Key::new(key).ok()));
        }
        let (keys, exchange) = (sent.len(), Request::values(sent, self.value_bytes_max));
        let outcome =
            self.call(attempt, Operation::new(Access::Read, request.into(), keys, exchange)).await?;
        let mut answer = vec![Ok(None); asked];
        for (place, found) in places.into_iter().zip(outcome.values) {
            answer[place] = found;
        }
        Ok(answer)
    }

    async fn version(&self, attempt: Attempt) -> Result<String, StoreError> {
        let mut request = Vec::new();
        client::version(&mut request);
        Ok(self.send(attempt, Access::Read, request, Request::Version).await?.text)
    }

    async fn write(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let stored = Stored { value, flags: 0, ttl: self.commands.write_ttl() };
        let operation = self.commands.set(key, stored).map_err(|cause| self.error(Attempt::Put, cause))?;
        self.call(Attempt::Put, operation).await.map(drop)
    }

    async fn remove(&self, key: &[u8]) -> Result<(), StoreError> {
        match self.commands.delete(key) {
            Some(operation) => self.call(Attempt::Delete, operation).await.map(drop),
            // Such a key cannot exist.
            None => Ok(()),
        }
    }
}

impl Store for Memcached {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Memcached
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        let attempt = Attempt::Get { keys: keys.len() };
        Box::pin(async move { all(self.read(keys).await?).map_err(|cause| self.error(attempt, cause)) })
    }

    fn get_each(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<KeyAnswers, StoreError>> {
        Box::pin(async move { Ok(named_each(&self.name, StoreKind::Memcached, self.read(keys).await?)) })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.write(&key, &value).await })
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.remove(&key).await })
    }

    fn as_duplicate(&self) -> Option<&dyn Duplicate> {
        Some(self)
    }

    fn check(&self) -> BoxFuture<'_, Result<Report, StoreError>> {
        Box::pin(async move {
            let version = self.version(Attempt::Check).await?;
            let read = self.read(Vec::new()).await;
            read.map_err(|error| self.error(Attempt::Check, error.cause().clone()))?;
            Ok(Report { server: format!("memcached {version}"), details: self.details.clone() })
        })
    }
}

impl Duplicate for Memcached {
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
            let dump = Dump::begin(self).await.map_err(|cause| self.error(Attempt::Walk, cause))?;
            Ok(Box::new(dump) as Box<dyn KeyPages>)
        })
    }
}

/// The request that logs in: a `set` whose value is user and password.
fn login(user: &str, password: &str) -> Bytes {
    let mut request = Vec::new();
    let value = format!("{user} {password}");
    let key = Key::new(b"sherwood-login").expect("it is short and has no blanks");
    let item = Item { value: value.as_bytes(), flags: 0, exptime: Exptime(0) };
    client::store(&mut request, StorageVerb::Set, key, item, Answer::Expected);
    request.into()
}
