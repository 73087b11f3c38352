//! Real memcached and Redis processes, resized by the control loop.

use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sherwood_config::{InstanceKind, InstanceSetup, InstancesSetup};
use sherwood_node::Node;
use tempfile::TempDir;

use crate::missing::missing;
use crate::support::{Http, setup};
use crate::wait::{TIMEOUT, eventually};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 96 * MIB;

/// A server of one test, killed when dropped.
struct Server {
    child: Child,
    port: u16,
    kind: InstanceKind,
    _directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server at `port`, or at any free one; none if it is not installed.
    fn start(kind: InstanceKind, port: Option<u16>, more: &[&str]) -> Option<Self> {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let (port, directory) = (port.unwrap_or_else(free), tempfile::tempdir().unwrap());
        let number = port.to_string();
        let (program, arguments) = match kind {
            InstanceKind::Memcached => (
                "memcached",
                vec!["-l", "127.0.0.1", "-p", &number, "-U", "0", "-u", "nobody", "-m", "32", "-t", "1"],
            ),
            InstanceKind::Redis => (
                "redis-server",
                vec![
                    "--bind",
                    "127.0.0.1",
                    "--port",
                    &number,
                    "--save",
                    "",
                    "--maxmemory",
                    "32mb",
                    "--maxmemory-policy",
                    "allkeys-lru",
                ],
            ),
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(more)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                missing(program, &format!("apt-get install {program}"));
                return None;
            }
            Err(error) => panic!("{command:?}: {error}"),
        };
        let server = Self { child, port, kind, _directory: directory };
        eventually("the server listens", || TcpStream::connect(server.address()).is_ok());
        Some(server)
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    fn setup(&self) -> InstanceSetup {
        InstanceSetup {
            kind: self.kind,
            address: self.address().to_string(),
            user: None,
            password_file: None,
        }
    }

