//! Times of the queries of clients.

use std::time::Duration;

use sherwood_listener::{FetchFailure, FetchedValue, ListenerOptions, Protocol};
use sherwood_model::PartitionId;
use sherwood_model::query_times::{LatencyHistogram, Operation, QueryKind, QueryOutcome};

use crate::hostile::with_each;
use crate::protocol::Commands;
use crate::slow::slow;
use crate::support::{Client, Server, options};
use crate::wait::eventually;

/// Rounds of the event loop of which one is timed.
const ROUNDS: u64 = 64;

/// Options of one thread: when it answers a command, it has recorded those before it.
fn one_thread() -> ListenerOptions {
    ListenerOptions { threads: 1, ..options() }
}

fn ping(client: &mut Client, protocol: Protocol) {
    let (ping, pong) = protocol.ping();
    client.check(ping, &pong);
}

fn count(server: &Server, operation: Operation, outcome: QueryOutcome) -> u64 {
    let times = server.times();
    times.get(&QueryKind::ended(PartitionId(0), operation, outcome)).map_or(0, LatencyHistogram::count)
}

#[test]
fn commands_of_one_round_in_64_are_timed_by_operation_and_outcome() {
    with_each(&one_thread(), 1024, |protocol, server| {
        let mut client = server.connect();
        let delete = match protocol {
            Protocol::Memcached => "delete key\r\n",
            Protocol::Redis => "DEL key\r\n",
        };
        let deleted = |hit: bool| match (protocol, hit) {
            (Protocol::Memcached, true) => "DELETED\r\n",
            (Protocol::Memcached, false) => "NOT_FOUND\r\n",
            (Protocol::Redis, _) => {
                if hit {
                    ":1\r\n"
                } else {
                    ":0\r\n"
                }
            }
        };
        let each = [
            (protocol.set("key", "value"), protocol.stored().to_owned()),
            (protocol.get("key"), protocol.found("key", "value")),
            (delete.to_owned(), deleted(true).to_owned()),
            (delete.to_owned(), deleted(false).to_owned()),
            (protocol.get("key"), protocol.missed().to_owned()),
        ];
        for _ in 0..4 * ROUNDS {
            each.iter().for_each(|(command, answer)| client.check(command, answer));
        }
        ping(&mut client, protocol);
        let kinds = [
            (Operation::Set, QueryOutcome::Stored),
            (Operation::Get, QueryOutcome::Hit),
            (Operation::Delete, QueryOutcome::Hit),
            (Operation::Delete, QueryOutcome::Miss),
            (Operation::Get, QueryOutcome::Miss),
        ];
        let counts = kinds.map(|(operation, outcome)| count(server, operation, outcome));
        let all = counts.iter().sum::<u64>();
        assert!((19..=21).contains(&all), "{protocol:?}: one command in 64: {counts:?}");
        assert!(counts.iter().filter(|count| **count > 0).count() > 2, "{protocol:?}: {counts:?}");
    });
}

#[test]
fn keys_read_in_timed_rounds_are_counted_whether_they_are_found_or_not() {
    with_each(&one_thread(), 1024, |protocol, server| {
        let mut client = server.connect();
        client.check(&protocol.set("hot", "1"), protocol.stored());
        client.check(&protocol.set("warm", "2"), protocol.stored());
        let (gets, answers) = (
            [protocol.get("hot"), protocol.get("warm"), protocol.get("hot"), protocol.get("absent")].concat(),
            [protocol.found("hot", "1"), protocol.found("warm", "2"), protocol.found("hot", "1")].concat()
                + protocol.missed(),
        );
        for _ in 0..8 * ROUNDS {
            client.check(&gets, &answers);
        }
        ping(&mut client, protocol);
        let (keys, sampled) = server.hot_keys();
        assert!((7 * 4..=9 * 4).contains(&sampled), "{protocol:?}: one round in 64, {sampled} keys");
        let shares: Vec<_> = keys.iter().map(|hot| (&*hot.key, hot.share)).collect();
        assert_eq!(shares, [(&b"hot"[..], 0.5), (b"absent", 0.25), (b"warm", 0.25)], "{protocol:?}");
    });
}

#[test]
fn keys_to_be_fetched_count_as_read_once() {
    for protocol in Protocol::ALL {
        let slow = slow();
        let server = Server::reading_through(protocol, one_thread(), slow.clone());
        let mut client = server.connect();
        for number in 0..2 * ROUNDS {
            let key = format!("key:{number}");
            client.send(protocol.get(&key).as_bytes());
            eventually("the key is fetched", || slow.is_asked(&key));
            slow.answer(&key, Ok(Some(FetchedValue::from(bytes::Bytes::from_static(b"1")))));
            client.expect(&protocol.found(&key, "1"));
        }
        let (keys, sampled) = server.hot_keys();
        assert!((1..=3).contains(&sampled), "{protocol:?}: one round in 64, {sampled} keys");
        assert_eq!(keys.len() as u64, sampled, "{protocol:?}");
    }
}

#[test]
fn fetched_keys_are_all_timed() {
    for protocol in Protocol::ALL {
        let slow = slow();
        let server = Server::reading_through(protocol, one_thread(), slow.clone());
        let (mut client, mut other) = (server.connect(), server.connect());
        let found = Ok(Some(FetchedValue::from(bytes::Bytes::from_static(b"value"))));
        let missed = protocol.missed().to_owned();
        let ends = [
            ("a", found, protocol.found("a", "value"), QueryOutcome::Fetched),
            ("b", Ok(None), missed.clone(), QueryOutcome::NotFound),
            ("c", Err(FetchFailure::TimedOut("late".into())), missed.clone(), QueryOutcome::Timeout),
            ("d", Err(FetchFailure::Failed("down".into())), missed.clone(), QueryOutcome::Error),
            ("e", Err(FetchFailure::Overloaded("full".into())), missed, QueryOutcome::Rejected),
        ];
        for (key, result, answer, outcome) in ends {
            client.send(protocol.get(key).as_bytes());
            eventually("the key is fetched", || slow.is_asked(key));
            // Once the thread has begun another round, it has waited for the key for some time.
            ping(&mut other, protocol);
            slow.answer(key, result);
            client.expect(&answer);
            assert_eq!(count(&server, Operation::Get, outcome), 1, "{protocol:?}: {key}");
        }
        let waited: f64 = server.times().values().map(LatencyHistogram::sum_s).sum();
        assert!(waited > 0.0 && waited < Duration::from_secs(60).as_secs_f64(), "{waited} s");
    }
}
