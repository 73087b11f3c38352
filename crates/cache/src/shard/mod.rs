//! A shard: a part of the cache under one lock, which allows concurrent readers.
//!
//! A shard holds the items of every partition whose hashes it owns: records in pages, an index of
//! their handles, and a set of queues per (partition, deadline class). It has no access to other
//! shards. Under strict LRU it publishes the stamp of the oldest item of each queue set in atomics
//! outside the lock, so that the oldest item of the whole cache is found without a lock.

mod ahead;
mod balance;
#[cfg(test)]
mod check;
mod ghost;
mod index;
mod pages;
mod queue;
mod record;
mod reshape;
mod s3fifo;
mod sizes;
mod slot;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sherwood_model::{Instant, PartitionId, SeededState};

pub(crate) use self::balance::Balances;
pub(crate) use self::index::Range;
pub(crate) use self::pages::{Cursor, Handle, NO_HANDLE, Slack};
pub(crate) use self::record::{Annotations, NewRecord, Record, Visibility};
pub(crate) use self::s3fifo::Evicted;
pub(crate) use self::sizes::{HEADER_BYTES, SLOT_BYTES_MAX, slot_bytes};

use self::balance::Counts;
use self::ghost::Ghost;
use self::index::Index;
use self::pages::Pages;
use self::queue::Queue;
use self::record::{Field, RecordState, edit};
use crate::deadlines::Deadlines;
use crate::in_place::Run;
use crate::item::{NewItem, Value};
use crate::ledger::Ledger;
use crate::lock::{Reading, Striped, Writing};
use crate::memory::Supply;
use crate::options::Eviction;
use crate::usage::{ClassUsage, Count, Counters, Gets, Outcomes, Usage};

/// A part of the cache with its own lock, aligned to cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Shard {
    store: Striped<Store, Gets>,
    published: Published,
}

/// Data that is read without the lock and written only by its holder.
#[derive(Debug)]
struct Published {
    /// Stamp of the oldest item of each queue set, in their order; only under strict LRU.
    oldest: Box<[AtomicU64]>,
    /// Counters by partition.
    counters: Box<[Counters]>,
    /// Items by queue set; empty if each partition has one.
    set_items: Box<[Count]>,
    /// Queue sets per partition.
    classes: usize,
}

#[derive(Debug)]
struct Store {
    eviction: Eviction,
    hash: SeededState,
    supply: Arc<Supply>,
    pages: Pages,
    runs: Runs,
    index: Index,
    /// Queue sets by partition, then by deadline class.
    sets: Box<[QueueSet]>,
    ghost: Ghost,
    balances: Arc<Balances>,
    deadlines: Arc<Deadlines>,
    /// Turn counts (complete passes of items) of the small and the main queue that gave the last
    /// victim among several queue sets.
    turned: [u64; 2],
    items: usize,
}

/// The queues of a partition's deadline class. Under strict LRU all items are in `small`.
#[derive(Clone, Debug)]
struct QueueSet {
    small: Queue,
    main: Queue,
    /// Turn counts (complete passes of items) of the small and the main queue, compared when the
    /// victim is selected among several queue sets.
    turns: [u64; 2],
    /// Numbers of dropped and returned keys not yet reported to the partition's [`Balances`].
    counts: Counts,
}

/// Blocks of the items too large for a slot, by their numbers.
#[derive(Debug, Default)]
struct Runs {
    blocks: Vec<Option<Run>>,
    vacant: Vec<u32>,
}

/// Parameters of a shard.
#[derive(Clone, Debug)]
pub(crate) struct ShardOptions {
    pub(crate) partitions: usize,
    /// True if the sizes of hits are counted.
    pub(crate) metered: bool,
    pub(crate) eviction: Eviction,
    pub(crate) hash: SeededState,
    /// Number of stripes (parts that readers lock singly) of the shard's lock.
    pub(crate) stripes: usize,
    /// Expected bytes of the shard's items.
    pub(crate) bytes: u64,
    pub(crate) supply: Arc<Supply>,
    /// The small queues' shares of the bytes, common to all shards.
    pub(crate) balances: Arc<Balances>,
    /// The multipliers of deadline classes, common to all shards.
    pub(crate) deadlines: Arc<Deadlines>,
}

