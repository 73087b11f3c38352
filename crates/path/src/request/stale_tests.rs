//! Stale and absent values: single cases, and random ones against a naive model of the rules.

use std::time::Duration;

use proptest::prelude::*;
use sherwood_cache::{Access, Cache, Change, ItemKind, NewCas, NewItem, OUTDATED, Options, Partition, Value};
use sherwood_dispatch::FetchError;
use sherwood_model::{BackendId, Demand, Instant, PartitionId, SeededState, TenantId};

use crate::{Query, QueryFetch, Request, Slot, Staleness, Status};

type Asked = Request<String, u8>;

const GRACE: Duration = Duration::from_millis(1_000);
const TIMEOUT: Duration = Duration::from_millis(500);
const NEVER: Staleness = Staleness {
    while_revalidate: Duration::ZERO,
    if_error: Duration::ZERO,
    when_late: Duration::ZERO,
    late_after: Duration::ZERO,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Builds a cache whose partition 0 has values of these kinds and expiries.
fn cache(items: &[(&str, ItemKind, u64)]) -> Cache {
    let partition = Partition { grace: GRACE, ..Partition::new(TenantId(0), BackendId(0), 1 << 20) };
    let options = Options { total_bytes: 1 << 20, ..Options::default() };
    let cache = Cache::new(options, &[partition], SeededState::new(1)).unwrap();
    for &(key, kind, expires_ms) in items {
        let item = NewItem { kind, expires: Some(at(expires_ms)), ..NewItem::bytes(&[1]) };
        cache.set(PartitionId(0), key.as_bytes(), item, &Access::at(at(0))).unwrap();
    }
    cache
}

/// Starts a request and looks it up at `now`.
fn start(cache: &Cache, now: u64, keys: &[&str], staleness: Staleness) -> (Asked, Vec<QueryFetch<String>>) {
    let query = Query {
        backend: BackendId(0),
        partition: PartitionId(0),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        demand: Demand::default(),
        timeout: TIMEOUT,
        staleness,
        shared: None,
    };
    let mut request = Asked::start(at(now), vec![query]);
    let fetches = request.look_up(cache, &Access::at(at(now)), |_, _, item| match item.value {
        Value::Bytes(bytes) => bytes[0],
        Value::Declared(_) => panic!("bytes are stored"),
    });
    (request, fetches)
}

fn answers(request: &Asked) -> Vec<(Status, Option<u8>, u128, Option<u128>)> {
    let answer = |answer: crate::Answer<'_, u8>| {
        let stale_ms = answer.stale_for.map(|age| age.as_millis());
        (answer.status, answer.value.copied(), answer.latency.as_millis(), stale_ms)
    };
    request.answers().map(|(.., one)| answer(one)).collect()
}

fn failure() -> Result<Option<u8>, FetchError> {
    Err(FetchError::Timeout { timeout: TIMEOUT })
}

fn keys(fetch: &QueryFetch<String>) -> Vec<&str> {
    fetch.keys.iter().map(|(key, _)| key.as_str()).collect()
}

#[test]
fn cached_absence_needs_no_fetch_and_counts_as_a_hit() {
    let cache = cache(&[("gone", ItemKind::Absent, 100)]);
    let (request, fetches) = start(&cache, 50, &["gone", "gone"], NEVER);
    assert_eq!((fetches.len(), answers(&request)), (0, vec![(Status::NotFound, None, 0, None); 2]));
    let mut hits = 0;
    request.each_latency_group(|group| hits += group.hits);
    assert_eq!((hits, cache.usage(PartitionId(0)).hits), (2, 2));
}

#[test]
fn stale_value_is_the_answer_at_once_while_it_is_revalidated() {
    let cache = cache(&[("k", ItemKind::Graced, 100), ("old", ItemKind::Graced, 40)]);
    let staleness = Staleness { while_revalidate: ms(50), ..NEVER };
    let (mut request, fetches) = start(&cache, 120, &["k", "old", "k"], staleness);
    let [awaited, refresh] = fetches.as_slice() else { panic!("two fetches") };
    assert_eq!(
        (keys(awaited), awaited.awaited, keys(refresh), refresh.awaited),
        (vec!["old"], true, vec!["k"], false)
    );
    request.handle_result(at(125), refresh.keys[0].1, Ok(Some(2)));
    request.handle_result(at(130), awaited.keys[0].1, Ok(Some(2)));
    let stale = (Status::Stale, Some(1), 0, Some(20));
    assert_eq!(answers(&request), [stale, (Status::Miss, Some(2), 10, None), stale]);
    assert_eq!(request.next_timeout(), None);
}

