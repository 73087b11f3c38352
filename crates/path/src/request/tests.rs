//! Each test drives one request step by step against a small cache. Values are bytes, copied out of
//! the cache.

use std::time::Duration;

use sherwood_cache::{NewItem, Options, Partition, Value};
use sherwood_dispatch::{Bound, FetchError};
use sherwood_model::{PartitionId, SeededState, TenantId};

use super::*;
use crate::Status;

type Asked = Request<&'static str, Vec<u8>>;

const TIMEOUT: Duration = Duration::from_millis(500);

/// Builds a cache of two partitions: 0 for backend 0 with `a` and `b`, 1 for backend 1.
fn cache() -> Cache {
    let partition = |backend| Partition::new(TenantId(0), BackendId(backend), 1 << 20);
    let options = Options { total_bytes: 2 << 20, shards: 1, ..Options::default() };
    let cache = Cache::new(options, &[partition(0), partition(1)], SeededState::new(1)).unwrap();
    for key in ["a", "b"] {
        cache.set(PartitionId(0), key.as_bytes(), NewItem::bytes(key.as_bytes()), &access(0)).unwrap();
    }
    cache
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn access(ms: u64) -> Access {
    Access::at(at(ms))
}

fn query(backend: u16, keys: &[&'static str]) -> Query<&'static str> {
    Query {
        backend: BackendId(backend),
        partition: PartitionId(backend),
        keys: keys.to_vec(),
        demand: Demand::default(),
        timeout: TIMEOUT,
        staleness: Staleness::default(),
        shared: None,
    }
}

fn bytes(item: Item<'_>) -> Vec<u8> {
    match item.value {
        Value::Bytes(bytes) => bytes.to_vec(),
        Value::Declared(_) => panic!("these tests store bytes"),
    }
}

/// Starts a request that arrived at 10 ms and was looked up at 11 ms.
fn start(queries: Vec<Query<&'static str>>) -> (Asked, Vec<QueryFetch<&'static str>>) {
    let mut request = Asked::start(at(10), queries);
    let fetches = request.look_up(&cache(), &access(11), |_, _, item| bytes(item));
    (request, fetches)
}

fn value(text: &str) -> Result<Option<Vec<u8>>, FetchError> {
    Ok(Some(text.as_bytes().to_vec()))
}

fn finished(latency_ms: u64, backend: Option<u16>) -> Option<FinishedRequest> {
    Some(FinishedRequest::new(Duration::from_millis(latency_ms), backend.map(BackendId)))
}

fn statuses(request: &Asked) -> Vec<(u16, &'static str, Status)> {
    request.answers().map(|(backend, key, answer)| (backend.0, *key, answer.status)).collect()
}

#[test]
fn request_of_hits_ends_at_its_look_up_and_names_a_blocking_backend() {
    let (request, fetches) = start(vec![query(0, &["a", "b", "a"])]);
    assert_eq!(fetches, []);
    assert_eq!(request.finished(), finished(1, Some(0)));
    let answers: Vec<_> = request.answers().map(|(_, key, answer)| (*key, answer)).collect();
    let (a, b) = (b"a".to_vec(), b"b".to_vec());
    let demand = Demand::default();
    let hit = |key, value| {
        let latency = Duration::from_millis(1);
        (
            key,
            Answer {
                status: Status::Hit,
                value: Some(value),
                latency,
                waited: false,
                demand: &demand,
                late: false,
                stale_for: None,
                error: None,
            },
        )
    };
    assert_eq!(answers, [hit("a", &a), hit("b", &b), hit("a", &a)]);
}

#[test]
fn request_without_queries_has_finished_and_names_no_blocking_backend() {
    let (request, fetches) = start(vec![]);
    assert_eq!((fetches.len(), request.finished(), request.answers().count()), (0, finished(0, None), 0));
}

#[test]
fn number_of_keys_per_backend_is_known_before_and_after_the_look_up() {
    let asked = [query(1, &["x", "y"]), query(0, &[]), query(0, &["a"]), query(1, &["x"])];
    let expected = [(BackendId(1), 2), (BackendId(0), 1), (BackendId(1), 1)];
    let request = Asked::start(at(10), asked.to_vec());
    assert!(request.keys_by_query().eq(expected), "before it is looked up");
    let (request, fetches) = start(asked.to_vec());
    assert_eq!(fetches.len(), 2);
    assert!(request.keys_by_query().eq(expected), "while two of four keys are awaited");
}

#[test]
fn query_without_keys_never_names_the_blocking_backend() {
    let (request, fetches) = start(vec![query(0, &[]), query(1, &[])]);
    assert_eq!((fetches.len(), request.finished()), (0, finished(0, None)));
    let (request, _) = start(vec![query(1, &[]), query(0, &["a"]), query(1, &[])]);
    assert_eq!(request.finished(), finished(1, Some(0)));
}

#[test]
fn request_ends_with_the_last_key_of_its_slowest_query() {
    let (mut request, fetches) = start(vec![query(0, &["a", "x"]), query(1, &["y", "z"])]);
    assert_eq!(
        (fetches[0].query, fetches[0].backend, fetches[0].partition),
        (0, BackendId(0), PartitionId(0))
    );
    assert_eq!(
        (fetches[1].query, fetches[1].backend, fetches[1].partition),
        (1, BackendId(1), PartitionId(1))
    );
    let slot = |fetch: usize, key: usize| fetches[fetch].keys[key].1;
    request.handle_result(at(20), slot(1, 1), value("z"));
    request.handle_result(at(30), slot(0, 0), value("x"));
    assert_eq!(request.finished(), None);
    request.handle_result(at(40), slot(1, 0), Ok(None));
    assert_eq!(request.finished(), finished(30, Some(1)));
    let expected =
        [(0, "a", Status::Hit), (0, "x", Status::Miss), (1, "y", Status::NotFound), (1, "z", Status::Miss)];
    assert_eq!(statuses(&request), expected);
    let latencies: Vec<_> = request.answers().map(|(_, _, answer)| answer.latency.as_millis()).collect();
    assert_eq!(latencies, [1, 20, 30, 10]);
}

#[test]
fn ended_keys_of_a_request_are_counted_by_latency() {
    let keys = ["x", "a", "y", "b", "z", "x"];
    let (mut request, fetches) = start(vec![query(0, &keys), query(1, &[]), query(0, &["a"])]);
    let slot = |key: usize| fetches[0].keys[key].1;
    let group = |ms, hits, keys| LatencyGroup {
        backend: BackendId(0),
        latency: Duration::from_millis(ms),
        hits,
        keys,
    };
    let counted = |request: &Asked| {
        let mut counted = Vec::new();
        request.each_latency_group(|ended| counted.push(ended));
        counted
    };
    assert_eq!(counted(&request), [group(1, 2, 2), group(1, 1, 1)]);
    request.handle_result(at(20), slot(1), Ok(None));
    request.handle_result(at(30), slot(0), value("x"));
    request.handle_result(at(30), slot(2), Err(FetchError::Timeout { timeout: TIMEOUT }));
    assert!(request.finished().is_some());
    let ended = [group(1, 2, 2), group(20, 0, 1), group(10, 0, 1), group(20, 0, 2), group(1, 1, 1)];
    assert_eq!(counted(&request), ended);
}

#[test]
fn keys_are_fetched_in_the_order_of_their_bytes() {
    let keys = ["long-key-2", "long-key-1", "b", "a\0", "long-key", "x", "long-key-10", "", "y"];
    let (_, fetches) = start(vec![query(1, &keys)]);
    let fetched: Vec<_> = fetches[0].keys.iter().map(|(key, _)| *key).collect();
    let mut sorted = keys;
    sorted.sort_unstable();
    assert_eq!(fetched, sorted);
}

#[test]
fn state_of_a_key_with_a_small_value_takes_16_bytes() {
    assert_eq!(size_of::<KeyState<()>>(), 16);
    assert_eq!(size_of::<KeyState<u32>>(), 16);
}

#[test]
fn first_to_end_of_equally_slow_queries_names_the_blocking_backend() {
    let (mut request, fetches) = start(vec![query(0, &["x"]), query(1, &["y"])]);
    request.handle_result(at(20), fetches[1].keys[0].1, value("y"));
    request.handle_result(at(20), fetches[0].keys[0].1, value("x"));
    assert_eq!(request.finished(), finished(10, Some(1)));
}

#[test]
fn a_repeated_key_is_fetched_once_and_answered_each_time() {
    let (mut request, fetches) = start(vec![query(1, &["y", "x", "y", "y"])]);
    let keys: Vec<_> = fetches[0].keys.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["x", "y"]);
    request.handle_result(at(20), fetches[0].keys[1].1, value("why"));
    assert_eq!(request.finished(), None);
    request.handle_result(at(25), fetches[0].keys[0].1, value("ex"));
    assert_eq!(request.finished(), finished(15, Some(1)));
    let values: Vec<_> = request.answers().map(|(_, _, answer)| answer.value.cloned().unwrap()).collect();
    assert_eq!(values, [b"why".to_vec(), b"ex".to_vec(), b"why".to_vec(), b"why".to_vec()]);
}

#[test]
fn two_queries_of_one_backend_are_fetched_separately() {
    let (mut request, fetches) = start(vec![query(1, &["y"]), query(1, &["y"])]);
    assert_eq!(fetches.len(), 2);
    for fetch in &fetches {
        request.handle_result(at(20), fetch.keys[0].1, value("y"));
    }
    assert_eq!(request.finished(), finished(10, Some(1)));
}

#[test]
fn failed_query_counts_as_its_timeout_and_other_keys_succeed() {
    let (mut request, fetches) = start(vec![query(0, &["a", "x"]), query(1, &["y"])]);
    let refused = FetchError::Overloaded { bound: Bound::Waiters, limit: 3 };
    request.handle_result(at(12), fetches[0].keys[0].1, Err(refused.clone()));
    request.handle_result(at(110), fetches[1].keys[0].1, value("y"));
    assert_eq!(request.finished(), finished(500, Some(0)));
    let expected = [(0, "a", Status::Hit), (0, "x", Status::Rejected), (1, "y", Status::Miss)];
    assert_eq!(statuses(&request), expected);
    assert_eq!(request.answers().nth(1).unwrap().2.error, Some(&refused));
}

#[test]
fn failed_query_that_ends_after_its_timeout_counts_with_its_latency() {
    let (mut request, fetches) = start(vec![query(1, &["y"])]);
    request.handle_result(at(710), fetches[0].keys[0].1, Err(FetchError::Timeout { timeout: TIMEOUT }));
    assert_eq!(request.finished(), finished(700, Some(1)));
}

#[test]
fn failure_of_a_best_effort_query_does_not_raise_the_request_latency() {
    let best_effort = Demand { best_effort: true, ..Demand::default() };
    let (mut request, fetches) =
        start(vec![Query { demand: best_effort, ..query(0, &["x"]) }, query(1, &["y"])]);
    request.handle_result(at(12), fetches[0].keys[0].1, Err(FetchError::Timeout { timeout: TIMEOUT }));
    request.handle_result(at(30), fetches[1].keys[0].1, value("y"));
    assert_eq!(request.finished(), finished(20, Some(1)));
}

#[test]
fn keys_that_end_after_the_deadline_of_their_query_are_late() {
    let due = |ms| Demand { deadline: Some(at(ms)), ..Demand::default() };
    let (mut request, fetches) = start(vec![
        Query { demand: due(15), ..query(0, &["a", "x"]) },
        Query { demand: due(20), ..query(1, &["y"]) },
        query(1, &["z"]),
    ]);
    assert_eq!(
        fetches.iter().map(|fetch| fetch.demand.deadline).collect::<Vec<_>>(),
        [Some(at(15)), Some(at(20)), None]
    );
    request.handle_result(at(16), fetches[0].keys[0].1, value("x"));
    request.handle_result(at(20), fetches[1].keys[0].1, value("y"));
    request.handle_result(at(90), fetches[2].keys[0].1, Err(FetchError::Timeout { timeout: TIMEOUT }));
    let late: Vec<_> = request.answers().map(|(_, key, answer)| (*key, answer.status, answer.late)).collect();
    let expected = [
        ("a", Status::Hit, false),
        ("x", Status::Miss, true),
        ("y", Status::Miss, false),
        ("z", Status::Timeout, false),
    ];
    assert_eq!(late, expected);
}

#[test]
fn results_for_keys_not_in_flight_are_ignored() {
    let mut request = Asked::start(at(10), vec![query(1, &["y"]), query(0, &["a"])]);
    request.handle_result(at(10), Slot(0), value("early"));
    let cache = cache();
    let fetches = request.look_up(&cache, &access(11), |_, _, item| bytes(item));
    assert_eq!(
        request.look_up(&cache, &access(12), |_, _, item| bytes(item)),
        [],
        "the second look-up does nothing"
    );
    request.handle_result(at(20), Slot(1), value("of a hit"));
    request.handle_result(at(20), Slot(99), value("of another request"));
    assert_eq!(request.finished(), None);
    request.handle_result(at(30), fetches[0].keys[0].1, value("y"));
    request.handle_result(at(40), fetches[0].keys[0].1, Ok(None));
    assert_eq!(request.finished(), finished(20, Some(1)));
    assert_eq!(statuses(&request), [(1, "y", Status::Miss), (0, "a", Status::Hit)]);
}

#[test]
fn a_clock_that_steps_back_gives_zero_latencies() {
    let (mut request, fetches) = start(vec![query(1, &["y"])]);
    request.handle_result(at(3), fetches[0].keys[0].1, value("y"));
    assert_eq!(request.finished(), finished(0, Some(1)));
}
