//! Access control of the HTTP port, tested with curl and openssl.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use sherwood_config::{AccessSetup, Protocol, TlsFiles};
use sherwood_listener::Address;
use sherwood_node::{ListenerSetup, Node, StartError};
use sherwood_store::Store;
use tempfile::TempDir;

use crate::programs::run;
use crate::support::{Answer, Fake, Http, answer, listener, setup};
use crate::wait::{TIMEOUT, eventually};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const READ_TOKEN: &str = "fedcba9876543210fedcba9876543210";

/// Files of a test: certificates of an authority, and tokens.
pub(crate) struct Files(TempDir);

impl Files {
    /// Creates the files; none if openssl is not installed.
    pub(crate) fn new() -> Option<Self> {
        let files = Self(tempfile::tempdir().unwrap());
        files.secret("tokens", TOKEN);
        files.secret("read-tokens", READ_TOKEN);
        files.authority("ca")?;
        files.sign("ca", "server");
        Some(files)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn secret(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).unwrap();
    }

    /// Creates `NAME.pem` and `NAME.key` of an authority.
    fn authority(&self, name: &str) -> Option<()> {
        self.openssl(name, &["-addext", "basicConstraints=critical,CA:TRUE"])
    }

    /// Creates `NAME.pem` and `NAME.key`, signed by the authority.
    fn sign(&self, authority: &str, name: &str) {
        let (ca, key) = (format!("{authority}.pem"), format!("{authority}.key"));
        let leaf = ["-CA", &ca, "-CAkey", &key, "-addext", "basicConstraints=critical,CA:FALSE"];
        let names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        self.openssl(name, &[&leaf[..], &names].concat()).expect("it was there a moment ago");
    }

    fn openssl(&self, name: &str, more: &[&str]) -> Option<()> {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let common = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "9",
        ];
        let mut command = Command::new("openssl");
        command
            .current_dir(self.0.path())
            .args(common)
            .args(["-subj", "/CN=test", "-keyout", &key, "-out", &cert]);
        let output = run(command.args(more), "apt-get install openssl")?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    }

    fn tls(&self, client_ca: bool) -> TlsFiles {
        let client_ca = client_ca.then(|| self.path("ca.pem"));
        TlsFiles { cert: self.path("server.pem"), key: self.path("server.key"), client_ca }
    }

    /// Returns the access setup with TLS and both kinds of tokens.
    pub(crate) fn all(&self) -> AccessSetup {
        AccessSetup {
            tls: Some(self.tls(false)),
            token_file: Some(self.path("tokens")),
            read_token_file: Some(self.path("read-tokens")),
        }
    }

    /// Runs curl for a path with these arguments.
    fn curl(&self, node: &Node, path: &str, args: &[&str]) -> Option<Curl> {
        let url = format!("https://localhost:{}{path}", node.admin().unwrap().port());
        curl(self.0.path(), &url, &[&["--cacert", "ca.pem"], args].concat())
    }
}

/// The result of a run of curl.
#[derive(Debug)]
struct Curl {
    exit: i32,
    /// HTTP status; 0 without a response.
    status: u16,
    head: String,
    body: String,
}

