//! Random operations on the engine and on the model of [`super::model`], which must agree after
//! each.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use proptest::prelude::*;
use sherwood_model::{CachePlan, Instant, PartitionId, Tags};

use super::model::{Model, ModelItem, ModelValue, contents, list};
use super::{LRU, any_kind, any_tags, any_visibility, budgets, cache_with_classes, classes};
use crate::{Access, AccessFlags, Cache, Change, DeadlineClass, DeadlineOptions, ItemKind, Options};

const PARTITIONS: usize = 3;
const TOTAL: u64 = 12_000;
const ITEM_MAX: u32 = 3000;
const GRACE: Duration = Duration::from_millis(15);
/// Step of the multipliers, large enough that a few missed deadlines reach the floor.
const STEP: f64 = 0.7;

/// An operation on one of a few keys, so that operations affect each other.
#[derive(Clone, Debug)]
enum Op {
    Get(Key),
    Peek(Key),
    Set(Key, New),
    Add(Key, New),
    Remove(Key),
    Update(Key, Update),
    Flush {
        partition: Option<usize>,
        delay_ms: u64,
    },
    /// Applies a plan: shares of the total by weight; all zero for `Shared`.
    Plan([u8; PARTITIONS + 1]),
    /// Changes the total to so many eighths of the first one, with a plan of such shares.
    Resize(u8, [u8; PARTITIONS + 1]),
    Step(usize),
    /// Runs the background work to its end.
    Idle,
    Wait {
        ms: u64,
    },
    /// Sets the visibility flags of later accesses.
    See(AccessFlags),
    /// Sets if later stores tell of missed deadlines.
    Late(bool),
    /// Tells of a missed deadline without a store.
    Missed(Key),
}

#[derive(Clone, Copy, Debug)]
struct Key {
    partition: usize,
    key: u8,
}

#[derive(Clone, Debug)]
struct New {
    bytes: u32,
    declared: bool,
    flags: u32,
    ttl_ms: Option<u64>,
    kind: ItemKind,
    tags: Tags,
}

#[derive(Clone, Debug)]
enum Update {
    Keep,
    Store(New),
    /// Stores by compare-and-swap: with the CAS that the model recorded, or with one that never
    /// matches.
    Cas(New, bool),
    /// Appends this many bytes to a stored value.
    Append(u8),
    Touch(Option<u64>),
    Remove,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || (0..PARTITIONS, 0..8u8).prop_map(|(partition, key)| Key { partition, key });
    let ttl = || prop::option::weighted(0.3, 0..30u64);
    let new = move || {
        let bytes = prop_oneof![8 => 0..1200u32, 1 => 1200..ITEM_MAX + 10];
        (bytes, any::<bool>(), 0..3u32, ttl(), any_kind(), any_tags()).prop_map(
            |(bytes, declared, flags, ttl_ms, kind, tags)| New { bytes, declared, flags, ttl_ms, kind, tags },
        )
    };
    let update = prop_oneof![
        Just(Update::Keep),
        new().prop_map(Update::Store),
        (new(), any::<bool>()).prop_map(|(new, current)| Update::Cas(new, current)),
        any::<u8>().prop_map(Update::Append),
        ttl().prop_map(Update::Touch),
        Just(Update::Remove),
    ];
    prop_oneof![
        8 => key().prop_map(Op::Get),
        1 => key().prop_map(Op::Peek),
        8 => (key(), new()).prop_map(|(key, new)| Op::Set(key, new)),
        4 => (key(), new()).prop_map(|(key, new)| Op::Add(key, new)),
        1 => key().prop_map(Op::Remove),
        4 => (key(), update).prop_map(|(key, update)| Op::Update(key, update)),
        1 => (prop::option::of(0..PARTITIONS), prop_oneof![Just(0), 1..20u64])
            .prop_map(|(partition, delay_ms)| Op::Flush { partition, delay_ms }),
        2 => prop_oneof![2 => any::<[u8; PARTITIONS + 1]>(), 1 => Just([0; PARTITIONS + 1])].prop_map(Op::Plan),
        1 => (3..13u8, any::<[u8; PARTITIONS + 1]>()).prop_map(|(eighths, plan)| Op::Resize(eighths, plan)),
        2 => (1..40usize).prop_map(Op::Step),
        1 => Just(Op::Idle),
        4 => (0..10u64).prop_map(|ms| Op::Wait { ms }),
        2 => any_visibility().prop_map(Op::See),
        2 => any::<bool>().prop_map(Op::Late),
        1 => key().prop_map(Op::Missed),
    ]
}

/// The engine and the naive model that it is compared with.
struct Pair {
    cache: Cache,
    model: Model,
    now: Instant,
    class: u8,
    flags: AccessFlags,
    is_late: bool,
    cas: u64,
}

