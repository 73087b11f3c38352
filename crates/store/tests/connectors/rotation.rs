//! Tests of secrets that change while connectors use them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mysql_async::prelude::Queryable;
use sherwood_store::{
    HeaderValue, HttpOptions, MemcachedOptions, RedisOptions, RemoteOptions, Secret, SqlOptions, Store,
    StoreOptions, TlsOptions,
};
use tokio::net::TcpListener;

use crate::certificates::Authority;
use crate::databases::Database;
use crate::servers::Server;
use crate::{failure, faults, gate, mariadb, opened, postgres, value};

/// Longest wait for an event; reached only by a failing test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates a file that contains the secret `old`.
fn secret_file(folder: &Path) -> PathBuf {
    let file = folder.join("secret");
    fs::write(&file, "old\n").unwrap();
    file
}

/// Reads from the store until the result of a read is `expected`: the label of its cause, or `none`
/// for success.
async fn until(store: &Arc<dyn Store>, expected: &str) {
    let begun = Instant::now();
    loop {
        let label = failure(store).await;
        if label == expected {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{} answers {label}, never {expected}", store.kind());
    }
}

/// Checks that a store whose server has just changed its password from `old` to `new` uses the new
/// password as soon as `file` contains it, and keeps the last usable password.
async fn follows(store: &Arc<dyn Store>, file: &Path) {
    until(store, "credentials").await;
    for unusable in ["", "new\nother\n"] {
        fs::write(file, unusable).unwrap();
        assert_eq!(failure(store).await, "credentials", "{}", store.kind());
    }
    fs::write(file, "\u{feff}new\r\n").unwrap();
    until(store, "none").await;
    fs::remove_file(file).unwrap();
    assert_eq!(failure(store).await, "none", "{}", store.kind());
}

/// Runs a `redis-cli` command with this password.
fn redis_cli(server: &Server, password: &str, command: &str) {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &server.port.to_string(), "-a", password, "--no-auth-warning"]);
    let output = cli.args(command.split(' ')).output().expect("redis-cli runs");
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn new_password_of_redis_is_used_without_a_restart() {
    let server = Server::redis(&["--requirepass", "old"]);
    let file = secret_file(server.folder.path());
    let password = Some(Secret::File(file.clone()));
    let store = opened(StoreOptions::Redis(RedisOptions { password, ..RedisOptions::new(server.address()) }));
    assert_eq!(failure(&store).await, "none");
    redis_cli(&server, "old", "config set requirepass new");
    redis_cli(&server, "new", "client kill type normal skipme yes");
    follows(&store, &file).await;
}

#[tokio::test]
async fn new_password_of_memcached_is_used_without_a_restart() {
    let mut server = Server::memcached(|folder| {
        let users = folder.join("users");
        fs::write(&users, "app:old\n").unwrap();
        vec!["-Y".into(), users.display().to_string()]
    });
    let file = secret_file(server.folder.path());
    let (user, password) = (Some("app".to_owned()), Some(Secret::File(file.clone())));
    let options = MemcachedOptions { user, password, ..MemcachedOptions::new(server.address()) };
    let store = opened(StoreOptions::Memcached(options));
    assert_eq!(failure(&store).await, "none");
    fs::write(server.folder.path().join("users"), "app:new\n").unwrap();
    server.kill();
    server.restart();
    follows(&store, &file).await;
}

#[tokio::test]
async fn new_password_of_mariadb_is_used_without_a_restart() {
    let server = Database::mariadb(|_| Vec::new());
    let mut root = mariadb::root(&server).await;
    root.query_drop("CREATE USER 'app'@'127.0.0.1' IDENTIFIED BY 'old'").await.unwrap();
    root.query_drop("GRANT ALL ON shop.* TO 'app'@'127.0.0.1'").await.unwrap();
    let file = secret_file(server.folder.path());
    let store = opened(StoreOptions::MySql(app(&server, &file)));
    assert_eq!(value(&store, "k").await.as_deref(), Some("k"));
    root.query_drop("ALTER USER 'app'@'127.0.0.1' IDENTIFIED BY 'new'").await.unwrap();
    root.query_drop("KILL USER 'app'@'127.0.0.1'").await.unwrap();
    follows(&store, &file).await;
}

#[tokio::test]
async fn new_password_of_postgres_is_used_without_a_restart() {
    let server = Database::postgres(|_| Vec::new());
    let admin = postgres::admin(&server).await;
    admin.batch_execute("CREATE ROLE app LOGIN PASSWORD 'old'").await.unwrap();
    let file = secret_file(server.folder.path());
    let store = opened(StoreOptions::Postgres(app(&server, &file)));
    assert_eq!(value(&store, "k").await.as_deref(), Some("k"));
    admin.batch_execute("ALTER ROLE app PASSWORD 'new'").await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'";
    admin.batch_execute(end).await.unwrap();
    follows(&store, &file).await;
}

/// Returns options of a store with the user `app`, whose password is in `file`.
fn app(server: &Database, file: &Path) -> SqlOptions {
    let password = Some(Secret::File(file.to_owned()));
    SqlOptions { user: "app".into(), password, ..server.options("SELECT CAST(:key AS CHAR(1))") }
}

#[tokio::test]
async fn refused_login_is_retried_immediately_with_the_new_password() {
    let server = Server::redis(&["--requirepass", "new"]);
    let file = secret_file(server.folder.path());
    let password = Some(Secret::File(file.clone()));
    let store = opened(StoreOptions::Redis(RedisOptions { password, ..RedisOptions::new(server.address()) }));
    // Too soon for a check of the file's times.
    fs::write(&file, "new").unwrap();
    assert_eq!(failure(&store).await, "none");

    let server = Database::postgres(|_| Vec::new());
    let admin = postgres::admin(&server).await;
    admin.batch_execute("CREATE ROLE app LOGIN PASSWORD 'new'").await.unwrap();
    let file = secret_file(server.folder.path());
    let store = opened(StoreOptions::Postgres(app(&server, &file)));
    fs::write(&file, "new").unwrap();
    assert_eq!(failure(&store).await, "none");
}

