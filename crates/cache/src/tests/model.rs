//! A model of the engine: a list of items in the order of their last use, and a naive
//! implementation of the rules in the crate's documentation. After every operation engine and model
//! must hold the same items, bytes and counts.

use std::fmt::Write;
use std::time::Duration;

use sherwood_model::{CachePlan, Instant, PartitionId, Tags};

use crate::{Access, AccessFlags, Cache, Item, ItemKind, NewItem, Usage, Value, charge};

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
            total_bytes: cache.options().total_bytes,
            grace: cache.partitions()[0].grace,
            flushes: vec![None; budgets.len()],
            budgets: Some(budgets),
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

    /// Makes the item at a position the most recent.
    pub(super) fn refresh(&mut self, position: usize) -> &mut ModelItem {
        let item = self.items.remove(position);
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
    pub(super) fn store(&mut self, item: ModelItem, now: Instant) {
        if let Some(old) = self.position(item.partition, &item.key) {
            self.items.remove(old);
        }
        let (partition, charge) = (item.partition, item.charge());
        self.usages[partition].stores += 1;
        self.items.push(item);
        let mut freed = 0;
        while freed < 2 * charge && self.excess(partition) > 0 {
            let oldest = self.items.iter().position(|item| item.partition == partition);
            freed += self.evict(oldest.expect("an item is over the budget"), now);
        }
        while self.used() > self.total_bytes {
            let victim = self.victim().expect("items exceed the total");
            self.evict(victim, now);
        }
    }

    /// Evicts as `Cache::step` does.
    pub(super) fn step(&mut self, items_max: usize, now: Instant) {
        for _ in 0..items_max {
            let over = (0..self.usages.len()).any(|partition| self.excess(partition) > 0);
            match self.victim() {
                Some(victim) if over => self.evict(victim, now),
                _ => return,
            };
        }
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
            return (!self.items.is_empty()).then_some(0);
        }
        let held = |&partition: &usize| self.items.iter().any(|item| item.partition == partition);
        let excesses =
            (0..self.usages.len()).filter(held).map(|partition| (self.excess(partition), partition));
        let (_, most) = excesses.max_by_key(|&(excess, partition)| (excess, std::cmp::Reverse(partition)))?;
        self.items.iter().position(|item| item.partition == most)
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