impl Pair {
    /// Returns an engine whose second partition has one class and the others `count`.
    fn new(shards: u16, count: u8) -> Self {
        let options = Options { total_bytes: TOTAL, item_bytes_max: ITEM_MAX, shards, ..LRU };
        let deadlines = |index| DeadlineOptions { step: STEP, ..classes(if index == 1 { 1 } else { count }) };
        let cache = cache_with_classes(options, &[TOTAL / 3; PARTITIONS], GRACE, deadlines);
        let flags = AccessFlags::NONE;
        let (model, now) = (Model::new(&cache), Instant::from_millis(1));
        Self { model, cache, now, class: 0, flags, is_late: false, cas: 0 }
    }

    fn access(&self) -> Access {
        // Class 3 is beyond those of any partition, and 4 stands for none.
        let class = (self.class < 4).then_some(DeadlineClass(self.class));
        let late = if self.is_late { AccessFlags::DEADLINE_MISSED } else { AccessFlags::NONE };
        Access { class, flags: self.flags.with(late), ..Access::at(self.now) }
    }

    /// Learns from a store like the engine.
    fn note_fill(&mut self, partition: usize) {
        if let Some(class) = self.model.class(partition, &self.access()).filter(|_| self.is_late) {
            self.model.note_missed(partition, class, STEP);
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        self.class = (self.class + 1) % 5;
        self.model.clock = self.cache.ticks.load(Relaxed);
        match op {
            Op::Get(key) => self.get(*key)?,
            Op::Peek(key) => self.peek(*key)?,
            Op::Set(key, new) => self.set(*key, new)?,
            Op::Add(key, new) => self.add(*key, new)?,
            Op::Remove(key) => self.remove(*key)?,
            Op::Update(key, update) => self.update(*key, update)?,
            Op::Flush { partition, delay_ms } => {
                let at = self.now + Duration::from_millis(*delay_ms);
                self.cache.flush(partition.map(PartitionId::from_index), at, self.now);
                self.model.flush(*partition, at, self.now);
            }
            Op::Plan(weights) => self.plan(weights),
            Op::Resize(eighths, weights) => self.resize(*eighths, weights),
            Op::Step(items_max) => self.step(*items_max),
            Op::Idle => self.idle()?,
            Op::Wait { ms } => {
                self.now += Duration::from_millis(*ms);
                self.model.pass_time(self.now);
            }
            Op::See(flags) => self.flags = *flags,
            Op::Late(is_late) => self.is_late = *is_late,
            Op::Missed(key) => self.miss_deadline(*key),
        }
        Ok(())
    }

    fn get(&mut self, key: Key) -> Result<(), TestCaseError> {
        let found = self.model.find(key.partition, &key.name(), &self.access());
        let place = self.model.places.get(&(key.partition, key.name())).map(|place| place.class);
        let seen = found.map(|position| self.model.refresh(position, &self.access()).clone());
        let counted = place.zip(seen.as_ref().map(|item| item.is_stale(self.now)));
        self.model.count_get(key.partition, &self.access(), counted);
        let matches = self.cache.get(key.id(), &key.name(), &self.access(), |item| {
            seen.as_ref().is_some_and(|seen| seen.matches(&item))
        });
        prop_assert_eq!(matches, seen.map(|_| true));
        Ok(())
    }

    fn peek(&mut self, key: Key) -> Result<(), TestCaseError> {
        let seen = self.model.peek(key.partition, &key.name(), &self.access());
        let matches = self
            .cache
            .peek(key.id(), &key.name(), &self.access(), |item| seen.is_some_and(|seen| seen.matches(&item)));
        prop_assert_eq!(matches, seen.map(|_| true));
        Ok(())
    }

    fn set(&mut self, key: Key, new: &New) -> Result<(), TestCaseError> {
        let item = self.item(key, new);
        self.note_fill(key.partition);
        let stored = self.cache.set(key.id(), &key.name(), item.new_item(), &self.access());
        prop_assert_eq!(stored.is_err(), self.refuses(&item), "{:?}", stored);
        match stored {
            Ok(cas) => self.store(ModelItem { cas, ..item })?,
            Err(_) => {
                // A dead item is removed as expired.
                self.model.find(key.partition, &key.name(), &self.access());
                self.take_out(key);
            }
        }
        Ok(())
    }

    fn add(&mut self, key: Key, new: &New) -> Result<(), TestCaseError> {
        let item = self.item(key, new);
        let added = self.cache.add(key.id(), &key.name(), item.new_item(), &self.access());
        if self.refuses(&item) {
            self.note_fill(key.partition);
            prop_assert!(added.is_err());
            return Ok(());
        }
        let absent = self.model.find(key.partition, &key.name(), &self.access()).is_none();
        prop_assert_eq!(added, Ok(absent));
        if absent {
            self.note_fill(key.partition);
            let cas = self.cas_of(key);
            self.store(ModelItem { cas, ..item })?;
        }
        Ok(())
    }

    fn remove(&mut self, key: Key) -> Result<(), TestCaseError> {
        let found = self.model.find(key.partition, &key.name(), &self.access());
        self.take_out(key);
        prop_assert_eq!(self.cache.remove(key.id(), &key.name(), &self.access()), found.is_some());
        Ok(())
    }

    fn update(&mut self, key: Key, update: &Update) -> Result<(), TestCaseError> {
        let found = self.model.find(key.partition, &key.name(), &self.access());
        let old = found.map(|position| self.model.items[position].clone());
        let new = self.stored_by(key, update, old.as_ref());
        if new.is_some() {
            self.note_fill(key.partition);
        }
        let matches = self.cache.update(key.id(), &key.name(), &self.access(), |item| {
            let matches = match (&item, &old) {
                (Some(item), Some(old)) => old.matches(item),
                (None, None) => true,
                _ => false,
            };
            let change = match (update, &new) {
                (Update::Append(_), Some(new)) => {
                    let ModelValue::Bytes(value) = new.value.clone() else {
                        unreachable!("appended to bytes")
                    };
                    Change::StoreOwned { value, flags: new.flags, expires: new.expires, tags: new.tags }
                }
                (_, Some(new)) => Change::Store(new.new_item()),
                (Update::Touch(ttl), None) => {
                    Change::Touch(ttl.map(|ms| self.now + Duration::from_millis(ms)))
                }
                (Update::Remove, None) => Change::Remove,
                _ => Change::Keep,
            };
            (change, matches)
        });
        match (new, found, update) {
            (Some(new), _, _) if self.refuses(&new) => {
                prop_assert!(matches.is_err());
                self.take_out(key);
                return Ok(());
            }
            (Some(new), _, _) => {
                let cas = self.cas_of(key);
                self.store(ModelItem { cas, ..new })?;
            }
            (None, Some(position), Update::Touch(ttl)) => {
                let expires = ttl.map(|ms| self.now + Duration::from_millis(ms));
                self.model.refresh(position, &self.access()).expires = expires;
            }
            (None, _, Update::Remove) => self.take_out(key),
            _ => {}
        }
        prop_assert_eq!(matches, Ok(true));
        Ok(())
    }

    /// The item that an update stores, given the item it sees.
    fn stored_by(&self, key: Key, update: &Update, old: Option<&ModelItem>) -> Option<ModelItem> {
        match (update, old) {
            (Update::Store(new), _) => Some(self.item(key, new)),
            (Update::Cas(new, true), Some(_)) => Some(self.item(key, new)),
            (Update::Append(bytes), Some(old)) => {
                let ModelValue::Bytes(value) = &old.value else { return None };
                let value = [value.as_slice(), &vec![b'+'; usize::from(*bytes)]].concat();
                Some(ModelItem { value: ModelValue::Bytes(value), kind: ItemKind::Plain, ..old.clone() })
            }
            _ => None,
        }
    }

    fn plan(&mut self, weights: &[u8; PARTITIONS + 1]) {
        let plan = plan_of(self.cache.total_bytes(), weights);
        self.cache.apply(&plan).expect("shares of the total fit");
        self.model.apply(&plan);
    }

    fn resize(&mut self, eighths: u8, weights: &[u8; PARTITIONS + 1]) {
        let total_bytes = TOTAL / 8 * u64::from(eighths);
        let plan = plan_of(total_bytes, weights);
        self.cache.resize(total_bytes, &plan).expect("shares of the total fit");
        self.model.resize(total_bytes, &plan);
    }

    /// Evictions are exact. The dead items that a step finds are unspecified, but it removes
    /// nothing else.
    fn step(&mut self, items_max: usize) {
        self.cache.step(self.now, items_max);
        self.model.step(items_max, self.now);
        let left = contents(&self.cache, self.now);
        self.model.expire_where(self.now, |item| !left.contains(item));
    }

    fn idle(&mut self) -> Result<(), TestCaseError> {
        // Long enough for a pass to begin after one in flight.
        self.now += Duration::from_secs(10);
        self.model.pass_time(self.now);
        self.model.step(usize::MAX, self.now);
        for _ in 0..2 {
            let steps = (0..10_000).take_while(|_| self.cache.step(self.now, 7)).count();
            prop_assert!(steps < 10_000, "the background comes to an end");
        }
        self.model.expire_where(self.now, |_| true);
        Ok(())
    }

    fn refuses(&self, item: &ModelItem) -> bool {
        item.value.borrow().len() > ITEM_MAX as usize || self.model.refuses(item)
    }

    /// Removes a key's item from the model, visible or not.
    fn take_out(&mut self, key: Key) {
        if let Some(position) = self.model.position(key.partition, &key.name()) {
            self.model.items.remove(position);
        }
    }

    fn store(&mut self, item: ModelItem) -> Result<(), TestCaseError> {
        prop_assert!(item.cas > self.cas, "cas {} after {}", item.cas, self.cas);
        self.cas = item.cas;
        self.model.store(item, &self.access());
        Ok(())
    }

    fn miss_deadline(&mut self, key: Key) {
        let class = DeadlineClass(self.class);
        self.cache.note_deadline_missed(key.id(), class);
        let access = Access { class: Some(class), ..self.access() };
        let class = self.model.class(key.partition, &access).expect("it has one");
        self.model.note_missed(key.partition, class, STEP);
    }

    /// CAS of the item stored last under `key`; taken from the counter if the item was evicted at
    /// once or is dead already.
    fn cas_of(&self, key: Key) -> u64 {
        let last = self.cache.ticks.load(Relaxed) - 1;
        self.cache.peek(key.id(), &key.name(), &self.access(), |item| item.cas).unwrap_or(last)
    }

    fn item(&self, key: Key, new: &New) -> ModelItem {
        let value = match new.declared {
            true => ModelValue::Declared(new.bytes),
            false => ModelValue::Bytes(vec![b'0' + key.key; new.bytes as usize]),
        };
        let expires = new.ttl_ms.map(|ms| self.now + Duration::from_millis(ms));
        ModelItem {
            partition: key.partition,
            key: key.name(),
            value,
            flags: new.flags,
            expires,
            kind: if new.kind == ItemKind::Graced && expires.is_none() { ItemKind::Plain } else { new.kind },
            tags: new.tags,
            cas: 0,
            flushed: false,
        }
    }

    /// Checks that both hold the same items in the same order, with the same bytes and counts, and
    /// no more than the total or, where that was lowered, than `used_before` the operation.
    fn check(&self, number: usize, op: &Op, used_before: u64) -> Result<(), TestCaseError> {
        let engine = contents(&self.cache, self.now);
        let state = || {
            let (model, engine) = (list(&self.model.items), list(&engine));
            format!("after operation {number}, {op:?}\nmodel, oldest first:\n{model}engine:\n{engine}")
        };
        prop_assert!(engine == self.model.items, "items differ {}", state());
        for partition in 0..PARTITIONS {
            let usage = self.cache.usage(PartitionId::from_index(partition));
            prop_assert_eq!(usage, self.model.usage(partition), "partition {} {}", partition, state());
            let classes = self.cache.class_usage(PartitionId::from_index(partition));
            prop_assert_eq!(
                classes,
                self.model.class_usage(partition),
                "partition {} {}",
                partition,
                state()
            );
        }
        let total = self.cache.total();
        prop_assert_eq!(total.budget_bytes, self.cache.total_bytes());
        let may_use = total.budget_bytes.max(used_before);
        prop_assert!(total.used_bytes <= may_use, "{} bytes used {}", total.used_bytes, state());
        let idle_within = |partition| {
            let usage = self.cache.usage(PartitionId::from_index(partition));
            usage.used_bytes <= usage.budget_bytes && total.used_bytes <= total.budget_bytes
        };
        prop_assert!(!matches!(op, Op::Idle) || (0..PARTITIONS).all(idle_within), "over budget {}", state());
        Ok(())
    }
}

/// Divides the total by weights, of which the last stands for unallocated bytes; all zero for
/// `Shared`.
fn plan_of(total_bytes: u64, weights: &[u8; PARTITIONS + 1]) -> CachePlan {
    let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let share = |&weight: &u8| total_bytes * u64::from(weight) / sum;
    match sum {
        0 => CachePlan::Shared,
        _ => budgets(&weights[..PARTITIONS].iter().map(share).collect::<Vec<_>>()),
    }
}

impl Key {
    fn id(self) -> PartitionId {
        PartitionId::from_index(self.partition)
    }

    /// Returns the bytes of a key; keys differ in length, and one is empty.
    fn name(self) -> Vec<u8> {
        vec![b'a' + self.key; usize::from(self.key) * 3]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn cache_agrees_with_a_naive_model_for_random_operations(
        ops in prop::collection::vec(op(), 1..160), shards in 0..5u32, classes in 1..4u8,
    ) {
        let mut pair = Pair::new(1 << shards, classes);
        for (number, op) in ops.iter().enumerate() {
            let used_before = pair.cache.used_bytes();
            pair.apply(op)?;
            pair.check(number, op, used_before)?;
        }
    }
}
