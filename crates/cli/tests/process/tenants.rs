//! Tenants of a started node: `sherwood tenants`, and their standing in `INFO` and `stats`.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, TIMEOUT};

const NEWCOMER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tenants/newcomer.json");
const EXAMPLE: &str = include_str!("../../../../examples/tenants/node.toml");
const SCENARIOS: [&str; 2] = [
    include_str!("../../../../examples/tenants/two-tenants.json"),
    include_str!("../../../../examples/tenants/flood.json"),
];

/// Tenants of equal weights, each with half of everything, before a store that makes values up.
const TENANTS: &str = r#"
[memory]
total = "64MiB"
[admin]
bind = "127.0.0.1:0"
[tenants]
period = "PERIOD"
window = "PERIOD"
[[tenant]]
name = "gold"
users = ["gold"]
[[tenant]]
name = "silver"
users = ["silver"]
[[resource]]
name = "orders-reads"
kind = "reads"
backend = "orders"
total = 200
[[resource]]
name = "orders-writes"
kind = "writes"
backend = "orders"
total = 100
[[resource]]
name = "network"
kind = "network"
total = "2MiB"
[[backend]]
name = "orders"
timeout = "30s"
store = { kind = "synthetic", bytes = "8B", latency = "0s" }
"#;

/// Starts a node that decides between tenants every `period`, and returns the directory of its
/// files.
fn node(period: &str) -> (Server, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let users = write_users(directory.path());
    let mut config = TENANTS.replace("PERIOD", period);
    for protocol in ["redis", "memcached"] {
        config += &format!(
            "[[listener]]\nprotocol = \"{protocol}\"\nbind = \"127.0.0.1:0\"\nmode = \"read-through\"\n\
             backend = \"orders\"\nauth_file = {users:?}\n"
        );
    }
    (serve(directory.path(), &config), directory)
}

fn write_users(directory: &Path) -> PathBuf {
    let users = directory.join("users");
    fs::write(&users, "gold:a password\nsilver:a password\n").unwrap();
    fs::set_permissions(&users, Permissions::from_mode(0o600)).unwrap();
    users
}

fn serve(directory: &Path, config: &str) -> Server {
    let path = directory.join("node.toml");
    fs::write(&path, config).unwrap();
    Server::start(&["--config", path.to_str().unwrap()])
}

