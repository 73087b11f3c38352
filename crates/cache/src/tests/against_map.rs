//! Random operations of all kinds compared with a plain map: an item found is the one stored last,
//! whatever is evicted.
//!
//! The map does not model which items are evicted. It checks that no item is older than the map's,
//! that bytes and counts are those of the items, that budgets hold, and that no item disappears
//! without a reason.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{CachePlan, Instant, PartitionId, Tags};

use super::model::{ModelItem, ModelValue, contents};
use super::{LRU, any_kind, any_tags, any_visibility, budgets, cache_with, cache_with_classes, classes};
use crate::{
    Access, AccessFlags, Cache, Change, DeadlineClass, Eviction, ItemKind, NewItem, Options, Pinned, Refused,
    Value, charge,
};

const PARTITIONS: usize = 3;
/// Values that are pinned at a time.
const PINS: usize = 4;
const TOTAL: u64 = 1 << 20;
const GRACE: Duration = Duration::from_millis(60);

/// An operation. Keys below 40 are reused; those above are stored in bulk and fill pages.
#[derive(Clone, Debug)]
enum Op {
    Get(usize, u16),
    Set(usize, u16, New),
    /// Stores an item whose key and value were received into reserved memory.
    Receive(usize, u16, New),
    /// Pins the value of a large item, in the place of an earlier pin.
    Pin(usize, u16),
    Add(usize, u16, New),
    Append(usize, u16, u16),
    Touch(usize, u16, Option<u64>),
    Remove(usize, u16),
    /// Stores small items, then removes all but one in `keep`, which leaves pages nearly empty.
    Bulk {
        partition: usize,
        items: u16,
        bytes: u16,
        keep: u16,
    },
    Plan([u8; PARTITIONS]),
    Flush(usize),
    Step(usize),
    Wait(u64),
    /// Sets the visibility flags of later accesses.
    See(AccessFlags),
}

#[derive(Clone, Copy, Debug)]
struct New {
    bytes: u32,
    declared: bool,
    flags: u32,
    ttl_ms: Option<u64>,
    kind: ItemKind,
    tags: Tags,
}

impl New {
    /// A plain value without expiry.
    fn plain(bytes: u32) -> Self {
        Self { bytes, declared: false, flags: 0, ttl_ms: None, kind: ItemKind::Plain, tags: Tags::NONE }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let key = || (0..PARTITIONS, 0..40u16);
    let ttl = || prop::option::weighted(0.3, 1..200u64);
    let new = move || {
        let bytes = prop_oneof![4 => 0..300u32, 2 => 300..8300u32, 1 => 8100..8200u32, 1 => 8300..60_000u32];
        (bytes, any::<bool>(), 0..3u32, ttl(), any_kind(), any_tags()).prop_map(
            |(bytes, declared, flags, ttl_ms, kind, tags)| New { bytes, declared, flags, ttl_ms, kind, tags },
        )
    };
    prop_oneof![
        6 => key().prop_map(|(partition, key)| Op::Get(partition, key)),
        6 => (key(), new()).prop_map(|((partition, key), new)| Op::Set(partition, key, new)),
        3 => (key(), new()).prop_map(|((partition, key), new)| Op::Receive(partition, key, new)),
        2 => key().prop_map(|(partition, key)| Op::Pin(partition, key)),
        3 => (key(), new()).prop_map(|((partition, key), new)| Op::Add(partition, key, new)),
        2 => (key(), 0..9000u16).prop_map(|((partition, key), more)| Op::Append(partition, key, more)),
        3 => (key(), ttl()).prop_map(|((partition, key), ttl)| Op::Touch(partition, key, ttl)),
        1 => key().prop_map(|(partition, key)| Op::Remove(partition, key)),
        1 => (0..PARTITIONS, 1..3000u16, 0..200u16, 1..40u16)
            .prop_map(|(partition, items, bytes, keep)| Op::Bulk { partition, items, bytes, keep }),
        1 => prop_oneof![2 => any::<[u8; PARTITIONS]>(), 1 => Just([0; PARTITIONS])].prop_map(Op::Plan),
        1 => (0..PARTITIONS).prop_map(Op::Flush),
        3 => (1..400usize).prop_map(Op::Step),
        2 => (0..100u64).prop_map(Op::Wait),
        2 => any_visibility().prop_map(Op::See),
    ]
}

struct Pair {
    cache: Cache,
    /// The item stored last under each key and not removed.
    truth: BTreeMap<(usize, Vec<u8>), ModelItem>,
    /// Pinned values, with the bytes that they have to keep.
    pins: VecDeque<(Pinned, Vec<u8>)>,
    now: Instant,
    class: u8,
    flags: AccessFlags,
}

impl Pair {
    fn new(eviction: Eviction, shards: u16) -> Self {
        let options = Options { total_bytes: TOTAL, shards, eviction, ..LRU };
        let cache = cache_with_classes(options, &[TOTAL / 3; PARTITIONS], GRACE, |_| classes(2));
        let (now, flags) = (Instant::from_millis(1), AccessFlags::NONE);
        Self { cache, truth: BTreeMap::new(), pins: VecDeque::new(), now, class: 0, flags }
    }

