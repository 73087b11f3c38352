//! The memcached listener on real sockets, with faulty, slow and many clients.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::slow::slow;
use crate::support::{Server, options, thread_bytes_max};
use crate::wait::eventually;
use bytes::Bytes;
use sherwood_listener::{
    Backends, BindError, Bound, Count, FetchFailure, ListenerOptions, Protocol, VERSION,
};

#[test]
fn error_of_a_listener_names_a_port_in_use() {
    let server = Server::start(options());
    let taken = ListenerOptions { bind: server.address().into(), ..options() };
    let error = Bound::bind(taken).unwrap_err();
    assert!(matches!(error, BindError::Bind { ref address, .. } if *address == server.address().into()));
    assert!(error.to_string().contains(&server.address().to_string()), "{error}");
}

#[test]
fn every_thread_of_a_listener_serves_the_same_cache() {
    let server = Server::start(ListenerOptions { threads: 4, ..options() });
    let mut clients: Vec<_> = (0..32).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.check(&format!("set k{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let other = 31 - number;
        client.check(&format!("get k{other}\r\n"), &format!("VALUE k{other} 0 1\r\nx\r\nEND\r\n"));
    }
    assert_eq!((server.connections(), server.count(Count::GetHits)), (32, 32));
    drop(clients);
    eventually("no connection is left", || server.connections() == 0);
}

#[test]
fn many_clients_are_served_by_all_threads_of_a_listener() {
    let mut server = Server::start(ListenerOptions { threads: 3, ..options() });
    let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.check(&format!("set k{number} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    let rest = clients.split_off(30);
    drop(clients);
    eventually("half of them are gone", || server.connections() == 30);
    let mut all: Vec<_> = rest.into_iter().chain((0..30).map(|_| server.connect())).collect();
    for client in &mut all {
        client.check("get k1\r\n", "VALUE k1 0 1\r\nx\r\nEND\r\n");
        client.send(b"get k2\r\n");
    }
    server.tell_to_stop();
    for client in &mut all {
        assert_eq!(client.rest(), "VALUE k2 0 1\r\nx\r\nEND\r\n");
    }
    server.join();
}

#[test]
fn listener_threads_pinned_to_cores_serve_clients() {
    let server = Server::start(ListenerOptions { threads: 3, pin_threads: true, ..options() });
    // While they are connected, each thread has some of them.
    let mut clients: Vec<_> = (0..12).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.check("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    }
    // Threads of other tests are not pinned, so with more than one core only this test's threads
    // count.
    assert!(listeners_threads_on_one_core() >= 3);
}

/// Returns the number of memcached listener threads pinned to one core.
fn listeners_threads_on_one_core() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok());
    let on_one_core = |status: &String| {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let cores = field("Cpus_allowed_list:");
        field("Name:").is_some_and(|name| name.starts_with("sherwood-mc-"))
            && cores.is_some_and(|cores| cores.parse::<u32>().is_ok())
    };
    statuses.filter(on_one_core).count()
}

#[test]
fn client_that_closes_during_a_fetch_is_removed_after_the_backend_answered() {
    let slow = slow();
    let server = Server::read_through(options(), Arc::clone(&slow) as Arc<dyn Backends>);
    let mut leaving = server.connect();
    leaving.send(b"get one\r\n");
    eventually("the backend is asked", || slow.is_asked("one"));
    drop(leaving);
    server.connect().check("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    slow.answer("one", Ok(Some(Bytes::from_static(b"1").into())));
    eventually("no connection is left", || server.connections() == 0);
}

#[test]
fn two_thousand_idle_clients_hold_no_buffers() {
    let server = Server::speak(Protocol::Memcached, options(), CROWD);
    let mut clients: Vec<_> = (0..CROWD).map(|_| server.connect()).collect();
    for client in &mut clients {
        // An incomplete command: half of the clients have sent part of one and are idle.
        client.check("set k 0 0 2000\r\n", "");
    }
    eventually("everybody is connected", || server.connections() == CROWD);
    for client in clients.iter_mut().step_by(2) {
        client.send("x".repeat(2000).as_bytes());
        client.check("\r\nget none\r\n", "STORED\r\nEND\r\n");
    }
    // Clients with all answers hold nothing; the others hold their line, and each thread its own
    // buffers.
    let threads = options().threads as u64 * thread_bytes_max();
    let held = CROWD as u64 / 2 * LINE_BYTES_MAX;
    eventually("buffers are given back", || server.buffer_bytes() <= held + threads);
    drop(clients);
    eventually("nobody is left", || server.connections() == 0);
    assert!(server.buffer_bytes() <= threads, "{} bytes are held for nobody", server.buffer_bytes());
}

/// Number of clients that are connected at once.
const CROWD: usize = 2000;
/// Most bytes held for a client that has sent the first line of a command without its value.
const LINE_BYTES_MAX: u64 = 64;

#[test]
fn ten_thousand_pipelined_commands_are_answered() {
    let server = Server::start(options());
    let mut client = server.connect();
    let value = "x".repeat(2000);
    client.check(&format!("set k 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    let mut hand = client.other_hand();
    let sending = std::thread::spawn(move || hand.send("get k\r\n".repeat(10_000).as_bytes()));
    // By now the answers, 20 MB, are far more than the sockets hold.
    client.0.peek(&mut [MaybeUninit::uninit()]).unwrap();
    let answer = format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", value.len());
    for _ in 0..10_000 {
        client.expect(&answer);
    }
    sending.join().unwrap();
    client.check("version\r\n", &format!("VERSION {VERSION}\r\n"));
}

#[test]
fn half_closed_client_gets_all_its_answers() {
    let server = Server::start(options());
    let mut client = server.connect();
    client.send(b"set a 0 0 1\r\nx\r\nget a\r\nget a");
    client.finish();
    assert_eq!(client.rest(), "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn commands_sent_in_single_bytes_are_answered() {
    let server = Server::start(options());
    let mut client = server.connect();
    for byte in b"set a 0 0 3\r\na\r\n\r\ngets a b c\r\nfoo\r\n" {
        client.send(&[*byte]);
    }
    client.expect("STORED\r\nVALUE a 0 3 ");
    client.finish();
    assert!(client.rest().ends_with("\r\na\r\n\r\nEND\r\nERROR\r\n"));
}

#[test]
fn malformed_memcached_lines_leave_the_connection_usable() {
    let server = Server::start(options());
    let mut client = server.connect();
    let key = "k".repeat(251);
    let bad_format = "CLIENT_ERROR bad command line format\r\n";
    client.check("\r\nfoo\r\nget\r\n", &format!("{bad_format}ERROR\r\n{bad_format}"));
    client.check(&format!("get {key}\r\n"), bad_format);
    client.check(&format!("set {key} 0 0 1\r\nx\r\n"), bad_format);
    client.check("set a 0 0 -1\r\n", bad_format);
    client.check("set a 0 0 1\r\nxyz\r\n", &format!("CLIENT_ERROR bad data chunk\r\n{bad_format}"));
    client.check("get a\0b\r\n", bad_format);
    client.check("get a\r\n", "END\r\n");
    assert_eq!(server.count(Count::ProtocolErrors), 9);
}

#[test]
fn http_request_to_memcached_closes_the_connection_without_an_answer() {
    let server = Server::start(options());
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nhost: cache\r\n\r\nset a 0 0 1\r\nx\r\n");
    let answer = client.rest();
    assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("STORED"), "{answer}");
    server.connect().check("get a\r\n", "END\r\n");
}

#[test]
fn memcached_line_without_end_closes_the_connection() {
    let server = Server::start(options());
    let mut client = server.connect();
    // The server may close while this is being written.
    let _ = client.try_send(&[b'x'; 100_000]);
    client.finish();
    assert_eq!(client.rest(), "");
}

#[test]
fn memcached_values_up_to_the_limit_are_stored_and_larger_ones_refused() {
    let server = Server::start(options());
    let mut client = server.connect();
    let largest = "x".repeat(1 << 20);
    client.check(&format!("set a 0 0 {}\r\n{largest}\r\n", largest.len()), "STORED\r\n");
    client.check("get a\r\n", &format!("VALUE a 0 {}\r\n{largest}\r\nEND\r\n", largest.len()));
    client.check(
        &format!("set a 0 0 {}\r\n{largest}{largest}\r\nget a\r\n", 2 * largest.len()),
        "SERVER_ERROR object too large for cache\r\nEND\r\n",
    );
}

#[test]
fn memcached_get_of_thousands_of_keys_is_answered() {
    let server = Server::start(options());
    let mut client = server.connect();
    let keys: Vec<String> = (0..5000).map(|key| format!("some-longer-key-{key}")).collect();
    let stores: String = keys.iter().map(|key| format!("set {key} 0 0 2 noreply\r\nxy\r\n")).collect();
    client.check(&format!("{stores}version\r\n"), &format!("VERSION {VERSION}\r\n"));
    let values: String = keys.iter().map(|key| format!("VALUE {key} 0 2\r\nxy\r\n")).collect();
    client.check(&format!("get {}\r\n", keys.join(" ")), &format!("{values}END\r\n"));
}

#[test]
fn stopped_listener_answers_commands_already_sent_and_closes() {
    let mut server = Server::start(options());
    let mut idle = server.connect();
    idle.check("get a\r\n", "END\r\n");
    let mut asking = server.connect();
    asking.check("set a 0 0 1\r\nx\r\n", "STORED\r\n");
    asking.send(b"get a\r\nget a\r\n");
    let mut slow = server.connect();
    let value = "x".repeat(1 << 20);
    slow.check(&format!("set big 0 0 {}\r\n{value}\r\n", value.len()), "STORED\r\n");
    slow.send("get big\r\n".repeat(20).as_bytes());
    server.tell_to_stop();
    assert_eq!(idle.rest(), "");
    assert_eq!(asking.rest(), "VALUE a 0 1\r\nx\r\nEND\r\n".repeat(2));
    assert_eq!(slow.rest(), format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len()).repeat(20));
    server.join();
}

#[test]
fn client_that_waits_for_a_backend_does_not_delay_others() {
    let slow = slow();
    let one_thread = ListenerOptions { threads: 1, ..options() };
    let server = Server::read_through(one_thread, Arc::clone(&slow) as Arc<dyn Backends>);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    other.check("set hit 0 0 1\r\nx\r\n", "STORED\r\n");
    waiting.send(b"get one hit two three\r\nversion\r\n");
    eventually("the backend is asked", || slow.is_asked("three"));
    other.check("get hit\r\n", "VALUE hit 0 1\r\nx\r\nEND\r\n");
    slow.answer("three", Ok(Some(Bytes::from_static(b"3").into())));
    slow.answer("two", Err(FetchFailure::Failed("down".to_owned())));
    slow.answer("one", Ok(Some(Bytes::from_static(b"1").into())));
    waiting.expect("VALUE one 0 1\r\n1\r\nVALUE hit 0 1\r\nx\r\nVALUE three 0 1\r\n3\r\nEND\r\n");
    waiting.expect(&format!("VERSION {VERSION}\r\n"));
    assert_eq!((server.count(Count::Fetches), server.count(Count::FetchErrors)), (3, 1));
}
