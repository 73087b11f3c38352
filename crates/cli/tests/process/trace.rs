//! `sherwood serve` and `sherwood load` on a recorded trace: the hits are those of an independent
//! exact LRU.

#[path = "../../../cache/tests/support/exact_lru.rs"]
mod exact_lru;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;
use sherwood_cache::charge;
use sherwood_workload::trace::{built_in, cache2k};

use self::exact_lru::ExactLru;
use crate::support::Server;

/// Number of replayed accesses, of 5,000,000; at depth 1 each takes two context switches.
const ACCESSES: usize = 40_000;
/// A quarter of the example's memory: about two thirds of the objects that these accesses touch.
const TOTAL_BYTES: u64 = 1 << 20;

/// The node of `examples/orm-busy.toml` on free ports.
struct Node(Server);

impl Node {
    fn start(policy: &str, threads: &str) -> Self {
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/orm-busy.toml");
        let total_bytes = TOTAL_BYTES.to_string();
        Self(Server::start(
            &[
                &["--config", config, "--policy", policy, "--threads", threads][..],
                &["--memory", &total_bytes, "--eviction", "lru"],
                &["--memcached", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
            ]
            .concat(),
        ))
    }

    /// Returns the report of `sherwood load --json` on the trace's first accesses, look-aside,
    /// strictly one after the other. A second connection would let a client ask for keys that it is
    /// about to set, and exact caches would then differ.
    fn replay(&self) -> Value {
        let target = format!("memcached://{}", self.0.address("memcached"));
        let output = Command::new(env!("CARGO_BIN_EXE_sherwood"))
            .args(["load", "--target", &target, "--trace", "orm-busy", "--ops", &ACCESSES.to_string()])
            .args(["--look-aside", "--value-size", "100", "--connections", "1", "--pipeline", "1"])
            .arg("--json")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the charged bytes of every partition.
    fn used_bytes(&self) -> BTreeMap<String, u64> {
        let mut stream = TcpStream::connect(self.0.address("admin")).unwrap();
        write!(stream, "GET /v1/partitions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let partitions: Vec<Value> = serde_json::from_str(body).unwrap();
        let used = |partition: &Value| {
            (partition["name"].as_str().unwrap().to_owned(), partition["used_bytes"].as_u64().unwrap())
        };
        partitions.iter().map(used).collect()
    }
}

/// Simulates exact caches of `budget` bytes each; returns the hits by partition and the bytes held
/// at the end. `cache_of` maps an object type to its cache.
fn exact(budget: u64, cache_of: fn(u8) -> u8) -> (BTreeMap<String, u64>, BTreeMap<u8, u64>) {
    let mut caches = BTreeMap::new();
    let mut hits = BTreeMap::new();
    for access in cache2k::read(built_in("orm-busy").unwrap()).unwrap().take(ACCESSES) {
        let access = access.unwrap();
        let mut key = Vec::new();
        access.write_key(&mut key);
        let cache = caches.entry(cache_of(access.object_type())).or_insert_with(|| ExactLru::new(budget));
        let hit = cache.get(&key);
        *hits.entry(cache2k::partition_name(access.object_type())).or_default() += u64::from(hit);
        if !hit {
            // The listener strips the partition's name; the rest of the key is stored and charged.
            let stored = key.len() - "t00/".len();
            cache.set(key, charge(stored, 100));
        }
    }
    (hits, caches.iter().map(|(&cache, lru)| (cache, lru.used())).collect())
}

fn hits(report: &Value) -> BTreeMap<String, u64> {
    let partitions = report["by_partition"].as_object().unwrap();
    partitions.iter().map(|(name, counts)| (name.clone(), counts["hits"].as_u64().unwrap())).collect()
}

#[test]
fn node_with_static_budgets_hits_like_an_exact_lru_per_object_type() {
    let node = Node::start("static", "1");
    let report = node.replay();
    let (expected, used) = exact(TOTAL_BYTES / 32, |object_type| object_type);
    assert_eq!((report["ops"].as_u64(), report["errors"].as_u64()), (Some(ACCESSES as u64), Some(0)));
    assert_eq!(hits(&report), expected);
    let found = node.used_bytes();
    for (object_type, bytes) in used {
        assert_eq!(found[&cache2k::partition_name(object_type)], bytes, "bytes of type {object_type}");
    }
}

#[test]
fn node_with_a_shared_budget_hits_like_one_exact_lru() {
    let node = Node::start("shared-lru", "1");
    let report = node.replay();
    let (expected, used) = exact(TOTAL_BYTES, |_| 0);
    assert_eq!(hits(&report), expected);
    assert_eq!(node.used_bytes().values().sum::<u64>(), used[&0]);
}

#[test]
fn node_with_two_threads_hits_like_one_exact_lru_over_one_connection() {
    let report = Node::start("shared-lru", "2").replay();
    let (expected, _) = exact(TOTAL_BYTES, |_| 0);
    assert_eq!(hits(&report), expected);
}
