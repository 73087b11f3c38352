//! A model of the engine: a list of items in the order of their last use, and a naive
//! implementation of the rules in the crate's documentation. After every operation engine and model
//! must hold the same items, bytes and counts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use sherwood_model::{CachePlan, Instant, PartitionId, Tags};

use crate::deadlines::FLOOR;
use crate::eviction::CEILING_PACE;
use crate::{Access, AccessFlags, Cache, ClassUsage, Item, ItemKind, NewItem, Usage, Value, charge};

/// Expected state of the engine.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Items from the least to the most recently used.
    pub(super) items: Vec<ModelItem>,
    pub(super) usages: Vec<Usage>,
    total_bytes: u64,
    /// Time for which stale items are kept after their expiry, in every partition.
    grace: Duration,
    /// Budget of each partition; none under `Shared`.
    budgets: Option<Vec<u64>>,
    /// Pending flush of each partition.
    flushes: Vec<Option<Instant>>,
    /// Deadline classes of each partition.
    pub(super) classes: Vec<Vec<ModelClass>>,
    /// Class and last use of each item, by partition and key.
    pub(super) places: BTreeMap<(usize, Vec<u8>), Place>,
    /// The engine's count of uses and stores.
    pub(super) clock: u64,
}

/// Expected state of a deadline class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ModelClass {
    pub(super) multiplier: f64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) deadline_missed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) class: usize,
    used_at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelItem {
    pub(super) partition: usize,
    pub(super) key: Vec<u8>,
    pub(super) value: ModelValue,
    pub(super) flags: u32,
    pub(super) expires: Option<Instant>,
    pub(super) kind: ItemKind,
    pub(super) tags: Tags,
    /// CAS of the item as returned by the engine.
    pub(super) cas: u64,
    /// True if a flush has invalidated the item.
    pub(super) flushed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ModelValue {
    Bytes(Vec<u8>),
    Declared(u32),
}

impl ModelValue {
    pub(super) fn borrow(&self) -> Value<'_> {
        match self {
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Declared(bytes) => Value::Declared(*bytes),
        }
    }
}

impl From<Value<'_>> for ModelValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Value::Declared(bytes) => Self::Declared(bytes),
        }
    }
}

impl ModelItem {
    pub(super) fn charge(&self) -> u64 {
        charge(self.key.len(), self.value.borrow().len() + if self.tags.is_empty() { 0 } else { 8 })
    }

    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    pub(super) fn is_dead(&self, now: Instant, grace: Duration) -> bool {
        let is_kept =
            self.kind == ItemKind::Graced && self.expires.is_some_and(|expires| now < expires + grace);
        self.flushed || (self.is_stale(now) && !is_kept)
    }

    /// True if an access with these flags sees the item.
    pub(super) fn is_seen(&self, access: &Access, grace: Duration) -> bool {
        let sees = |flag: AccessFlags| access.flags.with(flag) == access.flags;
        !self.is_dead(access.now, grace)
            && (!self.is_stale(access.now) || sees(AccessFlags::SEE_STALE))
            && (self.kind != ItemKind::Absent || sees(AccessFlags::SEE_ABSENT))
            && (self.kind != ItemKind::Placeholder || sees(AccessFlags::SEE_PLACEHOLDERS))
    }

    pub(super) fn matches(&self, item: &Item<'_>) -> bool {
        self.value.borrow() == item.value
            && (self.flags, self.cas, self.expires) == (item.flags, item.cas, item.expires)
            && (self.kind, self.tags) == (item.kind, item.tags)
    }

    pub(super) fn new_item(&self) -> NewItem<'_> {
        let Self { flags, expires, kind, tags, .. } = *self;
        NewItem { value: self.value.borrow(), flags, expires, kind, tags, received: None }
    }
}

