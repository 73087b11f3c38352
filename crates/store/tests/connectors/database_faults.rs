//! Databases that misbehave, as sockets: what needs no server, and what no server does.

use std::sync::Arc;

use sherwood_store::{RemoteOptions, SqlOptions, Store, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{failure, opened};

/// Both kinds of connectors to `address`.
fn connectors(address: &str, remote: &RemoteOptions) -> [Arc<dyn Store>; 2] {
    let options =
        SqlOptions { remote: remote.clone(), ..SqlOptions::new(address, "shop", "shop", "SELECT :key") };
    [opened(StoreOptions::MySql(options.clone())), opened(StoreOptions::Postgres(options))]
}

/// Says this to whoever comes, waits until they have said something, and hangs up, or waits on where `stays` is set.
async fn says(greeting: &'static [u8], stays: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(greeting).await;
            if stays {
                kept.push(stream);
            } else if greeting.is_empty() {
                let _ = stream.shutdown().await;
            } else {
                let _ = stream.read(&mut [0; 1024]).await;
            }
        }
    });
    address
}

async fn each(address: &str, remote: &RemoteOptions, expected: &str) {
    for store in connectors(address, remote) {
        assert_eq!(failure(&store).await, expected, "{}", store.kind());
    }
}

/// Enough for what answers, on a machine that does other things.
fn patient() -> RemoteOptions {
    RemoteOptions { connect_timeout_ms: 30_000, ..RemoteOptions::default() }
}

#[tokio::test]
async fn nobody_listens() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    each(&free, &patient(), "unreachable").await;
}

#[tokio::test]
async fn the_name_is_unknown() {
    each("sherwood.invalid:1", &patient(), "name").await;
}

#[tokio::test]
async fn it_accepts_and_says_nothing() {
    let hasty = RemoteOptions { connect_timeout_ms: 100, ..RemoteOptions::default() };
    each(&says(b"", true).await, &hasty, "silent").await;
}

#[tokio::test]
async fn it_hangs_up() {
    each(&says(b"", false).await, &patient(), "reset").await;
}

#[tokio::test]
async fn it_speaks_something_else() {
    each(&says(b"SSH-2.0-OpenSSH_9.2\r\n", false).await, &patient(), "protocol").await;
    each(&says(b"HTTP/1.1 400 Bad Request\r\n\r\n", false).await, &patient(), "protocol").await;
}

#[tokio::test]
async fn options_that_mean_nothing_are_refused_before_anything_is_opened() {
    let refused = |options: SqlOptions| {
        let Err(error) = sherwood_store::open("b", &StoreOptions::MySql(options)) else {
            panic!("it opened")
        };
        error.to_string()
    };
    let options = || SqlOptions::new("db:3306", "shop", "shop", "SELECT :key");
    assert!(refused(SqlOptions { query: "SELECT 1".into(), ..options() }).contains("`query` cannot be used"));
    assert!(refused(SqlOptions { address: "db/".into(), ..options() }).contains("`address` cannot be used"));
    let remote = RemoteOptions { connections_max: 0, ..RemoteOptions::default() };
    assert!(refused(SqlOptions { remote, ..options() }).contains("`connections_max` is 0"));
    let write = Some("INSERT INTO t VALUES (:key)".into());
    assert!(
        refused(SqlOptions { write, ..options() }).contains("`write` cannot be used (it has no `:value`)")
    );
}