/// A key with its partition and its hash, computed once per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup<'a> {
    pub(crate) partition: PartitionId,
    pub(crate) key: &'a [u8],
    pub(crate) hash: u64,
}

impl<'a> Lookup<'a> {
    #[inline]
    pub(crate) fn new(hash: &SeededState, partition: PartitionId, key: &'a [u8]) -> Self {
        // Equal keys of different partitions must not have equal hashes; since the seed is secret,
        // a constant difference is enough.
        let apart = (u64::from(partition.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { partition, key, hash: hash.hash_bytes(key) ^ apart }
    }
}

/// Reason for removing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Removed or replaced by an operation.
    Removed,
    /// Evicted to free space.
    Evicted,
    /// Removed because it was dead (expired or flushed).
    Expired,
}

/// Remainder of a removed item: its charge, and a block to be released after the lock.
#[derive(Debug)]
#[must_use]
pub(crate) struct Removed {
    pub(crate) partition: PartitionId,
    pub(crate) charge: u64,
    run: Option<Run>,
}

/// Published stamp of an empty queue set.
pub(crate) const EMPTY: u64 = u64::MAX;

/// Bytes of items per index segment: 1,600 items of 100 bytes, which are rearranged in
/// microseconds, or 240 of 1 KiB, for which a segment's own size is one byte each. Half of it would
/// reduce false matches of tags, but segments of a cache that is not full yet would take one or two
/// more bytes per item.
const SEGMENT_SHARE: u64 = 256 << 10;

/// Largest number of segments, to limit the size of an empty cache: enough for 1 GiB. Shards are
/// larger only in caches above a TiB, or when fewer shards are configured.
const SEGMENTS_MAX: u64 = 4096;

impl Shard {
    pub(crate) fn new(plan: &ShardOptions) -> Self {
        let classes = plan.deadlines.stride();
        let sets = plan.partitions * classes;
        let sets_counted = if classes > 1 { sets } else { 0 };
        let sizes_counted = if plan.metered { plan.partitions } else { 0 };
        let segments = (plan.bytes / SEGMENT_SHARE).clamp(1, SEGMENTS_MAX).next_power_of_two();
        let stamps = if plan.eviction == Eviction::Lru { sets } else { 0 };
        Self {
            store: Striped::new(
                plan.stripes,
                Store {
                    eviction: plan.eviction,
                    hash: plan.hash,
                    supply: Arc::clone(&plan.supply),
                    pages: Pages::new(Arc::clone(&plan.supply)),
                    runs: Runs::default(),
                    index: Index::new(segments as usize, Arc::clone(&plan.supply)),
                    sets: vec![QueueSet::new(); sets].into(),
                    ghost: Ghost::new(Arc::clone(&plan.supply)),
                    balances: Arc::clone(&plan.balances),
                    deadlines: Arc::clone(&plan.deadlines),
                    turned: [0; 2],
                    items: 0,
                },
                || Gets::new(plan.partitions, sets_counted + sizes_counted),
            ),
            published: Published {
                oldest: (0..stamps).map(|_| AtomicU64::new(EMPTY)).collect(),
                counters: (0..plan.partitions).map(|_| Counters::default()).collect(),
                set_items: (0..sets_counted).map(|_| Count::default()).collect(),
                classes,
            },
        }
    }

