//! A replicated store of memcached or Redis servers, and what clients of its node see of it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::Client;
use crate::servers::Server;
use crate::wait::eventually;

/// Keys that the tests write and read.
pub(crate) const KEYS: usize = 40;

/// Starts servers, which are empty.
pub(crate) fn servers(kind: &str, count: usize) -> Vec<Server> {
    let server = || if kind == "redis" { Server::redis(&[]) } else { Server::memcached(|_| Vec::new()) };
    (0..count).map(|_| server()).collect()
}

/// Returns the configuration of a node with one backend, `a`, of these servers as duplicates of two
/// partitions. `options` are further keys of the backend, and tables.
pub(crate) fn configuration(kind: &str, servers: &[Server], options: &str) -> String {
    let replica = |server: &Server| {
        let address = server.address();
        format!("{{ kind = \"{kind}\", address = \"{address}\", key_prefix = \"t:\" }}")
    };
    let replicas: Vec<String> = servers.iter().map(replica).collect();
    format!(
        "[admin]\nbind = \"127.0.0.1:0\"\n[[backend]]\nname = \"a\"\ntimeout = \"2s\"\npartitions = 2\n\
         duplicates = {}\nreplicas = [{}]\n{options}",
        servers.len() / 2,
        replicas.join(", ")
    )
}

/// Returns the states of the servers, in the order of the configuration.
pub(crate) fn states(client: &mut Client) -> Vec<String> {
    let stores = client.ask("GET", "/v1/stores", "").json();
    let nodes = stores[0]["nodes"].as_array().expect("the duplicates").clone();
    nodes.iter().map(|node| node["state"].as_str().expect("a name").to_owned()).collect()
}

/// Waits until all servers are read.
pub(crate) fn all_are_read(client: &mut Client) {
    eventually("all duplicates are read", || states(client).iter().all(|state| state == "current"));
}

/// Returns the name of one of the [`KEYS`].
pub(crate) fn name(key: usize) -> String {
    format!("key-{key}")
}

/// Reads all keys past the cache; none where a key is absent.
pub(crate) fn read_all(client: &mut Client) -> BTreeMap<String, Option<String>> {
    let keys: Vec<String> = (0..KEYS).map(name).collect();
    client.invalidate("a", &keys);
    let results = client.read([("a", keys.clone())]);
    let value = |result: &Value| match result["status"].as_str() {
        Some("miss") => Some(result["value"].as_str().expect("text").to_owned()),
        Some("not_found") => None,
        _ => panic!("{result}"),
    };
    keys.into_iter().zip(results.iter().map(value)).collect()
}
