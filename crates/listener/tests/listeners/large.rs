//! Listeners on real sockets: large values, which are received and sent in the cache's memory, and
//! faults while they are.

use std::time::Duration;

use sherwood_listener::{ListenerOptions, Protocol};
use sherwood_model::{CachePlan, Instant};

use crate::hostile::with_each;
use crate::protocol::Commands;
use crate::support::{Client, Server, options};
use crate::wait::eventually;

/// Size of the values: above those that are copied, and few enough of them fill a socket.
const BYTES: usize = 300_000;
/// Part of a command after which its value is received in place.
const PART: usize = 100_000;

fn value(byte: char) -> String {
    byte.to_string().repeat(BYTES)
}

/// Sends the first part of a command that stores `value`, waits until the listener has received it,
/// and returns the rest of the command.
fn begin(client: &mut Client, protocol: Protocol, server: &Server, value: &str) -> String {
    let command = protocol.set("key", value);
    client.send(&command.as_bytes()[..PART]);
    eventually("the value is received in place", || server.cache().reserved_bytes() > 0);
    command[PART..].to_owned()
}

fn nothing_is_reserved(server: &Server) {
    eventually("reserved memory is free again", || server.cache().reserved_bytes() == 0);
}

fn options_with_buffers() -> ListenerOptions {
    ListenerOptions { output_bytes_max: 4 * BYTES, ..options() }
}

#[test]
fn large_value_is_invisible_until_it_has_arrived_and_then_replaces_what_is_there() {
    with_each(&options(), 8, |protocol, server| {
        let (mut slow, mut other) = (server.connect(), server.connect());
        other.check(&protocol.set("key", "old"), protocol.stored());
        let rest = begin(&mut slow, protocol, server, &value('a'));
        other.check(&protocol.get("key"), &protocol.found("key", "old"));
        let second = protocol.set("key", &value('b'));
        other.send(&second.as_bytes()[..PART]);
        slow.check(&rest, protocol.stored());
        slow.check(&protocol.get("key"), &protocol.found("key", &value('a')));
        other.check(&second[PART..], protocol.stored());
        slow.check(&protocol.get("key"), &protocol.found("key", &value('b')));
        nothing_is_reserved(server);
    });
}

#[test]
fn removal_and_flush_while_a_value_arrives_do_not_affect_it() {
    with_each(&options(), 8, |protocol, server| {
        let (mut slow, mut other) = (server.connect(), server.connect());
        let (remove, removed, flush, flushed) = match protocol {
            Protocol::Memcached => ("delete key\r\n", "DELETED\r\n", "flush_all\r\n", "OK\r\n"),
            Protocol::Redis => ("DEL key\r\n", ":1\r\n", "FLUSHALL\r\n", "+OK\r\n"),
        };
        other.check(&protocol.set("key", "old"), protocol.stored());
        let rest = begin(&mut slow, protocol, server, &value('a'));
        other.check(remove, removed);
        other.check(flush, flushed);
        slow.check(&rest, protocol.stored());
        other.check(&protocol.get("key"), &protocol.found("key", &value('a')));
    });
}