    /// Returns a copy of the shard, for a copy of the cache. `balances` is set when the first shard
    /// is copied and shared by the others.
    pub(crate) fn copy(
        &mut self,
        supply: &Arc<Supply>,
        balances: &mut Option<Arc<Balances>>,
        deadlines: &Arc<Deadlines>,
    ) -> Self {
        let Self { store, published: Published { oldest, counters, set_items, classes } } = self;
        let (store, gets) = store.get_mut();
        let gets: Vec<Gets> = gets.map(|gets| gets.copy()).collect();
        let Store {
            eviction,
            hash,
            supply: _,
            pages,
            runs,
            index,
            sets,
            ghost,
            balances: of,
            deadlines: _,
            turned,
            items,
        } = store;
        let store = Store {
            eviction: *eviction,
            hash: *hash,
            supply: Arc::clone(supply),
            pages: pages.copy(supply),
            runs: runs.copy(supply),
            index: index.copy(supply),
            sets: sets.clone(),
            ghost: ghost.copy(supply),
            balances: Arc::clone(balances.get_or_insert_with(|| Arc::new(of.copy()))),
            deadlines: Arc::clone(deadlines),
            turned: *turned,
            items: *items,
        };
        Self {
            store: Striped::with_own(store, gets.into_iter()),
            published: Published {
                oldest: oldest.iter_mut().map(|stamp| AtomicU64::new(*stamp.get_mut())).collect(),
                counters: counters.iter().map(Counters::copy).collect(),
                set_items: set_items.iter().map(Count::copy).collect(),
                classes: *classes,
            },
        }
    }

    /// Stamps of the oldest items of all queue sets, [`EMPTY`] for an empty one. Only under strict
    /// LRU.
    pub(crate) fn oldest(&self) -> &[AtomicU64] {
        &self.published.oldest
    }

    pub(crate) fn counters(&self, partition: PartitionId) -> &Counters {
        &self.published.counters[partition.index()]
    }

    /// Adds this shard's part of a partition's counters to `usage`.
    pub(crate) fn add_to(&self, partition: PartitionId, usage: &mut Usage) {
        self.counters(partition).add_to(usage);
        for gets in self.store.of_stripes() {
            let Outcomes { hits, misses } = gets.of(partition);
            usage.hits += hits.get();
            usage.misses += misses.get();
        }
    }

    /// Adds this shard's sums of the sizes of hits, which are counted at `place`, to `usage`.
    pub(crate) fn add_sizes_to(&self, place: usize, usage: &mut Usage) {
        for gets in self.store.of_stripes() {
            let (bytes, units) = gets.sizes(place);
            usage.hit_bytes += bytes;
            usage.hit_units += units;
        }
    }

    /// Adds this shard's part of a queue set's usage to `usage`; only if partitions have several.
    /// Locks the shard for reading.
    pub(crate) fn add_class_to(&self, set: usize, usage: &mut ClassUsage) {
        usage.items += self.published.set_items[set].get();
        for gets in self.store.of_stripes() {
            let Outcomes { hits, misses } = gets.of_set(set);
            usage.hits += hits.get();
            usage.misses += misses.get();
        }
        let QueueSet { small, main, .. } = &self.read().store.sets[set];
        usage.bytes += small.bytes + main.bytes;
    }

    /// Locks the shard for reading.
    #[inline]
    pub(crate) fn read(&self) -> Read<'_> {
        Read { store: self.store.read() }
    }

    /// Locks exclusively. A poisoned state is ignored: a caller's closure panics, if at all, before
    /// anything is changed.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, ledger: &'a Ledger) -> Locked<'a> {
        Locked { store: self.store.write(), published: &self.published, ledger }
    }
}

/// A shard locked for reading.
#[derive(Debug)]
pub(crate) struct Read<'a> {
    store: Reading<'a, Store, Gets>,
}

impl Read<'_> {
    /// The record of a key, dead or alive.
    #[inline]
    pub(crate) fn find(&self, lookup: &Lookup<'_>) -> Option<Record<'_>> {
        self.store.find(lookup).map(|(_, record)| record)
    }

    /// Counters for a `get`.
    #[inline]
    pub(crate) fn gets(&self) -> &Gets {
        self.store.own()
    }
}

/// An exclusively locked shard. Every change keeps index, queues, published stamps, counters and
/// ledger consistent.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    store: Writing<'a, Store, Gets>,
    published: &'a Published,
    ledger: &'a Ledger,
}

