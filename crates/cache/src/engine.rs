//! The public operations of the cache.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sherwood_model::{CachePlan, DeadlineClass, Instant, PartitionId, SeededState};

use crate::access::Access;
use crate::background::Background;
use crate::cache_padded::CachePadded;
use crate::deadlines::Deadlines;
use crate::flush::Flushes;
use crate::ghost::{Curve, Ghosts};
use crate::in_place::Reserved;
use crate::item::{Change, Item, NewCas, NewItem, Refused, Use, Value};
use crate::ledger::{Ledger, PlanError};
use crate::memory::{Heap, Memory, Supply, held_max};
use crate::options::{Eviction, Options, OptionsError, Partition};
use crate::shard::{
    self, Annotations, Cause, Evicted, Handle, Locked, Lookup, NewRecord, Record, Removed, Shard, Visibility,
};
use crate::timeline::Timeline;
use crate::usage::{Gets, Usage};

/// A cache of any number of partitions in one memory budget. The [crate] documentation defines
/// which items are evicted and when.
///
/// Operations take O(1) except for evictions, whose cost for a store is proportional to the bytes
/// it needs; finding a victim reads one number per shard and deadline class of a partition (of
/// every partition, under `Shared`).
///
/// A closure passed to an operation runs while its key's shard is locked, at least for reading: it
/// should be short, and calling the cache from it deadlocks.
///
/// # Panics
/// Every method that takes a [`PartitionId`] panics if the cache has no such partition.
#[derive(Debug)]
pub struct Cache {
    pub(crate) options: Options,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) hash: SeededState,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) ledger: Ledger,
    pub(crate) flushes: Flushes,
    pub(crate) ghosts: Ghosts,
    pub(crate) deadlines: Arc<Deadlines>,
    /// Queue sets of each partition: the largest number of deadline classes of any.
    pub(crate) queue_sets: usize,
    /// The place of the first partition's sizes of hits among the counters of gets; none if no
    /// partition is metered.
    pub(crate) sizes_at: Option<usize>,
    /// The next recency stamp or CAS. One counter orders all uses and stores of all shards.
    pub(crate) ticks: CachePadded<AtomicU64>,
    /// Lower bound of the next time at which any item dies (expires or is flushed), in nanoseconds;
    /// the background work searches for dead items then.
    pub(crate) next_death: AtomicU64,
    pub(crate) background: Mutex<Background>,
    pub(crate) timeline: Timeline,
    pub(crate) supply: Arc<Supply>,
    /// Largest number of bytes of memory blocks and tables together.
    pub(crate) held_max: AtomicU64,
    /// The shard whose pages are emptied next if blocks and tables exceed the limit.
    pub(crate) next_relief: AtomicUsize,
    /// The shard that is searched for a victim first if no key determines it.
    pub(crate) next_shard: AtomicUsize,
}

/// Divisor of the total that limits the bytes reserved for values that are being received.
const RESERVED_DIVISOR: u64 = 64;

/// The record of a key, as found by an operation that may change it.
#[derive(Clone, Copy, Debug)]
enum Found {
    Seen(Handle),
    Hidden(Handle),
    Nothing,
}

impl Found {
    /// Returns the record if the access that looked it up sees it.
    fn seen(self) -> Option<Handle> {
        if let Self::Seen(at) = self { Some(at) } else { None }
    }

    /// Returns the record, whether that access sees it or not.
    fn any(self) -> Option<Handle> {
        if let Self::Seen(at) | Self::Hidden(at) = self { Some(at) } else { None }
    }
}

/// Result of a store, to be completed after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    cas: u64,
    charge: u64,
    /// Charge of the item that became the most recent, for the partition's ghost (the sampler of
    /// its miss ratio curve); 0 if none did.
    used_charge: u64,
    /// Bytes that the store has already evicted for its item under its own lock.
    freed: u64,
    /// The replaced and evicted items, kept so that their blocks are returned after the lock is
    /// released.
    leftovers: (Option<Removed>, Evicted),
}