/// Runs `sherwood tenants` against the node.
fn ask(node: &Server, args: &[&str]) -> Output {
    let url = format!("http://{}", node.address("admin"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sherwood"));
    command.arg("tenants").args(args).args(["--url", &url]).output().unwrap()
}

#[track_caller]
fn text(node: &Server, args: &[&str]) -> String {
    let output = ask(node, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn document(node: &Server, args: &[&str]) -> Value {
    serde_json::from_str(&text(node, &[args, &["--json"]].concat())).unwrap()
}

/// A client that has logged in as one of the tenants.
struct Client(TcpStream);

impl Client {
    fn redis(node: &Server, user: &str) -> Self {
        let mut client = Self::connect(&node.address("redis"));
        let login = format!("*3\r\n$4\r\nAUTH\r\n${}\r\n{user}\r\n$10\r\na password\r\n", user.len());
        assert_eq!(client.ask(&login, "\r\n"), "+OK\r\n");
        client
    }

    fn memcached(node: &Server, user: &str) -> Self {
        let mut client = Self::connect(&node.address("memcached"));
        let login = format!("{user} a password");
        assert_eq!(client.ask(&format!("set a 0 0 {}\r\n{login}\r\n", login.len()), "\r\n"), "STORED\r\n");
        client
    }

    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Sends text and reads the answer up to `end`.
    #[track_caller]
    fn ask(&mut self, sent: &str, end: &str) -> String {
        self.0.write_all(sent.as_bytes()).unwrap();
        let (mut said, mut bytes) = (String::new(), [0; 4_096]);
        while !said.ends_with(end) {
            let read = self.0.read(&mut bytes).unwrap();
            assert_ne!(read, 0, "the connection ended after {said:?}");
            said.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        said
    }

    /// Gets distinct keys, each of which is read from the store.
    fn read(&mut self, keys: std::ops::Range<u64>) {
        let gets: String = keys.clone().map(|key| format!("GET k{key:09}\r\n")).collect();
        let answers = self.ask(&format!("{gets}PING\r\n"), "+PONG\r\n");
        assert_eq!(answers.matches("$8\r\n").count() as u64, keys.end - keys.start, "{answers}");
    }

    /// Returns the section of `INFO` about the client's tenant.
    fn info(&mut self) -> String {
        self.ask("INFO tenant\r\nPING\r\n", "+PONG\r\n")
    }
}

#[test]
fn info_and_stats_show_what_the_clients_tenant_has_and_uses() {
    let (node, _directory) = node("1h");
    let (mut gold, mut silver) = (Client::redis(&node, "gold"), Client::memcached(&node, "silver"));
    gold.read(0..10);
    silver.ask("get k\r\n", "END\r\n");
    let info = gold.info();
    let has = |line: &str| assert!(info.contains(&format!("\r\n{line}\r\n")), "no {line}: {info}");
    has("# Tenant\r\ntenant:gold");
    has("tenant_cache_bytes:33554432");
    has(
        "tenant_orders-reads_budget_per_s:100.0\r\ntenant_orders-reads_used:10.0\r\ntenant_orders-reads_waiting:0",
    );
    has("tenant_orders-writes_budget_per_s:50.0\r\ntenant_orders-writes_used:0.0");
    has("tenant_network_budget_per_s:1048576.0");
    assert!(!info.contains("silver") && !info.contains("normalized"), "no period has passed: {info}");
    let stats = silver.ask("stats\r\n", "END\r\n");
    let has = |line: &str| assert!(stats.contains(&format!("STAT {line}\r\n")), "no {line}: {stats}");
    has("tenant silver");
    has("tenant_cache_bytes 33554432");
    has("tenant_orders-reads_budget_per_s 100.0");
    has("tenant_orders-reads_used 1.0");
    has("tenant_orders-writes_waiting 0");
    assert!(!stats.contains("gold"), "{stats}");
}

#[test]
fn tenants_command_shows_the_throughput_of_a_tenant_that_asks_for_more_than_its_rate() {
    let (node, _directory) = node("1s");
    let mut gold = Client::redis(&node, "gold");
    let start = Instant::now();
    let mut batches = (0..).map(|batch| batch * 20..(batch + 1) * 20);
    // A period in which it asked for its rate has passed.
    while !gold.info().contains("tenant_normalized_throughput:") {
        assert!(start.elapsed() < TIMEOUT, "{}", text(&node, &[]));
        gold.read(batches.next().unwrap());
    }
    let standing = document(&node, &[]);
    let [first, second] = &standing["tenants"].as_array().unwrap()[..] else { panic!("{standing}") };
    assert_eq!((&first["name"], &second["name"]), (&json!("gold"), &json!("silver")));
    assert!(first["used_total"]["orders-reads"].as_f64().unwrap() >= 20.0, "{first}");
    assert_eq!(second["used_total"]["orders-reads"], 0.0, "{second}");
    let table = text(&node, &[]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0].join(" "),
        "tenant weight cache of orders-reads/s of waiting orders-writes/s of waiting network/s of waiting \
         requests/s hits times by curve"
    );
    assert_eq!((lines[1][0], lines[2][0]), ("gold", "silver"), "{table}");
    assert!(table.contains("\n\nhare ") && table.contains("times its baseline's throughput by its curve"));
}

#[test]
fn what_if_asks_a_node_for_divisions_and_changes_nothing() {
    let (node, _directory) = node("1h");
    let mut gold = Client::redis(&node, "gold");
    gold.read(0..50);
    let holdings = |standing: &Value| {
        let tenants = standing["tenants"].as_array().unwrap().iter();
        tenants.map(|tenant| (tenant["weight"].clone(), tenant["holdings"].clone())).collect::<Vec<_>>()
    };
    let before = holdings(&document(&node, &[]));
    let heavier = document(&node, &["what-if", "--weight", "gold=3"]);
    let of = |division: &Value, field: &str| -> Vec<Value> {
        let tenants = division["tenants"].as_array().unwrap().iter();
        tenants.map(|tenant| tenant[field].clone()).collect()
    };
    assert_eq!(of(&heavier, "name"), ["gold", "silver"]);
    assert_eq!(of(&heavier, "weight"), [3.0, 1.0]);
    assert_eq!(heavier["tenants"][0]["base"]["cache_bytes"], 48 << 20);
    assert_eq!(heavier["tenants"][1]["base"]["rates"]["orders-reads"], 50.0);
    let more = document(&node, &["what-if", "--add", NEWCOMER, "--weight", "silver=2"]);
    assert_eq!(of(&more, "name"), ["gold", "silver", "bronze"]);
    assert_eq!(of(&more, "weight"), [1.0, 2.0, 1.0]);
    let held = of(&more, "holdings").into_iter().map(|share| share["cache_bytes"].as_u64().unwrap());
    assert!(held.sum::<u64>() <= 64 << 20, "{more}");
    let table = text(&node, &["what-if", "--add", NEWCOMER]);
    assert!(table.starts_with("tenant") && table.contains("\nbronze "), "{table}");
    assert_eq!(holdings(&document(&node, &[])), before);
    for (args, reason) in [
        (["--weight", "tin=2"], "there are: gold, silver"),
        (["--add", "nowhere.json"], "name a JSON file that describes a tenant"),
    ] {
        let refused = ask(&node, &[&["what-if"][..], &args].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(reason), "{args:?}: {said}");
    }
}

/// Runs the examples of a node and of scenarios, with times of seconds.
#[test]
fn scenarios_of_the_examples_run_against_the_example_node_and_in_the_simulator() {
    let directory = tempfile::tempdir().unwrap();
    let users = write_users(directory.path());
    let config = EXAMPLE.replace("127.0.0.1:6379", "127.0.0.1:0");
    let config = config.replace("auth_file = \"users\"", &format!("auth_file = {users:?}"));
    let node = serve(directory.path(), &format!("{config}\n[admin]\nbind = \"127.0.0.1:0\"\n"));
    let target = format!("redis://{}", node.address("redis"));
    let file = directory.path().join("scenario.json").display().to_string();
    for scenario in SCENARIOS {
        let mut document: Value = serde_json::from_str(scenario).unwrap();
        (document["warm_up"], document["measure"]) = (json!("1s"), json!("2s"));
        fs::write(&file, document.to_string()).unwrap();
        let passwords = users.to_str().unwrap();
        let load = ["load", "--target", &target, "--passwords", passwords, "--interval", "1s"];
        let simulation = ["sim", "run", "--policy", "hare", "--set", "lend=true"];
        for command in [&load[..], &simulation] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_sherwood"));
            program.args(command).args(["--scenario", &file, "--json"]).env("HOME", directory.path());
            let output = program.env_remove("XDG_CACHE_HOME").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let names = report["tenants"].as_array().unwrap().iter().map(|tenant| &tenant["name"]);
            assert!(names.eq([&json!("gold"), &json!("silver")]), "{command:?}: {report}");
        }
    }
}

/// Most memory of a node with 4,096 partitions, its answers of several MB included. It has 50 to 90
/// MiB.
const PRIVATE_BYTES_MAX: u64 = 128 << 20;

#[test]
fn node_of_1024_tenants_with_4_backends_serves_in_little_memory() {
    let tenants = (0..1_024).map(|index| format!("[[tenant]]\nname = \"t{index}\"\n"));
    let backend = |name: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\nprefix = \"{name}/\"\n\
             store = {{ kind = \"synthetic\", bytes = \"8B\", latency = \"0s\" }}\n"
        )
    };
    let backends = ["catalog", "prices", "stock", "reviews"].map(backend).concat();
    let listener = "[[listener]]\nprotocol = \"redis\"\nbind = \"127.0.0.1:0\"\nroute = \"prefix\"\n\
                    mode = \"read-through\"\ntenant = \"t1023\"\n";
    let config = format!(
        "[memory]\ntotal = \"256MiB\"\n[admin]\nbind = \"127.0.0.1:0\"\n{listener}{backends}{}\
         [[resource]]\nname = \"stock-reads\"\nkind = \"reads\"\nbackend = \"stock\"\ntotal = 10240\n",
        tenants.collect::<String>()
    );
    let directory = tempfile::tempdir().unwrap();
    let node = serve(directory.path(), &config);
    let mut client = Client::connect(&node.address("redis"));
    let answer = client.ask("GET stock/k\r\nGET stock/k\r\nPING\r\n", "+PONG\r\n");
    assert_eq!(answer.matches("$8\r\n").count(), 2, "{answer}");
    let standing = document(&node, &[]);
    let tenants = standing["tenants"].as_array().unwrap();
    assert_eq!((tenants.len(), &tenants[1_023]["used_total"]["stock-reads"]), (1_024, &json!(1.0)));
    let mut admin = Client::connect(&node.address("admin"));
    // Only OpenMetrics marks the end.
    let metrics = admin.ask(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\
         Connection: close\r\n\r\n",
        "# EOF\n",
    );
    assert_eq!(metrics.matches("\nsherwood_tenant_used_total{").count(), 1_024);
    assert_eq!(metrics.matches("\nsherwood_partition_hits_total{").count(), 4_096);
    let private = node.private_bytes();
    assert!(private <= PRIVATE_BYTES_MAX, "{} KiB", private >> 10);
}
