//! Listeners and their faulty, slow and endless clients, in every protocol and on every kind of
//! socket.
//!
//! Answers were compared with those of memcached 1.6.45 and Redis 7.0.15; where ours differ, the
//! protocols' pages say so.

use std::time::Duration;

use sherwood_listener::{Address, Count, ListenerOptions, Protocol, UnixSocket};
use tempfile::TempDir;

use crate::protocol::Commands;
use crate::support::{Client, Server, options, thread_bytes_max};
use crate::wait::eventually;

const LIMIT: usize = 1 << 20;

/// Runs a test with each protocol on each kind of socket.
pub(crate) fn with_each(options: &ListenerOptions, connections_max: usize, test: impl Fn(Protocol, &Server)) {
    for protocol in Protocol::ALL {
        test(protocol, &Server::speak(protocol, options.clone(), connections_max));
        let (_directory, bind) = unix();
        test(
            protocol,
            &Server::speak(protocol, ListenerOptions { bind, ..options.clone() }, connections_max),
        );
    }
}

fn unix() -> (TempDir, Address) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    (directory, Address::Unix(UnixSocket { path, permissions: 0o600 }))
}

#[track_caller]
fn ping(client: &mut Client, protocol: Protocol) {
    let (sent, expected) = protocol.ping();
    client.check(sent, &expected);
}

/// Sends each first text of `table`, followed by a ping, on a connection of its own and checks that
/// the answer is the second text; `(closed)` means that the ping is not answered.
#[track_caller]
fn check_each(server: &Server, protocol: Protocol, table: &[(&str, &str)]) {
    let (ping, pong) = protocol.ping();
    for (sent, expected) in table {
        let mut client = server.connect();
        // Sent at once: after the first part the server may close the connection.
        client.send(format!("{sent}{ping}").as_bytes());
        client.finish();
        let expected = match expected.strip_suffix("(closed)") {
            Some(expected) => expected.to_owned(),
            None => format!("{expected}{pong}"),
        };
        assert_eq!(client.rest_until_closed(), expected, "after {:?}", &sent[..sent.len().min(80)]);
    }
}

#[test]
fn value_over_the_listener_limit_is_refused_and_removes_the_old_value() {
    with_each(&options(), 16, |protocol, server| {
        let mut client = server.connect();
        let (fits, over) = ("x".repeat(LIMIT), "x".repeat(LIMIT + 1));
        client.check(&protocol.set("k", &fits), protocol.stored());
        client.check(&protocol.get("k"), &protocol.found("k", &fits));
        client.check(&protocol.set("k", &over), protocol.too_large());
        client.check(&protocol.get("k"), protocol.missed());
        client.check(&protocol.set("k", "small"), protocol.stored());
        if protocol == Protocol::Memcached {
            client.check(&format!("append k 0 0 {LIMIT}\r\n{fits}\r\n"), "NOT_STORED\r\n");
            client.check(&format!("ms k {}\r\n{over}\r\n", LIMIT + 1), protocol.too_large());
        } else {
            client.check(&format!("SETRANGE k {LIMIT} x\r\n"), protocol.too_large());
            client.check(&protocol.get("k"), &protocol.found("k", "small"));
        }
        ping(&mut client, protocol);
    });
}

#[test]
fn memcached_keys_have_250_bytes_and_no_more() {
    let server = Server::start(options());
    let (fits, over) = ("k".repeat(250), "k".repeat(251));
    let refused = "CLIENT_ERROR bad command line format\r\n";
    check_each(
        &server,
        Protocol::Memcached,
        &[
            (
                &format!("set {fits} 0 0 1\r\nx\r\nget {fits}\r\n"),
                &format!("STORED\r\nVALUE {fits} 0 1\r\nx\r\nEND\r\n"),
            ),
            (
                &format!("mg {fits} v\r\ndelete {fits}\r\nms {fits} 1\r\ny\r\n"),
                "VA 1\r\nx\r\nDELETED\r\nHD\r\n",
            ),
            (&format!("set {over} 0 0 1\r\nx\r\n"), refused),
            (&format!("set {over} 0 0 1 noreply\r\nx\r\n"), ""),
            (&format!("ms {over} 1\r\nx\r\n"), refused),
            (&format!("get {over}\r\n"), refused),
            (&format!("gat 1 {over}\r\n"), refused),
            (&format!("incr {over} 1\r\n"), refused),
            (&format!("touch {over} 1\r\n"), refused),
            (&format!("delete {over}\r\n"), refused),
            (&format!("mg {over} v\r\n"), refused),
            (&format!("md {over}\r\n"), refused),
            (&format!("me {over}\r\n"), refused),
        ],
    );
}