#[test]
fn value_marked_outdated_is_stale_from_now_on() {
    let cache = cache(&[("k", ItemKind::Plain, 500)]);
    let amend = Change::Amend { expires: None, marks: OUTDATED, cas: NewCas::Keep };
    cache.update(PartitionId(0), b"k", &Access::at(at(50)), |_| (amend, ())).unwrap();
    let (mut request, fetches) = start(&cache, 120, &["k"], NEVER);
    request.handle_result(at(130), fetches[0].keys[0].1, failure());
    assert_eq!(answers(&request), [(Status::Timeout, None, 10, None)], "no query accepts a stale value");
    let (mut request, fetches) = start(&cache, 120, &["k"], Staleness { if_error: ms(60), ..NEVER });
    request.handle_result(at(130), fetches[0].keys[0].1, failure());
    assert_eq!(answers(&request), [(Status::Stale, Some(1), 10, Some(10))]);
    let (request, fetches) = start(&cache, 120, &["k"], Staleness { while_revalidate: ms(5), ..NEVER });
    assert_eq!((fetches[0].awaited, answers(&request)), (false, vec![(Status::Stale, Some(1), 0, Some(0))]));
}

#[test]
fn failed_fetch_is_answered_with_the_stale_value_and_is_no_failure() {
    let cache = cache(&[("k", ItemKind::Graced, 100)]);
    let staleness = Staleness { if_error: ms(60), ..NEVER };
    let (mut request, fetches) = start(&cache, 120, &["k", "k"], staleness);
    assert_eq!((keys(&fetches[0]), request.next_timeout()), (vec!["k"], None));
    request.handle_result(at(160), fetches[0].keys[0].1, failure());
    assert_eq!(answers(&request), [(Status::Stale, Some(1), 40, Some(60)); 2]);
    assert_eq!(request.finished().map(|end| end.latency_us), Some(40_000), "not the time-out");
    let (mut request, fetches) = start(&cache, 120, &["k"], staleness);
    request.handle_result(at(161), fetches[0].keys[0].1, failure());
    assert_eq!(answers(&request), [(Status::Timeout, None, 41, None)]);
}

#[test]
fn late_fetch_is_answered_with_the_stale_value_if_the_query_accepts_it() {
    let cache = cache(&[("k", ItemKind::Graced, 100), ("old", ItemKind::Graced, 10)]);
    let staleness = Staleness { when_late: ms(80), late_after: ms(30), ..NEVER };
    let (mut request, fetches) = start(&cache, 120, &["old", "k", "k", "new"], staleness);
    assert_eq!((keys(&fetches[0]), request.next_timeout()), (vec!["k", "new", "old"], Some(at(150))));
    request.handle_timeout(at(149));
    assert_eq!(request.answers().count(), 0);
    request.handle_timeout(at(150));
    let stale = (Status::Stale, Some(1), 30, Some(50));
    assert_eq!((answers(&request), request.next_timeout()), (vec![stale; 2], None));
    let slot = |key: usize| fetches[0].keys[key].1;
    request.handle_result(at(160), slot(0), Ok(Some(2)));
    request.handle_result(at(160), slot(1), Ok(None));
    request.handle_result(at(160), slot(2), failure());
    let missing = (Status::NotFound, None, 40, None);
    assert_eq!(answers(&request), [(Status::Timeout, None, 40, None), stale, stale, missing]);
}

#[test]
fn abandoned_request_fails_its_unanswered_keys_despite_stale_values() {
    let cache = cache(&[("k", ItemKind::Graced, 100), ("hit", ItemKind::Plain, 500)]);
    let staleness = Staleness { if_error: ms(900), ..NEVER };
    let (mut request, _) = start(&cache, 120, &["k", "hit", "new", "k"], staleness);
    request.abandon(at(320));
    let failed = (Status::Timeout, None, 200, None);
    assert_eq!(answers(&request), [failed, (Status::Hit, Some(1), 0, None), failed, failed]);
    assert_eq!(request.finished().map(|end| end.latency_us), Some(500_000), "the time-out");
}

#[test]
fn query_that_accepts_no_stale_value_waits_for_its_fetch() {
    let cache = cache(&[("k", ItemKind::Graced, 100)]);
    let (mut request, fetches) = start(&cache, 100, &["k"], NEVER);
    assert_eq!(request.next_timeout(), None);
    request.handle_timeout(at(10_000));
    request.handle_result(at(10_000), fetches[0].keys[0].1, failure());
    assert_eq!(answers(&request)[0].0, Status::Timeout);
}

/// Outcome of a key's fetch in a random case.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Value,
    Absent,
    Failure,
}

