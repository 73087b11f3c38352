//! Tests of the Cassandra connector with Apache Cassandra 5.0, which `make test-stores` fetches.

use std::path::Path;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use sherwood_store::{CassandraOptions, RemoteOptions, Store, StoreOptions};

use crate::duplicates::{connected, put, refused};
use crate::servers::{START_TIMEOUT, Server};
use crate::{failure, label, opened, patient, requests, value};

/// The keys of the shared checks, but the empty one, which Cassandra refuses.
const KEYS: [&[u8]; 5] = [b"p:7", b".", b"a/b c", b"\0\xff", "ä".as_bytes()];

/// Opens a session of a test, which makes tables.
async fn admin(server: &Server) -> Session {
    let start = std::time::Instant::now();
    loop {
        match SessionBuilder::new().known_node(server.address()).build().await {
            Ok(session) => break session,
            Err(error) => assert!(start.elapsed() < START_TIMEOUT, "{error}"),
        }
    }
}

async fn make_table(admin: &Session, table: &str) {
    let text = format!("CREATE TABLE shop.{table} (key blob PRIMARY KEY, value blob)");
    admin.query_unpaged(text, ()).await.expect("a table");
}

fn store(server: &Server, table: &str, remote: RemoteOptions) -> Arc<dyn Store> {
    let options = CassandraOptions::new(server.address(), "shop", table);
    opened(StoreOptions::Cassandra(CassandraOptions { remote, ..options }))
}

// One server for all checks: it takes half a minute to start.
#[tokio::test]
async fn cassandra_keeps_values_and_orders_changes_and_is_used_again_after_a_restart() {
    let mut server = Server::cassandra(Path::new(env!("CARGO_MANIFEST_DIR")));
    let admin = admin(&server).await;
    let keyspace =
        "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    admin.query_unpaged(keyspace, ()).await.expect("a keyspace");
    for table in ["items", "ordered", "source", "destination", "times"] {
        make_table(&admin, table).await;
    }
    let items = store(&server, "items", patient());
    changes_have_one_connection(&admin, &items).await;
    requests::values_of_any_key(&items, &KEYS).await;
    keys_and_values_have_bounds(&items).await;
    let ordered = store(&server, "ordered", patient());
    requests::changes_in_their_order(&ordered).await;
    requests::dropped_batch_ends_its_connection(&ordered).await;
    let (from, to) = (store(&server, "source", patient()), store(&server, "destination", patient()));
    requests::copy_makes_stores_equal(&from, &to).await;
    writes_are_later_than_those_before_a_restart(&admin, &server).await;
    let report = items.check().await.unwrap();
    assert!(report.server.starts_with("Cassandra 5.0"), "{report:?}");
    assert_eq!(failure(&store(&server, "absent", patient())).await, "missing");
    let hasty = RemoteOptions { connect_timeout_ms: 5_000, answer_timeout_ms: 2_000, ..patient() };
    requests::late_answer_is_dropped(&server, &store(&server, "items", hasty)).await;
    requests::restarted_server_is_used_again(&mut server, &items).await;
}

/// Checks that a connection for changes is one of the server's, beside that of its driver, where
/// calls have four.
async fn changes_have_one_connection(admin: &Session, store: &Arc<dyn Store>) {
    let before = clients(admin).await;
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(connected(store).await);
    }
    store.put("k".into(), "1".into()).await.unwrap();
    // Sessions have all of their connections some time after the first.
    let (expected, start) = (before + 3 * 2 + 5, std::time::Instant::now());
    loop {
        let count = clients(admin).await;
        assert!(count <= expected && start.elapsed() < START_TIMEOUT, "{count} of {expected} connections");
        if count == expected {
            break;
        }
    }
}

/// Returns the number of connections that a server has.
async fn clients(admin: &Session) -> usize {
    let answer = admin.query_unpaged("SELECT port FROM system_views.clients", ()).await.expect("an answer");
    answer.into_rows_result().expect("rows").rows_num()
}

async fn keys_and_values_have_bounds(store: &Arc<dyn Store>) {
    for key in [String::new(), "x".repeat(65_536)] {
        assert_eq!(label(store.put(key.clone().into(), "1".into()).await), "refused");
        assert_eq!(value(store, &key).await, None);
        store.delete(key.into()).await.unwrap();
    }
    assert_eq!(label(store.put("k".into(), vec![0; (15 << 20) + 1].into()).await), "refused");
    store.put("k".into(), vec![b'x'; 1 << 20].into()).await.unwrap();
    assert_eq!(value(store, "k").await.map(|value| value.len()), Some(1 << 20));
}

/// Checks that a store overrides what was written with a timestamp an hour ahead of the system's
/// clock, as before the clock was set back, if the row of the clock covers it.
async fn writes_are_later_than_those_before_a_restart(admin: &Session, server: &Server) {
    let ahead = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let ahead = i64::try_from(ahead.as_micros()).unwrap() + 3_600_000_000;
    let put_at = "INSERT INTO shop.times (key, value) VALUES (?, ?) USING TIMESTAMP ?";
    for (key, timestamp) in [("k", ahead), ("gone", ahead), ("sherwood.log.clock", ahead + 1)] {
        admin.query_unpaged(put_at, (key.as_bytes(), &b"old"[..], timestamp)).await.unwrap();
    }
    let store = store(server, "times", patient());
    let changes = vec![put("k", "new"), crate::duplicates::removal("gone")];
    assert_eq!(refused(&connected(&store).await.apply("m".into(), changes).await), []);
    assert_eq!(value(&store, "k").await.as_deref(), Some("new"));
    assert_eq!(value(&store, "gone").await, None);
    store.put("gone".into(), "again".into()).await.unwrap();
    assert_eq!(value(&store, "gone").await.as_deref(), Some("again"));
}