#[test]
fn redis_keys_have_1_to_250_bytes() {
    let server = Server::redis(options());
    let (fits, over) = ("k".repeat(250), "k".repeat(251));
    check_each(
        &server,
        Protocol::Redis,
        &[
            (&format!("SET {fits} x\r\nGET {fits}\r\n"), "+OK\r\n$1\r\nx\r\n"),
            (&format!("GET {over}\r\nDEL {over}\r\nEXPIRE {over} 1\r\n"), "$-1\r\n:0\r\n:0\r\n"),
            ("SET '' x\r\n", "-ERR a key is empty; keys have 1 to 250 bytes\r\n"),
            ("GET ''\r\nDEL ''\r\n", "$-1\r\n:0\r\n"),
        ],
    );
    let mut client = server.connect();
    for refused in [format!("SET {over} x\r\n"), format!("INCR {over}\r\n"), format!("MSET a 1 {over} 2\r\n")]
    {
        client.send(refused.as_bytes());
        client.expect("-ERR ");
        let line = client.line();
        assert!(line.contains("251 bytes") && line.contains("250"), "{line}");
    }
    ping(&mut client, Protocol::Redis);
}

#[test]
fn invalid_value_lengths_are_refused_and_the_next_command_is_executed_if_possible() {
    let server = Server::start(options());
    let bad = "CLIENT_ERROR bad command line format\r\n";
    check_each(
        &server,
        Protocol::Memcached,
        &[
            ("set a 0 0 -1\r\n", bad),
            ("set a 0 0 2147483647\r\n", bad),
            ("set a 0 0 4294967296\r\n", bad),
            ("set a 0 0 99999999999999999999\r\n", bad),
            ("set a 0 0 x noreply\r\n", ""),
            ("cas a 0 0 -1 1\r\n", bad),
            ("append a 0 0 -2147483648\r\n", bad),
            ("ms a -1\r\n", bad),
            ("ms a 2147483647\r\n", bad),
            ("ms a 99999999999999999999\r\n", bad),
            ("ms a S1\r\n", bad),
            // A valid length whose value is never sent: the listener waits for it.
            ("set a 0 0 2147483645\r\n", "SERVER_ERROR object too large for cache\r\n(closed)"),
            (
                "incr a -1\r\nincr a 18446744073709551616\r\n",
                &"CLIENT_ERROR invalid numeric delta argument\r\n".repeat(2),
            ),
        ],
    );
    let server = Server::redis(options());
    let (count, length) = (
        "-ERR Protocol error: invalid multibulk length\r\n(closed)",
        "-ERR Protocol error: invalid bulk length\r\n(closed)",
    );
    check_each(
        &server,
        Protocol::Redis,
        &[
            ("*-5\r\n*0\r\n", ""),
            ("*1048577\r\n", count),
            ("*99999999999999999999\r\n", count),
            ("*x\r\n", count),
            ("*1\r\n$-1\r\n", length),
            ("*1\r\n$536870913\r\n", length),
            ("*1\r\n$9223372036854775808\r\n", length),
            ("*1\r\n$x\r\n", length),
            ("*1\r\n:3\r\n", "-ERR Protocol error: expected '$', got ':'\r\n(closed)"),
            (
                &format!("*{}", "1".repeat(70_000)),
                "-ERR Protocol error: too big mbulk count string\r\n(closed)",
            ),
            (
                &format!("*1\r\n${}", "1".repeat(70_000)),
                "-ERR Protocol error: too big bulk count string\r\n(closed)",
            ),
        ],
    );
}

/// The answer to an HTTP request, after which the connection is closed.
fn refused_http(protocol: &str) -> String {
    let text = format!(
        "this port speaks {protocol}, not HTTP: the gateway and the admin API are on the port of [admin] bind\n"
    );
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{text}(closed)", text.len())
}

