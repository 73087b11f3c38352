//! Requests made of clients' batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sherwood_listener::{
    BatchCounting, BatchRequests, ClientBatches, FetchFailure, FetchedValue, KeyEnd, ListenerOptions,
    Protocol,
};
use sherwood_model::batches::MissCounts;
use sherwood_model::{BackendId, FinishedRequest, Instant, PartitionId};

use crate::packaged::{node_program, php_program, rails_program, ruby_program};
use crate::programs::client_program_as;
use crate::protocol::Commands;
use crate::slow::slow;
use crate::support::{Server, options};
use crate::wait::eventually;

/// Requests and costs of misses that were counted.
#[derive(Default)]
struct Recorded {
    requests: Mutex<Vec<(FinishedRequest, u64)>>,
    costs: Mutex<Vec<Duration>>,
    told: bool,
}

impl BatchRequests for Recorded {
    fn come_by_other_means(&self) -> bool {
        self.told
    }

    fn backend(&self, partition: PartitionId) -> (BackendId, Duration) {
        (BackendId(partition.0 + 7), Duration::from_secs(60))
    }

    fn count(&self, _: Instant, _: PartitionId, _: Option<u16>, request: FinishedRequest, times: u64) {
        self.requests.lock().unwrap().push((request, times));
    }

    fn record_queries(&self, _: PartitionId, latency: Duration, keys: u64, end: KeyEnd) {
        if end == KeyEnd::Refilled {
            assert_eq!(keys, 1);
            self.costs.lock().unwrap().push(latency);
        }
    }
}

impl Recorded {
    fn counting(self, always: bool) -> (Arc<Self>, BatchCounting) {
        let requests = Arc::new(self);
        let batches = Arc::new(ClientBatches::new(2, 1, Arc::clone(&requests) as Arc<dyn BatchRequests>));
        (requests, BatchCounting { batches, always, class: None })
    }

    fn requests(&self) -> Vec<(FinishedRequest, u64)> {
        self.requests.lock().unwrap().clone()
    }

    fn costs(&self) -> Vec<Duration> {
        self.costs.lock().unwrap().clone()
    }
}

/// Options of one thread: when it answers a command, it has counted those before it.
fn one_thread() -> ListenerOptions {
    ListenerOptions { threads: 1, ..options() }
}

/// Returns the command that reads several keys, and its answer if the cache has none of them.
fn read_none(protocol: Protocol, keys: &[&str]) -> (String, String) {
    match protocol {
        Protocol::Memcached => (format!("get {}\r\n", keys.join(" ")), "END\r\n".to_owned()),
        Protocol::Redis => {
            let words = ["MGET"].iter().chain(keys).map(|word| format!("${}\r\n{word}\r\n", word.len()));
            let read = format!("*{}\r\n{}", keys.len() + 1, words.collect::<String>());
            (read, format!("*{}\r\n{}", keys.len(), "$-1\r\n".repeat(keys.len())))
        }
    }
}

#[test]
fn batch_with_misses_is_a_request_when_all_its_keys_are_refilled() {
    for protocol in Protocol::ALL {
        let (recorded, counting) = Recorded::default().counting(false);
        let server = Server::counting(protocol, one_thread(), None, counting.clone());
        let mut client = server.connect();
        let (read, none) = read_none(protocol, &["a", "b"]);
        client.check(&read, &none);
        client.check(&protocol.set("a", "1"), protocol.stored());
        client.check(&protocol.set("other", "1"), protocol.stored());
        client.check(protocol.ping().0, &protocol.ping().1);
        assert_eq!((recorded.costs().len(), recorded.requests()), (1, vec![]), "b is not refilled yet");
        let mut second = server.connect();
        second.check(&protocol.set("b", "1"), protocol.stored());
        second.check(protocol.ping().0, &protocol.ping().1);
        let requests = recorded.requests();
        let [(request, 1)] = requests[..] else { panic!("{protocol:?}: {requests:?}") };
        assert_eq!(request.blocking(), Some(BackendId(7)));
        let costs = recorded.costs();
        assert!(costs.len() == 2 && costs[0] <= costs[1], "{costs:?}");
        assert!(
            Duration::from_micros(u64::from(request.latency_us) + 1) >= costs[1],
            "{request:?} {costs:?}"
        );
        let counts = MissCounts { refilled: 2, ..MissCounts::default() };
        assert_eq!(counting.batches.counts(), counts, "{protocol:?}");
    }
}