    /// Sends a command, and returns its answer up to `end`.
    fn say(&self, what: &str, end: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(what.as_bytes()).unwrap();
        let (mut said, mut bytes) = (String::new(), [0; 1 << 16]);
        while !said.ends_with(end) {
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        said
    }

    /// Returns the memory limit that the server reports, bytes.
    fn limit(&self) -> u64 {
        match self.kind {
            InstanceKind::Memcached => self.number("stats\r\n", "END\r\n", "limit_maxbytes "),
            InstanceKind::Redis => self.number("INFO memory\r\n", "\r\n", "maxmemory:"),
        }
    }

    /// Returns the memory use that the server reports, bytes.
    fn used(&self) -> u64 {
        match self.kind {
            InstanceKind::Memcached => self.number("stats slabs\r\n", "END\r\n", "total_malloced "),
            InstanceKind::Redis => self.number("INFO memory\r\n", "\r\n", "used_memory:"),
        }
    }

    /// Returns the number after `name` in the answer to `what`, which ends with `end`.
    fn number(&self, what: &str, end: &str, name: &str) -> u64 {
        let said = self.say(what, end);
        let number = said.lines().find_map(|line| line.split(name).nth(1));
        number.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap()
    }

    /// Stores `count` values of 100 kB, so that pages and memory fill.
    fn fill(&self, count: usize) {
        let value = "x".repeat(100_000);
        for key in 0..count {
            match self.kind {
                InstanceKind::Memcached => {
                    self.say(&format!("set {key} 0 0 100000\r\n{value}\r\n"), "STORED\r\n")
                }
                InstanceKind::Redis => {
                    let key = format!("{key:04}");
                    self.say(&format!("*3\r\n$3\r\nSET\r\n$4\r\n{key}\r\n$100000\r\n{value}\r\n"), "+OK\r\n")
                }
            };
        }
    }

    /// Returns the number of items that the server reports.
    fn items(&self) -> u64 {
        match self.kind {
            InstanceKind::Memcached => self.number("stats\r\n", "END\r\n", "curr_items "),
            InstanceKind::Redis => self.number("DBSIZE\r\n", "\r\n", ":"),
        }
    }

    /// Stops the process (SIGSTOP), so that it answers nothing, or continues it.
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn miss(&self) {
        match self.kind {
            InstanceKind::Memcached => self.say("get nothing\r\n", "END\r\n"),
            InstanceKind::Redis => self.say("GET nothing\r\n", "$-1\r\n"),
        };
    }
}

/// A node that resizes `instances`, one for each of the backends `a`, `b` and so on; it makes no
/// decisions unless told to.
fn node(instances: Vec<InstanceSetup>) -> Node {
    node_of(TOTAL, instances)
}

/// Starts a node like [`node`], with `total_bytes` to divide among the instances.
fn node_of(total_bytes: u64, instances: Vec<InstanceSetup>) -> Node {
    let names = ["a", "b", "c"];
    let mut setup = setup(names[..instances.len()].iter().map(|name| (*name, vec![])).collect());
    setup.instances = Some(InstancesSetup { total_bytes, each: instances });
    Node::start(setup).unwrap()
}

fn partition(http: Http, index: usize) -> Value {
    http.get("/v1/partitions")[index].clone()
}

#[track_caller]
fn set(http: Http, name: &str, mib: u64) {
    let answer = http.ask(
        "PUT",
        &format!("/v1/partitions/{name}"),
        &json!({"allocated_bytes": mib * MIB}).to_string(),
    );
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn reached(http: Http, count: usize) {
    eventually("all are reached", || {
        (0..count).all(|index| partition(http, index)["instance"]["reached"] == true)
    });
}

#[test]
fn bytes_move_between_memcached_and_redis() {
    let Some(memcached) = Server::start(InstanceKind::Memcached, None, &[]) else { return };
    let Some(redis) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let node = node(vec![memcached.setup(), redis.setup()]);
    let http = Http::of(&node);
    reached(http, 2);
    assert_eq!(partition(http, 0)["allocated_bytes"], 32 * MIB, "as it was; the policy is static");
    memcached.fill(400);
    redis.fill(400);
    memcached.miss();
    redis.miss();
    eventually("what they hold and count is read back", || {
        (0..2).all(|index| {
            let seen = partition(http, index);
            seen["used_bytes"].as_u64() > Some(25 * MIB)
                && seen["misses"] == 1
                && seen["items"].as_u64() > Some(200)
        })
    });
    for (first, second) in [(12, 84), (80, 16)] {
        // The one that shrinks goes first: the sizes must fit at all times.
        let mut sizes = [("a", first, &memcached), ("b", second, &redis)];
        sizes.sort_by_key(|(_, mib, _)| *mib);
        sizes.into_iter().for_each(|(name, mib, _)| set(http, name, mib));
        let [(.., shrinks), (.., grows)] = sizes;
        eventually("both have their sizes", || {
            // Read in this order: the shrinking one's use only falls, and the other was given at
            // most the bytes free at that time.
            let together = grows.limit() + shrinks.used();
            assert!(together <= TOTAL + TOTAL / 16, "{together} bytes");
            (memcached.limit(), redis.limit()) == (first * MIB, second * MIB)
        });
        eventually("and both keep to them", || {
            let used = |index| partition(http, index)["used_bytes"].as_u64().unwrap();
            used(0) <= first * MIB && used(1) <= second * MIB
        });
    }
    assert_eq!(partition(http, 0)["instance"]["kind"], "memcached");
    assert!(
        http.ask("PUT", "/v1/control", r#"{"policy":"shared-lru"}"#).refusal(422).contains("cannot share")
    );
}

#[test]
fn unreachable_instance_keeps_its_size_and_others_are_resized() {
    let Some(redis) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let Some(lost) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let Some(other) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let (port, instances) = (lost.port, vec![redis.setup(), lost.setup(), other.setup()]);
    let node = node(instances);
    let http = Http::of(&node);
    reached(http, 3);
    lost.miss();
    eventually("the miss is counted", || partition(http, 1)["misses"] == 1);
    drop(lost);
    eventually("it is missed", || partition(http, 1)["instance"]["reached"] == false);
    assert!(partition(http, 1)["instance"]["error"].as_str().is_some_and(|error| !error.is_empty()));
    for name in ["a", "c"] {
        let pins = json!({"max_bytes": if name == "a" { 8 * MIB } else { TOTAL }});
        assert_eq!(http.ask("PUT", &format!("/v1/partitions/{name}"), &pins.to_string()).status, 200);
    }
    assert_eq!(http.ask("PUT", "/v1/control", r#"{"policy":"equal"}"#).status, 200);
    eventually("the others share what is left", || (redis.limit(), other.limit()) == (8 * MIB, 56 * MIB));
    assert_eq!(partition(http, 1)["allocated_bytes"], 32 * MIB, "its last known size");
    let back =
        Server::start(InstanceKind::Redis, Some(port), &["--maxmemory", "5mb"]).expect("it was there before");
    eventually("it is told the newest size when it is back", || back.limit() == 32 * MIB);
    back.miss();
    eventually("and its counts go on", || partition(http, 1)["misses"] == 2);
    let said = node.events();
    let told = |what: &str| said.iter().any(|event| event.kind == "instance" && event.message.contains(what));
    assert!(told("keeps its size") && told("is reached again"), "{said:?}");
}

/// Switches to the policy `equal`, which at once gives all instances equal sizes.
#[track_caller]
fn decide(http: Http) {
    assert_eq!(http.ask("PUT", "/v1/control", r#"{"policy":"equal"}"#).status, 200);
}

#[track_caller]
fn pin(http: Http, name: &str, max_mib: u64) {
    let pin = json!({"max_bytes": max_mib * MIB}).to_string();
    let answer = http.ask("PUT", &format!("/v1/partitions/{name}"), &pin);
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn size_below_the_minimum_of_an_instance_is_refused() {
    let Some(memcached) = Server::start(InstanceKind::Memcached, None, &[]) else { return };
    let Some(redis) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let node = node(vec![memcached.setup(), redis.setup()]);
    let http = Http::of(&node);
    reached(http, 2);
    let least = |index: usize| partition(http, index)["min_bytes"].as_u64().unwrap() / MIB;
    assert_eq!((least(0), least(1)), (8, 2));
    for (name, least) in [("a", 8 * MIB), ("b", 2 * MIB)] {
        for (key, bytes) in [("min_bytes", 0), ("max_bytes", least - 1), ("allocated_bytes", 0)] {
            let change = json!({key: bytes}).to_string();
            let said = http.ask("PUT", &format!("/v1/partitions/{name}"), &change).refusal(422);
            assert!(said.contains(&least.to_string()), "{name} {key}: {said}");
        }
    }
    set(http, "b", 2);
    eventually("as little as it can be told is told", || redis.limit() == 2 * MIB);
}

#[test]
fn instance_without_a_limit_gets_one_and_keeps_its_items() {
    let Some(boundless) = Server::start(InstanceKind::Redis, None, &["--maxmemory", "0"]) else { return };
    let Some(other) = Server::start(InstanceKind::Redis, None, &["--maxmemory", "90mb"]) else { return };
    boundless.fill(200);
    let node = node(vec![boundless.setup(), other.setup()]);
    let http = Http::of(&node);
    reached(http, 2);
    other.signal(Signal::STOP);
    eventually("it is missed", || partition(http, 1)["instance"]["reached"] == false);
    decide(http);
    eventually("it has a limit", || boundless.limit() > 0);
    assert!(boundless.limit() < 30 * MIB, "the other one has nearly all there is");
    other.signal(Signal::CONT);
    eventually("both have their halves", || (boundless.limit(), other.limit()) == (48 * MIB, 48 * MIB));
    assert!(boundless.items() > 190, "{} of 200 items are left", boundless.items());
}

#[test]
fn hung_instance_above_the_total_does_not_shrink_the_others() {
    let Some(first) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let Some(hung) = Server::start(InstanceKind::Redis, None, &["--maxmemory", "256mb"]) else { return };
    let Some(last) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    first.fill(100);
    let node = node_of(64 * MIB, vec![first.setup(), hung.setup(), last.setup()]);
    let http = Http::of(&node);
    reached(http, 3);
    hung.signal(Signal::STOP);
    eventually("it is missed", || partition(http, 1)["instance"]["reached"] == false);
    decide(http);
    let mib = |server: &Server| server.limit() / MIB;
    eventually("the others have their thirds of the total", || (mib(&first), mib(&last)) == (21, 21));
    pin(http, "c", 8);
    decide(http);
    eventually("and go on moving bytes", || mib(&last) == 8);
    assert_eq!(mib(&first), 21, "what another gave is not there while the one that hangs has so much");
    hung.signal(Signal::CONT);
    eventually("it is told the newest size, and gives the others theirs", || {
        (mib(&hung), mib(&first)) == (21, 34)
    });
    assert_eq!(first.items(), 100, "nothing was lost where all was well");
}

#[test]
fn maximum_holds_while_another_instance_is_unreachable() {
    let Some(lost) = Server::start(InstanceKind::Redis, None, &["--maxmemory", "16mb"]) else { return };
    let Some(first) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let Some(last) = Server::start(InstanceKind::Redis, None, &[]) else { return };
    let node = node(vec![lost.setup(), first.setup(), last.setup()]);
    let http = Http::of(&node);
    reached(http, 3);
    drop(lost);
    eventually("it is missed", || partition(http, 0)["instance"]["reached"] == false);
    pin(http, "b", 20);
    pin(http, "c", 30);
    decide(http);
    eventually("they are as large as they may be", || (first.limit(), last.limit()) == (20 * MIB, 30 * MIB));
}

#[test]
fn instance_that_cannot_release_memory_is_reported_once() {
    let rigid = ["-o", "no_slab_reassign"];
    let Some(memcached) = Server::start(InstanceKind::Memcached, None, &rigid) else { return };
    let size = memcached.limit();
    let node = node(vec![memcached.setup()]);
    let http = Http::of(&node);
    set(http, "a", 12);
    eventually("it is said what to change", || {
        partition(http, 0)["instance"]["error"]
            .as_str()
            .is_some_and(|error| error.contains("no_slab_reassign"))
    });
    let tries = || {
        let stats = memcached.say("stats\r\n", "END\r\n");
        let line = stats.lines().find_map(|line| line.strip_prefix("STAT total_connections "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = tries();
    // Each command is a connection, too.
    let mut asked = 0;
    eventually("it is tried again and again", || {
        asked += 1;
        tries() > before + asked + 3
    });
    let said = node.events().iter().filter(|event| event.kind == "instance").count();
    assert_eq!(said, 1, "that it is not reached: {:?}", node.events());
    assert_eq!(memcached.limit(), size);
}

#[test]
fn bytes_of_an_unmanageable_instance_are_not_given_to_others() {
    let rigid = ["-m", "64", "-o", "no_slab_reassign"];
    let Some(memcached) = Server::start(InstanceKind::Memcached, None, &rigid) else { return };
    let keeps = ["--maxmemory", "16mb", "--maxmemory-policy", "noeviction"];
    let Some(redis) = Server::start(InstanceKind::Redis, None, &keeps) else { return };
    let Some(other) = Server::start(InstanceKind::Redis, None, &["--maxmemory", "8mb"]) else { return };
    let node = node(vec![memcached.setup(), redis.setup(), other.setup()]);
    let http = Http::of(&node);
    for (instance, why) in ["slab_reassign", "noeviction"].into_iter().enumerate() {
        let told = || {
            partition(http, instance)["instance"]["error"].as_str().is_some_and(|error| error.contains(why))
        };
        eventually("it is said what to change", told);
    }
    decide(http);
    eventually("the third has what they leave of 96 MiB", || other.limit() == 16 * MIB);
    assert_eq!((memcached.limit(), redis.limit()), (64 * MIB, 16 * MIB));
}

#[test]
fn password_is_used_and_redis_without_eviction_is_not_resized() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        permit(&path, 0o600);
        path
    };
    let users = file("users", "sherwood:secret\n");
    // memcached reads the file after it has changed its user.
    permit(&users, 0o644);
    permit(directory.path(), 0o755);
    let Some(memcached) = Server::start(InstanceKind::Memcached, None, &["-Y", users.to_str().unwrap()])
    else {
        return;
    };
    let Some(redis) = Server::start(InstanceKind::Redis, None, &["--requirepass", "secret"]) else { return };
    let Some(rigid) = Server::start(InstanceKind::Redis, None, &["--maxmemory-policy", "noeviction"]) else {
        return;
    };
    let (right, wrong) = (file("right", "secret\n"), file("wrong", "guess\n"));
    let with = |server: &Server, user: Option<&str>, password: &PathBuf| InstanceSetup {
        user: user.map(str::to_owned),
        password_file: Some(password.clone()),
        ..server.setup()
    };
    let first =
        node(vec![with(&memcached, Some("sherwood"), &right), with(&redis, None, &right), rigid.setup()]);
    let http = Http::of(&first);
    reached(http, 2);
    eventually("it is said what to change", || {
        partition(http, 2)["instance"]["error"].as_str().is_some_and(|error| error.contains("allkeys-lru"))
    });
    assert_eq!(rigid.limit(), 32 * MIB);
    let second =
        node(vec![with(&memcached, Some("sherwood"), &wrong), with(&redis, None, &wrong), redis.setup()]);
    let http = Http::of(&second);
    eventually("all are refused", || {
        let said = |index: usize, what: &str| {
            partition(http, index)["instance"]["error"].as_str().is_some_and(|error| error.contains(what))
        };
        said(0, "-Y") && said(1, "requirepass") && said(2, "password")
    });
    let said = format!("{:?}", second.events());
    assert!(!said.contains("guess") && !said.contains("secret"), "{said}");
}