impl Cache {
    /// Returns an empty cache. A driver that accepts untrusted keys should draw `hash` from
    /// entropy.
    ///
    /// # Errors
    /// If an option is out of range, a partition is declared twice, or the budgets exceed the
    /// total.
    pub fn new(options: Options, partitions: &[Partition], hash: SeededState) -> Result<Self, OptionsError> {
        Self::with_memory(options, partitions, hash, Arc::new(Heap))
    }

    /// Like [`Self::new`], with items in blocks of `memory`.
    ///
    /// # Errors
    /// Like [`Self::new`].
    pub fn with_memory(
        options: Options,
        partitions: &[Partition],
        hash: SeededState,
        memory: Arc<dyn Memory>,
    ) -> Result<Self, OptionsError> {
        options.validate(partitions)?;
        let budgets = partitions.iter().map(|partition| partition.budget_bytes).collect();
        let supply = Supply::new(memory);
        let deadlines = Arc::new(Deadlines::new(partitions));
        let plan = shard::ShardOptions {
            partitions: partitions.len(),
            metered: partitions.iter().any(|partition| partition.metered.is_some()),
            eviction: options.eviction,
            hash,
            stripes: options.stripes(),
            bytes: options.total_bytes / u64::from(options.shards),
            supply: Arc::clone(&supply),
            balances: Arc::new(shard::Balances::new(partitions.len(), options.shards)),
            deadlines: Arc::clone(&deadlines),
        };
        Ok(Self {
            options,
            partitions: partitions.into(),
            hash,
            shards: (0..options.shards).map(|_| Shard::new(&plan)).collect(),
            ledger: Ledger::new(options.total_bytes, budgets),
            flushes: Flushes::new(partitions.len()),
            ghosts: Ghosts::new(options.ghost_rate, options.total_bytes, partitions.len()),
            queue_sets: deadlines.stride(),
            sizes_at: plan.metered.then_some(match deadlines.stride() {
                1 => 0,
                sets => partitions.len() * sets,
            }),
            deadlines,
            ticks: CachePadded(AtomicU64::new(1)),
            next_death: AtomicU64::new(Instant::NEVER.as_nanos()),
            background: Mutex::default(),
            timeline: Timeline::default(),
            supply,
            held_max: AtomicU64::new(held_max(options.total_bytes)),
            next_relief: AtomicUsize::new(0),
            next_shard: AtomicUsize::new(0),
        })
    }