impl Model {
    pub(super) fn new(cache: &Cache) -> Self {
        let CachePlan::Budgets(budgets) = cache.plan() else { unreachable!("a cache starts with budgets") };
        Self {
            items: Vec::new(),
            usages: vec![Usage::default(); budgets.len()],
            total_bytes: cache.total_bytes(),
            grace: cache.partitions()[0].grace,
            flushes: vec![None; budgets.len()],
            budgets: Some(budgets),
            classes: cache
                .partitions()
                .iter()
                .map(|partition| {
                    let start = ModelClass { multiplier: 1.0, hits: 0, misses: 0, deadline_missed: 0 };
                    vec![start; usize::from(partition.deadlines.classes.count())]
                })
                .collect(),
            places: BTreeMap::new(),
            clock: 0,
        }
    }

    /// The class of an access to a partition, if it has one.
    pub(super) fn class(&self, partition: usize, access: &Access) -> Option<usize> {
        access.class.map(|class| usize::from(class.0).min(self.classes[partition].len() - 1))
    }

    /// Counts a `get` of an item of this class, or of none, for the class of the access.
    pub(super) fn count_get(&mut self, partition: usize, access: &Access, seen: Option<(usize, bool)>) {
        let is_hit = seen.is_some_and(|(_, is_stale)| !is_stale);
        let class = self.class(partition, access).or(seen.map(|(class, _)| class));
        let classes = &mut self.classes[partition];
        let last = classes.len() - 1;
        let class = &mut classes[class.unwrap_or(last)];
        let usage = &mut self.usages[partition];
        let (of_class, of_partition) = match is_hit {
            true => (&mut class.hits, &mut usage.hits),
            false => (&mut class.misses, &mut usage.misses),
        };
        *of_class += 1;
        *of_partition += 1;
    }

    /// Learns from a store whose deadline was missed: its class's multiplier grows by `step`, then
    /// all shrink to their sum, but not below the floor.
    pub(super) fn note_missed(&mut self, partition: usize, class: usize, step: f64) {
        let classes = &mut self.classes[partition];
        if classes.len() == 1 {
            return;
        }
        classes[class].deadline_missed += 1;
        classes[class].multiplier += step;
        let count = classes.len() as f64;
        let sum: f64 = classes.iter().map(|class| class.multiplier).sum();
        for class in classes.iter_mut() {
            class.multiplier *= count / sum;
        }
        if classes.iter().any(|class| class.multiplier < FLOOR) {
            let above: Vec<f64> = classes.iter().map(|class| (class.multiplier - FLOOR).max(0.0)).collect();
            let scale = count * (1.0 - FLOOR) / above.iter().sum::<f64>();
            for (class, above) in classes.iter_mut().zip(above) {
                class.multiplier = FLOOR + above * scale;
            }
        }
    }

    /// Position of a key's item that the access sees; a dead item is removed, as by an operation on
    /// its key.
    pub(super) fn find(&mut self, partition: usize, key: &[u8], access: &Access) -> Option<usize> {
        let position = self.position(partition, key)?;
        if self.items[position].is_dead(access.now, self.grace) {
            self.expire(position);
            return None;
        }
        self.items[position].is_seen(access, self.grace).then_some(position)
    }

    /// A key's item that the access sees, without side effects.
    pub(super) fn peek(&self, partition: usize, key: &[u8], access: &Access) -> Option<&ModelItem> {
        let item = &self.items[self.position(partition, key)?];
        item.is_seen(access, self.grace).then_some(item)
    }

    /// Position of the item of a key, dead or alive.
    pub(super) fn position(&self, partition: usize, key: &[u8]) -> Option<usize> {
        self.items.iter().position(|item| item.partition == partition && item.key == key)
    }

    /// Makes the item at a position the most recent, in the class of the access if it has one.
    pub(super) fn refresh(&mut self, position: usize, access: &Access) -> &mut ModelItem {
        let item = self.items.remove(position);
        let class = self.class(item.partition, access);
        let place = self.places.get_mut(&(item.partition, item.key.clone())).expect("it has a place");
        *place = Place { class: class.unwrap_or(place.class), used_at: self.clock };
        self.items.push(item);
        self.items.last_mut().expect("just pushed")
    }

    /// True if a store would be refused for its charge.
    pub(super) fn refuses(&self, item: &ModelItem) -> bool {
        let budget = self.budgets.as_ref().map_or(self.total_bytes, |budgets| budgets[item.partition]);
        item.charge() > budget
    }