fn curl(directory: &Path, url: &str, args: &[&str]) -> Option<Curl> {
    let mut command = Command::new("curl");
    // Ignores the user's curl configuration and proxies.
    command.current_dir(directory).args(["-q", "-sS", "-i", "--noproxy", "*", "--max-time", "60"]);
    let output = run(command.args(args).arg(url), "apt-get install curl")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or(("", ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let exit = output.status.code().unwrap();
    Some(Curl { exit, status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}

fn start(access: AccessSetup) -> Result<Node, StartError> {
    let fake = Fake::new([("a/1", &b"1"[..])]) as std::sync::Arc<dyn Store>;
    Node::start(sherwood_node::Setup { access, ..setup(vec![("catalog", vec![fake])]) })
}

#[test]
fn token_gives_full_access_and_read_token_gives_read_access() {
    let Some(files) = Files::new() else { return };
    let node = start(files.all()).unwrap();
    let (full, read) =
        (format!("authorization: Bearer {TOKEN}"), format!("authorization: bearer {READ_TOKEN}"));
    let Some(open) = files.curl(&node, "/healthz", &[]) else { return };
    assert_eq!((open.status, open.body.as_str()), (200, "ok\n"));
    let ask = |path: &str, args: &[&str]| files.curl(&node, path, args).unwrap();
    assert_eq!(ask("/readyz", &[]).status, 200);
    for (path, args) in
        [("/v1/partitions", &[][..]), ("/status", &[]), ("/nothing", &[]), ("/healthz", &["-d", "x"])]
    {
        let refused = ask(path, args);
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.head.contains("www-authenticate: bearer realm=\"sherwood\"\r\n"), "{refused:?}");
        assert!(refused.head.contains("connection: close") && refused.body.contains("Authorization: Bearer"));
    }
    let wrong = ask("/v1/partitions", &["-H", "authorization: Bearer 0123456789abcdef0123456789abcdee"]);
    assert!(wrong.status == 401 && wrong.head.contains("error=\"invalid_token\""), "{wrong:?}");
    assert!(!wrong.body.contains("0123456789abcdee"), "what was guessed is repeated to nobody");
    assert_eq!(
        ask("/v1/partitions", &["-H", "authorization: Basic 0123456789abcdef0123456789abcdef"]).status,
        401
    );
    let request = json!({"queries": [{"backend": "catalog", "keys": ["a/1"]}]}).to_string();
    let answered = ask("/v1/requests", &["-H", &full, "-d", &request]);
    assert!(answered.status == 200 && answered.body.contains("miss"), "{answered:?}");
    assert_eq!(ask("/metrics", &["-H", &read]).status, 200);
    assert_eq!(ask("/metrics", &["-H", &read, "-I"]).status, 200);
    for args in [&["-d", &request][..], &["-X", "DELETE"]] {
        let refused = ask("/v1/requests", &[&["-H", &read], args].concat());
        assert!(refused.status == 403 && refused.body.contains("may only read"), "{refused:?}");
    }
    for path in ["/v1/hot-keys", "/v1/keys/catalog/a"] {
        assert_eq!(ask(path, &["-H", &full]).status, 200);
        let refused = ask(path, &["-H", &read]);
        assert!(refused.status == 403 && refused.body.contains("may not see clients' keys"), "{refused:?}");
    }
    let metrics = ask("/metrics", &["-H", &full]).body;
    for (reason, count) in [("token", 6), ("read_only", 4), ("host", 0), ("origin", 0)] {
        let sample = format!("sherwood_http_refused_requests_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&sample), "{sample} in {metrics}");
    }
}

#[test]
fn https_port_works_with_openssl_and_curl_and_refuses_plain_http() {
    let Some(files) = Files::new() else { return };
    let node = start(AccessSetup { tls: Some(files.tls(false)), ..AccessSetup::default() }).unwrap();
    let address = node.admin().unwrap();
    let Some(unknown) = curl(files.0.path(), &format!("https://{address}/healthz"), &[]) else { return };
    assert_eq!(unknown.exit, 60, "curl does not know the authority: {unknown:?}");
    let plain = curl(files.0.path(), &format!("http://{address}/healthz"), &[]).unwrap();
    assert!(plain.status == 400 && plain.body.contains("https://"), "{plain:?}");
    let shake = |args: &[&str]| {
        let mut command = Command::new("openssl");
        command.current_dir(files.0.path()).args(["s_client", "-CAfile", "ca.pem", "-verify_return_error"]);
        command.args(["-connect", &address.to_string()]).args(args).stdin(std::process::Stdio::null());
        let output = run(&mut command, "apt-get install openssl").unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    for version in ["-tls1_2", "-tls1_3"] {
        let (done, said) = shake(&[version, "-alpn", "h2,http/1.1"]);
        assert!(done && said.contains("ALPN protocol: http/1.1"), "{version}: {said}");
    }
    for refused in [&["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"][..], &["-alpn", "h2"]] {
        let (done, said) = shake(refused);
        assert!(!done, "{refused:?}: {said}");
    }
}

#[test]
fn client_certificate_is_required_where_configured() {
    let Some(files) = Files::new() else { return };
    files.sign("ca", "client");
    files.authority("other").unwrap();
    files.sign("other", "stranger");
    let node = start(AccessSetup { tls: Some(files.tls(true)), ..AccessSetup::default() }).unwrap();
    let Some(without) = files.curl(&node, "/healthz", &[]) else { return };
    assert!(without.exit != 0 && without.status == 0, "{without:?}");
    let with = |name: &str| {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        files.curl(&node, "/v1/partitions", &["--cert", &cert, "--key", &key]).unwrap()
    };
    assert_eq!(with("client").status, 200);
    assert_eq!(with("stranger").status, 0);
    let metrics =
        files.curl(&node, "/metrics", &["--cert", "client.pem", "--key", "client.key"]).unwrap().body;
    assert!(metrics.contains("sherwood_http_failed_handshakes_total 2\n"), "{metrics}");
}

/// Asks a listener by OpenSSL's client; returns what it answers until it closes.
fn ask_by_openssl(files: &Files, port: u16, commands: &str, args: &[&str]) -> String {
    let at = format!("127.0.0.1:{port}");
    let mut command = Command::new("openssl");
    command.current_dir(files.0.path()).args(["s_client", "-quiet", "-connect", &at, "-CAfile", "ca.pem"]);
    command.arg("-verify_return_error").args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it made the certificates");
    // One that is refused in the handshake may be gone by now.
    let _ = child.stdin.as_mut().expect("piped").write_all(commands.as_bytes());
    String::from_utf8_lossy(&child.wait_with_output().expect("its output").stdout).into_owned()
}

#[test]
fn listeners_speak_tls_and_ask_for_client_certificates_where_configured() {
    let Some(files) = Files::new() else { return };
    files.sign("ca", "client");
    let fake = Fake::new([("a/1", &b"1"[..])]) as std::sync::Arc<dyn Store>;
    let redis = ListenerSetup { protocol: Protocol::Redis, tls: Some(files.tls(false)), ..listener(0) };
    let memcached = ListenerSetup { tls: Some(files.tls(true)), ..listener(0) };
    let listeners = vec![redis, memcached];
    let node =
        Node::start(sherwood_node::Setup { listeners, ..setup(vec![("catalog", vec![fake])]) }).unwrap();
    let port = |addresses: &[Address]| match addresses {
        [Address::Tcp(address)] => address.port(),
        other => panic!("{other:?}"),
    };
    let (redis, memcached) =
        (port(&node.addresses(Protocol::Redis)), port(&node.addresses(Protocol::Memcached)));
    let mut cli = Command::new("redis-cli");
    cli.current_dir(files.0.path()).args(["-p", &redis.to_string(), "--tls", "--cacert", "ca.pem"]);
    if let Some(output) = run(cli.args(["get", "a/1"]), "apt-get install redis-tools") {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n", "{output:?}");
    }
    let large = "x".repeat(300_000);
    let commands = format!("set a/2 0 0 300000\r\n{large}\r\nget a/2\r\nquit\r\n");
    let answer = format!("STORED\r\nVALUE a/2 0 300000\r\n{large}\r\nEND\r\n");
    let shown = ["-cert", "client.pem", "-key", "client.key"];
    assert!(ask_by_openssl(&files, memcached, &commands, &shown) == answer);
    assert_eq!(ask_by_openssl(&files, memcached, "get a/2\r\nquit\r\n", &[]), "");
    let plain = talk(([127, 0, 0, 1], redis).into(), b"PING\r\n");
    assert_eq!(plain.first(), Some(&21), "an alert of TLS");
}

#[test]
fn changed_certificates_and_tokens_are_reloaded() {
    let Some(files) = Files::new() else { return };
    let node = start(files.all()).unwrap();
    files.authority("next").unwrap();
    files.sign("next", "renewed");
    // A certificate without its key is ignored until the key is there too.
    fs::copy(files.path("renewed.pem"), files.path("server.pem")).unwrap();
    let Some(before) = files.curl(&node, "/healthz", &[]) else { return };
    assert_eq!(before.status, 200);
    fs::copy(files.path("renewed.key"), files.path("server.key")).unwrap();
    let ask = |path: &str, args: &[&str]| {
        let url = format!("https://localhost:{}{path}", node.admin().unwrap().port());
        curl(files.0.path(), &url, &[&["--cacert", "next.pem"], args].concat()).unwrap().status
    };
    eventually("the new certificate is shown", || ask("/healthz", &[]) == 200);
    assert_eq!(files.curl(&node, "/healthz", &[]).unwrap().exit, 60, "the old authority knows it no more");
    files.secret("tokens", "another-token-0123456789");
    eventually("the new token is known", || {
        ask("/v1/partitions", &["-H", "authorization: Bearer another-token-0123456789"]) == 200
    });
    assert_eq!(ask("/v1/partitions", &["-H", &format!("authorization: Bearer {TOKEN}")]), 401);
}

#[test]
fn unusable_certificate_or_token_file_is_refused_by_name() {
    let Some(files) = Files::new() else { return };
    files.sign("ca", "other");
    files.secret("garbage", "not a certificate");
    files.secret("half", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let refusal = |change: &dyn Fn(&mut AccessSetup)| {
        let mut access = files.all();
        change(&mut access);
        match start(access) {
            Err(StartError::Access(error)) => error.to_string(),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it started"),
        }
    };
    let tls = |change: &dyn Fn(&mut TlsFiles)| refusal(&|access| change(access.tls.as_mut().unwrap()));
    let all = [
        (tls(&|tls| tls.cert = files.path("none")), "[admin] tls.cert ", "No such file"),
        (tls(&|tls| tls.cert = files.path("garbage")), "[admin] tls.cert ", "holds no certificate in PEM"),
        (tls(&|tls| tls.cert = files.path("half")), "[admin] tls.cert ", "is not PEM: a section has no end"),
        (tls(&|tls| tls.cert = files.path("server.key")), "[admin] tls.cert ", "holds no certificate in PEM"),
        (tls(&|tls| tls.key = files.path("server.pem")), "[admin] tls.key ", "others may read"),
        (tls(&|tls| tls.key = files.path("garbage")), "[admin] tls.key ", "holds no private key in PEM"),
        (
            tls(&|tls| tls.key = files.path("other.key")),
            "[admin] tls.key ",
            "is not the key of the first certificate in",
        ),
        (tls(&|tls| tls.client_ca = Some(files.path("none"))), "[admin] tls.client_ca ", "No such file"),
        (
            refusal(&|access| access.token_file = Some(files.path("none"))),
            "[admin] token_file ",
            "No such file",
        ),
        (
            refusal(&|access| access.read_token_file = Some(files.path("garbage"))),
            "[admin] read_token_file ",
            "line 1 has to be one token",
        ),
    ];
    for (said, what, why) in all {
        assert!(said.starts_with(what) && said.contains(why), "{what}{why} in {said}");
    }
    fs::set_permissions(files.path("tokens"), Permissions::from_mode(0o644)).unwrap();
    let exposed = refusal(&|_| {});
    assert!(exposed.contains("0644") && exposed.contains("chmod 600"), "{exposed}");
}

/// Sends bytes and reads until the connection ends.
fn talk(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The node may close the connection before all is sent; the rest of its reply is lost then.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn garbage_and_idle_connections_do_not_block_other_clients() {
    let Some(files) = Files::new() else { return };
    let node = start(AccessSetup { tls: Some(files.tls(false)), ..AccessSetup::default() }).unwrap();
    let address = node.admin().unwrap();
    let hello = [22, 3, 1, 255, 255, 1, 0, 255, 251];
    for garbage in [&[0; 4096][..], &[255; 64], b"\x16\x03\x01", b"GET", &[b'A'; 100_000], &hello] {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(garbage);
    }
    assert_eq!(talk(address, &[128; 5])[0], 21, "an alert says that this is no TLS");
    // All of the 64 connections but one are idle in their handshake; some closed ones may still be
    // counted.
    let silent: Vec<_> = (0..63).map(|_| TcpStream::connect(address).unwrap()).collect();
    if let Some(served) = files.curl(&node, "/healthz", &[]) {
        assert_eq!(served.status, 200);
    }
    drop(silent);
    node.stop();
}

#[test]
fn unfinished_handshake_times_out_and_frees_its_connection() {
    let Some(files) = Files::new() else { return };
    let access = AccessSetup { tls: Some(files.tls(false)), ..AccessSetup::default() };
    let node =
        Node::start(sherwood_node::Setup { access, http_connections_max: 1, ..setup(vec![("a", vec![])]) });
    let node = node.unwrap();
    let mut slow = TcpStream::connect(node.admin().unwrap()).unwrap();
    slow.write_all(&[22, 3, 1]).unwrap();
    if let Some(served) = files.curl(&node, "/healthz", &[]) {
        assert_eq!(served.status, 200);
    }
    slow.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(slow.read(&mut [0]).unwrap(), 0, "it was closed on");
}

#[test]
fn refused_token_closes_the_connection() {
    let Some(files) = Files::new() else { return };
    let node = start(AccessSetup { tls: None, ..files.all() }).unwrap();
    let address = node.admin().unwrap();
    let guess =
        |token: &str| format!("GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    let guesses: String = (0..50).map(|number| guess(&format!("{number:032}"))).collect();
    let said = talk(address, format!("{guesses}{}", guess(TOKEN)).as_bytes());
    let said = String::from_utf8_lossy(&said);
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "one answer and no more: {said}");
    assert!(said.starts_with("HTTP/1.1 401 ") && said.contains("connection: close"), "{said}");
    for head in
        [guess(&"x".repeat(60_000)), guess(&"x".repeat(100_000)), guess("\u{1}"), "\r\n\r\n".to_owned()]
    {
        let said = talk(address, head.as_bytes());
        let status = String::from_utf8_lossy(&said).split(' ').nth(1).map(str::to_owned);
        assert!(status.is_none_or(|status| ["400", "401", "431"].contains(&status.as_str())), "{said:?}");
    }
    let right = talk(address, guess(TOKEN).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n").as_bytes());
    assert!(right.starts_with(b"HTTP/1.1 200 "));
}

/// Sends a request with these headers.
fn ask(http: Http, method: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(http.0).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!(
        "{method} /v1/partitions HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    answer(stream)
}

#[test]
fn requests_of_other_sites_are_refused_without_tokens() {
    let node = start(AccessSetup::default()).unwrap();
    let http = Http::of(&node);
    let bound = http.0;
    for ours in [format!("host: {bound}\r\n"), format!("host: LOCALHOST:{}\r\n", bound.port()), String::new()]
    {
        assert_eq!(ask(http, "GET", &ours).status, 200, "{ours:?}");
    }
    assert_eq!(ask(http, "GET", &format!("host: {bound}\r\norigin: http://{bound}\r\n")).status, 200);
    for method in ["GET", "PUT", "OPTIONS"] {
        let rebound = ask(http, method, "host: evil.example:8080\r\n").refusal(403);
        assert!(rebound.contains("Host header") && rebound.contains("token_file"), "{rebound}");
        let page =
            ask(http, method, &format!("host: {bound}\r\norigin: https://evil.example\r\n")).refusal(403);
        assert!(page.contains("Origin or Sec-Fetch-Site header"), "{page}");
    }
    let mut probe = TcpStream::connect(bound).unwrap();
    probe.write_all(b"GET /healthz HTTP/1.1\r\nhost: node.example\r\nconnection: close\r\n\r\n").unwrap();
    assert_eq!(answer(probe).status, 200, "who only asks whether we live may call us anything");
    assert_eq!(http.metric("sherwood_http_refused_requests_total{reason=\"host\"}"), 3.0);
    assert_eq!(http.metric("sherwood_http_refused_requests_total{reason=\"origin\"}"), 3.0);
}