#[test]
fn value_that_no_longer_fits_when_it_has_arrived_is_refused_and_the_old_one_goes() {
    with_each(&options(), 8, |protocol, server| {
        let (mut slow, mut other) = (server.connect(), server.connect());
        other.check(&protocol.set("key", "old"), protocol.stored());
        let rest = begin(&mut slow, protocol, server, &value('a'));
        server.cache().apply(&CachePlan::Budgets(vec![BYTES as u64 / 2])).unwrap();
        let refused = match protocol {
            Protocol::Memcached => "SERVER_ERROR out of memory storing object\r\n",
            Protocol::Redis => "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        };
        slow.check(&rest, refused);
        slow.check(&protocol.get("key"), protocol.missed());
        nothing_is_reserved(server);
    });
}

#[test]
fn connection_that_breaks_in_the_middle_of_a_value_frees_its_memory_and_stores_nothing() {
    with_each(&options(), 8, |protocol, server| {
        let mut other = server.connect();
        other.check(&protocol.set("key", "old"), protocol.stored());
        let mut half_closed = server.connect();
        begin(&mut half_closed, protocol, server, &value('a'));
        half_closed.finish();
        nothing_is_reserved(server);
        let mut reset = server.connect();
        begin(&mut reset, protocol, server, &value('a'));
        reset.0.set_linger(Some(Duration::ZERO)).unwrap();
        drop(reset);
        nothing_is_reserved(server);
        other.check(&protocol.get("key"), &protocol.found("key", "old"));
    });
}

#[test]
fn large_memcached_value_with_a_wrong_end_is_answered_like_a_small_one() {
    let server = Server::start(options());
    let answers = ["small", &value('a')].map(|value| {
        let mut client = server.connect();
        let command = Protocol::Memcached.set("key", value);
        let wrong = format!("{}xx\r\nversion\r\nget key\r\n", &command[..command.len() - 2]);
        client.send(wrong.as_bytes());
        client.finish();
        client.rest()
    });
    assert!(answers[0].starts_with("CLIENT_ERROR bad data chunk\r\n"));
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn large_memcached_value_is_stored_without_reply() {
    let server = Server::start(options());
    let quiet = Protocol::Memcached.set("key", &value('a')).replacen("\r\n", " noreply\r\n", 1);
    let found = Protocol::Memcached.found("key", &value('a'));
    let mut client = server.connect();
    client.check(&format!("{quiet}get key\r\nmg key s\r\n"), &format!("{found}HD s{BYTES}\r\n"));
}

#[test]
fn large_redis_value_with_options_behind_it_is_stored_however_it_arrives() {
    let server = Server::redis(options());
    let (text, bytes) = (value('a'), BYTES);
    let head = format!("*5\r\n$3\r\nSET\r\n$3\r\nkey\r\n${bytes}\r\n{text}");
    let options = "\r\n$2\r\nEX\r\n$4\r\n1000\r\n";
    let mut client = server.connect();
    for cut in 0..=options.len() {
        client.send(&head.as_bytes()[..PART]);
        eventually("the value is received in place", || server.cache().reserved_bytes() > 0);
        client.send([&head[PART..], &options[..cut]].concat().as_bytes());
        // The answer to another client shows that the listener had time to read.
        server.connect().check("PING\r\n", "+PONG\r\n");
        client.check(&format!("{}GET key\r\nTTL key\r\n", &options[cut..]), "+OK\r\n");
        client.expect(&format!("{}:1000\r\n", Protocol::Redis.found("key", &text)));
        nothing_is_reserved(&server);
    }
}

#[test]
fn reader_that_is_slow_gets_whole_values_although_they_are_gone_from_the_cache() {
    const VALUES: usize = 40;
    with_each(&options_with_buffers(), 8, |protocol, server| {
        let (mut slow, mut other) = (server.connect(), server.connect());
        other.check(&protocol.set("key", &value('a')), protocol.stored());
        let expected = protocol.found("key", &value('a'));
        slow.send(protocol.get("key").repeat(VALUES).as_bytes());
        slow.expect(&expected);
        other.check(&protocol.set("key", &value('b')), protocol.stored());
        // The rest may be of either value, but each answer is of one.
        let cache = server.cache();
        cache.apply(&CachePlan::Budgets(vec![0])).unwrap();
        while cache.step(Instant::from_secs(1), 64) {}
        assert_eq!(cache.used_bytes(), 0, "a value that is being sent keeps no partition from shrinking");
        let answers: Vec<String> = (1..VALUES).map(|_| answer(&mut slow, protocol)).collect();
        let known = [expected, protocol.found("key", &value('b')), protocol.missed().to_owned()];
        assert!(answers.iter().all(|answer| known.contains(answer)));
        cache.apply(&CachePlan::Budgets(vec![64 << 20])).unwrap();
        other.check(&protocol.set("key", "small"), protocol.stored());
        slow.check(&protocol.get("key"), &protocol.found("key", "small"));
    });
}

/// Reads the answer to a `get` of one key.
fn answer(client: &mut Client, protocol: Protocol) -> String {
    let line = client.line();
    if line == protocol.missed() {
        return line;
    }
    let end = if protocol == Protocol::Memcached { "\r\nEND\r\n" } else { "\r\n" };
    line + &client.bytes(BYTES + end.len())
}

#[test]
fn two_hundred_values_that_arrive_slowly_delay_no_other_client_and_are_all_stored() {
    const CLIENTS: usize = 200;
    with_each(&options(), CLIENTS + 1, |protocol, server| {
        let commands: Vec<String> =
            (0..CLIENTS).map(|number| protocol.set(&format!("key{number}"), &value('s'))).collect();
        let mut slow: Vec<Client> = commands.iter().map(|_| server.connect()).collect();
        let mut other = server.connect();
        for (client, command) in slow.iter_mut().zip(&commands) {
            client.send(&command.as_bytes()[..PART]);
        }
        for at in PART..PART + 3 {
            for (client, command) in slow.iter_mut().zip(&commands) {
                client.send(&command.as_bytes()[at..=at]);
            }
            other.check(&protocol.set("other", "value"), protocol.stored());
            other.check(&protocol.get("other"), &protocol.found("other", "value"));
        }
        for (client, command) in slow.iter_mut().zip(&commands) {
            client.check(&command[PART + 3..], protocol.stored());
        }
        for number in [0, CLIENTS - 1] {
            let key = format!("key{number}");
            other.check(&protocol.get(&key), &protocol.found(&key, &value('s')));
        }
        nothing_is_reserved(server);
    });
}