    /// Stores, then evicts: steps 1 to 4 of the documentation. The item must not be one that is
    /// refused.
    pub(super) fn store(&mut self, item: ModelItem, access: &Access) {
        let (now, last) = (access.now, self.classes[item.partition].len() - 1);
        let mut old_class = None;
        if let Some(old) = self.position(item.partition, &item.key) {
            old_class = Some(self.places[&(item.partition, item.key.clone())].class);
            match self.items[old].is_dead(now, self.grace) {
                true => self.expire(old),
                false => drop(self.items.remove(old)),
            }
        }
        let class = self.class(item.partition, access).or(old_class).unwrap_or(last);
        self.places.insert((item.partition, item.key.clone()), Place { class, used_at: item.cas });
        self.clock = item.cas + 1;
        let (partition, charge) = (item.partition, item.charge());
        self.usages[partition].stores += 1;
        self.items.push(item);
        let mut freed = 0;
        while freed < 2 * charge && self.excess(partition) > 0 {
            let oldest = self.oldest(|item| item.partition == partition);
            freed += self.evict(oldest.expect("an item is over the budget"), now);
        }
        let mut freed = 0;
        while freed < CEILING_PACE * charge && self.used() > self.total_bytes {
            let victim = self.victim().expect("items exceed the total");
            freed += self.evict(victim, now);
        }
    }

    /// Evicts as `Cache::step` does.
    pub(super) fn step(&mut self, items_max: usize, now: Instant) {
        for _ in 0..items_max {
            let over = self.used() > self.total_bytes
                || (0..self.usages.len()).any(|partition| self.excess(partition) > 0);
            match self.victim() {
                Some(victim) if over => self.evict(victim, now),
                _ => return,
            };
        }
    }

    pub(super) fn resize(&mut self, total_bytes: u64, plan: &CachePlan) {
        self.total_bytes = total_bytes;
        self.apply(plan);
    }

    pub(super) fn apply(&mut self, plan: &CachePlan) {
        self.budgets = match plan {
            CachePlan::Budgets(budgets) => Some(budgets.clone()),
            CachePlan::Shared => None,
        };
    }

    pub(super) fn flush(&mut self, partition: Option<usize>, at: Instant, now: Instant) {
        for index in 0..self.flushes.len() {
            if partition.is_none_or(|partition| partition == index) {
                self.flushes[index] = Some(at);
            }
        }
        self.pass_time(now);
    }

    /// Applies flushes that are due.
    pub(super) fn pass_time(&mut self, now: Instant) {
        for (index, flush) in self.flushes.iter_mut().enumerate() {
            if flush.take_if(|at| *at <= now).is_some() {
                self.items
                    .iter_mut()
                    .filter(|item| item.partition == index)
                    .for_each(|item| item.flushed = true);
            }
        }
    }

    /// Removes the dead items for which `gone` holds.
    pub(super) fn expire_where(&mut self, now: Instant, gone: impl Fn(&ModelItem) -> bool) {
        let grace = self.grace;
        let is_gone = |item: &ModelItem| item.is_dead(now, grace) && gone(item);
        while let Some(position) = self.items.iter().position(is_gone) {
            self.expire(position);
        }
    }

    /// Expected usage of a partition.
    pub(super) fn usage(&self, partition: usize) -> Usage {
        let budget_bytes = self.budgets.as_ref().map_or(self.total_bytes, |budgets| budgets[partition]);
        let own = self.items.iter().filter(|item| item.partition == partition);
        let items = own.clone().count() as u64;
        Usage { budget_bytes, items, used_bytes: own.map(ModelItem::charge).sum(), ..self.usages[partition] }
    }

    /// Expected usage of a partition's classes.
    pub(super) fn class_usage(&self, partition: usize) -> Vec<ClassUsage> {
        let of_class = |(number, class): (usize, &ModelClass)| {
            let &ModelClass { multiplier, hits, misses, deadline_missed } = class;
            let is_in = |item: &&ModelItem| {
                let place = &self.places[&(item.partition, item.key.clone())];
                item.partition == partition && place.class == number
            };
            let own = self.items.iter().filter(is_in);
            ClassUsage {
                upto: (self.classes[partition].len() > 1)
                    .then(|| Duration::from_millis(10 * (number as u64 + 1))),
                multiplier,
                items: own.clone().count() as u64,
                bytes: own.map(ModelItem::charge).sum(),
                hits,
                misses,
                deadline_missed,
            }
        };
        self.classes[partition].iter().enumerate().map(of_class).collect()
    }