#[test]
fn pipeline_over_two_partitions_is_blocked_by_the_one_that_is_refilled_last() {
    for protocol in Protocol::ALL {
        for [first, last] in [["a", "b/a"], ["b/a", "a"]] {
            let (recorded, counting) = Recorded::default().counting(false);
            let server = Server::counting_two(protocol, one_thread(), counting);
            let mut client = server.connect();
            let pipeline = protocol.get("a") + &protocol.get("b/a");
            client.check(&pipeline, &protocol.missed().repeat(2));
            client.check(&protocol.set(first, "1"), protocol.stored());
            client.check(&protocol.set(last, "1"), protocol.stored());
            client.check(protocol.ping().0, &protocol.ping().1);
            let requests = recorded.requests();
            let [(request, 1)] = requests[..] else { panic!("{protocol:?}: {requests:?}") };
            let slower = if last == "a" { 7 } else { 8 };
            assert_eq!(request.blocking(), Some(BackendId(slower)), "{protocol:?}: {last} was last");
        }
    }
}

#[test]
fn keys_missed_in_a_transaction_are_one_batch() {
    let (recorded, counting) = Recorded::default().counting(false);
    let server = Server::counting(Protocol::Redis, one_thread(), None, counting.clone());
    let mut client = server.connect();
    client.check("MULTI\r\nGET a\r\nGET b\r\n", "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    client.check("EXEC\r\n", "*2\r\n$-1\r\n$-1\r\n");
    client.check("SET a 1\r\n", "+OK\r\n");
    client.check("PING\r\n", "+PONG\r\n");
    assert_eq!((recorded.costs().len(), recorded.requests()), (1, vec![]), "b is not refilled yet");
    client.check("MULTI\r\nSET b 1\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
    client.check("PING\r\n", "+PONG\r\n");
    assert_eq!((recorded.costs().len(), recorded.requests().len()), (2, 1));
    assert_eq!(counting.batches.counts(), MissCounts { refilled: 2, ..MissCounts::default() });
}

#[test]
fn set_of_a_key_that_nobody_missed_counts_nothing() {
    for protocol in Protocol::ALL {
        let (recorded, counting) = Recorded::default().counting(false);
        let server = Server::counting(protocol, one_thread(), None, counting.clone());
        let mut client = server.connect();
        client.check(&protocol.get("a"), protocol.missed());
        for number in 0..100 {
            client.check(&protocol.set(&format!("k{number}"), "1"), protocol.stored());
        }
        client.check(protocol.ping().0, &protocol.ping().1);
        assert_eq!((recorded.requests(), recorded.costs()), (vec![], vec![]));
        assert_eq!(counting.batches.counts(), MissCounts::default());
    }
}

#[test]
fn key_that_is_read_and_written_in_one_pipeline_is_no_miss_to_wait_for() {
    for protocol in Protocol::ALL {
        let (recorded, counting) = Recorded::default().counting(false);
        let server = Server::counting(protocol, one_thread(), None, counting.clone());
        let mut client = server.connect();
        for number in 0..3 {
            let key = format!("k{number}");
            let pipeline = protocol.get(&key) + &protocol.set(&key, "1");
            client.check(&pipeline, &[protocol.missed(), protocol.stored()].concat());
            client.check(&protocol.set(&key, "2"), protocol.stored());
        }
        client.check(protocol.ping().0, &protocol.ping().1);
        assert_eq!((recorded.requests(), recorded.costs()), (vec![], vec![]));
        assert_eq!(counting.batches.counts(), MissCounts::default());
    }
}

#[test]
fn batches_answered_by_the_cache_are_sampled_and_count_for_those_left_out() {
    for protocol in Protocol::ALL {
        let (recorded, counting) = Recorded::default().counting(false);
        let server = Server::counting(protocol, one_thread(), None, counting);
        let mut client = server.connect();
        client.check(&protocol.set("a", "1"), protocol.stored());
        for _ in 0..10 * 64 {
            client.check(&protocol.get("a"), &protocol.found("a", "1"));
        }
        client.check(protocol.ping().0, &protocol.ping().1);
        let requests = recorded.requests();
        assert!((9..=11).contains(&requests.len()), "{protocol:?}: {requests:?}");
        assert!(
            requests.iter().all(|&(request, times)| times == 64 && request.blocking() == Some(BackendId(7)))
        );
    }
}

#[test]
fn batch_whose_keys_are_fetched_ends_with_the_answer_of_the_backend() {
    for protocol in Protocol::ALL {
        let (recorded, counting) = Recorded::default().counting(false);
        let slow = slow();
        let server = Server::counting(protocol, one_thread(), Some(slow.clone()), counting);
        let mut client = server.connect();
        let found = Ok(Some(FetchedValue::from(bytes::Bytes::from_static(b"value"))));
        let failed = Err(FetchFailure::Failed("down".into()));
        for (key, result, answer) in
            [("a", found, protocol.found("a", "value")), ("b", failed, protocol.missed().to_owned())]
        {
            client.send(protocol.get(key).as_bytes());
            eventually("the key is fetched", || slow.is_asked(key));
            slow.answer(key, result);
            client.expect(&answer);
        }
        client.check(protocol.ping().0, &protocol.ping().1);
        let requests = recorded.requests();
        let [(fetched, 1), (failed, 1)] = requests[..] else { panic!("{protocol:?}: {requests:?}") };
        assert!(fetched.latency_us < 60_000_000 && fetched.blocking() == Some(BackendId(7)), "{fetched:?}");
        assert!(failed.latency_us >= 60_000_000, "a failure counts at the timeout: {failed:?}");
    }
}

#[test]
fn batches_do_not_count_while_requests_are_told_unless_they_always_do() {
    for (always, count) in [(false, 0), (true, 1)] {
        let (recorded, counting) = Recorded { told: true, ..Recorded::default() }.counting(always);
        let server = Server::counting(Protocol::Redis, one_thread(), None, counting);
        let mut client = server.connect();
        client.check("GET a\r\n", "$-1\r\n");
        client.check("SET a 1\r\n", "+OK\r\n");
        client.check("PING\r\n", "+PONG\r\n");
        assert_eq!((recorded.costs().len(), recorded.requests().len()), (count, count));
    }
}

#[test]
fn batch_of_many_missed_keys_is_bounded_and_counted() {
    let (recorded, counting) = Recorded::default().counting(false);
    let server = Server::counting(Protocol::Redis, one_thread(), None, counting.clone());
    let mut client = server.connect();
    let keys: Vec<_> = (0..20_000).map(|number| format!("k{number}")).collect();
    let (read, none) = read_none(Protocol::Redis, &keys.iter().map(String::as_str).collect::<Vec<_>>());
    client.check(&read, &none);
    client.check("SET k1 1\r\n", "+OK\r\n");
    client.check("PING\r\n", "+PONG\r\n");
    assert_eq!(counting.batches.counts(), MissCounts { unwatched: 20_000, ..MissCounts::default() });
    assert_eq!((recorded.requests(), recorded.costs()), (vec![], vec![]));
}

/// Time for which programs compute a missed value. Chosen: a busy machine's delays are small beside
/// it.
const COMPUTED_MS: u64 = 100;

/// Runs a program that reads eight keys which the cache does not have, and checks what their misses
/// were found to cost: the median within a tenth of [`COMPUTED_MS`].
#[track_caller]
fn check_costs(protocol: Protocol, run: impl FnOnce(u16, &str) -> bool) {
    let (recorded, counting) = Recorded::default().counting(false);
    let server = Server::counting(protocol, options(), None, counting);
    if !run(server.address().port(), &COMPUTED_MS.to_string()) {
        return;
    }
    let mut costs = recorded.costs();
    costs.sort();
    assert_eq!(costs.len(), 8, "{costs:?}");
    let range = Duration::from_millis(COMPUTED_MS)..=Duration::from_millis(COMPUTED_MS * 11 / 10);
    assert!(range.contains(&costs[4]), "{costs:?}");
    let requests = recorded.requests();
    assert!(
        requests.iter().filter(|(request, times)| *times == 1 && request.latency_us >= 100_000).count() == 8
    );
}

#[test]
fn misses_of_redis_py_cost_what_its_application_computes() {
    check_costs(Protocol::Redis, |port, ms| {
        client_program_as("redis", "look_aside.py", port, &["redis", ms])
    });
}

#[test]
fn misses_of_pymemcache_cost_what_its_application_computes() {
    let run = |port, ms: &str| client_program_as("pymemcache", "look_aside.py", port, &["pymemcache", ms]);
    check_costs(Protocol::Memcached, run);
}

#[test]
fn misses_of_django_cost_what_get_or_set_computes() {
    let run = |port, ms: &str| client_program_as("django", "look_aside.py", port, &["django", ms]);
    check_costs(Protocol::Memcached, run);
}

#[test]
fn misses_of_ioredis_cost_what_its_application_computes() {
    check_costs(Protocol::Redis, |port, ms| node_program("look_aside.mjs", port, &[ms]));
}

#[test]
fn misses_of_dalli_cost_what_fetch_computes() {
    check_costs(Protocol::Memcached, |port, ms| ruby_program("look_aside.rb", port, &["dalli", ms]));
}

#[test]
fn misses_of_rails_cost_what_fetch_computes() {
    check_costs(Protocol::Memcached, |port, ms| rails_program("look_aside.rb", port, &["rails", ms]));
}

#[test]
fn misses_of_php_that_writes_on_another_connection_cost_what_it_computes() {
    check_costs(Protocol::Memcached, |port, ms| php_program("look_aside.php", port, &[ms]));
}
