//! Reloads of the configuration of a started node, while clients use it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Server, TIMEOUT};

const CONFIG: &str = "
[memory]
total = \"16MiB\"
[admin]
bind = \"127.0.0.1:0\"
[control]
policy = \"static\"
[[listener]]
bind = \"127.0.0.1:0\"
[[backend]]
name = \"a\"
prefix = \"\"
[[backend]]
name = \"b\"
prefix = \"b/\"
";

/// Sends a request to the admin port and returns the status and the body.
fn ask(address: &str, method: &str, path: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Sets and gets a key on one connection until `stop`, and returns the number of times. Every
/// answer must be right.
fn use_cache(address: &str, key: &str, stop: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (command, expected) = (
        format!("set {key} 0 0 1\r\nx\r\nget {key}\r\n"),
        format!("STORED\r\nVALUE {key} 0 1\r\nx\r\nEND\r\n"),
    );
    let (mut answer, mut times) = (vec![0; expected.len()], 0);
    while !stop.load(Relaxed) {
        stream.write_all(command.as_bytes()).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected);
        times += 1;
    }
    times
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Replaces the file at once, as an editor does.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn reload_changes_all_or_nothing_and_no_client_notices() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sherwood.toml");
    write(&path, CONFIG);
    let mut server = Server::start(&["--config", path.to_str().unwrap()]);
    let (cache, admin) = (server.address("memcached"), server.address("admin"));
    let policy = || ask(&admin, "GET", "/v1/control").1["policy"].clone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // A failed assertion must end the clients, for which the scope waits.
        let stopping = StopOnDrop(&stop);
        let clients = ["a", "b/b"].map(|key| {
            scope.spawn({
                let (cache, stop) = (&cache, &stop);
                move || use_cache(cache, key, stop)
            })
        });
        // A good file, by the signal.
        write(&path, &CONFIG.replace("\"static\"", "\"robinhood\"\ndry_run = true"));
        server.signal(libc::SIGHUP);
        let said = server.read_until(|line| line.contains("read again"));
        assert!(said.last().unwrap().contains("changed: [control] policy, [control] dry_run"), "{said:?}");
        assert_eq!(policy(), "robinhood");
        // A broken file: its errors are logged and the old one stays.
        write(&path, &CONFIG.replace("\"static\"", "\"nobody\""));
        server.signal(libc::SIGHUP);
        let said = server.read_until(|line| line.contains("policy is \"nobody\""));
        assert!(said.iter().any(|line| line.contains("the old one stays")), "{said:?}");
        // A listener more, which is used and removed again while the others serve.
        let socket = directory.path().join("extra.sock");
        let extra = format!("[[listener]]\nbind = \"unix:{}\"\n", socket.display());
        let with_extra = CONFIG.replace("\"static\"", "\"robinhood\"\ndry_run = true") + &extra;
        write(&path, &with_extra);
        let change = |verb: &str| json!({"changed": [format!("listener unix:{} {verb}", socket.display())]});
        assert_eq!(ask(&admin, "POST", "/v1/reload"), (200, change("added")));
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(b"set e 0 0 1\r\ny\r\n").unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), "STORED\r\n");
        // Another listener at the same address cannot replace it without a moment between the two.
        write(&path, &with_extra.replace("extra.sock\"", "extra.sock\"\nprotocol = \"redis\""));
        let (status, refused) = ask(&admin, "POST", "/v1/reload");
        let differs = format!("[[listener]] unix:{}, which differs", socket.display());
        assert_eq!((status, &refused["needs_restart"]), (422, &json!([differs])));
        // A port in use: nothing is changed, the policy included.
        let in_use = format!("[[listener]]\nbind = \"{cache}\"\n");
        write(&path, &(with_extra.clone() + &in_use).replace("\"robinhood\"", "\"static\""));
        let (status, refused) = ask(&admin, "POST", "/v1/reload");
        assert!(status == 422 && refused["error"].as_str().unwrap().contains(&cache), "{refused}");
        assert_eq!(policy(), "robinhood", "nothing is changed in part");
        write(&path, &with_extra.replace(&extra, ""));
        assert_eq!(ask(&admin, "POST", "/v1/reload"), (200, change("removed")));
        // Its client is told, and the file of its socket goes with it.
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{rest:?}");
        let start = Instant::now();
        while socket.exists() {
            assert!(start.elapsed() < TIMEOUT, "the socket's file stays");
            thread::yield_now();
        }
        // A change that needs a restart, together with one that does not, by the admin API.
        write(&path, &CONFIG.replace("16MiB\"", "32MiB\"\nmax_item_size = \"2MiB\""));
        let (status, refused) = ask(&admin, "POST", "/v1/reload");
        assert_eq!((status, &refused["needs_restart"]), (422, &json!(["[memory] other than total"])));
        assert_eq!(policy(), "robinhood", "nothing is changed in part");
        write(&path, CONFIG);
        let (status, done) = ask(&admin, "POST", "/v1/reload");
        assert_eq!((status, done), (200, json!({"changed": ["[control] policy", "[control] dry_run"]})));
        assert_eq!(policy(), "static");
        drop(stopping);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
}

#[test]
fn reload_that_would_remove_every_listener_requires_confirmation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sherwood.toml");
    write(&path, CONFIG);
    let mut server = Server::start(&["--config", path.to_str().unwrap()]);
    let (cache, admin) = (server.address("memcached"), server.address("admin"));
    let without = CONFIG.replace("[[listener]]\nbind = \"127.0.0.1:0\"\n", "");
    write(&path, &without.replace("\"static\"", "\"robinhood\""));
    // The node announces its addresses a moment before it takes reloads.
    let asked = || Some(ask(&admin, "POST", "/v1/reload")).filter(|(status, _)| *status != 503);
    let (status, refused) = (0..10_000).find_map(|_| asked()).expect("it takes reloads");
    let error = refused["error"].as_str().unwrap();
    assert!(status == 422 && error.contains("/v1/reload?remove_all_listeners=true"), "{refused}");
    server.signal(libc::SIGHUP);
    server.read_until(|line| line.contains("the old one stays") && line.contains("so all would be removed"));
    assert_eq!(ask(&admin, "GET", "/v1/control").1["policy"], "static", "nothing is changed in part");
    let (status, _) = ask(&admin, "POST", "/v1/reload?remove_all_listeners=perhaps");
    assert_eq!(status, 400);
    let client = TcpStream::connect(&cache).unwrap();
    write(&path, &without);
    let removed = json!({"changed": ["listener 127.0.0.1:0 removed"]});
    assert_eq!(ask(&admin, "POST", "/v1/reload?remove_all_listeners=true"), (200, removed));
    assert_eq!((&client).read(&mut [0]).unwrap(), 0, "the client is disconnected");
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
}
