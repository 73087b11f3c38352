//! Tests of the ZooKeeper connector with Debian's `zookeeper`.

use std::sync::Arc;
use std::time::Instant;

use sherwood_store::{RemoteOptions, Secret, Store, StoreOptions, TlsOptions, ZookeeperOptions};

use crate::certificates::Authority;
use crate::duplicates::{connected, copied, put, refused};
use crate::servers::{START_TIMEOUT, Server, free_port};
use crate::{failure, label, opened, patient, requests, value};

/// Keys of bytes of all kinds.
const KEYS: [&[u8]; 8] = [b"p:7", b"", b".", b"..", b"a/b c", b"%41", b"\0\xff", "ä".as_bytes()];

fn server() -> Server {
    Server::zookeeper(|_| String::new())
}

fn store(server: &Server, root: &str, remote: RemoteOptions) -> Arc<dyn Store> {
    let options = ZookeeperOptions::new(server.address());
    opened(StoreOptions::Zookeeper(ZookeeperOptions { root: root.into(), remote, ..options }))
}

#[tokio::test]
async fn zookeeper_keeps_values_of_any_key_and_makes_changes_in_their_order() {
    let server = server();
    requests::values_of_any_key(&store(&server, "/a", patient()), &KEYS).await;
    let ordered = store(&server, "/b/c", patient());
    requests::changes_in_their_order(&ordered).await;
    requests::dropped_batch_ends_its_connection(&ordered).await;
    requests::copy_makes_stores_equal(&store(&server, "/d", patient()), &store(&server, "/e", patient()))
        .await;
    let report = ordered.check().await.unwrap();
    assert!(report.server.starts_with("ZooKeeper 3."), "{report:?}");
    assert!(report.details[1].contains(", /b/c: "), "{report:?}");
}

#[tokio::test]
async fn zookeeper_value_that_exceeds_a_request_is_refused_and_others_are_made() {
    let server = server();
    let store = store(&server, "/r", patient());
    let max = 0xf_ffff - 128 - "/r/k".len();
    let mut connection = connected(&store).await;
    let changes = vec![put("k", vec![b'x'; max]), put("k", vec![b'y'; max + 1]), put("b", "1")];
    assert_eq!(refused(&connection.apply("m".into(), changes).await), [(1, "refused")]);
    assert_eq!(value(&store, "k").await.map(|value| value.len()), Some(max));
    assert_eq!(value(&store, "b").await.as_deref(), Some("1"));
    let long = "x".repeat(4_097);
    assert_eq!(label(store.put(long.clone().into(), "1".into()).await), "refused");
    assert_eq!(value(&store, &long).await, None);
    store.delete(long.into()).await.unwrap();
}

#[tokio::test]
async fn zookeeper_that_is_paused_or_restarted_fails_calls_and_is_used_again() {
    let mut server = server();
    let hasty = RemoteOptions { connect_timeout_ms: 500, answer_timeout_ms: 500, ..patient() };
    requests::late_answer_is_dropped(&server, &store(&server, "/r", hasty.clone())).await;
    let store = store(&server, "/s", patient());
    requests::restarted_server_is_used_again(&mut server, &store).await;
}

#[tokio::test]
async fn zookeeper_nodes_of_a_user_are_forbidden_to_others_and_a_copy_keeps_nodes_of_others() {
    let server = server();
    let path = server.folder.path().join("password");
    std::fs::write(&path, "book").unwrap();
    let login = ZookeeperOptions {
        user: Some("shop".into()),
        password: Some(Secret::File(path)),
        root: "/r".into(),
        remote: patient(),
        ..ZookeeperOptions::new(server.address())
    };
    let (own, other) = (opened(StoreOptions::Zookeeper(login)), store(&server, "/r", patient()));
    own.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(value(&own, "k").await.as_deref(), Some("1"));
    assert_eq!(failure(&other).await, "credentials");
    assert_eq!(label(other.put("k".into(), "2".into()).await), "credentials");
    assert_eq!(label(copied(&other, &own).await), "credentials");
    other.get_many(Vec::new()).await.unwrap();
}

#[tokio::test]
async fn zookeeper_with_tls_accepts_clients_with_a_certificate_only() {
    let authority = Authority::new();
    let port = free_port();
    let _server = Server::zookeeper(|folder| {
        let (certificate, key) = authority.files("localhost", folder);
        // It reads both from one file.
        let both = std::fs::read_to_string(&certificate).unwrap() + &std::fs::read_to_string(key).unwrap();
        std::fs::write(&certificate, both).unwrap();
        format!(
            "secureClientPort={port}\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM",
            certificate.display(),
            authority.signer(folder).display()
        )
    });
    let store = |tls: TlsOptions| {
        let remote = RemoteOptions { tls: Some(tls), ..patient() };
        let options = ZookeeperOptions::new(format!("localhost:{port}"));
        opened(StoreOptions::Zookeeper(ZookeeperOptions { remote, ..options }))
    };
    let trusted = store(authority.trusted_with_a_certificate());
    // It listens to this port after the other one.
    let start = Instant::now();
    while failure(&trusted).await == "unreachable" {
        assert!(start.elapsed() < START_TIMEOUT, "it does not listen");
    }
    trusted.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(value(&trusted, "k").await.as_deref(), Some("1"));
    assert!(trusted.check().await.unwrap().details[0].contains("TLS"));
    assert_eq!(failure(&store(authority.trusted())).await, "certificate");
    assert_eq!(failure(&store(Authority::new().trusted())).await, "certificate");
}