/// Starts an HTTP service that answers 401 to requests without this token. Returns its address.
async fn service_of(token: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(move |request: Request<Incoming>| async move {
                let shown = request.headers().get("authorization").map(|shown| shown.as_bytes());
                let is_known = shown == Some(format!("Bearer {token}").as_bytes());
                let status = if is_known { 200 } else { 401 };
                Response::builder().status(status).body(Full::new(Bytes::from("1")))
            });
            let http1 = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http1.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

#[tokio::test]
async fn request_whose_token_is_refused_is_resent_with_the_new_token() {
    let address = service_of("new").await;
    let folder = tempfile::tempdir().unwrap();
    let file = secret_file(folder.path());
    let mut options = HttpOptions::new(format!("http://{address}/{{key}}"));
    options.write = Some(format!("PUT http://{address}/{{key}}"));
    let header = HeaderValue::File { file: file.clone(), prefix: "Bearer ".into() };
    options.headers.insert("authorization".into(), header);
    let (read, written) = (opened(StoreOptions::Http(options.clone())), opened(StoreOptions::Http(options)));
    fs::write(&file, "new\r\n").unwrap();
    assert_eq!(failure(&read).await, "none");
    written.put("k".into(), "1".into()).await.unwrap();
    fs::write(&file, "wrong\nnew\n").unwrap();
    assert_eq!(failure(&read).await, "none");
    // One that the service does not know leaves the one before in force.
    fs::write(&file, "wrong\n").unwrap();
    assert_eq!(failure(&read).await, "none");
    fs::write(&file, "new").unwrap();
    assert_eq!(failure(&read).await, "none");
}

/// Returns TLS options with files in `folder`, into which the files of `tls` are copied.
fn copied(tls: &TlsOptions, folder: &Path) -> TlsOptions {
    let copy = |file: &Option<PathBuf>, name: &str| {
        let file = file.as_ref()?;
        fs::copy(file, folder.join(name)).unwrap();
        Some(folder.join(name))
    };
    TlsOptions {
        ca: copy(&tls.ca, "ca"),
        cert: copy(&tls.cert, "cert"),
        key: copy(&tls.key, "key"),
        ..tls.clone()
    }
}

#[tokio::test]
async fn new_certificate_authority_of_servers_is_trusted_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    // No server listens behind the proxy.
    let address = gate::before(1, new.server("127.0.0.1", false, &[])).await;
    let folder = tempfile::tempdir().unwrap();
    let tls = Some(copied(&old.trusted(), folder.path()));
    let connectors = faults::connectors(&address, &RemoteOptions { tls, ..RemoteOptions::default() });
    for (store, _) in &connectors {
        assert_eq!(failure(store).await, "certificate", "{}", store.kind());
    }
    copied(&new.trusted(), folder.path());
    for (store, _) in &connectors {
        until(store, "reset").await;
    }
    fs::write(folder.path().join("ca"), "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
    for (store, _) in &connectors {
        assert_eq!(failure(store).await, "reset", "{}", store.kind());
    }
}

#[tokio::test]
async fn new_client_certificate_is_presented_without_a_restart() {
    let (ours, others) = (Authority::new(), Authority::new());
    let address = gate::before(1, ours.server("127.0.0.1", true, &[])).await;
    let folder = tempfile::tempdir().unwrap();
    let stranger = TlsOptions { ca: ours.trusted().ca, ..others.trusted_with_a_certificate() };
    let tls = Some(copied(&stranger, folder.path()));
    let connectors = faults::connectors(&address, &RemoteOptions { tls, ..RemoteOptions::default() });
    for (store, _) in &connectors {
        assert_eq!(failure(store).await, "certificate", "{}", store.kind());
    }
    let known = ours.trusted_with_a_certificate();
    // While only one of the two files is new, the old ones are shown.
    fs::copy(known.cert.as_ref().unwrap(), folder.path().join("cert")).unwrap();
    for (store, _) in &connectors {
        assert_eq!(failure(store).await, "certificate", "{}", store.kind());
    }
    fs::copy(known.key.as_ref().unwrap(), folder.path().join("key")).unwrap();
    for (store, _) in &connectors {
        until(store, "reset").await;
    }
}

#[tokio::test]
async fn new_certificate_authority_of_a_database_is_trusted_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let mariadb = Database::mariadb(|folder| {
        let (cert, key) = new.files("localhost", folder);
        vec![format!("--ssl-cert={}", cert.display()), format!("--ssl-key={}", key.display())]
    });
    let postgres = Database::postgres(|folder| {
        let (cert, key) = new.files("localhost", folder);
        crate::databases::give_to(&key, "postgres");
        let settings = [("ssl", "on".to_owned()), ("ssl_cert_file", cert.display().to_string())];
        let settings = settings.into_iter().chain([("ssl_key_file", key.display().to_string())]);
        settings.flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
    });
    for (server, kind) in
        [(&mariadb, StoreOptions::MySql as fn(_) -> _), (&postgres, StoreOptions::Postgres as fn(_) -> _)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut options = server.options("SELECT CAST(:key AS CHAR(1))");
        let tls = TlsOptions { server_name: Some("localhost".into()), ..old.trusted() };
        options.remote.tls = Some(copied(&tls, folder.path()));
        let store = opened(kind(options));
        assert_eq!(failure(&store).await, "certificate");
        copied(&new.trusted(), folder.path());
        until(&store, "none").await;
    }
}