#[derive(Clone, Debug)]
struct Case {
    /// The expiry of each key's cached value, none if there is none.
    items: Vec<Option<u64>>,
    /// The keys of the request, by number.
    asked: Vec<usize>,
    /// The time and result of each key's fetch.
    fates: Vec<(u64, Fate)>,
    limits: [u64; 4],
}

const KEYS: usize = 4;
const NOW: u64 = 1_000;

fn case() -> impl Strategy<Value = Case> {
    let fate = prop_oneof![Just(Fate::Value), Just(Fate::Absent), Just(Fate::Failure)];
    let limit = || prop_oneof![1 => Just(0), 2 => 0..300_u64];
    (
        prop::collection::vec(prop::option::of(700..1_100_u64), KEYS),
        prop::collection::vec(0..KEYS, 0..8),
        prop::collection::vec((0..200_u64, fate), KEYS),
        (limit(), limit(), limit(), 0..150_u64).prop_map(<[u64; 4]>::from),
    )
        .prop_map(|(items, asked, fates, limits)| Case { items, asked, fates, limits })
}

/// The expected end of a key: status, milliseconds after the arrival, and age past its lifetime.
fn expected(case: &Case, key: usize) -> (Status, u64, Option<u64>) {
    let [at_once, if_error, when_late, late_after] = case.limits;
    let (ends, fate) = case.fates[key];
    let by_fetch = match fate {
        Fate::Value => (Status::Miss, ends, None),
        Fate::Absent => (Status::NotFound, ends, None),
        Fate::Failure => (Status::Timeout, ends, None),
    };
    let Some(expires) = case.items[key] else { return by_fetch };
    if expires > NOW {
        return (Status::Hit, 0, None);
    }
    let serves = |limit: u64, after: u64| limit > 0 && NOW + after - expires <= limit;
    let stale = |after: u64| (Status::Stale, after, Some(NOW + after - expires));
    if serves(at_once, 0) {
        stale(0)
    } else if late_after <= ends && serves(when_late, late_after) {
        stale(late_after)
    } else if matches!(fate, Fate::Failure) && (serves(if_error, ends) || serves(when_late, ends)) {
        stale(ends)
    } else {
        by_fetch
    }
}

/// Runs a random case with a clock that steps from one event to the next; timeouts come first.
fn run(case: &Case) -> Asked {
    let name = |key: usize| ["a", "b", "c", "d"][key];
    let there = case.items.iter().enumerate();
    let items: Vec<_> = there.filter_map(|(key, at)| Some((name(key), ItemKind::Graced, (*at)?))).collect();
    let [at_once, if_error, when_late, late_after] = case.limits.map(ms);
    let staleness = Staleness { while_revalidate: at_once, if_error, when_late, late_after };
    let asked: Vec<_> = case.asked.iter().map(|&key| name(key)).collect();
    let (mut request, fetches) = start(&cache(&items), NOW, &asked, staleness);
    let mut results: Vec<(u64, Slot, Fate)> = Vec::new();
    for (key, slot) in fetches.into_iter().flat_map(|fetch| fetch.keys) {
        let (ends, fate) = case.fates[usize::from(key.as_bytes()[0] - b'a')];
        results.push((NOW + ends, slot, fate));
    }
    results.sort_by_key(|(ends, ..)| *ends);
    for (ends, slot, fate) in results {
        while let Some(due) = request.next_timeout().filter(|due| *due <= at(ends)) {
            request.handle_timeout(due);
        }
        let result = match fate {
            Fate::Value => Ok(Some(2)),
            Fate::Absent => Ok(None),
            Fate::Failure => failure(),
        };
        request.handle_result(at(ends), slot, result);
    }
    request
}

proptest! {
    #[test]
    fn every_key_of_a_request_ends_as_in_a_naive_model(case in case()) {
        let request = run(&case);
        let ends = answers(&request);
        prop_assert_eq!(ends.len(), case.asked.len(), "every key ends");
        for (&key, (status, value, latency_ms, stale_ms)) in case.asked.iter().zip(ends) {
            let (expected_status, after, stale) = expected(&case, key);
            prop_assert_eq!((status, latency_ms as u64, stale_ms.map(|ms| ms as u64)), (expected_status, after, stale));
            let old = matches!(status, Status::Hit | Status::Stale).then_some(1);
            prop_assert_eq!(value, old.or((status == Status::Miss).then_some(2)));
        }
        let latest = case.asked.iter().map(|&key| expected(&case, key));
        let counted = latest.map(|(status, after, _)| if status == Status::Timeout { 500 } else { after }).max();
        let finished = request.finished().map(|end| u64::from(end.latency_us) / 1_000);
        prop_assert_eq!(finished, Some(counted.unwrap_or(0)));
    }
}