impl Locked<'_> {
    /// The record of a key, dead or alive.
    #[inline]
    pub(crate) fn find(&self, lookup: &Lookup<'_>) -> Option<Handle> {
        self.store.find(lookup).map(|(at, _)| at)
    }

    #[inline(always)]
    pub(crate) fn record(&self, at: Handle) -> Record<'_> {
        self.store.record(at)
    }

    /// Counters for a `get`; all stripes are held, so those of any stripe can be used.
    pub(crate) fn gets(&self) -> &Gets {
        self.store.own()
    }

    /// Counts a dead item that is overwritten.
    pub(crate) fn count_expired(&self, partition: PartitionId) {
        self.published.counters[partition.index()].expired.increment();
    }

    /// Prefetches the bucket of dropped keys that an insertion of the key will read.
    #[inline]
    pub(crate) fn expect_insertion(&self, lookup: &Lookup<'_>) {
        self.store.ghost.prefetch(lookup.hash);
    }

    /// The oldest item of a queue set under strict LRU.
    pub(crate) fn oldest(&self, set: usize) -> Option<Handle> {
        self.store.sets[set].small.oldest()
    }

    /// Visits at most `slots_max` slots and calls `see` with the records in them; see
    /// [`Pages::walk`].
    pub(crate) fn walk(
        &self,
        from: Cursor,
        slots_max: usize,
        see: impl FnMut(Handle),
    ) -> (usize, Option<Cursor>) {
        self.store.pages.walk(from, slots_max, see)
    }

    /// Visits at most `entries_max` entries in the order of hashes, which moving an item does not
    /// change, and calls `see` with the records; see [`Index::walk`].
    pub(crate) fn walk_by_hash(
        &self,
        from: Range,
        entries_max: usize,
        see: impl FnMut(Handle),
    ) -> (usize, Option<Range>) {
        let store = &*self.store;
        // Records are scattered, so all are prefetched before the first is read.
        store.index.walk(from, entries_max, |at| store.pages.prefetch(at));
        store.index.walk(from, entries_max, see)
    }

    /// Number of distinct ranges of hashes.
    pub(crate) fn ranges(&self) -> Range {
        self.store.index.ranges()
    }

    /// Inserts an item whose key is not present, after [`Self::evict_for`] has evicted `evicted`.
    pub(crate) fn insert(
        &mut self,
        lookup: &Lookup<'_>,
        new: &mut NewRecord<'_>,
        class: u8,
        tick: u64,
        evicted: &Evicted,
    ) {
        let (partition, charge) = (lookup.partition, new.charge());
        self.ledger.exchange(partition, evicted.own, charge);
        let set = self.published.set(partition, class);
        let is_main = self.store.eviction == Eviction::S3Fifo && self.recall(lookup, set);
        let store = &mut *self.store;
        let state = RecordState { is_main, ..RecordState::new(partition, class, tick) };
        let at = evicted.slot.unwrap_or_else(|| store.pages.allocate(new.slot_bytes()));
        let run = new.take_run().map(|run| store.runs.put(run));
        new.write(store.pages.bytes_mut(at), &state, run);
        store.index.insert(lookup.hash, at);
        let queue = store.sets[set].queue(is_main);
        let was_empty = queue.oldest().is_none();
        queue.push(&mut store.pages, at, charge);
        store.items += 1;
        if was_empty {
            self.published.publish(set, store);
        }
        self.published.count_item(set);
        let counters = &self.published.counters[partition.index()];
        counters.items.increment();
        counters.stores.increment();
    }

    /// True if a key inserted into a queue set goes to the main queue, because it was dropped from
    /// the small queue recently.
    fn recall(&mut self, lookup: &Lookup<'_>, set: usize) -> bool {
        let Some(was_main) = self.store.ghost.recall(lookup.hash) else { return false };
        self.count(set, lookup.partition, |counts| counts.return_to_cache(was_main));
        !was_main
    }

    /// Counts a drop or a return for the balance of a partition's queues.
    fn count(&mut self, set: usize, partition: PartitionId, count: impl FnOnce(&mut Counts)) {
        let counts = &mut self.store.sets[set].counts;
        count(counts);
        if counts.is_full() {
            let counts = std::mem::take(counts);
            let items = self.published.counters[partition.index()].items.get();
            self.store.balances.learn(partition, counts, items);
        }
    }

    /// Replaces an item's value, which counts as a use. Returns the remainder of the old value.
    pub(crate) fn overwrite(
        &mut self,
        at: Handle,
        lookup: &Lookup<'_>,
        new: &mut NewRecord<'_>,
        class: Option<u8>,
        tick: u64,
    ) -> Removed {
        let (partition, charge) = (lookup.partition, new.charge());
        let store = &mut *self.store;
        let old = store.record(at);
        let (old_charge, run, mut state) = (old.charge(), old.run_at(), old.state());
        state.cas = tick;
        self.ledger.exchange(partition, old_charge, charge);
        let run = run.map(|at| store.runs.take(at.number));
        let set = self.published.set(partition, state.class);
        let to = match sizes::slot_bytes(new.slot_bytes()) == store.pages.slot_bytes(at) {
            true => at,
            false => store.pages.allocate(new.slot_bytes()),
        };
        let new_run = new.take_run().map(|run| store.runs.put(run));
        new.write(store.pages.bytes_mut(to), &state, new_run);
        let queue = store.sets[set].queue(state.is_main);
        queue.bytes = queue.bytes - old_charge + charge;
        if to != at {
            queue.relocate(&mut store.pages, to);
            store.index.rename(lookup.hash, at, to);
            store.pages.free(at);
        }
        self.note_use(to, class, tick);
        self.published.counters[partition.index()].stores.increment();
        Removed { partition, charge: old_charge, run }
    }

    /// Records a use of an item at `tick` with `class`, or in the class it has. Under strict LRU
    /// the item becomes the newest of its queue; under S3-FIFO its count of uses is raised, up to
    /// its maximum.
    #[inline]
    pub(crate) fn note_use(&mut self, at: Handle, class: Option<u8>, tick: u64) {
        let store = &mut *self.store;
        let record = store.record(at);
        let class = class.unwrap_or(record.class());
        if store.eviction == Eviction::S3Fifo && record.class() == class {
            let uses = record.uses();
            if uses < s3fifo::USES_MAX {
                edit::set_uses(store.pages.bytes_mut(at), uses + 1);
            }
            return;
        }
        self.move_to(at, class, tick);
    }

    /// Makes an item the newest in the queue set of `class`.
    fn move_to(&mut self, at: Handle, class: u8, tick: u64) {
        let store = &mut *self.store;
        let record = store.record(at);
        let is_main = record.is_main();
        let from = self.published.set(record.partition(), record.class());
        let to = self.published.set(record.partition(), class);
        if from != to {
            let charge = record.charge();
            store.sets[from].queue(is_main).remove(&mut store.pages, at, charge);
            edit::set_class(store.pages.bytes_mut(at), class);
            store.sets[to].queue(is_main).push(&mut store.pages, at, charge);
            self.stamp(at, tick);
            self.published.uncount_item(from);
            self.published.count_item(to);
            self.published.publish(from, &self.store);
            self.published.publish(to, &self.store);
            return;
        }
        let (newer, older) = (record.newer(), record.older());
        let queue = store.sets[to].queue(is_main);
        queue.renew(&mut store.pages, at, (newer, older));
        self.stamp(at, tick);
        if older == NO_HANDLE {
            self.published.publish(to, &self.store);
        }
    }

    /// Records the time of an item's use, which only strict LRU keeps.
    #[inline]
    fn stamp(&mut self, at: Handle, tick: u64) {
        if self.store.eviction == Eviction::Lru {
            edit::set_stamp(self.store.pages.bytes_mut(at), tick);
        }
    }

    /// Records that a `get` with `class`, if any, found an item at `tick`.
    #[inline]
    pub(crate) fn note_get(&mut self, at: Handle, class: Option<u8>, tick: u64) {
        edit::set_found(self.store.pages.bytes_mut(at));
        self.note_use(at, class, tick);
    }

    /// Sets the marks of an item and, if given, its CAS, which may move it. A declared value gets
    /// neither.
    pub(crate) fn annotate(&mut self, at: Handle, annotations: Annotations) -> Handle {
        let Annotations { marks, cas } = annotations;
        edit::set_marks(self.store.pages.bytes_mut(at), marks);
        let record = self.store.record(at);
        let Some(cas) = cas.filter(|_| matches!(record.item().value, Value::Bytes(_))) else { return at };
        let (partition, before) = (record.partition(), record.charge());
        let (set, is_main) = (self.published.set(partition, record.class()), record.is_main());
        let at = self.set_field(at, Field::OwnCas(cas));
        let after = self.store.record(at).charge();
        let queue = self.store.sets[set].queue(is_main);
        queue.bytes = queue.bytes - before + after;
        self.ledger.exchange(partition, before, after);
        at
    }

    /// Sets the expiry of an item, which may move it.
    pub(crate) fn set_expires(&mut self, at: Handle, expires: Option<Instant>) -> Handle {
        let expires = expires.unwrap_or(Instant::NEVER);
        if expires == Instant::NEVER && self.store.record(at).expires() == Instant::NEVER {
            return at;
        }
        self.set_field(at, Field::Expiry(expires))
    }

    /// Sets a field that an item may not have had, which may move it.
    fn set_field(&mut self, at: Handle, field: Field) -> Handle {
        let store = &mut *self.store;
        let stamped = store.eviction == Eviction::Lru;
        if edit::set_field(store.pages.bytes_mut(at), stamped, field) {
            return at;
        }
        let used = store.record(at).bytes_used();
        if used + 8 > SLOT_BYTES_MAX {
            // No larger slot exists: key and value move to a run, which leaves enough room in a
            // slot of the same size.
            return self.move_to_run(at, field);
        }
        let to = store.pages.allocate(used + 8);
        let (from, slot) = store.pages.pair(at, to);
        field.add(from, used, stamped, slot);
        self.moved(at, to);
        to
    }

    /// Rewrites an item with one more field, with its key and value moved into a run of pages.
    fn move_to_run(&mut self, at: Handle, field: Field) -> Handle {
        let store = &mut *self.store;
        let stamped = store.eviction == Eviction::Lru;
        let record = store.record(at);
        let (state, key, item) = (record.state(), record.key().to_vec(), record.item());
        let (mut expires, mut annotations) = (item.expires, record.annotations());
        let mut bytes = Vec::new();
        let value = match item.value {
            Value::Bytes(value) => {
                bytes.extend_from_slice(value);
                Value::Bytes(&bytes)
            }
            Value::Declared(bytes) => Value::Declared(bytes),
        };
        field.add_to(&mut expires, &mut annotations);
        let (flags, kind, tags) = (item.flags, item.kind, item.tags);
        let item = NewItem { value, flags, expires, kind, tags, received: None };
        let mut new = NewRecord::new(&key, item, annotations, stamped, &store.supply);
        let to = store.pages.allocate(new.slot_bytes());
        let run = new.take_run().map(|run| store.runs.put(run));
        new.write(store.pages.bytes_mut(to), &state, run);
        self.moved(at, to);
        to
    }

    /// Updates index and queue for the record moved from `from` to `to`, and frees the old slot.
    fn moved(&mut self, from: Handle, to: Handle) {
        let store = &mut *self.store;
        let record = store.record(to);
        let set = self.published.set(record.partition(), record.class());
        let (hash, is_main) = (store.hash_of(&record), record.is_main());
        store.index.rename(hash, from, to);
        store.sets[set].queue(is_main).relocate(&mut store.pages, to);
        store.pages.free(from);
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, at: Handle, cause: Cause) -> Removed {
        let removed = self.unlink(at, cause);
        self.store.pages.free(at);
        self.ledger.release(removed.partition, removed.charge);
        removed
    }

    /// Removes an item from everything except its slot and the ledger.
    fn unlink(&mut self, at: Handle, cause: Cause) -> Removed {
        let store = &mut *self.store;
        let record = store.record(at);
        let (partition, charge, is_main) = (record.partition(), record.charge(), record.is_main());
        let set = self.published.set(partition, record.class());
        let (hash, run) = (store.hash_of(&record), record.run_at());
        store.index.remove(hash, at);
        let queue = store.sets[set].queue(is_main);
        let was_oldest = queue.oldest() == Some(at);
        queue.remove(&mut store.pages, at, charge);
        if store.eviction == Eviction::S3Fifo && cause == Cause::Evicted {
            store.ghost.remember(hash, is_main, store.items);
            self.count(set, partition, |counts| counts.drop_from(is_main));
        }
        let store = &mut *self.store;
        store.items -= 1;
        let run = run.map(|at| store.runs.take(at.number));
        if was_oldest {
            self.published.publish(set, store);
        }
        self.published.uncount_item(set);
        let counters = &self.published.counters[partition.index()];
        counters.items.decrement();
        match cause {
            Cause::Removed => {}
            Cause::Evicted => counters.evictions.increment(),
            Cause::Expired => counters.expired.increment(),
        }
        Removed { partition, charge, run }
    }
}

