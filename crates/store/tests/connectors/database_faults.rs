//! Tests of database connectors with sockets that fail in ways a real server does not, or that need
//! no server.

use std::sync::Arc;

use sherwood_store::{RemoteOptions, Secret, SqlOptions, Store, StoreOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{failure, opened};

/// A MySQL and a PostgreSQL connector to `address`.
fn connectors(address: &str, remote: &RemoteOptions) -> [Arc<dyn Store>; 2] {
    let options =
        SqlOptions { remote: remote.clone(), ..SqlOptions::new(address, "shop", "shop", "SELECT :key") };
    [opened(StoreOptions::MySql(options.clone())), opened(StoreOptions::Postgres(options))]
}

/// Starts a server that sends `greeting` on every connection and keeps it open with `stays`, or
/// closes it, if it has a greeting after it received bytes. Returns its address.
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

/// Options with a connect timeout that is long enough on a busy machine.
fn long_timeouts() -> RemoteOptions {
    RemoteOptions { connect_timeout_ms: 30_000, ..RemoteOptions::default() }
}

#[tokio::test]
async fn database_at_a_closed_port_is_unreachable() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    each(&free, &long_timeouts(), "unreachable").await;
}

#[tokio::test]
async fn unknown_host_name_of_a_database_is_an_error_of_cause_name() {
    each("sherwood.invalid:1", &long_timeouts(), "name").await;
}

#[tokio::test]
async fn database_server_that_sends_no_greeting_is_an_error_of_cause_silent() {
    let hasty = RemoteOptions { connect_timeout_ms: 100, ..RemoteOptions::default() };
    each(&says(b"", true).await, &hasty, "silent").await;
}

#[tokio::test]
async fn connection_closed_by_the_database_server_is_an_error_of_cause_reset() {
    each(&says(b"", false).await, &long_timeouts(), "reset").await;
}

#[tokio::test]
async fn server_of_another_protocol_than_the_database_is_a_protocol_error() {
    each(&says(b"SSH-2.0-OpenSSH_9.2\r\n", false).await, &long_timeouts(), "protocol").await;
    each(&says(b"HTTP/1.1 400 Bad Request\r\n\r\n", false).await, &long_timeouts(), "protocol").await;
}

/// A packet of MySQL's protocol.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], body].concat()
}

#[tokio::test]
async fn unsupported_authentication_method_of_mysql_is_refused() {
    let capabilities: u32 = 0x0008_8200;
    let [low, high] = [capabilities & 0xffff, capabilities >> 16].map(|half| (half as u16).to_le_bytes());
    let greeting = [
        &b"\x0a11.8.0-MariaDB\0\x01\0\0\0saltsalt\0"[..],
        &low,
        b"\x21\x02\0",
        &high,
        b"\x15\0\0\0\0\0\0\0\0\0\0saltsaltsalt\0mysql_native_password\0",
    ];
    let another = [&b"\xfeparsec\0"[..], &[b'n'; 32], b"\0"].concat();
    let salt = [&b"P\0"[..], &[b's'; 18]].concat();
    let said = [packet(0, &greeting.concat()), packet(2, &another), packet(4, &salt)].concat();
    let address = says(said.leak(), true).await;
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "secret").unwrap();
    let password = Some(Secret::File(password));
    let options =
        SqlOptions { password, remote: long_timeouts(), ..SqlOptions::new(address, "u", "d", "SELECT :key") };
    let error = opened(StoreOptions::MySql(options)).get_many(Vec::new()).await.unwrap_err();
    assert_eq!(error.cause().label(), "credentials");
    assert!(error.to_string().contains("in a way that is not known here"), "{error}");
}

#[tokio::test]
async fn invalid_options_of_a_database_are_refused_before_connecting() {
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
