//! Tests of keys that only some of the replicas have, and of writes that are acknowledged before
//! they end.

use std::collections::BTreeMap;
use std::time::Duration;

use sherwood_cache::{Access, Cache, Options, Partition, Value};
use sherwood_dispatch::{Holders, Options as DispatchOptions, Reply};
use sherwood_model::{BackendId, Demand, Instant, PartitionId, ReplicaId, SeededState, Tags, TenantId};
use sherwood_path::{
    Acknowledge, Action, AnswerCache, Backend, BackendOptions, Change, FetchKey, Fetched, Placement, Write,
    WriteId, WriteOptions, WriteOrder, WriteOutcome, WriteTo,
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
const REPLICAS: usize = 3;
/// A time after which no writes of an earlier process may still be applied.
const NOW: Instant = Instant::from_secs(100);

/// Returns the two replicas that have `key`, which is a decimal digit.
fn holders(key: &[u8]) -> Holders {
    Holders::Ring { first: ReplicaId(u16::from(key[0] - b'0') % REPLICAS as u16), copies: 2 }
}

struct World {
    cache: Cache,
    backend: Backend<&'static str, u32, u8>,
}

impl World {
    fn new(change: impl FnOnce(&mut BackendOptions)) -> Self {
        let partitions = [Partition::new(TenantId(0), BackendId(0), 1 << 20)];
        let cache = Cache::new(Options::default(), &partitions, SeededState::new(1)).expect("valid");
        let mut options = BackendOptions::new(DispatchOptions::default(), REPLICAS, vec![PARTITION]);
        change(&mut options);
        let backend = Backend::new(options, Instant::ZERO, SeededState::new(2)).expect("valid");
        Self { cache, backend }
    }

    /// Fetches keys and answers the calls. Returns the called replicas, each with the keys it was
    /// asked for.
    fn fetch(&mut self, keys: &[&'static str]) -> BTreeMap<ReplicaId, Vec<&'static str>> {
        let keys = keys.iter().map(|key| (FetchKey { partition: PARTITION, key: *key }, 0));
        self.backend.handle_fetch(NOW, &Sizes(&self.cache), &Demand::default(), keys, 7);
        let mut asked: BTreeMap<_, Vec<_>> = BTreeMap::new();
        while let Some(action) = self.backend.poll_action() {
            let Action::Call { attempt, replica, keys, .. } = action else { continue };
            asked.entry(replica).or_default().extend(keys.iter().map(|key| key.key));
            let values = keys.iter().map(|_| Some(1)).collect();
            self.backend.handle_reply(NOW, &Sizes(&self.cache), attempt, Reply::Ok(values));
        }
        asked
    }

    fn write(&mut self, key: &'static str) -> WriteOrder<&'static str, u32> {
        let (change, options) = (Change::Put(9), WriteOptions::default());
        let write = Write { key, change, partition: Some(PARTITION), options };
        let id = self.backend.handle_write(NOW, &Sizes(&self.cache), write).expect("there is room");
        assert_eq!(self.backend.poll_action(), Some(Action::StartWrite(id)));
        self.backend.take_write(NOW, id).expect("its turn has come")
    }

    fn reply(&mut self, write: WriteId, replica: ReplicaId, outcome: WriteOutcome) {
        self.backend.handle_write_reply(NOW, &Sizes(&self.cache), write, replica, outcome);
    }

    fn cached(&self, key: &str) -> Option<u64> {
        let access = Access::at(NOW);
        self.cache.peek(PARTITION, key.as_bytes(), &access, |item| item.value.len() as u64)
    }
}

#[test]
fn fetch_of_several_keys_is_split_among_the_replicas_that_hold_them() {
    let mut world = World::new(|options| options.placement = Placement::ByKey(holders));
    let keys = ["0", "1", "2", "3", "4", "5"];
    let asked = world.fetch(&keys);
    let mut all: Vec<_> = asked.values().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, keys);
    for (replica, keys) in &asked {
        assert!(keys.iter().all(|key| holders(key.as_bytes()).include(*replica, REPLICAS)), "{asked:?}");
    }
}

#[test]
fn write_goes_only_to_the_replicas_that_hold_its_key() {
    let mut world = World::new(|options| options.placement = Placement::ByKey(holders));
    let WriteOrder { write, replicas, .. } = world.write("2");
    assert_eq!(replicas, [ReplicaId(2), ReplicaId(0)]);
    for replica in [1, 2, 0].map(ReplicaId) {
        assert_eq!(world.backend.poll_action(), None);
        world.reply(write, replica, WriteOutcome::Acknowledged);
    }
    assert!(matches!(world.backend.poll_action(), Some(Action::EndWrite { .. })));
    assert_eq!(world.cached("2"), Some(9));
}

#[test]
fn fenced_key_is_fetched_from_its_first_replica_if_the_others_copy_from_it() {
    let mut world = World::new(|options| {
        options.placement = Placement::ByKey(holders);
        options.write_to = WriteTo::First;
        options.settle = Duration::from_secs(1);
    });
    let WriteOrder { write, replicas, .. } = world.write("1");
    assert_eq!(replicas, [ReplicaId(1)]);
    world.reply(write, ReplicaId(1), WriteOutcome::Acknowledged);
    world.cache.flush(None, NOW, NOW);
    assert_eq!(world.fetch(&["1"]).into_keys().collect::<Vec<_>>(), [ReplicaId(1)]);
}

#[test]
fn write_is_acknowledged_once_when_the_required_number_of_replicas_has_answered() {
    for (acknowledge, needed) in [(Acknowledge::First, 1), (Acknowledge::Majority, 2), (Acknowledge::All, 3)]
    {
        let mut world = World::new(|options| options.acknowledge = acknowledge);
        world.fetch(&["1"]);
        assert_eq!(world.cached("1"), Some(1));
        let WriteOrder { write, replicas, .. } = world.write("1");
        let mut acknowledged = None;
        for (answered, replica) in (1..).zip(replicas) {
            world.reply(write, replica, WriteOutcome::Acknowledged);
            if let Some(early) = world.backend.poll_acknowledged() {
                assert_eq!((early, acknowledged.replace(answered)), (write, None));
                assert_eq!(world.cached("1"), None, "the value of before is gone");
            }
            if acknowledged.is_some() && answered < REPLICAS {
                let asked: Vec<_> = world.fetch(&["1"]).into_keys().collect();
                assert_eq!((asked, world.cached("1")), (vec![replica], None));
            }
        }
        assert_eq!(acknowledged, Some(needed).filter(|needed| *needed < REPLICAS));
        assert!(matches!(world.backend.poll_action(), Some(Action::EndWrite { .. })));
        assert_eq!(world.cached("1"), Some(9), "the cache keeps what every replica has");
    }
}

#[test]
fn write_that_fails_on_a_majority_of_replicas_is_not_acknowledged() {
    let mut world = World::new(|options| options.acknowledge = Acknowledge::Majority);
    let WriteOrder { write, .. } = world.write("1");
    world.reply(write, ReplicaId(0), WriteOutcome::Acknowledged);
    world.reply(write, ReplicaId(1), WriteOutcome::NotDone);
    world.reply(write, ReplicaId(2), WriteOutcome::Unknown);
    assert_eq!(world.backend.poll_acknowledged(), None);
    let end = Action::EndWrite { write, outcome: WriteOutcome::Unknown, sent: true, session: None };
    assert_eq!(world.backend.poll_action(), Some(end));
}