impl Store {
    #[inline(always)]
    fn find(&self, lookup: &Lookup<'_>) -> Option<(Handle, Record<'_>)> {
        for at in self.index.find(lookup.hash) {
            let record = self.record(at);
            if record.is_of(lookup) {
                return Some((at, record));
            }
        }
        None
    }

    #[inline(always)]
    fn record(&self, at: Handle) -> Record<'_> {
        Record::new(self.pages.slot(at), self.eviction == Eviction::Lru, &self.runs)
    }

    fn hash_of(&self, record: &Record<'_>) -> u64 {
        Lookup::new(&self.hash, record.partition(), record.key()).hash
    }
}

impl QueueSet {
    fn new() -> Self {
        Self { small: Queue::new(), main: Queue::new(), turns: [0; 2], counts: Counts::default() }
    }

    fn queue(&mut self, is_main: bool) -> &mut Queue {
        if is_main { &mut self.main } else { &mut self.small }
    }

    fn turn(&self, is_main: bool) -> u64 {
        self.turns[usize::from(is_main)]
    }

    fn turn_mut(&mut self, is_main: bool) -> &mut u64 {
        &mut self.turns[usize::from(is_main)]
    }
}

impl Runs {
    /// Returns a copy of the blocks, for a copy of the cache.
    fn copy(&self, supply: &Arc<Supply>) -> Self {
        let copy = |run: &Run| {
            let mut block = supply.block(run.block.size());
            block.copy_from_slice(&run.block);
            Run { block: Arc::new(block), ..*run }
        };
        let blocks = self.blocks.iter().map(|run| run.as_ref().map(copy)).collect();
        Self { blocks, vacant: self.vacant.clone() }
    }

