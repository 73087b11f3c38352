//! Tests of connections that databases end while they are kept, and of prepared statements that a
//! connection keeps.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use sherwood_store::{Fault as StoreFault, SqlOptions, Store, StoreOptions};

use crate::databases::Database;
use crate::proxy::{Fault, Proxy};
use crate::{keys, label, mariadb, opened, postgres, value};

/// True if a message of PostgreSQL's protocol binds the parameters of a statement, which is
/// executed next.
fn is_bind(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'B')
}

/// True if a packet of MySQL's protocol executes a statement.
fn is_execute(bytes: &[u8]) -> bool {
    bytes.get(4) == Some(&0x17)
}

/// Returns options of a store that uses the proxy. Its table exists in both kinds of servers.
fn options(server: &Database, proxy: &Proxy) -> SqlOptions {
    SqlOptions {
        address: proxy.address.clone(),
        write: Some("UPDATE item SET name = :value WHERE id = :key".into()),
        ..server.options("SELECT name FROM item WHERE id = :key")
    }
}

async fn ends_of_connections_are_met(store: Arc<dyn Store>, proxy: &Proxy) {
    let seven = Some("seven".to_owned());
    assert_eq!((value(&store, "7").await, proxy.accepted()), (seven.clone(), 1));
    // Before the first byte of an answer: the read is sent once more, on a new connection.
    proxy.expect([Fault::End(0)]);
    assert_eq!((value(&store, "7").await, proxy.accepted()), (seven.clone(), 2));
    // The new connection ends as well, and is not replaced.
    proxy.expect([Fault::End(0), Fault::End(0)]);
    assert_eq!(label(store.get_many(keys(&["7"])).await), "reset");
    assert_eq!(proxy.accepted(), 3);
    // A new connection is not replaced either.
    proxy.expect([Fault::End(0)]);
    assert_eq!(label(store.get_many(keys(&["7"])).await), "reset");
    assert_eq!((value(&store, "7").await, proxy.accepted()), (seven.clone(), 5));
    // After the first byte, and in the middle of an answer.
    for (i, bytes) in [1, 3, 12].into_iter().enumerate() {
        proxy.expect([Fault::End(bytes)]);
        assert_eq!(label(store.get_many(keys(&["7"])).await), "reset", "after {bytes} bytes");
        assert_eq!((value(&store, "7").await, proxy.accepted()), (seven.clone(), 6 + i));
    }
    // A write may have been done, and is not sent again.
    store.put("7".into(), "seven".into()).await.unwrap();
    proxy.expect([Fault::End(0)]);
    let error = store.put("7".into(), "eight".into()).await.unwrap_err();
    assert_eq!((error.cause().label(), error.fault()), ("reset", StoreFault::Broken));
    assert_eq!(value(&store, "7").await, seven);
    assert!(proxy.is_done());
}

#[tokio::test]
async fn read_on_a_pooled_postgres_connection_that_ends_is_resent_once() {
    let (server, _admin) = postgres::started(&[]).await;
    let proxy = Proxy::before(server.port, is_bind).await;
    let store = opened(StoreOptions::Postgres(options(&server, &proxy)));
    ends_of_connections_are_met(store, &proxy).await;
}

#[tokio::test]
async fn read_on_a_pooled_mariadb_connection_that_ends_is_resent_once() {
    let (server, _root) = mariadb::started(&[]).await;
    let proxy = Proxy::before(server.port, is_execute).await;
    let store = opened(StoreOptions::MySql(options(&server, &proxy)));
    ends_of_connections_are_met(store, &proxy).await;
}

#[tokio::test]
async fn reads_do_not_fail_when_postgres_ends_idle_connections() {
    let (mut server, admin) = postgres::started(&[]).await;
    let store = opened(StoreOptions::Postgres(server.options("SELECT name FROM item WHERE id = :key")));
    for _ in 0..50 {
        assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'";
        admin.query(end, &[]).await.unwrap();
    }
    assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
    server.kill();
    server.restart();
    assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
}

#[tokio::test]
async fn reads_do_not_fail_when_mariadb_ends_idle_connections() {
    let (mut server, mut root) = mariadb::started(&[]).await;
    let store = opened(StoreOptions::MySql(server.options("SELECT name FROM item WHERE id = :key")));
    let connections = "SELECT id FROM information_schema.processlist WHERE user = 'shop'";
    for _ in 0..50 {
        assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
        let ids: Vec<u64> = root.query(connections).await.unwrap();
        for id in ids {
            // One that was killed in an earlier round may have ended since it was listed.
            let _ = root.query_drop(format!("KILL {id}")).await;
        }
    }
    // The server ends connections that are idle for longer than its timeout.
    root.query_drop("SET GLOBAL wait_timeout = 1").await.unwrap();
    assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
    while !root.query::<u64, _>(connections).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
    server.kill();
    server.restart();
    assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
}

/// Returns an error of MySQL's protocol that answers a command.
fn error_packet(code: u16) -> Vec<u8> {
    let body =
        [&[0xff], &code.to_le_bytes()[..], b"#HY000Prepared statement needs to be re-prepared"].concat();
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[1], &body].concat()
}

#[tokio::test]
async fn mariadb_statement_that_the_server_no_longer_knows_is_prepared_again() {
    let (server, _root) = mariadb::started(&[]).await;
    let proxy = Proxy::before(server.port, is_execute).await;
    for code in [1615, 1243] {
        let store = opened(StoreOptions::MySql(options(&server, &proxy)));
        assert_eq!(value(&store, "7").await.as_deref(), Some("seven"));
        store.put("7".into(), "seven".into()).await.unwrap();
        proxy.expect([Fault::Answer(error_packet(code))]);
        assert_eq!(value(&store, "7").await.as_deref(), Some("seven"), "{code}");
        proxy.expect([Fault::Answer(error_packet(code))]);
        store.put("7".into(), "seven".into()).await.unwrap();
        // Prepared anew at most once a call.
        let other = opened(StoreOptions::MySql(options(&server, &proxy)));
        proxy.expect([Fault::Answer(error_packet(code)), Fault::Answer(error_packet(code))]);
        assert_eq!(label(other.get_many(keys(&["7"])).await), "server", "{code}");
        assert!(proxy.is_done());
    }
}
