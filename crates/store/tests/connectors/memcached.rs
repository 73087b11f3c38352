//! Tests of the memcached connector with a memcached server.

use bytes::Bytes;
use sherwood_store::{Attempt, Cause, MemcachedOptions, RemoteOptions, Secret, StoreOptions};

use crate::certificates::Authority;
use crate::servers::Server;
use crate::{dropped_calls_do_not_affect_others, failure, gate, keys, label, opened, value, values};

fn plain() -> Server {
    Server::memcached(|_| Vec::new())
}

fn to(server: &Server) -> MemcachedOptions {
    MemcachedOptions::new(server.address())
}

#[tokio::test]
async fn value_written_to_memcached_is_read_and_deleted_key_is_absent() {
    let server = plain();
    let store = opened(StoreOptions::Memcached(to(&server)));
    assert_eq!(values(&store, &["a", "b"]).await, [None, None]);
    store.put("a".into(), "1".into()).await.unwrap();
    store.put("b".into(), Bytes::new()).await.unwrap();
    store.delete("nothing".into()).await.unwrap();
    assert_eq!(values(&store, &["c", "b", "a"]).await, [None, Some(String::new()), Some("1".into())]);
    store.delete("a".into()).await.unwrap();
    assert_eq!(value(&store, "a").await, None);
}

