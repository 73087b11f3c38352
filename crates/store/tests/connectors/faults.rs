//! Before sockets that misbehave: each way to fail has its cause, for every kind of connector.

use std::sync::Arc;

use sherwood_store::{
    Fault, HttpOptions, MemcachedOptions, RedisOptions, RemoteOptions, SqlOptions, SqlValue, Store,
    StoreOptions, TlsOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::certificates::Authority;
use crate::{failure, gate, label, opened};

/// Every kind of connector to `address`, and what its server would say to a read.
fn connectors(address: &str, remote: &RemoteOptions) -> Vec<(Arc<dyn Store>, &'static [u8])> {
    let scheme = if remote.tls.is_some() { "https" } else { "http" };
    let memcached = MemcachedOptions { remote: remote.clone(), ..MemcachedOptions::new(address) };
    let redis = RedisOptions { remote: remote.clone(), ..RedisOptions::new(address) };
    let http =
        HttpOptions { remote: remote.clone(), ..HttpOptions::new(format!("{scheme}://{address}/{{key}}")) };
    vec![
        (opened(StoreOptions::Memcached(memcached)), &b"VALUE k 0 9\r\nvalue"[..]),
        (opened(StoreOptions::Redis(redis)), b"*1\r\n$9\r\nvalue"),
        (opened(StoreOptions::Http(http)), b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nvalue"),
    ]
}

/// Times that pass quickly.
fn hasty() -> RemoteOptions {
    RemoteOptions { connect_timeout_ms: 100, answer_timeout_ms: 50, ..RemoteOptions::default() }
}

/// Listens, reads a question on each connection, and then says this and hangs up, or waits where
/// `stays` is set.
async fn says(answer: &'static [u8], stays: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(answer).await;
            if stays {
                kept.push(stream);
            }
        }
    });
    address
}

async fn each(address: &str, remote: &RemoteOptions, expected: &str) {
    for (store, _) in connectors(address, remote) {
        assert_eq!(failure(&store).await, expected, "{}", store.kind());
    }
}

#[tokio::test]
async fn nobody_listens() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    each(&free, &RemoteOptions::default(), "unreachable").await;
}

#[tokio::test]
async fn the_name_is_unknown() {
    // A name that is reserved for having no address.
    each(
        "sherwood.invalid:1",
        &RemoteOptions { connect_timeout_ms: 5_000, ..RemoteOptions::default() },
        "name",
    )
    .await;
}

#[tokio::test]
async fn it_accepts_and_says_nothing() {
    each(&says(b"", true).await, &hasty(), "silent").await;
    let authority = Authority::new();
    let secure = RemoteOptions { tls: Some(authority.trusted()), ..hasty() };
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    each(&mute.local_addr().unwrap().to_string(), &secure, "silent").await;
}

#[tokio::test]
async fn a_write_that_is_not_answered_may_have_been_done() {
    let address = says(b"", true).await;
    let item = format!("http://{address}/{{key}}");
    let (write, delete) = (Some(format!("PUT {item}")), Some(format!("DELETE {item}")));
    let http = HttpOptions { write, delete, remote: hasty(), ..HttpOptions::new(item) };
    let mut stores = connectors(&address, &hasty());
    stores[2].0 = opened(StoreOptions::Http(http));
    for (store, _) in stores {
        for answer in [store.put("k".into(), "1".into()).await, store.delete("k".into()).await] {
            let error = answer.unwrap_err();
            assert_eq!((error.cause().label(), error.fault()), ("silent", Fault::Broken), "{error}");
        }
    }
}

#[tokio::test]
async fn it_stops_amid_an_answer() {
    for (i, answer) in connectors("127.0.0.1:1", &hasty()).into_iter().map(|(_, answer)| answer).enumerate() {
        let (breaks, hangs) = (says(answer, false).await, says(answer, true).await);
        assert_eq!(failure(&connectors(&breaks, &hasty())[i].0).await, "reset");
        assert_eq!(failure(&connectors(&hangs, &hasty())[i].0).await, "silent");
    }
}

/// Answers each question with what `answer` makes of it.
async fn answers(answer: fn(&str) -> &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 1024];
            while let Ok(read @ 1..) = stream.read(&mut asked).await {
                let _ = stream.write_all(answer(&String::from_utf8_lossy(&asked[..read])).as_bytes()).await;
            }
        }
    });
    address
}