    fn access(&self) -> Access {
        Access { class: Some(DeadlineClass(self.class)), flags: self.flags, ..Access::at(self.now) }
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.class = self.class.wrapping_add(1) % 3;
        match *op {
            Op::Get(partition, key) => self.get(partition, key)?,
            Op::Set(partition, key, new) => self.set(partition, key, new),
            Op::Receive(partition, key, new) => self.receive(partition, key, new),
            Op::Pin(partition, key) => self.pin(partition, key),
            Op::Add(partition, key, new) => {
                let item = self.item(partition, key, new);
                let added = self.cache.add(id(partition), &item.key, item.new_item(), &self.access());
                if added == Ok(true) {
                    self.stored(item);
                }
            }
            Op::Append(partition, key, more) => self.append(partition, key, more)?,
            Op::Touch(partition, key, ttl) => {
                let expires = ttl.map(|ms| self.now + Duration::from_millis(ms));
                let touched = self.cache.update(id(partition), &name(key), &self.access(), |item| {
                    (Change::Touch(expires), item.is_some())
                });
                if let (Ok(true), Some(item)) = (touched, self.truth.get_mut(&(partition, name(key)))) {
                    item.expires = expires;
                }
            }
            Op::Remove(partition, key) => {
                self.cache.remove(id(partition), &name(key), &self.access());
                self.truth.remove(&(partition, name(key)));
            }
            Op::Bulk { partition, items, bytes, keep } => {
                let new = New::plain(u32::from(bytes));
                (100..100 + items).for_each(|key| self.set(partition, key, new));
                for key in (100..100 + items).filter(|key| key % keep != 0) {
                    self.apply(&Op::Remove(partition, key))?;
                }
            }
            Op::Plan(weights) => {
                let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
                let share = |&weight: &u8| TOTAL * u64::from(weight) / sum;
                let plan = match sum {
                    0 => CachePlan::Shared,
                    _ => budgets(&weights.iter().map(share).collect::<Vec<_>>()),
                };
                self.cache.apply(&plan).expect("shares of the total fit");
            }
            Op::Flush(partition) => {
                self.cache.flush(Some(id(partition)), self.now, self.now);
                self.truth.retain(|(other, _), _| *other != partition);
            }
            Op::Step(items_max) => drop(self.cache.step(self.now, items_max)),
            Op::Wait(ms) => self.now += Duration::from_millis(ms),
            Op::See(flags) => self.flags = flags,
        }
        Ok(())
    }

    fn get(&self, partition: usize, key: u16) -> Result<(), TestCaseError> {
        let truth = self.truth.get(&(partition, name(key)));
        let truth = truth.filter(|item| item.is_seen(&self.access(), GRACE));
        let right = self.cache.get(id(partition), &name(key), &self.access(), |item| {
            truth.is_some_and(|truth| truth.matches(&item))
        });
        prop_assert_ne!(right, Some(false));
        Ok(())
    }

    fn set(&mut self, partition: usize, key: u16, new: New) {
        let item = self.item(partition, key, new);
        let stored = self.cache.set(id(partition), &item.key, item.new_item(), &self.access());
        self.note(item, stored);
    }

    /// Stores an item from a received command, whose block a large one keeps; without the memory
    /// for it, or with a declared value, this is a plain store.
    fn receive(&mut self, partition: usize, key: u16, new: New) {
        let item = self.item(partition, key, new);
        let ModelValue::Bytes(value) = &item.value else { return self.set(partition, key, new) };
        let text = [b"set ", &item.key[..], b" ", value, b"\r\n"].concat();
        let Some(mut reserved) = self.cache.reserve(text.len()) else { return self.set(partition, key, new) };
        reserved.room().copy_from_slice(&text);
        reserved.add(text.len());
        let received = reserved.finish();
        let key_end = 4 + item.key.len();
        let (key, value) = (&received[4..key_end], &received[key_end + 1..text.len() - 2]);
        let new_item = NewItem { value: Value::Bytes(value), received: Some(&received), ..item.new_item() };
        let stored = self.cache.set(id(partition), key, new_item, &self.access());
        self.note(item, stored);
    }

