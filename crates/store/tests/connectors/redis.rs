//! Tests of the Redis connector with a Redis server.

use std::time::Duration;

use bytes::Bytes;
use sherwood_store::{Fault, RedisOptions, RemoteOptions, Secret, StoreOptions};

use crate::certificates::Authority;
use crate::servers::Server;
use crate::{dropped_calls_do_not_affect_others, failure, gate, keys, label, opened, value, values};

fn to(server: &Server) -> RedisOptions {
    RedisOptions::new(server.address())
}

#[tokio::test]
async fn value_written_to_redis_is_read_and_deleted_key_is_absent() {
    let server = Server::redis(&[]);
    let store = opened(StoreOptions::Redis(to(&server)));
    assert_eq!(values(&store, &["a", "b"]).await, [None, None]);
    store.put("a b\r\n".into(), "1\r\n".into()).await.unwrap();
    store.put("".into(), Bytes::new()).await.unwrap();
    store.delete("nothing".into()).await.unwrap();
    assert_eq!(
        values(&store, &["c", "", "a b\r\n"]).await,
        [None, Some(String::new()), Some("1\r\n".into())]
    );
    store.delete("a b\r\n".into()).await.unwrap();
    assert_eq!(value(&store, "a b\r\n").await, None);
}

#[tokio::test]
async fn databases_and_key_prefixes_separate_stores_on_one_redis() {
    let server = Server::redis(&[]);
    let first = opened(StoreOptions::Redis(to(&server)));
    let third = opened(StoreOptions::Redis(RedisOptions { db: 3, ..to(&server) }));
    let ours = opened(StoreOptions::Redis(RedisOptions { key_prefix: "ours:".into(), ..to(&server) }));
    third.put("k".into(), "3".into()).await.unwrap();
    ours.put("k".into(), "ours".into()).await.unwrap();
    assert_eq!(values(&first, &["k", "ours:k"]).await, [None, Some("ours".into())]);
    assert_eq!(value(&third, "k").await, Some("3".into()));
    let beyond = opened(StoreOptions::Redis(RedisOptions { db: 99, ..to(&server) }));
    assert_eq!(failure(&beyond).await, "missing");
}

#[tokio::test]
async fn times_to_live_in_redis_are_written_and_read_if_configured() {
    let server = Server::redis(&[]);
    let written = RedisOptions { write_ttl_s: Some(100), ..to(&server) };
    opened(StoreOptions::Redis(written)).put("short".into(), "1".into()).await.unwrap();
    let store = opened(StoreOptions::Redis(RedisOptions { ttl_of_server: true, ..to(&server) }));
    store.put("long".into(), "2".into()).await.unwrap();
    let found = store.get_many(keys(&["short", "absent", "long"])).await.unwrap();
    let good_for = found[0].as_ref().unwrap().good_for.unwrap();
    assert!((Duration::ZERO..=Duration::from_secs(100)).contains(&good_for), "{good_for:?}");
    assert_eq!((found[1].as_ref(), found[2].as_ref().unwrap().good_for), (None, None));
    let silent = opened(StoreOptions::Redis(to(&server)));
    assert_eq!(silent.get_many(keys(&["short"])).await.unwrap()[0].as_ref().unwrap().good_for, None);
}

#[tokio::test]
async fn redis_value_over_the_limit_fails_only_its_key() {
    let server = Server::redis(&[]);
    let remote = RemoteOptions { value_bytes_max: 1 << 10, connections_max: 1, ..RemoteOptions::default() };
    let small = opened(StoreOptions::Redis(RedisOptions { remote, ..to(&server) }));
    let large = opened(StoreOptions::Redis(to(&server)));
    large.put("large".into(), vec![b'x'; 3_000_000].into()).await.unwrap();
    large.put("small".into(), "1".into()).await.unwrap();
    let (refused, found) = tokio::join!(small.get_many(keys(&["small", "large"])), value(&small, "small"));
    assert_eq!((label(refused), found), ("too_large", Some("1".into())));
    let each = small.get_each(keys(&["large", "absent", "small"])).await.unwrap().each;
    assert_eq!(each[0].as_ref().unwrap_err().cause().label(), "too_large");
    assert_eq!((&each[1], &each[2]), (&Ok(None), &Ok(Some(Bytes::from("1").into()))));
    assert_eq!(value(&large, "large").await.unwrap().len(), 3_000_000);
}

#[tokio::test]
async fn connector_logs_in_to_redis_if_required() {
    let users = "--user default on >sesame ~* +@all --user reader on >book ~* +mget --user idle on >book ~* +ping +info";
    let users: Vec<&str> = users.split(' ').collect();
    let server = Server::redis(&users);
    let password = |text: &str| {
        let path = server.folder.path().join(text);
        std::fs::write(&path, text).unwrap();
        Some(Secret::File(path))
    };
    let known = RedisOptions { password: password("sesame"), ..to(&server) };
    let store = opened(StoreOptions::Redis(known));
    store.put("k".into(), "1".into()).await.unwrap();

    let user = Some("reader".to_owned());
    let reader = RedisOptions { user: user.clone(), password: password("book"), ..to(&server) };
    let reader = opened(StoreOptions::Redis(reader));
    assert_eq!(value(&reader, "k").await, Some("1".into()));
    assert_eq!(label(reader.put("k".into(), "2".into()).await), "credentials");
    let report = reader.check().await.unwrap();
    assert!(report.server.contains("does not tell"), "{report:?}");

    // A user who can log in but not read makes the backend fail.
    let idle = RedisOptions { user: Some("idle".into()), password: password("book"), ..to(&server) };
    let idle = opened(StoreOptions::Redis(idle));
    let refused = idle.check().await.unwrap_err();
    assert_eq!(refused.cause().label(), "credentials");
    assert!(refused.to_string().ends_with("the user's rights (`ACL`)"), "{refused}");
    assert_eq!(label(idle.get_many(Vec::new()).await), "credentials");

    let wrong = RedisOptions { user, password: password("wrong"), ..to(&server) };
    let refused = opened(StoreOptions::Redis(wrong)).get_many(keys(&["k"])).await.unwrap_err();
    assert_eq!(refused.cause().label(), "credentials");
    assert_eq!(failure(&opened(StoreOptions::Redis(to(&server)))).await, "credentials");
}

