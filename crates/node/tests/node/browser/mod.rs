//! The dashboard in a browser: `dashboard.mjs` looks at nodes that this test starts.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sherwood_config::AccessSetup;
use sherwood_listener::Protocol;
use sherwood_model::{BackendId, Slo};
use sherwood_node::{ListenerSetup, Node, RouteSetup, Setup};
use sherwood_store::{BoxFuture, Found, Limit, LimitError, Limits, Store, StoreError, StoreKind};

use crate::cluster::{self, Bus};
use crate::missing::missing;
use crate::support::{Fake, Http, listener, setup};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// A name that runs a script where it is not shown as text.
const MARKUP: &str = "<img src=x onerror=\"window.broken=1\">";
/// Time of an answer of [`Slow`] at its full capacity.
const ANSWER: Duration = Duration::from_millis(2);
const BOUND: Duration = Duration::from_millis(80);
/// Pause between two requests, so that the load leaves the processor to the browser.
const PAUSE: Duration = Duration::from_millis(5);

/// A store whose answers take longer with less of a processor.
struct Slow {
    fake: Arc<Fake>,
}

impl Store for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Compute
    }

    fn get_many(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Found>>, StoreError>> {
        Box::pin(async move {
            let share = self.limits().cpu_ratio.unwrap_or(1.0);
            tokio::time::sleep(ANSWER.div_f64(share)).await;
            self.fake.get_many(keys).await
        })
    }

    fn put(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        Store::put(&*self.fake, key, value)
    }

    fn delete(&self, key: Bytes) -> BoxFuture<'_, Result<(), StoreError>> {
        self.fake.delete(key)
    }

    fn limits(&self) -> Limits {
        self.fake.limits()
    }

    fn set_limit(&self, limit: Limit) -> Result<(), LimitError> {
        self.fake.set_limit(limit)
    }
}

/// Starts a node with backends of such names at an address.
fn start(admin: SocketAddr, access: AccessSetup) -> Node {
    let fake = || Fake::new([("a", &b"1"[..]), ("b", &b"2"[..]), (MARKUP, b"<i>3</i>")]);
    let plain = || vec![fake() as Arc<dyn Store>];
    let slow = vec![Arc::new(Slow { fake: fake() }) as Arc<dyn Store>];
    let backends = vec![("catalog", plain()), (MARKUP, plain()), ("prices", plain()), ("slow", slow)];
    let setup = setup(backends);
    let second = Duration::from_secs(1);
    // So few keys would not be sampled.
    let cache = sherwood_cache::Options { ghost_rate: 1.0, ..setup.cache };
    Node::start(Setup {
        cache,
        admin: Some(admin),
        access,
        slo: Slo { percentile: 99.0, bound: BOUND, window: 2 * second, observe: second / 4 },
        control: sherwood_policy::Options { delta: second, rbc_window: 2 * second, ..Default::default() },
        policy: "robinhood".to_owned(),
        ..setup
    })
    .unwrap()
}

