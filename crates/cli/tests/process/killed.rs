//! A node in front of replicated Redis servers, with its log on disk, is killed under writes soon
//! after one of its servers, which loses all it had.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::client::Client;
use crate::replicas::{KEYS, all_are_read, configuration, name, read_all, servers};
use crate::servers;
use crate::support::Server;
use crate::wait::eventually;

/// Clients that write, each its own keys.
const WRITERS: usize = 4;

/// Starts a node in front of these servers, whose files are in the directory, and waits until it
/// reads all of them. Returns it with the address of its HTTP port.
fn serve(directory: &Path, servers: &[servers::Server]) -> (Server, SocketAddr) {
    let options = format!("ack = \"first\"\nlog.path = {:?}\n", directory.join("log"));
    let path = directory.join("sherwood.toml");
    fs::write(&path, configuration("redis", servers, &options)).unwrap();
    let mut node = Server::start(&["--config", path.to_str().unwrap()]);
    node.ignore();
    let address = node.address("admin").parse().unwrap();
    all_are_read(&mut Client::connect(address));
    (node, address)
}

fn kill(node: Server) {
    node.signal(libc::SIGKILL);
    let (status, _) = node.end();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
}

#[test]
fn acknowledged_writes_survive_a_killed_node_with_its_log_on_disk() {
    let mut servers = servers("redis", 4);
    let directory = tempfile::tempdir().unwrap();
    let mut expected: BTreeMap<String, Option<String>> = BTreeMap::new();
    for round in 0..3 {
        let mut expected_one_of = BTreeMap::new();
        let written = &AtomicUsize::new(0);
        let acknowledged = thread::scope(|scope| {
            // A failed assertion kills the node, and thereby ends the writers.
            let (node, address) = serve(directory.path(), &servers);
            // Each key has one writer, which knows what was acknowledged last and, at the end, the
            // value that may have been written.
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || write_until_killed(address, round, writer, written)))
                .collect();
            eventually("it writes", || written.load(Relaxed) > 200);
            // The server that is killed loses all it had.
            servers[round].kill();
            let until = written.load(Relaxed) + 200;
            eventually("it goes on", || written.load(Relaxed) > until);
            kill(node);
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        servers[round].restart();
        for (key, (acknowledged, unknown)) in acknowledged {
            let before = expected.remove(&key).flatten();
            expected_one_of.insert(key, [acknowledged.or(before), unknown]);
        }
        let (node, address) = serve(directory.path(), &servers);
        expected = read_all(&mut Client::connect(address));
        for (key, of_key) in expected_one_of {
            assert!(of_key.contains(&expected[&key]), "{key} has {:?}, of {of_key:?}", expected[&key]);
        }
        kill(node);
    }
}

/// Writes some of the keys until the node ends. Returns for each the value acknowledged last, and
/// the one whose outcome is unknown, which is the same if there is none.
fn write_until_killed(
    address: SocketAddr,
    round: usize,
    writer: usize,
    written: &AtomicUsize,
) -> BTreeMap<String, (Option<String>, Option<String>)> {
    let (mut client, mut values) = (Client::connect(address), BTreeMap::new());
    for turn in 0.. {
        for key in (writer..KEYS).step_by(WRITERS) {
            let (name, value) = (name(key), format!("{key}:{round}:{turn}"));
            let last: &mut (Option<String>, Option<String>) = values.entry(name.clone()).or_default();
            last.1 = Some(value.clone());
            let Ok(answer) = client.try_ask("PUT", &format!("/v1/keys/a/{name}"), "", &value) else {
                return values;
            };
            assert_eq!(answer.status, 204, "{name}: {answer:?}");
            last.0 = Some(value);
            written.fetch_add(1, Relaxed);
        }
    }
    values
}
