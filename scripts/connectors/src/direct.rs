//! The client libraries, used as their documentation recommends.

use std::pin::Pin;
use std::sync::Arc;

use async_memcached::AsciiProtocol;
use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use mysql_async::prelude::Queryable;
use mysql_async::{OptsBuilder, PoolConstraints, PoolOpts};
use redis::aio::MultiplexedConnection;
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client as PostgresClient, NoTls, Statement};

use crate::databases::{Database, PASSWORD};
use crate::side::Worker;

/// Connections to a database, as many as the connector has by default.
const CONNECTIONS: usize = 8;

/// Requests at a time of an HTTP client, as many as the connector's by default.
const REQUESTS: usize = 16;

type Got<'a> = Pin<Box<dyn Future<Output = usize> + Send + 'a>>;

/// Creates a pool of connections to MariaDB. Returned connections are not reset, since nothing
/// changes their state; the connector does not reset them either.
pub(crate) fn mysql(server: &Database) -> mysql_async::Pool {
    let constraints = PoolConstraints::new(CONNECTIONS, CONNECTIONS).expect("a range");
    let pool = PoolOpts::default().with_constraints(constraints).with_reset_connection(false);
    let opts = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(server.port)
        .prefer_socket(false)
        .user(Some("shop"))
        .pass(Some(PASSWORD))
        .db_name(Some("shop"))
        .pool_opts(pool);
    mysql_async::Pool::new(opts)
}

pub(crate) fn mysql_workers(server: &Database, workers: usize) -> Vec<Box<dyn Worker>> {
    let pool = mysql(server);
    (0..workers).map(|_| Box::new(MySql(pool.clone())) as Box<dyn Worker>).collect()
}

struct MySql(mysql_async::Pool);

impl Worker for MySql {
    fn get<'a>(&'a mut self, keys: &'a [Bytes]) -> Got<'a> {
        Box::pin(async move {
            let places = vec!["?"; keys.len()].join(",");
            let statement = format!("SELECT k, v FROM item WHERE k IN ({places})");
            let keys: Vec<_> = keys.iter().map(|key| mysql_async::Value::Bytes(key.to_vec())).collect();
            let mut connection = self.0.get_conn().await.expect("a connection");
            let rows: Vec<(Vec<u8>, Vec<u8>)> = connection.exec(statement, keys).await.expect("rows");
            rows.iter().map(|(_, value)| value.len()).sum()
        })
    }
}

pub(crate) async fn postgres(server: &Database) -> PostgresClient {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(server.port).user("shop").password(PASSWORD).dbname("shop");
    let (client, connection) = config.connect(NoTls).await.expect("it logs in");
    tokio::spawn(connection);
    client
}

pub(crate) async fn postgres_workers(server: &Database, workers: usize) -> Vec<Box<dyn Worker>> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(Arc::new(postgres(server).await));
    }
    let shared = clients.iter().cycle().take(workers);
    shared
        .map(|client| {
            Box::new(Postgres { client: Arc::clone(client), statements: Vec::new() }) as Box<dyn Worker>
        })
        .collect()
}

struct Postgres {
    client: Arc<PostgresClient>,
    /// Prepared statements by their number of keys.
    statements: Vec<(usize, Statement)>,
}

impl Postgres {
    async fn statement(&mut self, keys: usize) -> Statement {
        if let Some((_, statement)) = self.statements.iter().find(|(of, _)| *of == keys) {
            return statement.clone();
        }
        let places: Vec<String> = (1..=keys).map(|place| format!("${place}")).collect();
        let statement = format!("SELECT k, v FROM item WHERE k IN ({})", places.join(","));
        let statement = self.client.prepare(&statement).await.expect("a statement");
        self.statements.push((keys, statement.clone()));
        statement
    }
}

impl Worker for Postgres {
    fn get<'a>(&'a mut self, keys: &'a [Bytes]) -> Got<'a> {
        Box::pin(async move {
            let statement = self.statement(keys.len()).await;
            let keys: Vec<&str> = keys.iter().map(|key| std::str::from_utf8(key).expect("text")).collect();
            let bound: Vec<&(dyn ToSql + Sync)> = keys.iter().map(|key| key as &(dyn ToSql + Sync)).collect();
            let rows = self.client.query(&statement, &bound).await.expect("rows");
            rows.iter().map(|row| row.get::<_, String>(1).len()).sum()
        })
    }
}

pub(crate) async fn redis(address: &str) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://{address}/")).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

pub(crate) async fn redis_workers(address: &str, workers: usize) -> Vec<Box<dyn Worker>> {
    let connection = redis(address).await;
    (0..workers).map(|_| Box::new(Redis(connection.clone())) as Box<dyn Worker>).collect()
}

struct Redis(MultiplexedConnection);

impl Worker for Redis {
    fn get<'a>(&'a mut self, keys: &'a [Bytes]) -> Got<'a> {
        Box::pin(async move {
            let mut mget = redis::cmd("MGET");
            for key in keys {
                mget.arg(&key[..]);
            }
            let values: Vec<Option<Vec<u8>>> = mget.query_async(&mut self.0).await.expect("values");
            values.iter().flatten().map(Vec::len).sum()
        })
    }
}

pub(crate) async fn memcached(address: &str) -> async_memcached::Client {
    async_memcached::Client::new(format!("tcp://{address}")).await.expect("a connection")
}

pub(crate) async fn memcached_workers(address: &str, workers: usize) -> Vec<Box<dyn Worker>> {
    let mut made: Vec<Box<dyn Worker>> = Vec::new();
    for _ in 0..workers {
        made.push(Box::new(Memcached(memcached(address).await)));
    }
    made
}

struct Memcached(async_memcached::Client);

impl Worker for Memcached {
    fn get<'a>(&'a mut self, keys: &'a [Bytes]) -> Got<'a> {
        Box::pin(async move {
            let values = self.0.get_multi(keys).await.expect("values");
            values.iter().filter_map(|value| value.data.as_ref()).map(Vec::len).sum()
        })
    }
}

pub(crate) fn http_workers(address: &str, workers: usize) -> Vec<Box<dyn Worker>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = HttpClient::builder(TokioExecutor::new()).build(connector);
    let turns = Arc::new(Semaphore::new(REQUESTS));
    let made = |_| {
        let (client, turns, address) = (client.clone(), Arc::clone(&turns), address.to_owned());
        Box::new(Http { client, turns, address }) as Box<dyn Worker>
    };
    (0..workers).map(made).collect()
}

struct Http {
    client: HttpClient<HttpConnector, Empty<Bytes>>,
    turns: Arc<Semaphore>,
    address: String,
}

impl Http {
    async fn one(&self, key: &Bytes) -> usize {
        let _turn = self.turns.acquire().await.expect("it is never closed");
        let key = std::str::from_utf8(key).expect("text");
        let url = format!("http://{}/items/{key}", self.address).parse().expect("a URL");
        let response = self.client.get(url).await.expect("an answer");
        response.into_body().collect().await.expect("a body").to_bytes().len()
    }
}

impl Worker for Http {
    fn get<'a>(&'a mut self, keys: &'a [Bytes]) -> Got<'a> {
        Box::pin(async move { join_all(keys.iter().map(|key| self.one(key))).await.into_iter().sum() })
    }
}
