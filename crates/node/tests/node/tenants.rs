//! Tenants of a node: by user, listener, prefix or the gateway's field, each with items of its own.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use serde_json::json;
use sherwood_config::{Config, Flags, Protocol, parse};
use sherwood_listener::Address;
use sherwood_node::{Node, ReloadOptions, Setup};
use sherwood_store::Store;
use tempfile::TempDir;

use crate::programs::client_program_as;
use crate::support::{Fake, Http, Mood};
use crate::wait::{TIMEOUT, eventually};

const POLICIES: &[&str] = &["static"];
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

/// Two backends, of which `catalog` makes its values up, and tenants of which one is the default.
const TENANTS: &str = r#"
[control]
policy = "static"
[admin]
bind = "127.0.0.1:0"
[[backend]]
name = "plain"
prefix = ""
[[backend]]
name = "catalog"
prefix = "catalog/"
store = { kind = "synthetic", bytes = "8B", latency = "0s" }
[[tenant]]
name = "gold"
users = ["gold", "gold-too"]
prefix = "gold:"
[[tenant]]
name = "silver"
users = ["silver"]
prefix = "silver:"
"#;

/// Writes a password file into a directory that is removed with the test.
fn passwords(lines: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("passwords");
    write_secret(&path, lines);
    (directory, path)
}