    fn used(&self) -> u64 {
        self.items.iter().map(ModelItem::charge).sum()
    }

    fn excess(&self, partition: usize) -> i64 {
        let budget = self.budgets.as_ref().map_or(i64::MAX, |budgets| budgets[partition] as i64);
        self.usage(partition).used_bytes as i64 - budget
    }

    /// Position of the next victim when the total is exceeded.
    fn victim(&self) -> Option<usize> {
        if self.budgets.is_none() {
            return self.oldest(|_| true);
        }
        let held = |&partition: &usize| self.items.iter().any(|item| item.partition == partition);
        let excesses =
            (0..self.usages.len()).filter(held).map(|partition| (self.excess(partition), partition));
        let (_, most) = excesses.max_by_key(|&(excess, partition)| (excess, std::cmp::Reverse(partition)))?;
        self.oldest(|item| item.partition == most)
    }

    /// Position of the item, among those that `is_in` selects, with the largest age in relation to
    /// the multiplier of its class; the first of equals.
    fn oldest(&self, is_in: impl Fn(&ModelItem) -> bool) -> Option<usize> {
        let age = |position: usize| {
            let item = &self.items[position];
            let Place { class, used_at } = self.places[&(item.partition, item.key.clone())];
            (self.clock - 1 - used_at) as f64 / self.classes[item.partition][class].multiplier
        };
        let positions = (0..self.items.len()).rev().filter(|&position| is_in(&self.items[position]));
        positions.max_by(|&a, &b| age(a).total_cmp(&age(b)))
    }

    fn evict(&mut self, position: usize, now: Instant) -> u64 {
        let item = self.items.remove(position);
        let usage = &mut self.usages[item.partition];
        if item.is_dead(now, self.grace) {
            usage.expired += 1
        } else {
            usage.evictions += 1
        }
        item.charge()
    }

    fn expire(&mut self, position: usize) {
        let item = self.items.remove(position);
        self.usages[item.partition].expired += 1;
    }
}

/// The items of a cache from the least to the most recently used, including dead ones. Also checks
/// the consistency of all its structures.
pub(super) fn contents(cache: &Cache, now: Instant) -> Vec<ModelItem> {
    let mut items = Vec::new();
    for shard in &cache.shards {
        shard.check(&cache.ledger);
        let shard = shard.lock(&cache.ledger);
        for record in shard.handles().into_iter().map(|at| shard.record(at)) {
            let Item { value, flags, expires, kind, tags, cas, .. } = record.item();
            let partition = record.partition().index();
            let flushed = cas < cache.flushes.floor(PartitionId::from_index(partition), now, &cache.ticks);
            let item = ModelItem {
                partition,
                key: record.key().to_vec(),
                value: value.into(),
                flags,
                expires,
                kind,
                tags,
                cas,
                flushed,
            };
            items.push((record.stamp(), item));
        }
    }
    items.sort_by_key(|(stamp, _)| *stamp);
    items.into_iter().map(|(_, item)| item).collect()
}

/// Lists the items, one a line, for the report of a failure.
pub(super) fn list(items: &[ModelItem]) -> String {
    items.iter().fold(String::new(), |mut lines, item| {
        let key = String::from_utf8_lossy(&item.key);
        let form = if matches!(item.value, ModelValue::Bytes(_)) { "stored" } else { "declared" };
        let ModelItem { partition, flags, expires, kind, cas, flushed, .. } = item;
        let expires = expires.map(|at| at.as_nanos() / 1_000_000);
        let bytes = item.value.borrow().len();
        let charge = item.charge();
        let _ = writeln!(
            lines,
            "  partition {partition} key {key:?}: {bytes} bytes {form}, charge {charge}, flags {flags}, \
             cas {cas}, expires (ms) {expires:?}, {kind:?}, flushed {flushed}"
        );
        lines
    })
}
