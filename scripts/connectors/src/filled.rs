//! Servers filled with values.

use std::sync::Arc;

use async_memcached::AsciiProtocol;
use bytes::Bytes;
use mysql_async::prelude::Queryable;
use sherwood_store::{HttpOptions, MemcachedOptions, RedisOptions, Store, StoreOptions};

use crate::databases::Database;
use crate::direct;
use crate::servers::Server;
use crate::service;
use crate::side::{Worker, key_of};

/// Values that each backend has.
pub(crate) const VALUES: usize = 10_000;
/// Bytes of each of them.
pub(crate) const VALUE_BYTES: usize = 1 << 10;
/// The backends.
pub(crate) const NAMES: [&str; 5] = ["mysql", "postgres", "redis", "memcached", "http"];

const TABLE: &str = "CREATE TABLE item (k VARCHAR(32) PRIMARY KEY, v TEXT NOT NULL)";

/// The statement of the connectors to databases.
const QUERY: &str = "SELECT k, v FROM item WHERE k IN (:keys)";

/// Every value; text, since it goes into every kind of column.
pub(crate) fn value() -> Bytes {
    static VALUE: [u8; VALUE_BYTES] = [b'v'; VALUE_BYTES];
    Bytes::from_static(&VALUE)
}

/// A server that has the values, until it is dropped.
pub(crate) enum Filled {
    MySql(Database),
    Postgres(Database),
    Redis(Server),
    Memcached(Server),
    Http(String),
}

impl Filled {
    /// Starts a server by its name and fills it.
    pub(crate) async fn start(name: &str) -> Self {
        match name {
            "mysql" => {
                let server = Database::mariadb(|_| Vec::new());
                fill_mysql(&server).await;
                Self::MySql(server)
            }
            "postgres" => {
                let server = Database::postgres(|_| Vec::new());
                fill_postgres(&server).await;
                Self::Postgres(server)
            }
            "redis" => {
                let server = Server::redis(&[]);
                let mut connection = direct::redis(&server.address()).await;
                for number in 0..VALUES {
                    let mut set = redis::cmd("SET");
                    let set = set.arg(&key_of(number)[..]).arg(&value()[..]);
                    set.exec_async(&mut connection).await.expect("it is written");
                }
                Self::Redis(server)
            }
            "memcached" => {
                let server = Server::memcached(|_| ["-m".to_owned(), "64".to_owned()].into());
                let mut client = direct::memcached(&server.address()).await;
                for number in 0..VALUES {
                    client.set(&key_of(number), &value()[..], None, None).await.expect("it is written");
                }
                Self::Memcached(server)
            }
            _ => Self::Http(service::start()),
        }
    }

    /// Name of the backend.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::MySql(_) => "mysql",
            Self::Postgres(_) => "postgres",
            Self::Redis(_) => "redis",
            Self::Memcached(_) => "memcached",
            Self::Http(_) => "http",
        }
    }

    /// Name of the client library compared with the connector.
    pub(crate) fn client(&self) -> &'static str {
        match self {
            Self::MySql(_) => "mysql_async",
            Self::Postgres(_) => "tokio-postgres",
            Self::Redis(_) => "redis",
            Self::Memcached(_) => "async-memcached",
            Self::Http(_) => "hyper-util",
        }
    }

    /// Creates workers that share a connector.
    pub(crate) fn connector(&self, workers: usize) -> Vec<Box<dyn Worker>> {
        let options = match self {
            Self::MySql(server) => StoreOptions::MySql(server.options(QUERY)),
            Self::Postgres(server) => StoreOptions::Postgres(server.options(QUERY)),
            Self::Redis(server) => StoreOptions::Redis(RedisOptions::new(server.address())),
            Self::Memcached(server) => StoreOptions::Memcached(MemcachedOptions::new(server.address())),
            Self::Http(address) => {
                StoreOptions::Http(HttpOptions::new(format!("http://{address}/items/{{key}}")))
            }
        };
        let store = sherwood_store::open(self.name(), &options).expect("valid options");
        (0..workers).map(|_| Box::new(Connector(Arc::clone(&store))) as Box<dyn Worker>).collect()
    }

    /// Creates workers that use the client library.
    pub(crate) async fn direct(&self, workers: usize) -> Vec<Box<dyn Worker>> {
        match self {
            Self::MySql(server) => direct::mysql_workers(server, workers),
            Self::Postgres(server) => direct::postgres_workers(server, workers).await,
            Self::Redis(server) => direct::redis_workers(&server.address(), workers).await,
            Self::Memcached(server) => direct::memcached_workers(&server.address(), workers).await,
            Self::Http(address) => direct::http_workers(address, workers),
        }
    }
}

struct Connector(Arc<dyn Store>);

impl Worker for Connector {
    fn get<'a>(
        &'a mut self,
        keys: &'a [Bytes],
    ) -> std::pin::Pin<Box<dyn Future<Output = usize> + Send + 'a>> {
        Box::pin(async {
            let found = self.0.get_many(keys.to_vec()).await.expect("an answer");
            found.iter().flatten().map(|found| found.value.len()).sum()
        })
    }
}

async fn fill_mysql(server: &Database) {
    let mut connection = direct::mysql(server).get_conn().await.expect("it logs in");
    connection.query_drop(TABLE).await.expect("a table");
    let rows = (0..VALUES).map(|number| (key_of(number).to_vec(), value().to_vec()));
    connection.query_drop("BEGIN").await.expect("a transaction");
    connection.exec_batch("INSERT INTO item VALUES (?, ?)", rows).await.expect("rows");
    connection.query_drop("COMMIT").await.expect("a transaction");
}

async fn fill_postgres(server: &Database) {
    let client = direct::postgres(server).await;
    let rows = format!(
        "INSERT INTO item SELECT 'item-' || lpad(n::text, 5, '0'), repeat('v', {VALUE_BYTES}) FROM generate_series(0, {}) n",
        VALUES - 1
    );
    client.batch_execute(&format!("{TABLE}; {rows}; ANALYZE item")).await.expect("a table with rows");
}