#[tokio::test]
async fn redis_key_forbidden_to_the_user_fails_only_itself() {
    let users = "--user default on >sesame ~* +@all --user shop on >book ~product:* +mget +pttl +info";
    let server = Server::redis(&users.split(' ').collect::<Vec<_>>());
    let password = |text: &str| {
        let path = server.folder.path().join(text);
        std::fs::write(&path, text).unwrap();
        Some(Secret::File(path))
    };
    let all = opened(StoreOptions::Redis(RedisOptions { password: password("sesame"), ..to(&server) }));
    for key in ["product:1", "product:2", "user:1"] {
        all.put(key.into(), key.into()).await.unwrap();
    }
    for ttl_of_server in [false, true] {
        let (user, password) = (Some("shop".to_owned()), password("book"));
        let shop = RedisOptions { user, password, ttl_of_server, ..to(&server) };
        let shop = opened(StoreOptions::Redis(shop));
        let each =
            shop.get_each(keys(&["product:1", "user:1", "product:0", "product:2"])).await.unwrap().each;
        let value = |at: usize| each[at].as_ref().unwrap().as_ref().map(|found| found.value.clone());
        assert_eq!(
            (value(0), value(2), value(3)),
            (Some("product:1".into()), None, Some("product:2".into()))
        );
        let forbidden = each[1].as_ref().unwrap_err();
        assert_eq!((forbidden.cause().label(), forbidden.fault()), ("credentials", Fault::Rejected));
        let forbidden = shop.get_many(keys(&["user:1"])).await.unwrap_err();
        assert_eq!(forbidden.fault(), Fault::Rejected);
        // The check key is not among the user's keys.
        assert!(shop.get_many(Vec::new()).await.unwrap().is_empty());
        shop.check().await.unwrap();
    }
}

#[tokio::test]
async fn errors_of_a_read_only_replica_and_a_full_redis_are_mapped_to_their_causes() {
    let primary = Server::redis(&[]);
    let port = primary.port.to_string();
    let replica = Server::redis(&["--replicaof", "127.0.0.1", &port]);
    let store = opened(StoreOptions::Redis(to(&replica)));
    assert_eq!(label(store.put("k".into(), "1".into()).await), "wrong_server");
    assert_eq!(label(store.delete("k".into()).await), "wrong_server");
    let full = Server::redis(&["--maxmemory", "1"]);
    let store = opened(StoreOptions::Redis(to(&full)));
    assert_eq!(label(store.put("k".into(), "1".into()).await), "busy");
    assert_eq!(value(&store, "k").await, None);
}

#[tokio::test]
async fn tls_to_redis_is_used_if_configured() {
    let (server, authority) = (Server::redis(&[]), Authority::new());
    let address = gate::before(server.port, authority.server("redis.test", false, &[])).await;
    let mut tls = authority.trusted();
    tls.server_name = Some("redis.test".to_owned());
    let remote = RemoteOptions { tls: Some(tls), ..RemoteOptions::default() };
    let store = opened(StoreOptions::Redis(RedisOptions { remote, ..RedisOptions::new(address) }));
    store.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(value(&store, "k").await, Some("1".into()));
}

#[tokio::test]
async fn redis_is_used_again_after_its_restart() {
    let mut server = Server::redis(&[]);
    let store = opened(StoreOptions::Redis(to(&server)));
    store.put("k".into(), "1".into()).await.unwrap();
    server.kill();
    let cause = failure(&store).await;
    assert!(["unreachable", "reset"].contains(&cause), "{cause}");
    assert_eq!(failure(&store).await, "unreachable");
    server.restart();
    assert_eq!(value(&store, "k").await, None);
}

#[tokio::test]
async fn check_returns_the_redis_version_and_database() {
    let server = Server::redis(&[]);
    let store = opened(StoreOptions::Redis(RedisOptions { db: 2, ..to(&server) }));
    store.put("k".into(), "1".into()).await.unwrap();
    let report = store.check().await.unwrap();
    assert!(report.server.starts_with("Redis ") || report.server.starts_with("Valkey "), "{report:?}");
    assert_eq!(report.details[1], "database 2: 1 keys");
    assert!(store.get_many(Vec::new()).await.unwrap().is_empty());
}

#[tokio::test]
async fn dropped_redis_call_does_not_affect_other_calls() {
    let server = Server::redis(&[]);
    dropped_calls_do_not_affect_others(&opened(StoreOptions::Redis(to(&server)))).await;
}