fn write_secret(path: &Path, lines: &str) {
    fs::write(path, lines).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn config(text: &str) -> Config {
    parse("a.toml", text, &Flags::default(), POLICIES).unwrap_or_else(|error| panic!("{error}"))
}

fn setup(text: &str) -> Setup {
    Setup::from_config(&config(text)).expect("nothing to open")
}

fn listener(protocol: &str, keys: &str) -> String {
    format!("[[listener]]\nprotocol = \"{protocol}\"\nbind = \"127.0.0.1:0\"\n{keys}\n")
}

struct Client(TcpStream);

impl Client {
    fn connect(address: &Address) -> Self {
        let stream = TcpStream::connect(address.tcp().expect("a port")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(stream)
    }

    /// Sends text and reads the answer up to its end, which is known.
    #[track_caller]
    fn check(&mut self, sent: &str, answer: &str) {
        self.0.write_all(sent.as_bytes()).unwrap();
        let mut read = vec![0; answer.len()];
        let mut filled = 0;
        while filled < read.len() {
            match self.0.read(&mut read[filled..]).unwrap_or(0) {
                0 => break,
                bytes => filled += bytes,
            }
            if read[..filled] != answer.as_bytes()[..filled] {
                break;
            }
        }
        assert_eq!(String::from_utf8_lossy(&read[..filled]), answer, "after {sent:?}");
    }
}

fn memcached_login(user: &str, password: &str) -> String {
    format!("set a 0 0 {}\r\n{user} {password}\r\n", user.len() + 1 + password.len())
}

#[test]
fn users_of_two_tenants_have_items_of_their_own_through_both_protocols() {
    let (_directory, path) = passwords("gold:12345678\ngold-too:87654321\nsilver:12345678\n");
    let auth = format!("auth_file = \"{}\"", path.display());
    let text = format!("{TENANTS}{}{}", listener("redis", &auth), listener("memcached", &auth));
    let node = Node::start(setup(&text)).unwrap();
    let redis = || Client::connect(&node.addresses(Protocol::Redis)[0]);
    let memcached = |user: &str, password: &str| {
        let mut client = Client::connect(&node.addresses(Protocol::Memcached)[0]);
        client.check(&memcached_login(user, password), "STORED\r\n");
        client
    };
    let (mut gold, mut silver) = (redis(), redis());
    gold.check("AUTH gold 87654321\r\nGET k\r\n", &format!("{WRONG}-NOAUTH Authentication required.\r\n"));
    gold.check("AUTH gold 12345678\r\nSET k golden\r\nSET catalog/k c\r\n", "+OK\r\n+OK\r\n+OK\r\n");
    silver.check("HELLO 2 AUTH silver 87654321\r\n", WRONG);
    silver.check("AUTH silver 12345678\r\n", "+OK\r\n");
    silver.check(
        "GET k\r\nGET catalog/k\r\nGET gold:k\r\nDBSIZE\r\nKEYS *\r\nSCAN 0\r\n",
        "$-1\r\n$-1\r\n$-1\r\n:0\r\n*0\r\n*2\r\n$1\r\n0\r\n*0\r\n",
    );
    silver
        .check("SET k silvery\r\nFLUSHALL\r\nFLUSHDB\r\nDEL k catalog/k\r\n", "+OK\r\n+OK\r\n+OK\r\n:0\r\n");
    memcached("silver", "12345678").check("get k catalog/k\r\nflush_all\r\n", "END\r\nOK\r\n");
    let mut too = memcached("gold-too", "87654321");
    too.check("get k\r\n", "VALUE k 0 6\r\ngolden\r\nEND\r\n");
    // A login in the middle of a pipeline, and back.
    gold.check(
        "GET k\r\nAUTH silver 12345678\r\nGET k\r\nAUTH gold-too 87654321\r\nGET k\r\nDBSIZE\r\n",
        "$6\r\ngolden\r\n+OK\r\n$-1\r\n+OK\r\n$6\r\ngolden\r\n:2\r\n",
    );
    too.check("flush_all\r\nget k\r\n", "OK\r\nEND\r\n");
    gold.check("DBSIZE\r\n", ":0\r\n");
}

#[test]
fn listener_of_a_tenant_and_prefixes_lead_to_the_tenants_items() {
    let text = format!(
        "{TENANTS}[[tenant]]\nname = \"default\"\n{}{}",
        listener("redis", "tenant = \"gold\""),
        listener("redis", "")
    );
    let node = Node::start(setup(&text)).unwrap();
    let [mut gold, mut shared] =
        [0, 1].map(|index: usize| Client::connect(&node.addresses(Protocol::Redis)[index]));
    gold.check("SET k golden\r\nSET silver:k mine\r\n", "+OK\r\n+OK\r\n");
    shared.check(
        "GET gold:k\r\nGET silver:k\r\nGET k\r\nSET silver:k s\r\nSET k d\r\n",
        "$6\r\ngolden\r\n$-1\r\n$-1\r\n+OK\r\n+OK\r\n",
    );
    // Commands on all keys concern those of the clients' tenant, which is the default one.
    shared.check("DBSIZE\r\nKEYS *\r\nFLUSHALL\r\nDBSIZE\r\n", ":1\r\n*1\r\n$1\r\nk\r\n+OK\r\n:0\r\n");
    shared.check("GET silver:k\r\nGET gold:k\r\n", "$1\r\ns\r\n$6\r\ngolden\r\n");
    gold.check("GET silver:k\r\nDBSIZE\r\n", "$4\r\nmine\r\n:2\r\n");
}

#[test]
fn prefix_listener_without_a_default_tenant_has_no_other_keys() {
    let text = format!("{TENANTS}{}", listener("redis", ""));
    let node = Node::start(setup(&text)).unwrap();
    let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
    client.check(
        "SET gold:k v\r\nGET k\r\nDBSIZE\r\nFLUSHALL\r\nGET gold:k\r\n",
        "+OK\r\n$-1\r\n:0\r\n+OK\r\n$1\r\nv\r\n",
    );
}

#[test]
fn gateway_answers_a_tenant_from_its_own_items_and_needs_its_name() {
    let text = format!("{TENANTS}{}", listener("redis", "tenant = \"gold\""));
    let node = Node::start(setup(&text)).unwrap();
    let http = Http::of(&node);
    let mut gold = Client::connect(&node.addresses(Protocol::Redis)[0]);
    gold.check("SET k golden\r\n", "+OK\r\n");
    let ask = |tenant: &str| json!({"tenant": tenant, "queries": [{"backend": "plain", "keys": ["k"]}]});
    assert_eq!(http.request(&ask("gold"))["results"][0]["value"], "golden");
    assert_eq!(http.request(&ask("silver"))["results"][0]["status"], "not_found");
    let refused = http.ask("POST", "/v1/requests", &ask("bronze").to_string()).refusal(422);
    assert!(refused.contains("tenant \"bronze\" is not known here; known: gold, silver"), "{refused}");
    let nobody = json!({"queries": [{"backend": "plain", "keys": ["k"]}]}).to_string();
    let refused = http.ask("POST", "/v1/requests", &nobody).refusal(422);
    assert!(refused.contains("the request names no tenant, and none is called default"), "{refused}");
    let refused = http.ask("PUT", "/v1/keys/catalog/k", "v").refusal(422);
    assert!(refused.contains("no tenant is named"), "{refused}");
}

#[test]
fn password_file_with_a_user_of_no_tenant_is_refused_at_the_start_and_afterwards() {
    let (_directory, path) = passwords("gold:12345678\nstranger:12345678\n");
    let auth = format!("auth_file = \"{}\"", path.display());
    let text = format!("{TENANTS}{}", listener("redis", &auth));
    let error = Node::start(setup(&text)).err().expect("a stranger").to_string();
    assert!(error.contains("line 2 names a user of no tenant"), "{error}");
    write_secret(&path, "gold:12345678\n");
    let node = Node::start(setup(&text)).unwrap();
    write_secret(&path, "gold:87654321\nstranger:12345678\n");
    let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
    client.check("AUTH stranger 12345678\r\nAUTH gold 12345678\r\n", &format!("{WRONG}+OK\r\n"));
    write_secret(&path, "gold:87654321\nsilver:12345678\n");
    eventually("the new users are known", || {
        let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
        client.0.write_all(b"AUTH silver 12345678\r\n").unwrap();
        let mut first = [0];
        client.0.read_exact(&mut first).unwrap();
        first == [b'+']
    });
    write_secret(&path, "gold:87654321\n");
    let of_silver = listener("redis", &format!("tenant = \"silver\"\n{auth}"));
    let error = Node::start(setup(&format!("{TENANTS}{of_silver}"))).err().expect("gold is another's");
    assert!(error.to_string().contains("line 1 names a user of another tenant"), "{error}");
}

#[test]
fn reload_moves_users_to_other_tenants_and_refuses_a_user_of_none() {
    let (_directory, path) = passwords("gold:12345678\ngold-too:12345678\n");
    let auth = format!("auth_file = \"{}\"", path.display());
    let text = |users: &str| TENANTS.replace("[\"gold\", \"gold-too\"]", users) + &listener("redis", &auth);
    let [before, without] = [text("[\"gold\", \"gold-too\"]"), text("[\"gold\"]")].map(|text| config(&text));
    let after = config(&text("[\"gold\"]").replace("[\"silver\"]", "[\"silver\", \"gold-too\"]"));
    let node = Node::start(Setup::from_config(&before).unwrap()).unwrap();
    let log_in = || {
        let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
        client.check("AUTH gold-too 12345678\r\n", "+OK\r\n");
        client
    };
    let mut early = log_in();
    early.check("SET k golden\r\n", "+OK\r\n");
    let refused = node.reload(&before, &without, ReloadOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("nothing was changed") && refused.contains("line 2 names a user of no tenant"));
    log_in().check("GET k\r\n", "$6\r\ngolden\r\n");
    assert_eq!(
        node.reload(&before, &after, ReloadOptions::default()),
        Ok(vec!["users of tenants".to_owned()])
    );
    let mut late = log_in();
    late.check("GET k\r\nSET k silvery\r\n", "$-1\r\n+OK\r\n");
    early.check("GET k\r\n", "$6\r\ngolden\r\n");
    // The file is read with the new tenants when it changes.
    write_secret(&path, "gold:12345678\ngold-too:87654321\n");
    eventually("the new password is known", || {
        let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
        client.0.write_all(b"AUTH gold-too 87654321\r\n").unwrap();
        let mut first = [0];
        client.0.read_exact(&mut first).unwrap();
        first == [b'+'] && {
            client.check("", "OK\r\n");
            client.check("GET k\r\n", "$7\r\nsilvery\r\n");
            true
        }
    });
    node.stop();
}

#[test]
fn tenants_fetch_the_same_key_each_for_itself_and_a_flush_of_one_stops_no_fill_of_the_other() {
    let (_directory, path) = passwords("gold:12345678\nsilver:12345678\n");
    let auth = format!("mode = \"read-through\"\nbackend = \"catalog\"\nauth_file = \"{}\"", path.display());
    let fake = Fake::new([("a", &b"stored"[..])]);
    let mut setup = setup(&format!("{TENANTS}{}", listener("redis", &auth)));
    setup.backends[1].stores = vec![Arc::clone(&fake) as Arc<dyn Store>];
    let node = Node::start(setup).unwrap();
    let [mut gold, mut silver, mut other] = ["gold", "silver", "gold"].map(|user| {
        let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
        client.check(&format!("AUTH {user} 12345678\r\n"), "+OK\r\n");
        client
    });
    fake.be(Mood::Hang);
    gold.0.write_all(b"GET a\r\n").unwrap();
    silver.0.write_all(b"GET a\r\n").unwrap();
    eventually("each tenant has asked the store", || fake.calls() == 2);
    other.check("FLUSHALL\r\n", "+OK\r\n");
    fake.be(Mood::Answer);
    gold.check("", "$6\r\nstored\r\n");
    silver.check("", "$6\r\nstored\r\n");
    gold.check("DBSIZE\r\n", ":0\r\n");
    silver.check("DBSIZE\r\nGET a\r\n", ":1\r\n$6\r\nstored\r\n");
    assert_eq!(fake.calls(), 2);
}

#[test]
fn tenant_beyond_its_rate_is_refused_and_the_other_is_not() {
    let resource = "[tenants]\nover = \"refuse\"\nlend = false\n[[resource]]\nname = \"catalog-reads\"\n\
                    kind = \"reads\"\nbackend = \"catalog\"\nunit = \"count\"\ntotal = 2\n";
    let of_gold = "mode = \"read-through\"\nbackend = \"catalog\"\ntenant = \"gold\"";
    let listeners = format!("{}{}", listener("memcached", of_gold), listener("redis", of_gold));
    let node = Node::start(setup(&format!("{resource}{TENANTS}{listeners}"))).unwrap();
    let http = Http::of(&node);
    let read = |tenant: &str, keys: &[&str]| {
        let query = json!({ "tenant": tenant, "queries": [{ "backend": "catalog", "keys": keys }] });
        http.request(&query)["results"].as_array().unwrap().clone()
    };
    // A unit a second each: this takes the units of a thousand seconds.
    let keys: Vec<String> = (0..100).map(|key| format!("k{key}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for _ in 0..10 {
        read("gold", &keys);
    }
    let [refused] = &read("gold", &["another"])[..] else { panic!("one key") };
    assert_eq!(refused["status"], "rejected", "{refused}");
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("the tenant's rate of reads") && error.contains("try again"), "{error}");
    assert!(error.ends_with("(resource `catalog-reads`)"), "{error}");
    assert_eq!(read("silver", &["another"])[0]["status"], "miss");
    assert_eq!(read("gold", &["k1"])[0]["status"], "hit", "hits cost nothing");
    for (address, command, code) in [
        (&node.addresses(Protocol::Memcached)[0], "get other\r\n", "SERVER_ERROR rejected: "),
        (&node.addresses(Protocol::Redis)[0], "GET other\r\n", "-REJECTED "),
    ] {
        let mut client = Client::connect(address);
        client.check(
            command,
            &format!("{code}fetching the key was refused because of the tenant's rate of reads"),
        );
    }
    let count = |name: &str, tenant: &str| {
        http.metric(&format!("sherwood_tenant_{name}{{tenant=\"{tenant}\",resource=\"catalog-reads\"}}"))
    };
    assert_eq!((count("used_total", "silver"), count("refused_total", "silver")), (1.0, 0.0));
    assert!(count("used_total", "gold") >= 100.0 && count("refused_total", "gold") >= 1.0);
    assert_eq!((count("waiting", "gold"), count("lent_total", "gold")), (0.0, 0.0));
    node.stop();
}

#[test]
fn writes_by_http_are_charged_to_the_tenant_that_is_named_and_refused_beyond_its_rate() {
    let resource = "[tenants]\nover = \"refuse\"\nlend = false\n[[resource]]\nname = \"catalog-writes\"\n\
                    kind = \"writes\"\nbackend = \"catalog\"\nunit = { bytes = 1 }\ntotal = 2\n";
    let node = Node::start(setup(&format!("{resource}{TENANTS}"))).unwrap();
    let http = Http::of(&node);
    let used = |tenant: &str| {
        http.metric(&format!("sherwood_tenant_used_total{{tenant=\"{tenant}\",resource=\"catalog-writes\"}}"))
    };
    http.ask("DELETE", "/v1/keys/catalog/k", "").refusal(422);
    http.ask("DELETE", "/v1/keys/catalog/k?tenant=bronze", "").refusal(404);
    http.ask("DELETE", "/v1/keys/catalog/k?k", "").refusal(400);
    assert_eq!((used("gold"), used("silver")), (0.0, 0.0));
    // A unit a second: this takes the units of a thousand seconds.
    let value = "v".repeat(999);
    assert_eq!(http.ask("PUT", "/v1/keys/catalog/k?tenant=silver", &value).status, 204);
    http.ask("DELETE", "/v1/keys/catalog/k?tenant=gold", "");
    assert_eq!((used("gold"), used("silver")), (1.0, 1_000.0));
    for method in ["PUT", "DELETE"] {
        let refused = http.ask(method, "/v1/keys/catalog/k?tenant=silver", "");
        let error = refused.refusal(429);
        assert!(error.contains("the tenant's rate of writes") && error.contains("try again"), "{error}");
        assert!(error.ends_with("(resource `catalog-writes`)"), "{error}");
        let answer = refused.json();
        assert_eq!((&answer["cause"], &answer["outcome"]), (&json!("rate"), &json!("not_done")));
        let retry_s = (answer["retry_ms"].as_f64().expect("it says when") / 1e3).ceil();
        let head = refused.head.to_ascii_lowercase();
        assert!(head.contains(&format!("retry-after: {retry_s}")), "{head}");
    }
    node.stop();
}

#[test]
fn traffic_of_clients_and_backends_is_charged_and_a_tenant_in_debt_waits() {
    let resource = "[tenants]\nover = \"refuse\"\nlend = false\n[[resource]]\nname = \"network\"\n\
                    kind = \"network\"\nlegs = \"both\"\ntotal = 20\n";
    let of_gold = listener("memcached", "mode = \"read-through\"\nbackend = \"catalog\"\ntenant = \"gold\"");
    let node = Node::start(setup(&format!("{resource}{TENANTS}{of_gold}"))).unwrap();
    let http = Http::of(&node);
    let used = |tenant: &str| {
        http.metric(&format!("sherwood_tenant_used_total{{tenant=\"{tenant}\",resource=\"network\"}}"))
    };
    let mut client = Client::connect(&node.addresses(Protocol::Memcached)[0]);
    let value = "x".repeat(4_000);
    let set = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    client.check(&set, "STORED\r\n");
    // A debt of 400 s, at 10 bytes a second.
    eventually("the write is charged", || used("gold") == (set.len() + "STORED\r\n".len()) as f64);
    let read =
        |tenant: &str| json!({ "tenant": tenant, "queries": [{ "backend": "catalog", "keys": ["k"] }] });
    let answer = http.ask("POST", "/v1/requests", &read("gold").to_string());
    let refusal = answer.refusal(429);
    assert!(answer.head.to_ascii_lowercase().contains("retry-after: "), "{}", answer.head);
    assert!(refusal.contains("the tenant's rate of network") && refusal.contains("try again"), "{refusal}");
    client.0.write_all(b"get big\r\n").unwrap();
    let of_gold = "{tenant=\"gold\",resource=\"network\"}";
    eventually("the client waits", || http.metric(&format!("sherwood_tenant_waiting{of_gold}")) == 1.0);
    assert_eq!(http.metric(&format!("sherwood_tenant_refused_total{of_gold}")), 1.0);
    let asked = read("silver").to_string();
    let answer = http.ask("POST", "/v1/requests", &asked);
    assert_eq!((answer.status, used("silver") as usize), (200, asked.len() + answer.body.len() + 1 + 8));
    node.stop();
}

/// Runs the programs of two client libraries, each as two tenants at the same time. They expect
/// what they find in a cache of their own: keys that are gone after a flush, and others that stay.
#[test]
fn programs_of_client_libraries_run_as_two_tenants_at_the_same_time() {
    let (_directory, path) = passwords("gold:12345678\nsilver:87654321\n");
    let auth = format!("backend = \"plain\"\nauth_file = \"{}\"", path.display());
    let text = format!("{TENANTS}{}{}", listener("redis", &auth), listener("memcached", &auth));
    let node = Node::start(setup(&text)).unwrap();
    let port = |address: &Address| address.tcp().expect("a port").port();
    let (redis, memcached) =
        (port(&node.addresses(Protocol::Redis)[0]), port(&node.addresses(Protocol::Memcached)[0]));
    let mut gold = Client::connect(&node.addresses(Protocol::Redis)[0]);
    thread::scope(|scope| {
        for login in [["gold", "12345678"], ["silver", "87654321"]] {
            scope.spawn(move || client_program_as("redis", "redis_py.py", redis, &login));
        }
    });
    gold.check("AUTH gold 12345678\r\nSET stays 1\r\n", "+OK\r\n+OK\r\n");
    thread::scope(|scope| {
        let silver = ["silver", "87654321"];
        scope.spawn(move || client_program_as("redis", "redis_py.py", redis, &silver));
    });
    gold.check("GET stays\r\nFLUSHALL\r\n", "$1\r\n1\r\n+OK\r\n");
    thread::scope(|scope| {
        for login in [["gold", "12345678"], ["silver", "87654321"]] {
            scope.spawn(move || client_program_as("pymemcache", "pymemcache_.py", memcached, &login));
        }
    });
}

#[test]
fn each_of_4096_users_reads_what_its_tenant_wrote() {
    let user = |index: usize| format!("user-{index}");
    let tenant = |index: usize| {
        let users: Vec<String> = (0..64).map(|at| format!("\"{}\"", user(64 * index + at))).collect();
        format!("[[tenant]]\nname = \"tenant-{index}\"\nusers = [{}]\n", users.join(", "))
    };
    let lines: String = (0..4096).map(|index| format!("{}:password-{index}\n", user(index))).collect();
    let (_directory, path) = passwords(&lines);
    let auth = format!("auth_file = \"{}\"", path.display());
    let tenants: String = (0..64).map(tenant).collect();
    let text = format!(
        "[control]\npolicy = \"static\"\n[admin]\nbind = \"off\"\n{tenants}{}",
        listener("redis", &auth)
    );
    let node = Node::start(setup(&text)).unwrap();
    let mut client = Client::connect(&node.addresses(Protocol::Redis)[0]);
    for index in (0..4096).step_by(64) {
        let (user, tenant) = (user(index), index / 64);
        client.check(
            &format!("AUTH {user} password-{index}\r\nGET k\r\nSET k {tenant}\r\n"),
            "+OK\r\n$-1\r\n+OK\r\n",
        );
    }
    for index in (0..4096).rev().step_by(7) {
        let (user, tenant) = (user(index), (index / 64).to_string());
        let answer = format!("+OK\r\n${}\r\n{tenant}\r\n", tenant.len());
        client.check(&format!("AUTH {user} password-{index}\r\nGET k\r\n"), &answer);
    }
}
