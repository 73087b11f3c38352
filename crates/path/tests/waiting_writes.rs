//! Writes that wait for their tenant's rate.

use std::time::Duration;

use sherwood_cache::{Access, Cache, Options, Partition, Value};
use sherwood_dispatch::{Options as DispatchOptions, OverRate, Reply, TenantOptions};
use sherwood_model::{BackendId, Demand, DemandKind, Instant, PartitionId, SeededState, Tags, TenantId};
use sherwood_path::{
    Action, AnswerCache, Backend, BackendOptions, Change, FetchKey, Fetched, Write, WriteId, WriteOptions,
    WriteOutcome,
};

struct Sizes<'a>(&'a Cache);

impl AnswerCache<u32> for Sizes<'_> {
    fn cache(&self) -> &Cache {
        self.0
    }

    fn fetched<'a>(&self, bytes: &'a u32) -> Fetched<'a> {
        Fetched { value: Value::Declared(*bytes), flags: 0, good_for: None, tags: Tags::NONE }
    }
}

const PARTITION: PartitionId = PartitionId(0);
const KEY: &str = "a";

/// A backend whose only tenant may write once a second.
struct World {
    cache: Cache,
    backend: Backend<&'static str, u32, u8>,
}

impl World {
    fn new() -> Self {
        let partitions = [Partition::new(TenantId(0), BackendId(0), 1 << 20)];
        let cache = Cache::new(Options::default(), &partitions, SeededState::new(1)).expect("valid");
        let tenants = TenantOptions { tenants: 1, burst_units: 0, lends: false, over: OverRate::Wait };
        let dispatch = DispatchOptions {
            tenants: Some(tenants),
            timeout: Duration::from_secs(60),
            ..DispatchOptions::default()
        };
        let options = BackendOptions::new(dispatch, 1, vec![PARTITION]);
        let mut backend = Backend::new(options, Instant::ZERO, SeededState::new(2)).expect("valid");
        // Later than the time for which writes of a process before may land.
        let now = Instant::from_secs(100);
        backend.set_rates(now, &Sizes(&cache), DemandKind::Write, 1.0, &[1.0]);
        Self { cache, backend }
    }

    fn write(&mut self, now: Instant, bytes: u32) -> WriteId {
        let write = Write {
            key: KEY,
            change: Change::Put(bytes),
            partition: Some(PARTITION),
            options: WriteOptions::default(),
        };
        self.backend.handle_write(now, &Sizes(&self.cache), write).expect("there is room")
    }

    /// Answers the write whose turn has come, and returns its id.
    fn acknowledge(&mut self, now: Instant) -> Option<WriteId> {
        let Some(Action::StartWrite(write)) = self.backend.poll_action() else { return None };
        let order = self.backend.take_write(now, write).expect("its turn has come");
        let outcome = WriteOutcome::Acknowledged;
        self.backend.handle_write_reply(now, &Sizes(&self.cache), write, order.replicas[0], outcome);
        let ended = self.backend.poll_action();
        assert!(matches!(ended, Some(Action::EndWrite { sent: true, .. })), "{ended:?}");
        Some(write)
    }

    /// Fetches the key and answers with a value of so many bytes.
    fn fetch(&mut self, now: Instant, bytes: u32) {
        let key = FetchKey { partition: PARTITION, key: KEY };
        self.backend.handle_fetch(now, &Sizes(&self.cache), &Demand::default(), [(key, 0)], 7);
        let Some(Action::Call { attempt, .. }) = self.backend.poll_action() else { panic!("one call") };
        self.backend.handle_reply(now, &Sizes(&self.cache), attempt, Reply::Ok(vec![Some(bytes)]));
        assert!(matches!(self.backend.poll_action(), Some(Action::Deliver { .. })));
    }

    fn cached(&self, now: Instant) -> Option<usize> {
        self.cache.peek(PARTITION, KEY.as_bytes(), &Access::at(now), |item| item.value.len())
    }
}

#[test]
fn write_that_waits_for_its_rate_has_no_effect_on_its_key() {
    let mut world = World::new();
    let now = Instant::from_secs(101);
    let first = world.write(now, 1);
    let second = world.write(now, 2);
    assert_eq!(world.acknowledge(now), Some(first));
    assert_eq!(world.cached(now), Some(1), "the write that waits is no concurrent one");
    world.cache.remove(PARTITION, KEY.as_bytes(), &Access::at(now));
    world.fetch(now, 1);
    assert_eq!(world.cached(now), Some(1), "nor does it fence the key");

    let later = Instant::from_secs(102);
    world.backend.handle_timeout(later, &Sizes(&world.cache));
    assert_eq!(world.acknowledge(later), Some(second));
    assert_eq!(world.cached(later), Some(2));
}

#[test]
fn write_that_waits_at_the_shutdown_is_not_done_and_drops_the_key() {
    let mut world = World::new();
    let now = Instant::from_secs(101);
    world.write(now, 1);
    let waiting = world.write(now, 2);
    world.acknowledge(now).expect("the first one has its units");
    let unsettled = world.backend.handle_shutdown(now, &Sizes(&world.cache));
    let not_done =
        Action::EndWrite { write: waiting, outcome: WriteOutcome::NotDone, sent: false, session: None };
    assert_eq!((world.backend.poll_action(), unsettled), (Some(not_done), None));
    assert_eq!(world.cached(now), None);
    assert_eq!(world.backend.used(TenantId(0)).map(|used| used.writes.waiting), Some(0));
}
