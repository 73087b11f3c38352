//! Deadlines of queries reach the classes of the cache: a look-up counts in the class of its
//! deadline, and a fill tells if the deadline was missed.

use std::time::Duration;

use sherwood_cache::{
    Access, Cache, ClassUsage, DeadlineClasses, DeadlineOptions, NewItem, Options, Partition, Value,
};
use sherwood_dispatch::{Failure, FailureKind, Options as DispatchOptions, Reply};
use sherwood_model::{BackendId, Demand, Instant, PartitionId, SeededState, Tags, TenantId};
use sherwood_path::{
    Action, AnswerCache, Backend, BackendOptions, FetchKey, Fetched, Invalidation, Query, Request, Staleness,
};

const PARTITION: PartitionId = PartitionId(0);

struct Bytes<'a>(&'a Cache);

impl AnswerCache<Vec<u8>> for Bytes<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, value: &'a Vec<u8>) -> Fetched<'a> {
        Fetched { value: Value::Bytes(value), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

/// Returns a cache with four classes of 10 ms.
fn cache() -> Cache {
    let classes = DeadlineClasses::of_equal_width(4, Duration::from_millis(40)).expect("wide enough");
    let deadlines = DeadlineOptions { classes, ..DeadlineOptions::ONE };
    let partition = Partition { deadlines, ..Partition::new(TenantId(0), BackendId(0), 1 << 20) };
    Cache::new(Options::default(), &[partition], SeededState::new(1)).expect("valid options")
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn due(ms: u64) -> Demand {
    Demand { deadline: Some(at(ms)), ..Demand::default() }
}

fn of_classes<T>(cache: &Cache, of: impl Fn(&ClassUsage) -> T) -> Vec<T> {
    cache.class_usage(PARTITION).iter().map(of).collect()
}

/// Starts a request for one key at 100 ms, fetches it if it is not cached, and answers the call
/// with `reply` at `end_ms`, after `meanwhile`.
fn run(
    cache: &Cache,
    demand: Demand,
    (end_ms, reply): (u64, Reply<Vec<u8>>),
    meanwhile: impl Fn(&mut Backend<&'static str, Vec<u8>, u32>),
) {
    let options = BackendOptions::new(DispatchOptions::default(), 1, vec![PARTITION]);
    let mut backend = Backend::new(options, at(100), SeededState::new(7)).expect("valid options");
    let query = Query {
        backend: BackendId(0),
        partition: PARTITION,
        keys: vec!["k"],
        demand,
        timeout: Duration::from_secs(1),
        staleness: Staleness::default(),
        shared: None,
    };
    let mut request = Request::<_, Vec<u8>>::start(at(100), vec![query]);
    let access = Access::at(at(101));
    for fetch in request.look_up(cache, &access, |_, _, _| Vec::new()) {
        let key = FetchKey { partition: PARTITION, key: "k" };
        backend.handle_fetch(at(101), &Bytes(cache), &fetch.demand, [(key, 0)], 1);
        let Some(Action::Call { attempt, .. }) = backend.poll_action() else { panic!("one call") };
        meanwhile(&mut backend);
        backend.handle_reply(at(end_ms), &Bytes(cache), attempt, reply.clone());
    }
}

fn value() -> Reply<Vec<u8>> {
    Reply::Ok(vec![Some(b"v".to_vec())])
}

#[test]
fn look_up_and_fill_are_in_the_class_of_the_deadline() {
    let cache = cache();
    run(&cache, due(125), (110, value()), |_| ());
    run(&cache, due(125), (110, value()), |_| ());
    assert_eq!(of_classes(&cache, |class| (class.hits, class.misses)), [(0, 0), (0, 0), (1, 1), (0, 0)]);
    assert_eq!(of_classes(&cache, |class| class.items), [0, 0, 1, 0]);
    assert_eq!(of_classes(&cache, |class| class.deadline_missed), [0; 4]);
}

#[test]
fn late_fill_tells_its_class_of_a_missed_deadline() {
    for (end_ms, missed) in [(109, 0), (110, 0), (111, 1)] {
        let cache = cache();
        run(&cache, due(110), (end_ms, value()), |_| ());
        assert_eq!(of_classes(&cache, |class| class.deadline_missed), [0, missed, 0, 0], "at {end_ms} ms");
        assert_eq!(of_classes(&cache, |class| class.items), [0, 1, 0, 0]);
        assert_eq!(cache.class_usage(PARTITION)[1].multiplier > 1.0, missed == 1);
    }
}

#[test]
fn late_answer_that_is_not_stored_tells_of_a_missed_deadline() {
    let failure = || Reply::Failed(Failure::new(FailureKind::Rejected, "no such table"));
    for end_ms in [105, 200] {
        let failed = cache();
        run(&failed, due(109), (end_ms, failure()), |_| ());
        let withheld = cache();
        run(&withheld, due(109), (end_ms, value()), |backend| {
            backend.handle_invalidate(at(102), &Bytes(&withheld), Invalidation::All);
        });
        for cache in [failed, withheld] {
            let missed = u64::from(end_ms == 200);
            assert_eq!(of_classes(&cache, |class| class.deadline_missed), [missed, 0, 0, 0]);
            assert_eq!(cache.usage(PARTITION).items, 0);
        }
    }
}

#[test]
fn query_without_a_deadline_keeps_the_class_of_an_item() {
    let cache = cache();
    let access = Access { class: Some(cache.deadline_class(PARTITION, Duration::ZERO)), ..Access::at(at(0)) };
    cache.set(PARTITION, b"k", NewItem::bytes(b"v"), &access).expect("it fits");
    run(&cache, Demand::default(), (900, value()), |_| ());
    assert_eq!(of_classes(&cache, |class| (class.items, class.hits)), [(1, 1), (0, 0), (0, 0), (0, 0)]);
}
