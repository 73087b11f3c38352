//! Tests of connectors with sockets that fail: each kind of failure has its cause, for every kind
//! of connector but those of databases.

use std::sync::Arc;

use sherwood_store::{
    DynamoDbOptions, Fault, HttpOptions, MemcachedOptions, RedisOptions, RemoteOptions, SqlOptions, SqlValue,
    Store, StoreOptions, TlsOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::certificates::Authority;
use crate::{failure, gate, label, opened};

/// A memcached, Redis, HTTP and DynamoDB connector to `address`, each with the start of a server's
/// reply to a read.
pub(crate) fn connectors(address: &str, remote: &RemoteOptions) -> Vec<(Arc<dyn Store>, &'static [u8])> {
    let scheme = if remote.tls.is_some() { "https" } else { "http" };
    let memcached = MemcachedOptions { remote: remote.clone(), ..MemcachedOptions::new(address) };
    let redis = RedisOptions { remote: remote.clone(), ..RedisOptions::new(address) };
    let http =
        HttpOptions { remote: remote.clone(), ..HttpOptions::new(format!("{scheme}://{address}/{{key}}")) };
    let dynamodb = DynamoDbOptions {
        remote: remote.clone(),
        ..crate::dynamodb::options(&format!("{scheme}://{address}"))
    };
    vec![
        (opened(StoreOptions::Memcached(memcached)), &b"VALUE k 0 9\r\nvalue"[..]),
        (opened(StoreOptions::Redis(redis)), b"*1\r\n$9\r\nvalue"),
        (opened(StoreOptions::Http(http)), b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nvalue"),
        (opened(StoreOptions::DynamoDb(dynamodb)), b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"Item"),
    ]
}

/// Options with timeouts of at most 100 ms, for servers that do not answer.
fn short_timeouts() -> RemoteOptions {
    RemoteOptions { connect_timeout_ms: 100, answer_timeout_ms: 50, ..RemoteOptions::default() }
}

/// Starts a server that reads a request on each connection, sends `answer`, and closes the
/// connection or keeps it open with `stays`. Returns its address.
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
async fn server_at_a_closed_port_is_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    each(&free, &RemoteOptions::default(), "unreachable").await;
}

#[tokio::test]
async fn unknown_host_name_of_a_server_is_an_error_of_cause_name() {
    // The top-level domain `.invalid` is reserved and never resolves.
    each(
        "sherwood.invalid:1",
        &RemoteOptions { connect_timeout_ms: 5_000, ..RemoteOptions::default() },
        "name",
    )
    .await;
}

#[tokio::test]
async fn server_that_does_not_answer_is_an_error_of_cause_silent() {
    each(&says(b"", true).await, &short_timeouts(), "silent").await;
    let authority = Authority::new();
    let secure = RemoteOptions { tls: Some(authority.trusted()), ..short_timeouts() };
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    each(&mute.local_addr().unwrap().to_string(), &secure, "silent").await;
}

#[tokio::test]
async fn write_without_an_answer_may_have_been_done() {
    let address = says(b"", true).await;
    let item = format!("http://{address}/{{key}}");
    let (write, delete) = (Some(format!("PUT {item}")), Some(format!("DELETE {item}")));
    let http = HttpOptions { write, delete, remote: short_timeouts(), ..HttpOptions::new(item) };
    let mut stores = connectors(&address, &short_timeouts());
    stores[2].0 = opened(StoreOptions::Http(http));
    for (store, _) in stores {
        for answer in [store.put("k".into(), "1".into()).await, store.delete("k".into()).await] {
            let error = answer.unwrap_err();
            assert_eq!((error.cause().label(), error.fault()), ("silent", Fault::Broken), "{error}");
        }
    }
}

#[tokio::test]
async fn connection_closed_within_an_answer_is_an_error_of_cause_reset() {
    for (i, answer) in
        connectors("127.0.0.1:1", &short_timeouts()).into_iter().map(|(_, answer)| answer).enumerate()
    {
        let (breaks, hangs) = (says(answer, false).await, says(answer, true).await);
        assert_eq!(failure(&connectors(&breaks, &short_timeouts())[i].0).await, "reset");
        assert_eq!(failure(&connectors(&hangs, &short_timeouts())[i].0).await, "silent");
    }
}

/// Starts a server that answers each request with the result of `answer`. Returns its address.
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
async fn check_of_a_connector_reads_a_key_like_a_call() {
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

/// Starts a server that refuses every connection: it sends `words`, reads nothing and closes.
/// Returns its address.
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
async fn refusal_of_a_connection_by_the_server_is_mapped_to_its_cause() {
    let denied = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set\r\n";
    for (words, label) in [(denied, "credentials"), ("-ERR max number of clients reached\r\n", "busy")] {
        let address = turns_away(words).await;
        // The refusal may arrive before or during a call or a login.
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
async fn server_of_another_protocol_than_the_connector_is_a_protocol_error() {
    each(&says(b"SSH-2.0-OpenSSH_9.2\r\n", false).await, &RemoteOptions::default(), "protocol").await;
    let authority = Authority::new();
    let secure = RemoteOptions { tls: Some(authority.trusted()), ..RemoteOptions::default() };
    each(&says(b"SSH-2.0-OpenSSH_9.2\r\n", false).await, &secure, "protocol").await;
}

#[tokio::test]
async fn certificate_for_another_name_or_of_an_unknown_authority_is_refused() {
    let (ours, others) = (Authority::new(), Authority::new());
    let secure = |tls: TlsOptions| RemoteOptions { tls: Some(tls), ..RemoteOptions::default() };
    let other_name = gate::before(1, ours.server("other.test", false, &[])).await;
    each(&other_name, &secure(ours.trusted()), "certificate").await;
    let other_authority = gate::before(1, others.server("127.0.0.1", false, &[])).await;
    each(&other_authority, &secure(ours.trusted()), "certificate").await;
}

#[tokio::test]
async fn connector_presents_a_client_certificate_if_the_server_requires_one() {
    let authority = Authority::new();
    let secure = |tls: TlsOptions| RemoteOptions { tls: Some(tls), ..RemoteOptions::default() };
    let asks = gate::before(1, authority.server("127.0.0.1", true, &[])).await;
    each(&asks, &secure(authority.trusted()), "certificate").await;
    // With a client certificate the proxy accepts; no server listens behind it.
    each(&asks, &secure(authority.trusted_with_a_certificate()), "reset").await;
}

#[tokio::test]
async fn error_of_a_connector_names_the_address_and_no_secret() {
    for (store, _) in connectors("127.0.0.1:1", &RemoteOptions::default()) {
        let said = store.get_many(vec!["secret-key".into()]).await.unwrap_err().to_string();
        assert!(said.contains("could not get 1 key on store `b`: 127.0.0.1:1 cannot be reached"), "{said}");
        assert!(!said.contains("secret-key"), "{said}");
    }
}

#[tokio::test]
async fn only_connectors_whose_values_have_no_other_properties_answer_as_written() {
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