    fn pin(&mut self, partition: usize, key: u16) {
        let pinned = self.cache.get(id(partition), &name(key), &self.access(), |item| {
            item.pin().map(|pinned| match item.value {
                Value::Bytes(value) => (pinned, value.to_vec()),
                Value::Declared(_) => unreachable!("a declared value has no block"),
            })
        });
        self.pins.extend(pinned.flatten());
        if self.pins.len() > PINS {
            self.pins.pop_front();
        }
    }

    /// Records the result of a store.
    fn note(&mut self, item: ModelItem, stored: Result<u64, Refused>) {
        let partition = item.partition;
        match stored {
            Ok(cas) => drop(self.truth.insert((partition, item.key.clone()), ModelItem { cas, ..item })),
            Err(_) => drop(self.truth.remove(&(partition, item.key))),
        }
    }

    fn append(&mut self, partition: usize, key: u16, more: u16) -> Result<(), TestCaseError> {
        let mut appended = None;
        let done = self.cache.update(id(partition), &name(key), &self.access(), |item| {
            let Some((item, Value::Bytes(old))) = item.map(|item| (item, item.value)) else {
                return (Change::Keep, ());
            };
            let value = [old, &vec![b'+'; usize::from(more)]].concat();
            appended = Some((value.clone(), item.flags, item.expires, item.tags));
            (Change::StoreOwned { value, flags: item.flags, expires: item.expires, tags: item.tags }, ())
        });
        match (done, appended) {
            (Err(_), _) => drop(self.truth.remove(&(partition, name(key)))),
            (Ok(()), Some((value, flags, expires, tags))) => {
                let old = self.truth.get(&(partition, name(key)));
                prop_assert!(old.is_some_and(
                    |old| matches!(&old.value, ModelValue::Bytes(bytes) if value.starts_with(bytes))
                ));
                let value = ModelValue::Bytes(value);
                self.stored(ModelItem {
                    partition,
                    key: name(key),
                    value,
                    flags,
                    expires,
                    kind: ItemKind::Plain,
                    tags,
                    cas: 0,
                    flushed: false,
                });
            }
            (Ok(()), None) => {}
        }
        Ok(())
    }

    /// Records an item whose CAS the operation did not return.
    fn stored(&mut self, item: ModelItem) {
        let last = self.cache.ticks.load(std::sync::atomic::Ordering::Relaxed) - 1;
        let cas = self.cache.peek(id(item.partition), &item.key, &self.access(), |item| item.cas);
        self.truth.insert((item.partition, item.key.clone()), ModelItem { cas: cas.unwrap_or(last), ..item });
    }

