//! Tests of the HTTP connector with nginx, which ends kept connections by GOAWAY or at once, and
//! compresses answers.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use sherwood_store::{HeaderValue, HttpOptions, RemoteOptions, Store, StoreOptions};
use tempfile::TempDir;

use crate::certificates::Authority;
use crate::{keys, opened, patient, servers};

/// An nginx with one worker, whose answer to a request is the request's path.
struct Nginx {
    process: Child,
    port: u16,
    folder: TempDir,
    authority: Authority,
}

impl Nginx {
    /// Starts nginx with `more` directives in its server block, for connections with the `protocol`
    /// `ssl http2` or `ssl`.
    fn start(protocol: &str, more: &str) -> Self {
        let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let (certificate, key) = authority.files("127.0.0.1", folder.path());
        let (certificate, key, at) = (certificate.display(), key.display(), folder.path().display());
        let configuration = format!(
            "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/log;
            events {{ worker_connections 256; }}
            http {{
                access_log off; client_body_temp_path {at}/t; proxy_temp_path {at}/t;
                fastcgi_temp_path {at}/t; uwsgi_temp_path {at}/t; scgi_temp_path {at}/t;
                server {{
                    listen 127.0.0.1:{port} {protocol}; ssl_certificate {certificate}; ssl_certificate_key {key};
                    default_type text/plain; {more}
                    location / {{ return 200 \"$uri\"; }}
                }}
            }}"
        );
        fs::write(folder.path().join("nginx.conf"), configuration).unwrap();
        let mut command = command(folder.path());
        let mut process = command.spawn().unwrap_or_else(|error| {
            panic!("nginx is not installed ({error}): apt-get install nginx-light, or `make need-test`")
        });
        servers::until_ready(&mut process, &command, port, || true)
            .unwrap_or_else(|status| panic!("{command:?} ended: {status}"));
        Self { process, port, folder, authority }
    }

    fn signal(&self, name: &str) {
        let status = command(self.folder.path()).args(["-s", name]).status().expect("it is installed");
        assert!(status.success(), "{name}: {status}");
    }

    fn options(&self) -> HttpOptions {
        let tls = Some(self.authority.trusted());
        let remote = RemoteOptions { tls, connections_max: 16, ..patient() };
        HttpOptions { remote, ..HttpOptions::new(format!("https://127.0.0.1:{}/{{key}}", self.port)) }
    }
}

/// Returns a command that runs nginx with the configuration in `folder`.
fn command(folder: &Path) -> Command {
    // Debian installs it outside of the normal path.
    let program = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("nginx.conf")).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its worker ends only if the signal does not come from the system.
        let stopped = command(self.folder.path()).args(["-s", "stop"]).status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Reads 25 keys in each of four concurrent calls, `rounds` times. Every key must have its value.
async fn reads(store: &Arc<dyn Store>, rounds: usize) {
    for round in 0..rounds {
        let call = |call: usize| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let names: Vec<String> = (0..25).map(|key| format!("{round}-{call}-{key}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let found = store.get_many(keys(&names)).await.unwrap();
                for (name, found) in names.iter().zip(found) {
                    assert_eq!(found.unwrap().value, format!("/{name}"));
                }
            })
        };
        for call in (0..4).map(call).collect::<Vec<_>>() {
            call.await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_fails_when_nginx_ends_connections_after_some_requests() {
    for protocol in ["ssl http2", "ssl"] {
        for requests in [1, 10, 50] {
            let nginx = Nginx::start(protocol, &format!("keepalive_requests {requests};"));
            reads(&opened(StoreOptions::Http(nginx.options())), 5).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_fails_when_nginx_is_reloaded() {
    for protocol in ["ssl http2", "ssl"] {
        let nginx = Nginx::start(protocol, "");
        let store = opened(StoreOptions::Http(nginx.options()));
        for _ in 0..5 {
            let reading = tokio::spawn({
                let store = Arc::clone(&store);
                async move { reads(&store, 4).await }
            });
            nginx.signal("reload");
            reading.await.unwrap();
        }
    }
}

#[tokio::test]
async fn answer_that_nginx_compresses_is_decoded() {
    let nginx = Nginx::start("ssl http2", "gzip on; gzip_types *; gzip_min_length 1;");
    let value = async |options| {
        let found = opened(StoreOptions::Http(options)).get_many(keys(&["k"])).await.unwrap().remove(0);
        String::from_utf8(found.unwrap().value.to_vec()).unwrap()
    };
    assert_eq!(value(nginx.options()).await, "/k");
    let mut options = nginx.options();
    options.headers.insert("accept-encoding".into(), HeaderValue::Text("gzip".into()));
    assert_eq!(value(options).await, "/k");
}
