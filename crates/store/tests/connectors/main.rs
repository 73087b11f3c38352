//! Tests of connectors with real servers, and with sockets that fail.
//!
//! Servers are Debian's packages (`memcached`, `redis-server`, `mariadb-server`, `postgresql`,
//! `pgbouncer`, `nginx-light`), each started on a free loopback port with a temporary folder, and
//! stopped by the test that started it; npm's `dynalite` stands in for DynamoDB. Servers in Java
//! (`zookeeper`, Cassandra) are started where the feature of their connector is on: `make
//! test-stores`. A proxy in front of them adds TLS, with certificates made by the test; another one
//! ends connections of databases.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests of a driver: they own sockets and processes"
)]

mod answers;
#[cfg(feature = "cassandra")]
mod cassandra;
mod certificates;
mod changes;
mod database_faults;
mod databases;
mod duplicates;
mod dynamodb;
mod faults;
mod gate;
mod http;
mod kept;
mod kept_caches;
mod kept_databases;
mod lists;
mod mariadb;
mod memcached;
mod nginx;
mod pooler;
mod postgres;
mod proxy;
mod redis;
#[cfg(any(feature = "cassandra", feature = "zookeeper"))]
mod requests;
mod rotation;
mod servers;
mod spellings;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use sherwood_store::{Found, KeyAnswer, RemoteOptions, Store, StoreError, StoreOptions, open};

fn opened(options: StoreOptions) -> Arc<dyn Store> {
    open("b", &options).expect("valid options")
}

/// Returns options with timeouts that a passing test never reaches.
fn patient() -> RemoteOptions {
    RemoteOptions { connect_timeout_ms: 60_000, answer_timeout_ms: 60_000, ..RemoteOptions::default() }
}

fn keys(keys: &[&str]) -> Vec<Bytes> {
    keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
}

/// The values of the keys `asked`, as text.
async fn values(store: &Arc<dyn Store>, asked: &[&str]) -> Vec<Option<String>> {
    let found = store.get_many(keys(asked)).await.expect("an answer");
    assert_eq!(found.len(), asked.len());
    let text = |found: Found| String::from_utf8(found.value.to_vec()).expect("text");
    found.into_iter().map(|found| found.map(text)).collect()
}

async fn value(store: &Arc<dyn Store>, key: &str) -> Option<String> {
    values(store, &[key]).await.remove(0)
}

/// The label of the cause of a failed read.
async fn failure(store: &Arc<dyn Store>) -> &'static str {
    label(store.get_many(keys(&["k"])).await)
}

fn label<T>(result: Result<T, StoreError>) -> &'static str {
    match result {
        Ok(_) => "none",
        Err(error) => error.cause().label(),
    }
}

/// The length of each key's value, or the label of its error.
fn lengths(each: &[KeyAnswer]) -> Vec<Result<usize, &'static str>> {
    let length = |answer: &KeyAnswer| match answer {
        Ok(found) => found.as_ref().map(|found| found.value.len()).ok_or("none"),
        Err(error) => Err(error.cause().label()),
    };
    each.iter().map(length).collect()
}

/// Checks that dropping a call at any of its awaits does not change the answer of another call.
async fn dropped_calls_do_not_affect_others(store: &Arc<dyn Store>) {
    store.put("k".into(), "1".into()).await.expect("it can be written");
    for polls in 0..40 {
        let mut dropped = store.get_many(keys(&["k", "absent"]));
        for _ in 0..polls {
            let poll = std::future::poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_ready()));
            if poll.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(dropped);
        assert_eq!(values(store, &["absent", "k"]).await, [None, Some("1".into())]);
    }
}