#[test]
fn client_of_another_protocol_gets_an_error_of_its_own_and_is_closed() {
    with_each(&options(), 16, |protocol, server| {
        let mut client = server.connect();
        client.send(b"\x16\x03\x01");
        assert_eq!(client.bytes_until_closed(), [0x15, 3, 1, 0, 2, 2, 40]);
        assert_eq!(server.count(Count::ProtocolErrors), 1, "{protocol:?}");
    });
    let mut binary = vec![0x80, 0x0b];
    binary.resize(24, 0);
    binary[12..16].copy_from_slice(b"mine");
    let server = Server::redis(options());
    let mut client = server.connect();
    client.send(&binary);
    let answer = client.bytes_until_closed();
    assert_eq!((&answer[1..8], &answer[12..16]), (&[0x0b, 0, 0, 0, 0, 0, 0x83][..], &b"mine"[..]));
    assert!(String::from_utf8_lossy(&answer).contains("speaks redis, not memcached's binary protocol"));
}

#[test]
fn malformed_commands_are_answered_with_an_error_or_close_the_connection() {
    let server = Server::start(options());
    let bad = "CLIENT_ERROR bad command line format\r\n";
    check_each(
        &server,
        Protocol::Memcached,
        &[
            ("\u{80}\u{ff}\0\r\n\0\r\n\r\n", &format!("ERROR\r\n{bad}{bad}")),
            ("*1\r\n$4\r\nPING\r\n", &"ERROR\r\n".repeat(3)),
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", &refused_http("memcached")),
            (&"x".repeat(70_000), "(closed)"),
        ],
    );
    assert_eq!(server.count(Count::ProtocolErrors), 3 + 3 + 1 + 1);
    let server = Server::redis(options());
    let unknown = |name: &str, args: &str| {
        format!(
            "-ERR unknown command '{name}', with args beginning with: {args}(commands: docs/src/redis.md of Sherwood 0.1.0)\r\n"
        )
    };
    let brackets = "([{".repeat(3_000);
    check_each(
        &server,
        Protocol::Redis,
        &[
            (&format!("{brackets}\r\n"), &unknown(&brackets[..128], "")),
            (&format!("{}\r\n", "a ".repeat(10_000)), &unknown("a", &"'a' ".repeat(32))),
            ("SET a \"b\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n(closed)"),
            (&"x".repeat(70_000), "-ERR Protocol error: too big inline request\r\n(closed)"),
            ("set a 0 0 1\r\n", "-ERR syntax error\r\n"),
            ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", &refused_http("redis")),
            (
                "PING\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
                "+PONG\r\n-ERR wrong number of arguments for 'get' command\r\n(closed)",
            ),
        ],
    );
}

#[test]
fn ten_thousand_failed_logins_do_not_delay_other_clients() {
    let server = Server::redis(ListenerOptions { threads: 1, ..options() });
    let (mut knocking, mut other) = (server.connect(), server.connect());
    let mut hand = knocking.other_hand();
    let sending = std::thread::spawn(move || hand.send("AUTH admin guess\r\n".repeat(10_000).as_bytes()));
    for _ in 0..100 {
        ping(&mut other, Protocol::Redis);
    }
    let refused = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for _ in 0..10_000 {
        knocking.expect(refused);
    }
    sending.join().unwrap();
    ping(&mut knocking, Protocol::Redis);
}

#[test]
fn ten_thousand_commands_sent_at_once_are_all_answered() {
    with_each(&options(), 16, |protocol, server| {
        let mut client = server.connect();
        client.check(&protocol.set("k", "value"), protocol.stored());
        let mut hand = client.other_hand();
        let sent = protocol.get("k").repeat(10_000);
        let sending = std::thread::spawn(move || hand.send(sent.as_bytes()));
        client.expect(&protocol.found("k", "value").repeat(10_000));
        sending.join().unwrap();
        ping(&mut client, protocol);
    });
}

#[test]
fn redis_request_of_fifty_thousand_small_arguments_is_answered() {
    let server = Server::redis(options());
    let mut client = server.connect();
    let keys = 50_000;
    let mut sent = format!("*{}\r\n$4\r\nMSET\r\n", 2 * keys + 1);
    (0..keys).for_each(|key| sent.push_str(&format!("$5\r\n{key:05}\r\n$1\r\nx\r\n")));
    client.check(&sent, "+OK\r\n");
    client.check("GET 49999\r\n", "$1\r\nx\r\n");
}

