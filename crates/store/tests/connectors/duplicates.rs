//! Tests of stores as duplicates, with Redis and memcached servers: changes in order, the marker,
//! and copies.

use std::sync::Arc;

use bytes::Bytes;
use sherwood_store::{
    Applied, Cause, ChangeConnection, Copied, KeyChange, KeyPartition, MemcachedOptions, PAGE_KEYS_MAX,
    RESERVED_PREFIX, RedisOptions, RemoteOptions, Secret, Store, StoreError, StoreKind, StoreOptions, copy,
};

use crate::kept_caches::Operator;
use crate::servers::Server;
use crate::{keys, opened, patient, value, values};

const KINDS: [StoreKind; 2] = [StoreKind::Redis, StoreKind::Memcached];

fn server(kind: StoreKind) -> Server {
    match kind {
        StoreKind::Redis => Server::redis(&[]),
        _ => Server::memcached(|_| Vec::new()),
    }
}

/// Opens a store of a server, whose written values expire after 100 s if `expires`.
fn store(kind: StoreKind, server: &Server, key_prefix: &str, expires: bool) -> Arc<dyn Store> {
    with(kind, server, key_prefix, expires, patient())
}

fn with(
    kind: StoreKind,
    server: &Server,
    key_prefix: &str,
    expires: bool,
    remote: RemoteOptions,
) -> Arc<dyn Store> {
    let (key_prefix, write_ttl_s) = (key_prefix.to_owned(), expires.then_some(100));
    opened(match kind {
        StoreKind::Redis => StoreOptions::Redis(RedisOptions {
            key_prefix,
            write_ttl_s,
            ttl_of_server: true,
            remote,
            ..RedisOptions::new(server.address())
        }),
        _ => StoreOptions::Memcached(MemcachedOptions {
            key_prefix,
            write_ttl_s,
            remote,
            ..MemcachedOptions::new(server.address())
        }),
    })
}

pub(crate) async fn connected(store: &Arc<dyn Store>) -> Box<dyn ChangeConnection> {
    store.as_duplicate().expect("it can be one").connect(0).await.expect("a connection")
}

pub(crate) async fn copied(from: &Arc<dyn Store>, to: &Arc<dyn Store>) -> Result<Copied, StoreError> {
    let [from, to] = [from, to].map(|store| store.as_duplicate().expect("it can be one"));
    copy(from, to, &KeyPartition { number: 0, has: &|_| true }).await
}

pub(crate) fn put(key: &str, value: impl Into<Bytes>) -> KeyChange {
    KeyChange { key: Bytes::copy_from_slice(key.as_bytes()), value: Some(value.into()) }
}

pub(crate) fn removal(key: &str) -> KeyChange {
    KeyChange { key: Bytes::copy_from_slice(key.as_bytes()), value: None }
}

