//! The binary protocol of memcached on real sockets: large values, pipelines, and clients of both
//! protocols on one port.

use std::sync::Arc;

use bytes::Bytes;
use sherwood_listener::{Backends, Count, ListenerOptions, Protocol};
use sherwood_wire::memcached::binary::client::{self as requests, Key, Progress, Reply};

use crate::slow::slow;
use crate::support::{Client, Server, options};
use crate::wait::eventually;

/// Size of a value that is large enough to be sent without a copy.
const LARGE: usize = 300_000;
/// Bytes of a request after which its value is received directly into the cache's memory.
const PART: usize = 100_000;
/// The `opaque` of requests.
const OPAQUE: [u8; 4] = *b"mine";

fn get(key: &str) -> Vec<u8> {
    let mut out = Vec::new();
    requests::get(&mut out, Key::new(key.as_bytes()).unwrap(), OPAQUE);
    out
}

fn get_quietly(key: &str) -> Vec<u8> {
    let mut out = Vec::new();
    requests::get_quietly(&mut out, Key::new(key.as_bytes()).unwrap(), OPAQUE);
    out
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    requests::set(&mut out, Key::new(key.as_bytes()).unwrap(), value, OPAQUE);
    out
}

fn no_op() -> Vec<u8> {
    let mut out = Vec::new();
    requests::no_op(&mut out, OPAQUE);
    out
}

/// The parts of a reply that the tests compare.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Value(Vec<u8>),
    Done,
    NotFound,
    NoOp,
    Other(String),
}

/// Reads the next reply.
fn answer(client: &mut Client) -> Answer {
    let mut bytes = Vec::new();
    let mut need = 24;
    loop {
        let held = bytes.len();
        bytes.resize(need, 0);
        std::io::Read::read_exact(&mut client.0, &mut bytes[held..]).unwrap();
        match requests::parse(&bytes, LARGE as u32).unwrap() {
            Progress::Incomplete { need: more } => need = more,
            Progress::Reply { reply, .. } => {
                assert_eq!(bytes[12..16], OPAQUE);
                return match reply {
                    Reply::Value { value, .. } => Answer::Value(value.to_vec()),
                    Reply::Done => Answer::Done,
                    Reply::NotFound => Answer::NotFound,
                    Reply::NoOp => Answer::NoOp,
                    other @ Reply::Error { .. } => Answer::Other(format!("{other:?}")),
                };
            }
        }
    }
}

#[track_caller]
fn check(client: &mut Client, sent: &[u8], expected: &Answer) {
    client.send(sent);
    let answer = answer(client);
    assert!(answer == *expected, "{:.200}", format!("{answer:?}"));
}

#[test]
fn text_and_binary_clients_on_one_port_share_items() {
    let server = Server::start(options());
    let (mut binary, mut text) = (server.connect(), server.connect());
    check(&mut binary, &set("k", b"of a binary client"), &Answer::Done);
    text.check("get k\r\n", "VALUE k 0 18\r\nof a binary client\r\nEND\r\n");
    text.check("set k 0 0 1\r\nx\r\n", "STORED\r\n");
    check(&mut binary, &get("k"), &Answer::Value(b"x".to_vec()));
    // Neither becomes the other.
    binary.send(b"get k\r\n");
    assert_eq!(binary.bytes_until_closed(), b"");
    text.send(&[&get("k")[..], b"\r\n"].concat());
    text.check("get k\r\n", "ERROR\r\n");
}

#[test]
fn binary_requests_sent_one_byte_at_a_time_are_answered() {
    let server = Server::start(options());
    let mut client = server.connect();
    for byte in [set("k", b"value"), get_quietly("k"), get_quietly("none"), no_op()].concat() {
        client.send(&[byte]);
    }
    let answers = [answer(&mut client), answer(&mut client), answer(&mut client)];
    assert_eq!(answers, [Answer::Done, Answer::Value(b"value".to_vec()), Answer::NoOp]);
}

#[test]
fn ten_thousand_pipelined_binary_requests_are_answered_in_order() {
    let server = Server::start(options());
    let mut client = server.connect();
    let value = [b'x'; 2000];
    check(&mut client, &set("k", &value), &Answer::Done);
    let mut hand = client.other_hand();
    let sending = std::thread::spawn(move || {
        hand.send(&[get("k"), get_quietly("none")].concat().repeat(5_000));
        hand.send(&no_op());
    });
    for _ in 0..5_000 {
        assert_eq!(answer(&mut client), Answer::Value(value.to_vec()));
    }
    assert_eq!(answer(&mut client), Answer::NoOp);
    sending.join().unwrap();
    assert_eq!(server.count(Count::GetHits), 5_000);
}

#[test]
fn large_binary_value_is_received_directly_into_the_memory_of_its_item() {
    let server = Server::start(options());
    let (mut slow, mut other) = (server.connect(), server.connect());
    check(&mut other, &set("k", b"old"), &Answer::Done);
    let value = vec![b'v'; LARGE];
    let request = set("k", &value);
    slow.send(&request[..PART]);
    eventually("the value is received in place", || server.cache().reserved_bytes() > 0);
    check(&mut other, &get("k"), &Answer::Value(b"old".to_vec()));
    check(&mut slow, &request[PART..], &Answer::Done);
    eventually("reserved memory is free again", || server.cache().reserved_bytes() == 0);
    let expected = Answer::Value(value);
    slow.send(&get("k").repeat(3));
    for _ in 0..3 {
        assert!(answer(&mut slow) == expected);
    }
    // Broken off, another leaves nothing behind.
    let mut leaving = server.connect();
    leaving.send(&set("k", &vec![b'w'; LARGE])[..PART]);
    eventually("the value is received in place", || server.cache().reserved_bytes() > 0);
    drop(leaving);
    eventually("reserved memory is free again", || server.cache().reserved_bytes() == 0);
    check(&mut other, &get("k"), &expected);
}

#[test]
fn idle_binary_clients_hold_no_buffers() {
    const CLIENTS: usize = 200;
    let server = Server::speak(Protocol::Memcached, options(), CLIENTS);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for client in &mut clients {
        check(client, &[get_quietly("none"), no_op()].concat(), &Answer::NoOp);
    }
    let threads = options().threads as u64 * 64 * 1024;
    eventually("buffers are given back", || server.buffer_bytes() <= threads);
}

#[test]
fn binary_client_that_waits_for_a_backend_does_not_delay_others() {
    let slow = slow();
    let one_thread = ListenerOptions { threads: 1, ..options() };
    let server = Server::read_through(one_thread, Arc::clone(&slow) as Arc<dyn Backends>);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    check(&mut other, &set("hit", b"x"), &Answer::Done);
    waiting.send(&[get_quietly("one"), get("hit"), get_quietly("two"), no_op()].concat());
    eventually("the backend is asked", || slow.is_asked("two"));
    check(&mut other, &get("hit"), &Answer::Value(b"x".to_vec()));
    slow.answer("two", Ok(None));
    slow.answer("one", Ok(Some(Bytes::from_static(b"1").into())));
    let answers = [answer(&mut waiting), answer(&mut waiting), answer(&mut waiting)];
    assert_eq!(answers, [Answer::Value(b"1".to_vec()), Answer::Value(b"x".to_vec()), Answer::NoOp]);
    // A client that leaves meanwhile is removed after the answer.
    let mut leaving = server.connect();
    leaving.send(&get("three"));
    eventually("the backend is asked", || slow.is_asked("three"));
    drop(leaving);
    slow.answer("three", Ok(None));
    drop((waiting, other));
    eventually("no connection is left", || server.connections() == 0);
}