/// Sends requests that hit and miss, until the test of the browser ends and drops its end of the
/// channel, as it also does by a panic.
fn load(to: SocketAddr, browser: &Receiver<Infallible>) {
    for number in 0_u64.. {
        let key = format!("k{number}");
        let all =
            ["catalog", MARKUP, "prices"].map(|name| json!({"backend": name, "keys": ["a", "b", MARKUP]}));
        let mut queries = all.to_vec();
        queries.push(json!({"backend": "slow", "keys": ["a", key]}));
        let body = json!({ "queries": queries }).to_string();
        let sent = std::net::TcpStream::connect(to).and_then(|mut stream| {
            stream.write_all(
                format!(
                    "POST /v1/requests HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                     content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .as_bytes(),
            )?;
            std::io::copy(&mut stream, &mut std::io::sink())
        });
        // Failures are those of a stopped node.
        drop(sent);
        if browser.recv_timeout(PAUSE) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Starts a node whose backends `fast` and `slow` have no stores, behind a listener of Redis.
fn plain() -> Node {
    let setup = setup(vec![("fast", Vec::new()), ("slow", Vec::new())]);
    let second = Duration::from_secs(1);
    let prefixes = [("fast/", 0), ("slow/", 1)];
    let prefixes = prefixes.map(|(prefix, backend)| (prefix.to_owned(), BackendId::from_index(backend)));
    let listener = ListenerSetup {
        protocol: Protocol::Redis,
        route: RouteSetup::Prefix(prefixes.to_vec()),
        read_through: false,
        ..listener(0)
    };
    Node::start(Setup {
        admin: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        // Less than the client reads.
        cache: sherwood_cache::Options { total_bytes: 512 << 10, ..setup.cache },
        listeners: vec![listener],
        control: sherwood_policy::Options { delta: second, rbc_window: 5 * second, ..Default::default() },
        policy: "robinhood".to_owned(),
        ..setup
    })
    .unwrap()
}

/// Ends a client when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail if the client has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts redis-py as the load of a plain node.
fn plain_client(node: &Node) -> Ended {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = std::env::var_os("SHERWOOD_PYTHON").map(PathBuf::from);
    let python = python.unwrap_or_else(|| root.join("target/venv/bin/python"));
    let port = node.addresses(Protocol::Redis)[0].tcp().expect("a port").port().to_string();
    let program = root.join("tests/conformance/python/look_aside_load.py");
    let client = Command::new(python).arg("-B").arg(program).args(["127.0.0.1", &port]).spawn();
    Ended(client.expect("make target/venv/ready"))
}

/// Starts one of the nodes `a` and `b` of a cluster, which share a backend whose name is markup.
fn in_cluster(node: &str, bus: &Bus, fake: &Arc<Fake>) -> Node {
    let mut setup = cluster::of(node, &["a", "b"], bus, fake);
    MARKUP.clone_into(&mut setup.backends[0].name);
    Node::start(setup).unwrap()
}

fn chromium() -> Option<PathBuf> {
    let own = std::env::var_os("SHERWOOD_CHROMIUM").map(PathBuf::from);
    own.or_else(|| ["/usr/bin/chromium"].map(PathBuf::from).into_iter().find(|path| path.exists()))
}

#[test]
fn dashboard_works_in_a_browser() {
    let Some(chromium) = chromium() else { return missing("chromium", "apt-get install chromium") };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let modules = root.join("target/dashboard");
    if !modules.join("node_modules/puppeteer-core").exists() {
        return missing("puppeteer-core", "make target/dashboard/ready");
    }
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("tokens");
    fs::write(&token_file, TOKEN).unwrap();
    fs::set_permissions(&token_file, Permissions::from_mode(0o600)).unwrap();
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let guarded = start(free, AccessSetup { token_file: Some(token_file), ..AccessSetup::default() });
    let node = start(free, AccessSetup::default());
    let plain = plain();
    let _client = plain_client(&plain);
    let (bus, fake) = (Bus::start(), Fake::new([("a", &b"1"[..])]));
    let [first, _second] = ["a", "b"].map(|name| in_cluster(name, &bus, &fake));
    let (address, guarded_at) = (Http::of(&node).0, Http::of(&guarded).0);
    let running = Mutex::new(Some(node));
    let (running_browser, browser) = channel();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/browser/dashboard.mjs");
    let mut child = Command::new("node")
        .arg(script)
        .args([format!("http://{address}/"), format!("http://{guarded_at}/"), TOKEN.to_owned()])
        .args([&plain, &first].map(|node| format!("http://{}/", Http::of(node).0)))
        .env("SHERWOOD_DASHBOARD", &modules)
        .env("SHERWOOD_CHROMIUM", chromium)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = child.stdin.take().unwrap();
    let asks = BufReader::new(child.stdout.take().unwrap());
    thread::scope(|scope| {
        scope.spawn(move || load(address, &browser));
        let _running_browser = running_browser;
        for ask in asks.lines() {
            match ask.unwrap().as_str() {
                "stop" => drop(running.lock().unwrap().take().expect("it runs").stop()),
                "start" => *running.lock().unwrap() = Some(start(address, AccessSetup::default())),
                other => panic!("the script asks for {other:?}"),
            }
            answers.write_all(b"done\n").unwrap();
        }
    });
    assert!(child.wait().unwrap().success(), "see above for the step that failed");
}
