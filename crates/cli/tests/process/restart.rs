//! A node is stopped and started again while its sockets stay open and clients use it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use crate::manager::serve_with;
use crate::support::{Program, Server, TIMEOUT};

/// Stops and starts of the node.
const RESTARTS: usize = 3;
/// Clients that connect again and again.
const CLIENTS: usize = 4;

/// Sends a command on a connection of its own and returns the answer, up to `end`; none if the node
/// ended the connection before, as a stopping one may. The node must not refuse the connection.
fn ask(address: &str, command: &str, end: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).expect("no connection is refused");
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(command.as_bytes()).ok()?;
    answer(&mut stream, end)
}

fn answer(stream: &mut TcpStream, end: &str) -> Option<String> {
    let (mut answer, mut part) = (Vec::new(), [0; 256]);
    while !answer.ends_with(end.as_bytes()) {
        match stream.read(&mut part) {
            Ok(0) => return None,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("after {:?}: {error}", String::from_utf8_lossy(&answer)),
        }
    }
    Some(String::from_utf8(answer).unwrap())
}

/// Writes rising numbers to a key and reads them, until `stop`. A number that is read is the last
/// one that was stored, or one whose storage was not confirmed since.
fn use_cache(address: &str, key: &str, done: &AtomicU64, stop: &AtomicBool) {
    let (mut stored, mut sent) = (0, 0);
    while !stop.load(Relaxed) {
        sent += 1;
        let command = format!("set {key} 0 0 9\r\n{sent:09}\r\n");
        if let Some(answer) = ask(address, &command, "\r\n") {
            assert_eq!(answer, "STORED\r\n");
            stored = sent;
        }
        if let Some(answer) = ask(address, &format!("get {key}\r\n"), "END\r\n")
            && stored > 0
        {
            let value = answer.strip_prefix(&format!("VALUE {key} 0 9\r\n")).expect("it was stored");
            let value: u64 = value[..9].parse().unwrap();
            assert!((stored..=sent).contains(&value), "{value} where {stored} to {sent} was stored");
            done.fetch_add(1, Relaxed);
        }
    }
}

/// Waits until all clients have read again.
fn all_progress(done: &[AtomicU64]) {
    let (start, before) = (Instant::now(), done.iter().map(|done| done.load(Relaxed)).collect::<Vec<_>>());
    while done.iter().zip(&before).any(|(done, before)| done.load(Relaxed) <= *before) {
        assert!(start.elapsed() < TIMEOUT, "a client makes no progress");
        thread::yield_now();
    }
}

#[test]
fn restart_under_load_refuses_no_connection_and_loses_no_value() {
    let directory = tempfile::tempdir().unwrap();
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [cache, admin] = sockets.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
    let config = directory.path().join("sherwood.toml");
    let snapshot = directory.path().join("snapshot");
    let text = format!(
        "[memory]\ntotal = \"16MiB\"\nsnapshot = {{ path = {snapshot:?} }}\n[server]\nthreads = 2\n\
         [[listener]]\nbind = \"{cache}\"\n[admin]\nbind = \"{admin}\"\n"
    );
    fs::write(&config, text).unwrap();
    let start = || {
        let passed = [("memcached", sockets[0].as_fd()), ("admin", sockets[1].as_fd())];
        Program::run(&mut serve_with(&passed, &["--config", config.to_str().unwrap()]))
    };
    let (stop, done) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; CLIENTS]);
    // It serves until the clients have ended.
    let mut server = Some(Server::of(start()));
    assert_eq!(ask(&cache, "set stays 0 0 1\r\nx\r\n", "\r\n").as_deref(), Some("STORED\r\n"));
    thread::scope(|scope| {
        let _ends = StopAtEnd(&stop);
        for (number, done) in done.iter().enumerate() {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || use_cache(cache, &format!("k{number}"), done, stop));
        }
        for _ in 0..RESTARTS {
            all_progress(&done);
            stop_node(server.take());
            // No process serves now: connections wait, with what is sent on them.
            let [mut value, mut health] =
                [&cache, &admin].map(|address| TcpStream::connect(address).unwrap());
            value.write_all(b"get stays\r\n").unwrap();
            health.write_all(b"GET /healthz HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
            server = Some(Server::of(start()));
            assert_eq!(answer(&mut value, "END\r\n").as_deref(), Some("VALUE stays 0 1\r\nx\r\nEND\r\n"));
            assert!(answer(&mut health, "ok\n").expect("an answer").contains(" 200 OK\r\n"));
        }
        all_progress(&done);
    });
    stop_node(server);
}

#[test]
fn node_whose_snapshot_cannot_be_written_drains_and_exits_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("snapshots");
    fs::create_dir(&place).unwrap();
    let config = directory.path().join("sherwood.toml");
    let text = format!(
        "[memory]\nsnapshot = {{ path = {:?} }}\n[[listener]]\nbind = \"127.0.0.1:0\"\n[admin]\nbind = \"off\"\n",
        place.join("items")
    );
    fs::write(&config, text).unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]);
    fs::remove_dir_all(&place).unwrap();
    server.signal(libc::SIGTERM);
    let (status, said) = server.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("shutting down") && said.contains("sherwood: writing the snapshot"), "{said}");
}

fn stop_node(server: Option<Server>) {
    let server = server.expect("it runs");
    server.signal(libc::SIGTERM);
    let (status, said) = server.end();
    assert!(status.success(), "{said}");
}

/// Tells the clients to stop when it is dropped, also by a failed assertion.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