#[tokio::test]
async fn a_first_look_reads_as_calls_do() {
    let memcached =
        answers(|asked| if asked.starts_with("version") { "VERSION 1.6\r\n" } else { "ERROR\r\n" });
    let memcached = opened(StoreOptions::Memcached(MemcachedOptions::new(memcached.await)));
    let redis = answers(|asked| match asked {
        asked if asked.contains("INFO") => "$0\r\n\r\n",
        asked if asked.contains("PING") => "+PONG\r\n",
        _ => "-ERR unknown command 'MGET'\r\n",
    });
    let redis = opened(StoreOptions::Redis(RedisOptions::new(redis.await)));
    for store in [memcached, redis] {
        assert_eq!(label(store.check().await), "statement", "{}", store.kind());
        assert_eq!(label(store.get_many(Vec::new()).await), "statement", "{}", store.kind());
    }
}

/// Turns everybody away: says this, reads nothing and hangs up.
async fn turns_away(words: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(words.as_bytes()).await;
        }
    });
    address
}

#[tokio::test]
async fn it_says_why_it_turns_clients_away() {
    let denied = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set\r\n";
    for (words, label) in [(denied, "credentials"), ("-ERR max number of clients reached\r\n", "busy")] {
        let address = turns_away(words).await;
        // However early the words come, and whether they come before a call, a log-in or amid them.
        for db in [0, 1] {
            for _ in 0..20 {
                let store = opened(StoreOptions::Redis(RedisOptions { db, ..RedisOptions::new(&address) }));
                let error = store.get_many(vec!["k".into()]).await.unwrap_err();
                assert_eq!(error.cause().label(), label, "{error}");
                assert!(label == "busy" || error.to_string().contains("`protected-mode no`"), "{error}");
            }
        }
    }
    let address = turns_away("ERROR Too many open connections\r\n").await;
    for _ in 0..20 {
        let store = opened(StoreOptions::Memcached(MemcachedOptions::new(&address)));
        assert_eq!(failure(&store).await, "busy");
    }
}

#[tokio::test]
async fn it_speaks_something_else() {
    each(&says(b"SSH-2.0-OpenSSH_9.2\r\n", false).await, &RemoteOptions::default(), "protocol").await;
    let authority = Authority::new();
    let secure = RemoteOptions { tls: Some(authority.trusted()), ..RemoteOptions::default() };
    each(&says(b"SSH-2.0-OpenSSH_9.2\r\n", false).await, &secure, "protocol").await;
}

#[tokio::test]
async fn its_certificate_is_for_another_name_or_by_nobody_known() {
    let (ours, others) = (Authority::new(), Authority::new());
    let secure = |tls: TlsOptions| RemoteOptions { tls: Some(tls), ..RemoteOptions::default() };
    let other_name = gate::before(1, ours.server("other.test", false, &[])).await;
    each(&other_name, &secure(ours.trusted()), "certificate").await;
    let other_authority = gate::before(1, others.server("127.0.0.1", false, &[])).await;
    each(&other_authority, &secure(ours.trusted()), "certificate").await;
}

#[tokio::test]
async fn it_wants_to_see_a_certificate_of_ours() {
    let authority = Authority::new();
    let secure = |tls: TlsOptions| RemoteOptions { tls: Some(tls), ..RemoteOptions::default() };
    let asks = gate::before(1, authority.server("127.0.0.1", true, &[])).await;
    each(&asks, &secure(authority.trusted()), "certificate").await;
    // With one, the gate opens; behind it, nobody listens.
    each(&asks, &secure(authority.trusted_with_a_certificate()), "reset").await;
}

#[tokio::test]
async fn a_failure_names_the_address_and_no_more_than_it_should() {
    for (store, _) in connectors("127.0.0.1:1", &RemoteOptions::default()) {
        let said = store.get_many(vec!["secret-key".into()]).await.unwrap_err().to_string();
        assert!(said.contains("could not get 1 key on store `b`: 127.0.0.1:1 cannot be reached"), "{said}");
        assert!(!said.contains("secret-key"), "{said}");
    }
}

#[tokio::test]
async fn what_is_read_may_be_more_than_what_was_written() {
    let redis = |options| opened(StoreOptions::Redis(options)).answers_as_written();
    let told = RedisOptions { ttl_of_server: true, ..RedisOptions::new("h") };
    assert!(redis(RedisOptions { write_ttl_s: Some(9), ..RedisOptions::new("h") }) && redis(told.clone()));
    assert!(!redis(RedisOptions { write_ttl_s: Some(9), ..told }));
    assert!(!opened(StoreOptions::Http(HttpOptions::new("http://h/{key}"))).answers_as_written());
    let sql = |value, tags: Option<&str>| {
        let options = SqlOptions::new("h:1", "u", "d", "SELECT v FROM t WHERE k = :key");
        let options = SqlOptions { value, tags_column: tags.map(str::to_owned), ..options };
        opened(StoreOptions::Postgres(options)).answers_as_written()
    };
    assert!(
        sql(SqlValue::Column, None) && !sql(SqlValue::Column, Some("tags")) && !sql(SqlValue::Json, None)
    );
}