#[test]
fn client_that_sends_single_bytes_does_not_delay_others() {
    with_each(&ListenerOptions { threads: 1, ..options() }, 16, |protocol, server| {
        let (mut slow, mut other) = (server.connect(), server.connect());
        let said = format!("{}{}", protocol.set("slow", "a\r\nb"), protocol.get("slow"));
        for byte in said.bytes() {
            slow.send(&[byte]);
            ping(&mut other, protocol);
        }
        slow.expect(&format!("{}{}", protocol.stored(), protocol.found("slow", "a\r\nb")));
    });
}

#[test]
fn client_that_closes_in_the_middle_of_a_command_is_no_longer_counted() {
    with_each(&options(), 16, |protocol, server| {
        let whole = protocol.set("k", "value");
        for end in [1, 5, whole.len() - 1] {
            let mut half_open = server.connect();
            half_open.send(&whole.as_bytes()[..end]);
            half_open.finish();
            assert_eq!(half_open.rest(), "");
            let mut gone = server.connect();
            gone.send(&whole.as_bytes()[..end]);
        }
        eventually("nobody is left", || server.connections() == 0);
        let mut client = server.connect();
        client.check(&protocol.get("k"), protocol.missed());
    });
}

#[test]
fn client_that_never_reads_is_closed_and_its_buffers_stay_within_their_bound() {
    let options = ListenerOptions { write_timeout: Duration::from_millis(100), ..options() };
    with_each(&options, 16, |protocol, server| {
        let mut client = server.connect();
        client.check(&protocol.set("k", &"x".repeat(LIMIT)), protocol.stored());
        let commands = protocol.get("k").repeat(1000);
        let mut held_max = 0;
        // The server stops reading while it cannot write, so this blocks until it closes.
        let closed = (0..100_000).any(|_| {
            held_max = held_max.max(server.buffer_bytes());
            client.try_send(commands.as_bytes()).is_err()
        });
        assert!(closed, "hundreds of megabytes of commands were accepted");
        eventually("the slow client is counted", || server.count(Count::SlowKicks) == 1);
        let bound = (2 * protocol.connection_bytes_max(&options)) as u64;
        assert!(held_max <= bound, "{held_max} bytes were held for one client");
        assert!(server.count(Count::CmdGet) < 100, "{} values were prepared", server.count(Count::CmdGet));
        ping(&mut server.connect(), protocol);
    });
}

#[test]
fn clients_with_incomplete_large_values_hold_only_what_they_sent() {
    for protocol in Protocol::ALL {
        let server = Server::speak(protocol, options(), CLIENTS);
        let said = protocol.set("k", &"x".repeat(LIMIT)).into_bytes();
        let (most, last) = said.split_at(said.len() - 1);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(most));
        eventually("all has arrived", || server.buffer_bytes() >= (CLIENTS * most.len()) as u64);
        let threads = 2 * thread_bytes_max();
        let held_max = (CLIENTS * (said.len() + PIECE)) as u64 + threads;
        assert!(server.buffer_bytes() <= held_max, "{} bytes for {CLIENTS} clients", server.buffer_bytes());
        for client in &mut clients {
            client.send(last);
            client.expect(protocol.stored());
        }
        eventually("buffers are given back", || server.buffer_bytes() <= threads);
    }
}

/// Number of clients that send large values.
const CLIENTS: usize = 200;
/// Minimum size of a listener's read, in bytes.
const PIECE: usize = 16 << 10;
#[test]
fn client_over_the_limit_on_connections_is_answered_with_an_error() {
    with_each(&options(), 2, |protocol, server| {
        let (mut first, mut second) = (server.connect(), server.connect());
        ping(&mut first, protocol);
        ping(&mut second, protocol);
        assert_eq!(server.connect().rest(), protocol.too_many());
        ping(&mut second, protocol);
        assert_eq!((server.read().open, server.read().rejected), (2, 1));
        drop(first);
        eventually("there is room again", || server.connections() == 1);
        ping(&mut server.connect(), protocol);
    });
}

#[test]
fn idle_client_is_closed_at_any_point_of_a_command() {
    let options = ListenerOptions { idle_timeout: Some(Duration::from_millis(20)), ..options() };
    with_each(&options, 16, |protocol, server| {
        let whole = protocol.set("k", "value");
        for end in [0, 1, whole.len() - 3] {
            let mut client = server.connect();
            client.send(&whole.as_bytes()[..end]);
            assert_eq!(client.rest(), "");
        }
        eventually("idle clients are counted", || server.count(Count::IdleKicks) == 3);
    });
}