#[tokio::test]
async fn many_keys_are_read_from_memcached_by_one_call() {
    let server = plain();
    let store = opened(StoreOptions::Memcached(to(&server)));
    let names: Vec<String> = (0..250).map(|i| format!("key-{i}")).collect();
    for name in names.iter().step_by(2) {
        store.put(name.clone().into(), name.clone().into()).await.unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (i, found) in values(&store, &names).await.into_iter().enumerate() {
        assert_eq!(found.as_deref(), (i % 2 == 0).then_some(names[i]), "{}", names[i]);
    }
}

#[tokio::test]
async fn memcached_flags_stored_by_other_clients_are_read() {
    let server = plain();
    let store = opened(StoreOptions::Memcached(to(&server)));
    // Written by another client.
    let mut other = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(&mut other, b"set k 4294967295 0 1\r\nx\r\n").unwrap();
    assert_eq!(std::io::Read::read(&mut other, &mut [0; 64]).unwrap(), b"STORED\r\n".len());
    let found = store.get_many(keys(&["k"])).await.unwrap().remove(0).unwrap();
    assert_eq!((found.flags, found.good_for), (u32::MAX, None));
}

#[tokio::test]
async fn keys_that_memcached_cannot_hold_are_absent_and_refused_when_written() {
    let server = plain();
    let store = opened(StoreOptions::Memcached(to(&server)));
    let long = "x".repeat(251);
    assert_eq!(values(&store, &[&long, "a b", ""]).await, [None, None, None]);
    store.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(values(&store, &["a\r\nflush_all", "k"]).await, [None, Some("1".into())]);
    let refused = store.put(long.into(), "1".into()).await.unwrap_err();
    assert_eq!(refused.cause(), &Cause::Refused { what: "key", bytes: 251, min: 1, max: 250 });
    assert_eq!(label(store.put("a b".into(), "1".into()).await), "unsupported");
    store.delete("a b".into()).await.unwrap();
}

#[tokio::test]
async fn key_prefix_separates_stores_on_one_memcached() {
    let server = plain();
    let ours = MemcachedOptions { key_prefix: "ours:".into(), ..to(&server) };
    let (ours, all) = (opened(StoreOptions::Memcached(ours)), opened(StoreOptions::Memcached(to(&server))));
    ours.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(values(&all, &["k", "ours:k"]).await, [None, Some("1".into())]);
    assert_eq!(value(&ours, "k").await, Some("1".into()));
    ours.delete("k".into()).await.unwrap();
    assert_eq!(value(&all, "ours:k").await, None);
}

#[tokio::test]
async fn memcached_value_over_the_limit_fails_only_its_key() {
    let server = plain();
    let remote = RemoteOptions { value_bytes_max: 1 << 10, connections_max: 1, ..RemoteOptions::default() };
    let small = opened(StoreOptions::Memcached(MemcachedOptions { remote, ..to(&server) }));
    let large = opened(StoreOptions::Memcached(to(&server)));
    large.put("large".into(), vec![b'x'; 100_000].into()).await.unwrap();
    large.put("small".into(), "1".into()).await.unwrap();
    let (refused, found) = tokio::join!(small.get_many(keys(&["small", "large"])), value(&small, "small"));
    assert_eq!((label(refused), found), ("too_large", Some("1".into())));
    let each = small.get_each(keys(&["large", "absent", "small"])).await.unwrap().each;
    assert_eq!(each[0].as_ref().unwrap_err().cause().label(), "too_large");
    assert_eq!((&each[1], &each[2]), (&Ok(None), &Ok(Some(Bytes::from("1").into()))));
    assert_eq!(label(small.put("k".into(), vec![0; 1025].into()).await), "refused");
    // More than the server's limit of 1 MiB. It removes the old value, so the write had an effect.
    let refused = large.put("large".into(), vec![0; 2 << 20].into()).await;
    assert_eq!(label(refused), "server");
    assert_eq!(value(&large, "large").await, None);
    assert_eq!(value(&large, "small").await, Some("1".into()));
}

#[tokio::test]
async fn connector_logs_in_to_memcached_if_required() {
    let server = Server::memcached(|folder| {
        let users = folder.join("users");
        std::fs::write(&users, "app:sesame\n").unwrap();
        vec!["-Y".into(), users.display().to_string()]
    });
    let password = |text: &str| {
        let path = server.folder.path().join(text);
        std::fs::write(&path, format!("{text}\n")).unwrap();
        Some(Secret::File(path))
    };
    let user = Some("app".to_owned());
    let known = MemcachedOptions { user: user.clone(), password: password("sesame"), ..to(&server) };
    let store = opened(StoreOptions::Memcached(known));
    store.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(value(&store, "k").await, Some("1".into()));
    assert!(store.check().await.unwrap().details.contains(&"logged in as app".to_owned()));

    let wrong = MemcachedOptions { user, password: password("wrong"), ..to(&server) };
    let refused = opened(StoreOptions::Memcached(wrong)).get_many(keys(&["k"])).await.unwrap_err();
    assert_eq!(refused.cause().label(), "credentials");
    assert!(!refused.to_string().contains("wrong"), "{refused}");
    assert_eq!(failure(&opened(StoreOptions::Memcached(to(&server)))).await, "credentials");
}

#[tokio::test]
async fn tls_to_memcached_is_used_if_configured() {
    let (server, authority) = (plain(), Authority::new());
    let address = gate::before(server.port, authority.server("127.0.0.1", false, &[])).await;
    let remote = RemoteOptions { tls: Some(authority.trusted()), ..RemoteOptions::default() };
    let store =
        opened(StoreOptions::Memcached(MemcachedOptions { remote, ..MemcachedOptions::new(address) }));
    store.put("k".into(), vec![b'x'; 300_000].into()).await.unwrap();
    assert_eq!(value(&store, "k").await.unwrap().len(), 300_000);
    let report = store.check().await.unwrap();
    assert!(
        report.details[0].contains("TLS, trusted by") && report.details[0].contains("ca.pem"),
        "{report:?}"
    );
}

#[tokio::test]
async fn memcached_is_used_again_after_its_restart() {
    let mut server = plain();
    let store = opened(StoreOptions::Memcached(to(&server)));
    store.put("k".into(), "1".into()).await.unwrap();
    server.kill();
    let cause = failure(&store).await;
    assert!(["unreachable", "reset"].contains(&cause), "{cause}");
    assert_eq!(failure(&store).await, "unreachable");
    server.restart();
    assert_eq!(value(&store, "k").await, None);
    store.put("k".into(), "2".into()).await.unwrap();
    assert_eq!(value(&store, "k").await, Some("2".into()));
}

#[tokio::test]
async fn check_returns_the_memcached_version() {
    let server = plain();
    let store = opened(StoreOptions::Memcached(to(&server)));
    let report = store.check().await.unwrap();
    assert!(report.server.starts_with("memcached 1."), "{report:?}");
    assert!(report.details[0].ends_with("no TLS"), "{report:?}");
    let absent = opened(StoreOptions::Memcached(MemcachedOptions::new("127.0.0.1:1")));
    let error = absent.check().await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("could not {} on store `b`", Attempt::Check)), "{error}");
    assert_eq!(absent.get_many(Vec::new()).await.unwrap_err().cause().label(), "unreachable");
}

#[tokio::test]
async fn dropped_memcached_call_does_not_affect_other_calls() {
    let server = plain();
    dropped_calls_do_not_affect_others(&opened(StoreOptions::Memcached(to(&server)))).await;
}