    fn put(&mut self, run: Run) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.blocks[number as usize] = Some(run);
                number
            }
            None => {
                self.blocks.push(Some(run));
                self.blocks.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, number: u32) -> Run {
        self.vacant.push(number);
        self.blocks[number as usize].take().expect("a record's run is there")
    }

    #[inline]
    fn at(&self, number: u32) -> &Run {
        self.blocks[number as usize].as_ref().expect("a record's run is there")
    }
}

impl Published {
    #[inline]
    fn set(&self, partition: PartitionId, class: u8) -> usize {
        partition.index() * self.classes + usize::from(class)
    }

    /// Counts an item that has come into a queue set, if those are counted.
    #[inline]
    fn count_item(&self, set: usize) {
        if let Some(items) = self.set_items.get(set) {
            items.increment();
        }
    }

    /// Counts an item that has left a queue set.
    #[inline]
    fn uncount_item(&self, set: usize) {
        if let Some(items) = self.set_items.get(set) {
            items.decrement();
        }
    }

    /// The partition of a queue set.
    #[inline]
    fn partition(&self, set: usize) -> PartitionId {
        PartitionId((set / self.classes) as u16)
    }

    /// Under strict LRU, publishes the stamp of the oldest item of a queue set.
    #[inline]
    fn publish(&self, set: usize, store: &Store) {
        if let Some(oldest) = self.oldest.get(set) {
            let stamp = store.sets[set].small.oldest().map_or(EMPTY, |at| store.record(at).stamp());
            oldest.store(stamp, Relaxed);
        }
    }
}