    fn item(&self, partition: usize, key: u16, new: New) -> ModelItem {
        let value = match new.declared {
            true => ModelValue::Declared(new.bytes),
            false => ModelValue::Bytes((0..new.bytes).map(|at| (at as u16 ^ key) as u8).collect()),
        };
        let expires = new.ttl_ms.map(|ms| self.now + Duration::from_millis(ms));
        ModelItem {
            partition,
            key: name(key),
            value,
            flags: new.flags,
            expires,
            kind: if new.kind == ItemKind::Graced && expires.is_none() { ItemKind::Plain } else { new.kind },
            tags: new.tags,
            cas: 0,
            flushed: false,
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (pinned, value) in &self.pins {
            prop_assert!(pinned[..] == value[..], "a pinned value has changed");
        }
        let held = contents(&self.cache, self.now);
        for item in held.iter().filter(|item| !item.flushed) {
            prop_assert_eq!(Some(item), self.truth.get(&(item.partition, item.key.clone())));
        }
        for partition in 0..PARTITIONS {
            let own = held.iter().filter(|item| item.partition == partition);
            let bytes = own.clone().map(ModelItem::charge).sum::<u64>();
            let usage = self.cache.usage(id(partition));
            prop_assert_eq!((usage.used_bytes, usage.items), (bytes, own.count() as u64));
        }
        let total = self.cache.total();
        prop_assert!(total.used_bytes <= TOTAL);
        if total.evictions == 0 {
            let lives = |item: &&ModelItem| !item.is_dead(self.now, GRACE);
            let live = held.iter().filter(|item| !item.flushed).filter(lives).count();
            prop_assert_eq!(
                live,
                self.truth.values().filter(lives).count(),
                "no item disappears without a reason"
            );
        }
        Ok(())
    }
}

fn id(partition: usize) -> PartitionId {
    PartitionId::from_index(partition)
}

/// Returns the bytes of the key with this number; keys have many lengths.
fn name(key: u16) -> Vec<u8> {
    let mut name = key.to_be_bytes().to_vec();
    name.resize(2 + usize::from(key % 40) * 6, b'k');
    name
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn item_found_is_the_one_stored_last(
        ops in prop::collection::vec(op(), 1..120), shards in 0..3u32, lru: bool,
    ) {
        let mut pair = Pair::new(if lru { Eviction::Lru } else { Eviction::S3Fifo }, 1 << shards);
        for (number, op) in ops.iter().enumerate() {
            pair.apply(op)?;
            if number % 16 == 0 {
                pair.check()?;
            }
        }
        pair.check()?;
        // After enough background work no partition is over its budget.
        pair.now += Duration::from_secs(20);
        for _ in 0..2 {
            while pair.cache.step(pair.now, 1000) {}
        }
        pair.check()?;
        for partition in (0..PARTITIONS).map(id) {
            let usage = pair.cache.usage(partition);
            prop_assert!(usage.used_bytes <= usage.budget_bytes, "{:?}", usage);
        }
    }
}

#[test]
fn pages_of_mostly_removed_items_are_released() {
    for eviction in [Eviction::S3Fifo, Eviction::Lru] {
        let mut pair = Pair::new(eviction, 1);
        pair.cache.apply(&CachePlan::Shared).expect("always accepted");
        for key in 0..6000 {
            pair.set(0, key, New::plain(40));
        }
        let full = pair.cache.supply.held();
        for key in (0..6000).filter(|key| key % 20 != 0) {
            pair.apply(&Op::Remove(0, key)).expect("removed");
        }
        while pair.cache.step(pair.now, 64) {}
        pair.check().expect("consistent");
        assert!(pair.cache.supply.held() < full * 2 / 3, "{} of {full} bytes", pair.cache.supply.held());
    }
}

#[test]
fn s3_fifo_keeps_used_items_during_a_scan() {
    let cache = cache_with(Options { total_bytes: 100 * charge(4, 4), ..LRU_OFF }, &[100 * charge(4, 4)]);
    let at = |key: u32| (key.to_be_bytes(), Access::at(Instant::ZERO));
    for key in (0..30).chain(0..30) {
        let (key, access) = at(key);
        if cache.get(PartitionId(0), &key, &access, |_| ()).is_none() {
            cache.set(PartitionId(0), &key, NewItem::declared(4), &access).expect("it fits");
        }
    }
    for key in 1000..3000 {
        let (key, access) = at(key);
        cache.set(PartitionId(0), &key, NewItem::declared(4), &access).expect("it fits");
    }
    let kept = (0..30).filter(|&key| {
        let (key, access) = at(key);
        cache.peek(PartitionId(0), &key, &access, |_| ()).is_some()
    });
    assert_eq!(kept.count(), 30);
}

#[test]
fn s3_fifo_admits_a_returning_key_to_the_main_queue() {
    let cache = cache_with(Options { total_bytes: 50 * charge(4, 4), ..LRU_OFF }, &[50 * charge(4, 4)]);
    let set = |key: u32| {
        let access = Access::at(Instant::ZERO);
        cache.set(PartitionId(0), &key.to_be_bytes(), NewItem::declared(4), &access).expect("it fits");
    };
    (0..60).for_each(set);
    // Dropped ten stores ago, the key returns; then so many others are stored that a new item would
    // be evicted.
    set(0);
    (100..400).for_each(set);
    let has = |key: u32| {
        cache.peek(PartitionId(0), &key.to_be_bytes(), &Access::at(Instant::ZERO), |_| ()).is_some()
    };
    assert!(has(0) && !has(100));
}

#[test]
fn unused_partition_is_evicted_under_a_shared_plan() {
    for eviction in [Eviction::S3Fifo, Eviction::Lru] {
        let total = 400 * charge(4, 4);
        let cache =
            cache_with(Options { total_bytes: total, eviction, shards: 4, ..LRU }, &[total / 2, total / 2]);
        cache.apply(&CachePlan::Shared).expect("always accepted");
        for partition in [0, 1] {
            for key in 0..200_u32 {
                let access = Access::at(Instant::ZERO);
                cache.set(id(partition), &key.to_be_bytes(), NewItem::declared(4), &access).expect("it fits");
            }
        }
        for key in 1000..3000_u32 {
            let access = Access::at(Instant::ZERO);
            cache.set(id(1), &key.to_be_bytes(), NewItem::declared(4), &access).expect("it fits");
        }
        let usage = [0, 1].map(|partition| cache.usage(id(partition)).items);
        assert!(usage[0] <= 20 && usage[1] >= 380, "{eviction:?}: {usage:?}");
    }
}

const LRU_OFF: Options = Options { eviction: Eviction::S3Fifo, ..LRU };