    /// The options that the cache was created with. [`Self::total_bytes`] is the total in force.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The partitions as declared, in the order of their ids. [`Self::plan`] returns the budgets in
    /// force.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Reads an item and returns the result of `read`. Counts a hit, or a miss if the item is stale
    /// or missing, and refreshes the recency.
    pub fn get<R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let lookup = self.lookup(partition, key);
        self.note_get(&lookup);
        if self.options.eviction == Eviction::Lru {
            return self.get_and_change(&lookup, access, read);
        }
        let shard = self.shard(&lookup).read();
        let Some(record) = shard.find(&lookup) else {
            self.count_get(shard.gets(), partition, access, None);
            return None;
        };
        // Read before the use is noted.
        let item = record.item();
        if self.visibility(&record, access) != Visibility::Fresh
            || !(access.flags.keeps_recency() || record.note_use(self.class(partition, access)))
        {
            drop(shard);
            return self.get_and_change(&lookup, access, read);
        }
        self.count_get(shard.gets(), partition, access, Some((&record, Visibility::Fresh)));
        Some(read(item))
    }

    /// A [`Self::get`] under the exclusive lock: removes a dead item, counts a stale one, or moves
    /// a live one in its queue.
    fn get_and_change<R>(
        &self,
        lookup: &Lookup<'_>,
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        self.get_in(&mut self.lock(lookup), lookup, access, read)
    }

    /// A [`Self::get`] in a shard that is locked exclusively.
    pub(crate) fn get_in<R>(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let found = shard.find(lookup).map(|at| (at, self.visibility(&shard.record(at), access)));
        let tick = || self.use_ticks(1);
        self.end_get(shard, lookup.partition, found, (access, tick), |item| item.map(read))
    }

    /// Completes the `get` of a key whose record is `found`, if any: counts it, removes a dead
    /// item, and notes the use of a visible one at `tick`.
    #[inline]
    pub(crate) fn end_get<R>(
        &self,
        shard: &mut Locked<'_>,
        partition: PartitionId,
        found: Option<(Handle, Visibility)>,
        (access, tick): (&Access, impl FnOnce() -> u64),
        read: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> R {
        let Some((at, visibility)) = found.filter(|(_, visibility)| visibility.is_seen()) else {
            let dead = found.filter(|(_, visibility)| *visibility == Visibility::Dead);
            drop(dead.map(|(at, _)| shard.remove(at, Cause::Expired)));
            self.count_get(shard.gets(), partition, access, None);
            return read(None);
        };
        let record = shard.record(at);
        self.count_get(shard.gets(), partition, access, Some((&record, visibility)));
        // Read before the use is noted.
        let result = read(Some(record.item()));
        if !access.flags.keeps_recency() {
            shard.note_get(at, self.class(partition, access), tick());
        }
        result
    }

    /// Counts a `get` that saw this record, or none, for its partition and its deadline class.
    #[inline(always)]
    fn count_get(
        &self,
        gets: &Gets,
        partition: PartitionId,
        access: &Access,
        seen: Option<(&Record<'_>, Visibility)>,
    ) {
        let visibility = seen.map(|(_, visibility)| visibility);
        gets.of(partition).count(visibility);
        if self.queue_sets > 1 {
            let item_class = seen.map(|(record, _)| record.class());
            let class = self.class(partition, access).or(item_class).unwrap_or(self.last_class(partition));
            gets.of_set(self.queue_set(partition, class)).count(visibility);
        }
        if let Some(first) = self.sizes_at
            && let Some((record, Visibility::Fresh)) = seen
        {
            self.count_size(gets, first, partition, record);
        }
    }

    /// Counts the size of a hit, if its partition is metered.
    fn count_size(&self, gets: &Gets, first: usize, partition: PartitionId, record: &Record<'_>) {
        if let Some(unit) = self.partitions[partition.index()].metered {
            let bytes = (record.key().len() + record.item().value.len()) as u64;
            gets.count_size(first + partition.index(), bytes, unit.of(bytes));
        }
    }

    /// Reads an item like [`Self::get`], but counts nothing and leaves the recency unchanged.
    pub fn peek<R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        self.inspect(partition, key, access, |item, _| read(item))
    }

    /// Reads an item like [`Self::peek`], with the deadline class that it is in.
    pub fn inspect<R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>, DeadlineClass) -> R,
    ) -> Option<R> {
        let lookup = self.lookup(partition, key);
        let shard = self.shard(&lookup).read();
        let record = shard.find(&lookup)?;
        let read = || read(record.item(), DeadlineClass(record.class()));
        self.visibility(&record, access).is_seen().then(read)
    }

    /// Stores an item, replacing an older one, and returns its CAS.
    ///
    /// # Errors
    /// If the item is refused. The older one is removed nevertheless, so that a value meant to be
    /// replaced is not read again.
    pub fn set(
        &self,
        partition: PartitionId,
        key: &[u8],
        item: NewItem<'_>,
        access: &Access,
    ) -> Result<u64, Refused> {
        let lookup = self.lookup(partition, key);
        self.note_fill(partition, access);
        if let Err(refused) = self.admit(&lookup, &item, &Annotations::default()) {
            self.take_out(&lookup, access);
            return Err(refused);
        }
        let mut new = self.new_record(key, item, Annotations::default());
        let mut shard = self.lock(&lookup);
        shard.expect_insertion(&lookup);
        let found = shard.find(&lookup);
        if found.is_some_and(|at| self.is_dead(&shard.record(at), access.now)) {
            shard.count_expired(partition);
        }
        let stored = self.put(&mut shard, &lookup, found, &mut new, access);
        drop(shard);
        Ok(self.settle(&lookup, stored, access))
    }

    /// Stores an item only if `access` sees none under its key, as the fill after a miss does.
    /// Returns true if it was stored; an existing item keeps its recency.
    ///
    /// # Errors
    /// If the item is refused. The cache is unchanged.
    pub fn add(
        &self,
        partition: PartitionId,
        key: &[u8],
        item: NewItem<'_>,
        access: &Access,
    ) -> Result<bool, Refused> {
        let lookup = self.lookup(partition, key);
        if let Err(refused) = self.admit(&lookup, &item, &Annotations::default()) {
            self.note_fill(partition, access);
            return Err(refused);
        }
        let mut new = self.new_record(key, item, Annotations::default());
        let mut shard = self.lock(&lookup);
        shard.expect_insertion(&lookup);
        let found = self.find_live(&mut shard, &lookup, access);
        if found.seen().is_some() {
            return Ok(false);
        }
        self.note_fill(partition, access);
        let stored = self.put(&mut shard, &lookup, found.any(), &mut new, access);
        drop(shard);
        self.settle(&lookup, stored, access);
        Ok(true)
    }

    /// Reads and changes an item atomically. `decide` receives the item, or none, and returns the
    /// change and a result. Counts neither a hit nor a miss.
    ///
    /// # Errors
    /// If `decide` stores an item that is refused. The older item is removed nevertheless.
    pub fn update<'a, R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'a>, R),
    ) -> Result<R, Refused> {
        self.update_with_cas(partition, key, access, decide).map(|(result, _)| result)
    }

    /// Like [`Self::update`], and also returns the CAS of the item stored or amended; none if
    /// neither happened.
    ///
    /// # Errors
    /// If `decide` stores an item that is refused. The older item is removed nevertheless.
    pub fn update_with_cas<'a, R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'a>, R),
    ) -> Result<(R, Option<u64>), Refused> {
        let lookup = self.lookup(partition, key);
        let mut shard = self.lock(&lookup);
        let (result, cas, stored) = self.update_in(&mut shard, &lookup, access, decide)?;
        drop(shard);
        self.settle(&lookup, stored, access);
        Ok((result, cas))
    }

    /// An [`Self::update_with_cas`] in a shard that is locked; its store is not settled yet.
    #[inline]
    pub(crate) fn update_in<'a, R>(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'a>, R),
    ) -> Result<(R, Option<u64>, Stored), Refused> {
        let found = self.find_live(shard, lookup, access);
        let (change, result) = decide(found.seen().map(|at| shard.record(at).item()));
        let (cas, stored) = self.change(shard, lookup, found, &change, access)?;
        Ok((result, cas, stored))
    }

    /// Time between an item's last use and `now`; under S3-FIFO, which records no time of use, the
    /// time since it was stored. Too short by at most a second within the last minutes and by 3%
    /// beyond, provided that [`Self::step`] is called at least every second. Takes no shard's lock;
    /// O(log n) for at most 1,024 recorded times.
    #[must_use]
    pub fn since(&self, last_use: Use, now: Instant) -> Duration {
        self.timeline.since(last_use, now)
    }

    /// Removes an item, visible or not; returns true if `access` sees it.
    pub fn remove(&self, partition: PartitionId, key: &[u8], access: &Access) -> bool {
        let lookup = self.lookup(partition, key);
        self.ghosts.remove(partition, lookup.hash);
        self.take_out(&lookup, access)
    }

    /// Invalidates, from the time `at` on, all items of one partition (of all, for `None`) stored
    /// before then: at once if `at` is not after `now`. Items stored afterwards are unaffected.
    /// Replaces a pending flush. O(partitions), independent of the number of items.
    pub fn flush(&self, partition: Option<PartitionId>, at: Instant, now: Instant) {
        match partition {
            Some(partition) => self.flush_one(partition, at, now),
            None => {
                for index in 0..self.partitions.len() {
                    self.flush_one(PartitionId::from_index(index), at, now);
                }
            }
        }
        self.note_death(at);
    }

    /// Reserves memory for `bytes` bytes that are still to be received, at least 1: a command with
    /// the value that it stores. None if more than a 64th of the total would be reserved; the bytes
    /// are then received elsewhere and copied when they are stored. Evicts nothing.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reserved> {
        Reserved::new(&self.supply, bytes, self.total_bytes() / RESERVED_DIVISOR)
    }

    /// Bytes of memory that are reserved at present. Takes no lock; O(1).
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.supply.reserved()
    }

    /// Puts a plan in force. O(partitions): only numbers change. Partitions over their new budgets
    /// shrink by [`Self::step`] and by later stores.
    ///
    /// # Errors
    /// If the plan is for another number of partitions or its budgets exceed the total. The plan in
    /// force is unchanged.
    pub fn apply(&self, plan: &CachePlan) -> Result<(), PlanError> {
        self.ledger.apply(plan)
    }

    /// Checks that a plan can be [applied](Self::apply), without applying it: a larger plan checks
    /// all of its parts first.
    ///
    /// # Errors
    /// As those of [`apply`](Self::apply).
    pub fn check(&self, plan: &CachePlan) -> Result<(), PlanError> {
        self.ledger.check(plan, self.total_bytes())
    }

    /// Returns the plan in force: the budget of each partition, or `Shared`.
    #[must_use]
    pub fn plan(&self) -> CachePlan {
        self.ledger.plan()
    }

    /// Sets a temporary limit on the bytes of all partitions together, at most the total. Stores
    /// evict towards it as in step 4 of the [crate]'s documentation; the plan is unchanged, and
    /// without stores nothing is evicted. For a driver that sees the process use more memory than
    /// the items account for.
    pub fn set_ceiling(&self, bytes: u64) {
        self.ledger.set_ceiling(bytes);
    }

    /// The present limit on the bytes of all partitions together: the total, or less after
    /// [`Self::set_ceiling`].
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.ledger.ceiling()
    }

    /// Charges of all items. Takes no lock; O(1).
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.ledger.total_used()
    }

    /// Usage of a partition: bytes held and counters. Takes no lock; O(shards × stripes of their
    /// locks).
    #[must_use]
    pub fn usage(&self, partition: PartitionId) -> Usage {
        let mut usage = Usage {
            budget_bytes: self.ledger.budget(partition),
            used_bytes: self.ledger.used(partition),
            ..Usage::default()
        };
        self.add_counts(partition, &mut usage);
        usage
    }

    /// Adds the counters of a partition to `usage`.
    fn add_counts(&self, partition: PartitionId, usage: &mut Usage) {
        for shard in &self.shards {
            shard.add_to(partition, usage);
            if let Some(first) = self.sizes_at {
                shard.add_sizes_to(first + partition.index(), usage);
            }
        }
    }

    /// Usage of all partitions together, against the total. Takes no lock; O(partitions × shards ×
    /// stripes of their locks).
    #[must_use]
    pub fn total(&self) -> Usage {
        let mut total = Usage {
            budget_bytes: self.total_bytes(),
            used_bytes: self.ledger.total_used(),
            ..Usage::default()
        };
        for index in 0..self.partitions.len() {
            self.add_counts(PartitionId::from_index(index), &mut total);
        }
        total
    }

    /// The miss ratio curve of a partition's gets under an LRU of any size up to twice the total,
    /// whatever this cache's eviction; none unless [`Options::ghost_rate`] is above 0. See
    /// [`Ghost`](crate::Ghost). Locks the partition's ghost while reading its buckets, about a
    /// thousand.
    #[must_use]
    pub fn miss_ratio_curve(&self, partition: PartitionId) -> Option<Curve> {
        self.ghosts.curve(partition, self.gets(partition))
    }

    /// Halves the counts of all miss ratio curves. Called every third of a span of time, it makes
    /// curves of gets whose mean age is half of the span, as that of the span's own gets is. Locks
    /// one ghost at a time; O(partitions × buckets).
    pub fn fade_curves(&self) {
        for partition in (0..self.partitions.len()).map(PartitionId::from_index) {
            self.ghosts.fade(partition, self.gets(partition));
        }
    }

    /// Bytes used by the ghosts of all partitions, beside the total: at most a 32nd of it, but at
    /// least 4 MiB and at most 256 MiB, divided evenly among the partitions, each of which may use
    /// about 20 KiB however many there are. O(partitions).
    #[must_use]
    pub fn ghost_bytes(&self) -> u64 {
        self.ghosts.memory_bytes()
    }

    /// Passes a `get` to the partition's ghost (the sampler of its miss ratio curve) before it is
    /// counted.
    #[inline]
    pub(crate) fn note_get(&self, lookup: &Lookup<'_>) {
        self.ghosts.get(lookup.partition, lookup.hash, || self.gets(lookup.partition) + 1);
    }

    /// Passes a store, or another change that makes an item the most recent, to the partition's
    /// ghost (the sampler of its miss ratio curve).
    fn note_store(&self, lookup: &Lookup<'_>, charge: u64) {
        self.ghosts.store(lookup.partition, lookup.hash, charge, || self.gets(lookup.partition));
    }

    /// Gets of a partition so far. O(shards × stripes of their locks).
    fn gets(&self, partition: PartitionId) -> u64 {
        let mut usage = Usage::default();
        self.shards.iter().for_each(|shard| shard.add_to(partition, &mut usage));
        usage.hits + usage.misses
    }

    fn flush_one(&self, partition: PartitionId, at: Instant, now: Instant) {
        self.flushes.set(partition, at, now, &self.ticks);
        // A pending flush is ignored by ghosts, as expiry is.
        if at <= now {
            self.ghosts.clear(partition);
        }
    }

    /// Advances the time of the next search for dead items to `dies`, if that is earlier.
    pub(crate) fn note_death(&self, dies: Instant) {
        // Most items die after the earliest one, so a load avoids most writes to a number shared by
        // all threads.
        if dies.as_nanos() < self.next_death.load(Relaxed) {
            self.next_death.fetch_min(dies.as_nanos(), Release);
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self, record: &Record<'_>, now: Instant) -> bool {
        let flush_floor = self.flushes.floor(record.partition(), now, &self.ticks);
        record.is_dead(now, flush_floor, || self.grace(record.partition()))
    }

    /// Visibility of a record to an access.
    #[inline(always)]
    pub(crate) fn visibility(&self, record: &Record<'_>, access: &Access) -> Visibility {
        let flush_floor = self.flushes.floor(record.partition(), access.now, &self.ticks);
        record.visibility(access, flush_floor, || self.grace(record.partition()))
    }

    /// Time after which no access sees a record, by its own expiry.
    pub(crate) fn dies(&self, record: &Record<'_>) -> Instant {
        record.dies(|| self.grace(record.partition()))
    }

    pub(crate) fn grace(&self, partition: PartitionId) -> Duration {
        self.partitions[partition.index()].grace
    }

    /// Removes a key's item, if any; returns true if `access` sees it.
    fn take_out(&self, lookup: &Lookup<'_>, access: &Access) -> bool {
        let mut shard = self.lock(lookup);
        let found = self.find_live(&mut shard, lookup, access);
        let removed = found.any().map(|at| shard.remove(at, Cause::Removed));
        drop(shard);
        drop(removed);
        found.seen().is_some()
    }

    /// Checks the item's sizes and the partition's budget.
    fn admit(
        &self,
        lookup: &Lookup<'_>,
        item: &NewItem<'_>,
        annotations: &Annotations,
    ) -> Result<(), Refused> {
        let Options { item_bytes_max, key_bytes_max, .. } = self.options;
        let &Lookup { partition, key, hash } = lookup;
        let value_bytes = item.value.len();
        if key.len() > usize::from(key_bytes_max) {
            return Err(Refused::KeyTooLong { bytes: key.len(), max: key_bytes_max });
        }
        if value_bytes > item_bytes_max as usize {
            self.ghosts.remove(partition, hash);
            return Err(Refused::ValueTooLarge { bytes: value_bytes, max: item_bytes_max });
        }
        let charge = annotations.charge(key.len(), item);
        let budget_bytes = self.ledger.budget(partition);
        if charge > budget_bytes {
            // A larger budget would admit it, so the ghost's curve must include it.
            self.note_store(lookup, charge);
            return Err(Refused::OverBudget { charge, budget_bytes });
        }
        Ok(())
    }

    /// Applies the change that an update decided; also returns the CAS of the item stored or
    /// amended.
    fn change(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Found,
        change: &Change<'_>,
        access: &Access,
    ) -> Result<(Option<u64>, Stored), Refused> {
        let (item, annotations) = match (change, found.seen()) {
            (Change::Store(item), _) => (*item, Annotations::default()),
            (&Change::StoreOwned { ref value, flags, expires, tags }, _) => {
                (NewItem { flags, expires, tags, ..NewItem::bytes(value) }, Annotations::default())
            }
            (&Change::StoreMarked { ref value, flags, expires, kind, tags, marks, cas }, _) => (
                NewItem { value: Value::Bytes(value), flags, expires, kind, tags, received: None },
                Annotations { marks, cas },
            ),
            (Change::Amend { expires, marks, cas }, Some(at)) => {
                let annotations = Annotations { marks: *marks, cas: self.number(*cas) };
                let (cas, stored) = self.amend(shard, at, (*expires, annotations), access);
                return Ok((Some(cas), stored));
            }
            (Change::Touch(expires), Some(at)) => {
                return Ok((None, self.touch(shard, at, *expires, access)));
            }
            (Change::Remove, _) => {
                let removed = found.any().map(|at| {
                    self.ghosts.remove(lookup.partition, lookup.hash);
                    shard.remove(at, Cause::Removed)
                });
                let leftovers = (removed, Evicted::default());
                return Ok((None, Stored { leftovers, ..Stored::default() }));
            }
            (Change::Keep, _) | (Change::Amend { .. } | Change::Touch(_), None) => {
                return Ok((None, Stored::default()));
            }
        };
        self.note_fill(lookup.partition, access);
        match self.admit(lookup, &item, &annotations) {
            Ok(()) => {
                let mut new = self.new_record(lookup.key, item, annotations);
                let stored = self.put(shard, lookup, found.any(), &mut new, access);
                Ok((Some(annotations.cas.unwrap_or(stored.cas)), stored))
            }
            Err(refused) => {
                drop(found.any().map(|at| shard.remove(at, Cause::Removed)));
                Err(refused)
            }
        }
    }

    /// The new CAS of an item whose value stays; none to keep it.
    fn number(&self, cas: NewCas) -> Option<u64> {
        match cas {
            NewCas::Keep => None,
            NewCas::Next => Some(self.tick()),
            NewCas::Given(cas) => Some(cas),
        }
    }

    /// Changes everything of an item except its value and the client's flags; also returns its CAS.
    fn amend(
        &self,
        shard: &mut Locked<'_>,
        at: Handle,
        (expires, annotations): (Option<Instant>, Annotations),
        access: &Access,
    ) -> (u64, Stored) {
        let at = shard.annotate(at, annotations);
        let at = shard.set_expires(at, expires);
        self.note_death(self.dies(&shard.record(at)));
        let record = shard.record(at);
        let (partition, charge, cas) = (record.partition(), record.charge(), record.item().cas);
        let mut used_charge = 0;
        if !access.flags.keeps_recency() {
            used_charge = charge;
            shard.note_use(at, self.class(partition, access), self.use_ticks(1));
        }
        let charge = if annotations.cas.is_some() { charge } else { 0 };
        (cas, Stored { charge, used_charge, ..Stored::default() })
    }

    fn touch(&self, shard: &mut Locked<'_>, at: Handle, expires: Option<Instant>, access: &Access) -> Stored {
        let (partition, used_charge) = (shard.record(at).partition(), shard.record(at).charge());
        let at = shard.set_expires(at, expires);
        self.note_death(self.dies(&shard.record(at)));
        shard.note_use(at, self.class(partition, access), self.use_ticks(1));
        Stored { used_charge, ..Stored::default() }
    }

    /// Writes the record `new` over the item `found`, or inserts it if there is none.
    fn put(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Option<Handle>,
        new: &mut NewRecord<'_>,
        access: &Access,
    ) -> Stored {
        // A flush that is due applies to earlier stores, not to this one.
        self.flushes.settle(lookup.partition, access.now, &self.ticks);
        let (charge, dies) = (new.charge(), new.dies(self.grace(lookup.partition)));
        let class = self.class(lookup.partition, access);
        // Drawn before anything is written, since the atomic operation waits for earlier writes.
        let cas = self.tick();
        let stored = match found {
            Some(at) => {
                let old = shard.overwrite(at, lookup, new, class, cas);
                Stored {
                    cas,
                    charge,
                    used_charge: charge,
                    freed: 0,
                    leftovers: (Some(old), Evicted::default()),
                }
            }
            None => {
                let evicted = self.evict_for(shard, lookup.partition, (charge, new.slot_bytes()), access.now);
                let class = class.unwrap_or(self.last_class(lookup.partition));
                shard.insert(lookup, new, class, cas, &evicted);
                Stored { cas, charge, used_charge: charge, freed: evicted.bytes, leftovers: (None, evicted) }
            }
        };
        // After the store, so that a background pass which has taken the noted time finds the item.
        self.note_death(dies);
        stored
    }

    /// Completes a store after the lock is released: returns blocks to the memory, evicts what is
    /// still over a limit, and passes the store to the partition's ghost. Overlapping stores of one
    /// key may reach the ghost in either order, as either may be the last. A key removed in between
    /// stays in the ghost until it sinks out of it. Returns the CAS.
    fn settle(&self, lookup: &Lookup<'_>, stored: Stored, access: &Access) -> u64 {
        let Stored { cas, charge, used_charge, freed, leftovers } = stored;
        drop(leftovers);
        self.settle_bytes(lookup.partition, (charge, freed), access.now);
        if used_charge > 0 {
            self.note_store(lookup, used_charge);
        }
        cas
    }

    /// Evicts what is over a limit after stores into `partition` of `charge` bytes, for which
    /// `freed` bytes are evicted already. No lock is held.
    #[inline]
    pub(crate) fn settle_bytes(&self, partition: PartitionId, (charge, freed): (u64, u64), now: Instant) {
        if self.exceeds_limits(partition) {
            self.make_room(partition, charge, freed, now);
        }
    }

    /// Passes a store to the partition's ghost while its shard stays locked, and returns its charge
    /// and the bytes evicted for it, which are to be settled without the lock.
    pub(crate) fn note_stored(&self, lookup: &Lookup<'_>, stored: Stored) -> (u64, u64) {
        let Stored { charge, used_charge, freed, .. } = stored;
        if used_charge > 0 {
            self.note_store(lookup, used_charge);
        }
        (charge, freed)
    }

    /// The record of a key; a dead one is removed.
    #[inline]
    fn find_live(&self, shard: &mut Locked<'_>, lookup: &Lookup<'_>, access: &Access) -> Found {
        let Some(at) = shard.find(lookup) else { return Found::Nothing };
        match self.visibility(&shard.record(at), access) {
            Visibility::Fresh | Visibility::Stale => Found::Seen(at),
            Visibility::Hidden => Found::Hidden(at),
            Visibility::Dead => {
                drop(shard.remove(at, Cause::Expired));
                Found::Nothing
            }
        }
    }

    fn new_record<'a>(&self, key: &'a [u8], item: NewItem<'a>, annotations: Annotations) -> NewRecord<'a> {
        NewRecord::new(key, item, annotations, self.options.eviction == Eviction::Lru, &self.supply)
    }

    #[inline]
    pub(crate) fn lookup<'a>(&self, partition: PartitionId, key: &'a [u8]) -> Lookup<'a> {
        Lookup::new(&self.hash, partition, key)
    }

    /// Returns the shard that holds the keys of a hash.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        (hash >> 48) as usize & (self.shards.len() - 1)
    }

    #[inline]
    fn shard(&self, lookup: &Lookup<'_>) -> &Shard {
        &self.shards[self.shard_of(lookup.hash)]
    }

    #[inline]
    fn lock(&self, lookup: &Lookup<'_>) -> Locked<'_> {
        self.shard(lookup).lock(&self.ledger)
    }

    /// Draws the next number (a tick) of the counter that orders uses and stores. Drawn under a
    /// shard's lock only, so that stamps are ascending along its queues.
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Relaxed)
    }

    /// The first of `count` consecutive numbers (ticks) for uses, from the counter that orders
    /// them. Only strict LRU orders uses, so only it writes the counter shared by all threads.
    #[inline]
    pub(crate) fn use_ticks(&self, count: u64) -> u64 {
        if self.options.eviction == Eviction::Lru { self.ticks.fetch_add(count, Relaxed) } else { 0 }
    }
}