/// The positions and labels of refused changes.
pub(crate) fn refused(applied: &Applied) -> Vec<(usize, &'static str)> {
    match applied {
        Applied::Answered(refused) => {
            refused.iter().map(|(at, error)| (*at, error.cause().label())).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the server's answer to the question how long a key lives.
async fn lives(kind: StoreKind, server: &Server, key: &str) -> String {
    let mut operator = Operator::at(server).await;
    match kind {
        StoreKind::Redis => operator.say(&format!("TTL {key}"), "\r\n").await,
        _ => operator.say(&format!("mg {key} t"), "\r\n").await,
    }
}

#[tokio::test]
async fn changes_are_made_in_their_order_and_the_marker_does_not_expire() {
    for kind in KINDS {
        let server = server(kind);
        let store = store(kind, &server, "ours:", true);
        let mut connection = connected(&store).await;
        assert_eq!(connection.marker().await, Ok(None));
        let mut changes: Vec<KeyChange> = (0..=1_000).map(|n| put("k", n.to_string())).collect();
        changes.extend([put("a", "1"), removal("a"), removal("absent"), put("b", "")]);
        assert_eq!(refused(&connection.apply("first".into(), changes).await), []);
        assert_eq!(values(&store, &["k", "a", "b"]).await, [Some("1000".into()), None, Some(String::new())]);
        assert_eq!(refused(&connection.apply("second".into(), Vec::new()).await), []);
        assert_eq!(connection.marker().await, Ok(Some("second".into())));
        assert_eq!(connected(&store).await.marker().await, Ok(Some("second".into())));
        let (unlimited, limited) =
            (lives(kind, &server, "ours:sherwood.log.marker.0").await, lives(kind, &server, "ours:k").await);
        match kind {
            StoreKind::Redis => assert_eq!((&unlimited[..], limited.starts_with(":-")), (":-1\r\n", false)),
            _ => assert_eq!((&unlimited[..], limited.starts_with("HD t-")), ("HD t-1\r\n", false)),
        }
    }
}

#[tokio::test]
async fn change_that_is_too_large_is_refused_by_position_and_the_others_are_made() {
    for kind in KINDS {
        let server = server(kind);
        let remote = RemoteOptions { value_bytes_max: 4 << 20, ..patient() };
        let store = with(kind, &server, "", false, remote);
        let mut connection = connected(&store).await;
        let large = |bytes| vec![b'x'; bytes];
        let changes =
            vec![put("a", "1"), put("b", large((4 << 20) + 1)), put("c", large(3 << 20)), put("d", "4")];
        let applied = connection.apply("m".into(), changes).await;
        match kind {
            StoreKind::Redis => assert_eq!(refused(&applied), [(1, "refused")]),
            // Its items have at most 1 MiB.
            _ => assert_eq!(refused(&applied), [(1, "refused"), (2, "server")]),
        }
        assert_eq!(values(&store, &["a", "b", "d"]).await, [Some("1".into()), None, Some("4".into())]);
    }
}

#[tokio::test]
async fn memcached_key_that_it_cannot_hold_is_refused_when_stored_and_absent_when_removed() {
    let server = server(StoreKind::Memcached);
    let long = "x".repeat(240);
    let store = store(StoreKind::Memcached, &server, &long, false);
    let mut connection = connected(&store).await;
    // The marker's key is too long as well.
    let Applied::Unmarked(error) = connection.apply("m".into(), vec![put("a", "1")]).await else { panic!() };
    assert_eq!((error.cause().label(), connection.marker().await), ("refused", Ok(None)));
    let store = self::store(StoreKind::Memcached, &server, "", false);
    let applied = connected(&store).await.apply("m".into(), vec![removal("a b"), put("a b", "1")]).await;
    assert_eq!(refused(&applied), [(1, "unsupported")]);
}

#[tokio::test]
async fn redis_without_memory_refuses_the_marker_and_makes_no_change() {
    let server = server(StoreKind::Redis);
    let store = store(StoreKind::Redis, &server, "", false);
    let mut connection = connected(&store).await;
    assert_eq!(refused(&connection.apply("first".into(), vec![put("a", "1")]).await), []);
    let mut operator = Operator::at(&server).await;
    operator.say("CONFIG SET maxmemory-policy noeviction", "+OK\r\n").await;
    operator.say("CONFIG SET maxmemory 1", "+OK\r\n").await;
    // Without memory, it would still remove keys.
    let Applied::Unmarked(error) = connection.apply("second".into(), vec![removal("a")]).await else {
        panic!()
    };
    assert_eq!(error.cause().label(), "busy");
    assert_eq!(
        (value(&store, "a").await, connection.marker().await),
        (Some("1".into()), Ok(Some("first".into())))
    );
    operator.say("CONFIG SET maxmemory 0", "+OK\r\n").await;
    assert_eq!(refused(&connection.apply("third".into(), vec![removal("a")]).await), []);
    assert_eq!(value(&store, "a").await, None);
}

#[tokio::test]
async fn redis_change_of_a_forbidden_key_is_refused_by_position() {
    let rights = format!("--user shop on >book ~{RESERVED_PREFIX}* ~a* +set +del +mget +pttl");
    let server = Server::redis(&rights.split(' ').collect::<Vec<_>>());
    let path = server.folder.path().join("password");
    std::fs::write(&path, "book").unwrap();
    let (user, password) = (Some("shop".to_owned()), Some(Secret::File(path)));
    let options = RedisOptions { user, password, remote: patient(), ..RedisOptions::new(server.address()) };
    let store = opened(StoreOptions::Redis(options));
    let changes = vec![put("a1", "1"), put("b", "2"), removal("c"), put("a2", "3")];
    let applied = connected(&store).await.apply("m".into(), changes).await;
    assert_eq!(refused(&applied), [(1, "credentials"), (2, "credentials")]);
    assert_eq!(values(&store, &["a1", "a2"]).await, [Some("1".into()), Some("3".into())]);
}

#[tokio::test]
async fn connection_to_a_demoted_redis_primary_ends_after_a_refused_marker() {
    let server = server(StoreKind::Redis);
    let mut connection = connected(&store(StoreKind::Redis, &server, "", false)).await;
    Operator::at(&server).await.say("REPLICAOF 127.0.0.1 1", "\r\n").await;
    let Applied::Unmarked(error) = connection.apply("m".into(), vec![put("a", "1")]).await else { panic!() };
    assert_eq!(error.cause().label(), "wrong_server");
    connection.ended().await;
    let applied = connection.apply("m".into(), vec![put("a", "1")]).await;
    assert!(matches!(applied, Applied::Broken { made: 0, .. }), "{applied:?}");
}

#[tokio::test]
async fn end_of_a_killed_server_is_noticed_without_a_change_and_the_connection_stays_ended() {
    for kind in KINDS {
        let mut server = server(kind);
        let mut connection = connected(&store(kind, &server, "", false)).await;
        assert_eq!(refused(&connection.apply("m".into(), vec![put("a", "1")]).await), []);
        let killed = tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
            server
        });
        connection.ended().await;
        let _server = killed.await.unwrap();
        let applied = connection.apply("m".into(), vec![put("a", "1")]).await;
        assert!(matches!(applied, Applied::Broken { made: 0, .. }), "{applied:?}");
        assert!(connection.marker().await.is_err());
        connection.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reported_as_made_survive_a_kill_of_redis_in_the_middle_of_a_batch() {
    const CHANGES: usize = 20_000;
    let mut server = Server::redis(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = store(StoreKind::Redis, &server, "", false);
    let mut connection = connected(&store).await;
    let changes = (0..CHANGES).map(|n| put(&n.to_string(), "1")).collect();
    let batch = tokio::spawn(async move { connection.apply("m".into(), changes).await });
    while value(&store, "100").await.is_none() {}
    let _server = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
        server
    });
    let made = match batch.await.unwrap() {
        Applied::Broken { made, .. } => made,
        other => CHANGES - refused(&other).len(),
    };
    let _server = _server.await.unwrap();
    assert_eq!(connected(&store).await.marker().await, Ok(Some("m".into())));
    let names: Vec<String> = (0..made).map(|n| n.to_string()).collect();
    for some in names.chunks(1_000) {
        let asked: Vec<&str> = some.iter().map(String::as_str).collect();
        assert!(values(&store, &asked).await.iter().all(Option::is_some), "{made} were made");
    }
}

#[tokio::test]
async fn dropped_batch_ends_its_connection() {
    for kind in KINDS {
        let server = server(kind);
        let store = store(kind, &server, "", false);
        let mut connection = connected(&store).await;
        let mut batch = connection.apply("m".into(), vec![put("a", "1")]);
        std::future::poll_fn(|context| std::task::Poll::Ready(batch.as_mut().poll(context).is_pending()))
            .await;
        drop(batch);
        connection.ended().await;
        let applied = connection.apply("m".into(), Vec::new()).await;
        assert!(matches!(applied, Applied::Broken { made: 0, .. }), "{applied:?}");
    }
}

/// Writes an item with flags and a time to live to memcached, or one with a time to live to Redis.
async fn write_item(kind: StoreKind, server: &Server, key: &str, value: &str, flags: u32, ttl_s: u32) {
    let mut operator = Operator::at(server).await;
    match kind {
        StoreKind::Redis if ttl_s > 0 => {
            operator.say(&format!("SET {key} {value} EX {ttl_s}"), "+OK\r\n").await
        }
        StoreKind::Redis => operator.say(&format!("SET {key} {value}"), "+OK\r\n").await,
        _ => {
            operator.say(&format!("set {key} {flags} {ttl_s} {}\r\n{value}", value.len()), "STORED\r\n").await
        }
    };
}

#[tokio::test]
async fn copy_makes_the_contents_of_a_store_equal_and_touches_nothing_else() {
    for kind in KINDS {
        let (first, second) = (server(kind), server(kind));
        let from = store(kind, &first, "a*[b]:", false);
        let to = store(kind, &second, "other:", false);
        for n in 0..700 {
            from.put(format!("k{n}").into(), format!("v{n}").into()).await.unwrap();
        }
        let binary = Bytes::from_static(b"\xff\xfe%4:&=?\x80");
        from.put(binary.clone(), Bytes::from_static(b"\0\r\nEND\r\n")).await.unwrap();
        write_item(kind, &first, "a*[b]:flagged", "f", 4_000_000_000, 0).await;
        write_item(kind, &first, "a*[b]:short", "s", 7, 1_000).await;
        write_item(kind, &first, "axb:foreign", "x", 0, 0).await;
        assert_eq!(refused(&connected(&from).await.apply("source".into(), Vec::new()).await), []);

        let old = vec![put("k1", "old"), put("gone", "1"), put("gone-too", "1")];
        assert_eq!(refused(&connected(&to).await.apply("old".into(), old).await), []);
        write_item(kind, &second, "kept", "1", 0, 0).await;

        assert_eq!(copied(&from, &to).await, Ok(Copied { items: 703, removed: 2 }));
        let mut asked: Vec<Bytes> = (0..700).map(|n| format!("k{n}").into()).collect();
        asked.extend([binary, "flagged".into()]);
        asked.extend(keys(&["gone", "gone-too", "foreign", "kept"]));
        let (at_source, at_destination) =
            (from.get_many(asked.clone()).await.unwrap(), to.get_many(asked).await.unwrap());
        assert_eq!(at_source.iter().flatten().count(), 702);
        assert!(at_source == at_destination, "the contents differ");
        let short = lives(kind, &second, "other:short").await;
        let seconds: u32 = short.trim().trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        assert!((1..=1_000).contains(&seconds), "{short}");
        assert_eq!(connected(&to).await.marker().await, Ok(None));
        assert_eq!(connected(&from).await.marker().await, Ok(Some("source".into())));
        assert_eq!(value(&store(kind, &second, "", false), "kept").await, Some("1".into()));
        assert_eq!(copied(&from, &to).await, Ok(Copied { items: 703, removed: 0 }));
    }
}

#[tokio::test]
async fn copy_of_an_empty_store_removes_everything_and_needs_two_stores_of_one_kind() {
    for kind in KINDS {
        let (first, second) = (server(kind), server(kind));
        let (from, to) = (store(kind, &first, "", false), store(kind, &second, "", false));
        to.put("k".into(), "1".into()).await.unwrap();
        assert_eq!(copied(&from, &to).await, Ok(Copied { items: 0, removed: 1 }));
        assert_eq!(value(&to, "k").await, None);
    }
    let (redis, memcached) = (server(StoreKind::Redis), server(StoreKind::Memcached));
    let (from, to) =
        (store(StoreKind::Redis, &redis, "", false), store(StoreKind::Memcached, &memcached, "", false));
    assert!(matches!(copied(&from, &to).await.unwrap_err().cause(), Cause::Unsupported { .. }));
}

#[tokio::test]
async fn copy_reads_at_most_the_bytes_of_one_call_at_once_and_fails_at_a_value_over_the_limit() {
    for kind in KINDS {
        let (first, second) = (server(kind), server(kind));
        let remote = RemoteOptions { value_bytes_max: 1 << 10, ..patient() };
        let (from, to) = (with(kind, &first, "", false, remote), store(kind, &second, "", false));
        for n in 0..300 {
            from.put(format!("k{n}").into(), vec![b'v'; 100 + n * 3].into()).await.unwrap();
        }
        assert_eq!(copied(&from, &to).await, Ok(Copied { items: 300, removed: 0 }));
        assert_eq!(value(&to, "k299").await.map(|value| value.len()), Some(997));
        store(kind, &first, "", false).put("large".into(), vec![b'v'; 1025].into()).await.unwrap();
        assert_eq!(copied(&from, &to).await.unwrap_err().cause().label(), "too_large");
    }
}

#[tokio::test]
async fn redis_values_of_other_types_are_neither_copied_nor_removed() {
    let (first, second) = (server(StoreKind::Redis), server(StoreKind::Redis));
    let (from, to) =
        (store(StoreKind::Redis, &first, "", false), store(StoreKind::Redis, &second, "", false));
    let (mut at_first, mut at_second) = (Operator::at(&first).await, Operator::at(&second).await);
    at_first.say("RPUSH list 1", ":1\r\n").await;
    at_second.say("RPUSH kept 1", ":1\r\n").await;
    for key in ["list", "other"] {
        to.put(key.into(), "1".into()).await.unwrap();
    }
    from.put("k".into(), "1".into()).await.unwrap();
    assert_eq!(copied(&from, &to).await, Ok(Copied { items: 1, removed: 2 }));
    assert_eq!(values(&to, &["k", "list", "other"]).await, [Some("1".into()), None, None]);
    assert_eq!(at_second.say("LLEN kept", "\r\n").await, ":1\r\n");
}

#[tokio::test]
async fn copy_fails_when_the_destination_refuses_an_item() {
    for kind in KINDS {
        let first = match kind {
            StoreKind::Redis => server(kind),
            _ => Server::memcached(|_| vec!["-I".into(), "4m".into()]),
        };
        let second = server(kind);
        let (from, to) = (store(kind, &first, "", false), store(kind, &second, "", false));
        from.put("k".into(), vec![b'v'; 2 << 20].into()).await.unwrap();
        if kind == StoreKind::Redis {
            Operator::at(&second).await.say("CONFIG SET maxmemory 1", "+OK\r\n").await;
        }
        let error = copied(&from, &to).await.unwrap_err();
        assert!(["busy", "server"].contains(&error.cause().label()), "{error}");
    }
}

#[tokio::test]
async fn walk_of_memcached_begins_once_its_crawler_has_ended_other_work() {
    let server = server(StoreKind::Memcached);
    let store = store(StoreKind::Memcached, &server, "", false);
    let changes = (0..20_000).map(|n| put(&n.to_string(), "1")).collect();
    assert_eq!(refused(&connected(&store).await.apply("m".into(), changes).await), []);
    let mut operator = Operator::at(&server).await;
    // It pauses after each 1,000 items.
    operator.say("lru_crawler sleep 50000", "OK\r\n").await;
    operator.say("lru_crawler crawl all", "OK\r\n").await;
    assert!(operator.say("lru_crawler metadump all", "\n").await.starts_with("BUSY"));
    let mut pages = store.as_duplicate().unwrap().walk().await.unwrap();
    let mut count = 0;
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.len() <= PAGE_KEYS_MAX);
        count += page.len();
    }
    assert_eq!(count, 20_000);
}

#[tokio::test]
async fn memcached_without_a_crawler_cannot_be_walked() {
    let server = Server::memcached(|_| vec!["-o".into(), "no_lru_crawler".into()]);
    let store = store(StoreKind::Memcached, &server, "", false);
    let Err(error) = store.as_duplicate().unwrap().walk().await else { panic!("it was walked") };
    assert_eq!(error.cause().label(), "statement");
}

#[tokio::test]
async fn store_of_another_kind_is_no_duplicate() {
    assert!(opened(StoreOptions::Compute(Default::default())).as_duplicate().is_none());
}
