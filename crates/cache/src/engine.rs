//! The cache as its users see it.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sherwood_model::{CachePlan, Instant, PartitionId, SeededState};

use crate::access::Access;
use crate::background::Background;
use crate::flush::Flushes;
use crate::ghost::{Curve, Ghosts};
use crate::item::{Change, Item, NewCas, NewItem, Refused, Use, Value};
use crate::ledger::{Ledger, PlanError};
use crate::line::Line;
use crate::memory::{Heap, Memory, Supply};
use crate::options::{Eviction, Options, OptionsError, Partition};
use crate::shard::{
    self, Cause, Evicted, Handle, Locked, Lookup, NewRecord, Noted, Record, Removed, Shard, Sight,
};
use crate::timeline::Timeline;
use crate::usage::Usage;

/// A cache of any number of partitions in one memory budget. See the [crate] for what is evicted
/// and when.
///
/// Operations take O(1) but for evictions, which a store pays for in proportion to the bytes it
/// needs; finding a victim reads one number per shard and deadline class of a partition (of every
/// partition, under `Shared`).
///
/// A closure passed to an operation runs while its key's shard is locked, for reading at least: it
/// should be short, and calling the cache from it deadlocks.
///
/// # Panics
/// Every method that takes a [`PartitionId`] panics when the cache has no such partition.
#[derive(Debug)]
pub struct Cache {
    pub(crate) options: Options,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) hash: SeededState,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) ledger: Ledger,
    pub(crate) flushes: Flushes,
    pub(crate) ghosts: Ghosts,
    /// The next recency stamp or CAS. One counter orders all uses and stores of all shards.
    pub(crate) ticks: Line<AtomicU64>,
    /// No item dies before this many nanoseconds, as far as is known: when the background should
    /// next look.
    pub(crate) next_death: AtomicU64,
    pub(crate) background: Mutex<Background>,
    pub(crate) timeline: Timeline,
    pub(crate) supply: Arc<Supply>,
    /// Bytes that blocks and tables may take together.
    pub(crate) held_max: u64,
    /// The shard whose pages to empty next where they take too much.
    pub(crate) next_relief: AtomicUsize,
    /// The shard to look for a victim in first, where no key says which.
    pub(crate) next_shard: AtomicUsize,
}

/// Blocks and tables may exceed the total by a tenth, or by 32 MiB where that is more: pages that
/// are partly free, and what some items have that is not charged. Chosen: two thirds of what a
/// process may take beside its budget.
const RESERVE_DIVISOR: u64 = 10;
const RESERVE_BYTES_MIN: u64 = 32 << 20;

/// The record of a key, as an access finds it that may change it.
#[derive(Clone, Copy, Debug)]
enum Found {
    Seen(Handle),
    Hidden(Handle),
    Nothing,
}

impl Found {
    /// The one that the access sees.
    fn seen(self) -> Option<Handle> {
        if let Self::Seen(at) = self { Some(at) } else { None }
    }

    /// The one that the key has, seen or not.
    fn any(self) -> Option<Handle> {
        if let Self::Seen(at) | Self::Hidden(at) = self { Some(at) } else { None }
    }
}

/// What a store leaves behind it.
#[derive(Debug, Default)]
struct Stored {
    cas: u64,
    charge: u64,
    /// Charge of the item that became the most recent, for the partition's ghost; 0 where none did.
    used_charge: u64,
    /// Freed for it under its own lock already.
    freed: u64,
    /// What was replaced and evicted, held so that its blocks are given back after the lock.
    leftovers: (Option<Removed>, Evicted),
}

impl Cache {
    /// An empty cache. `hash` should be drawn from entropy by a driver that takes keys from
    /// strangers.
    ///
    /// # Errors
    /// When an option is out of range, a partition is declared twice, or the budgets exceed the
    /// total.
    pub fn new(options: Options, partitions: &[Partition], hash: SeededState) -> Result<Self, OptionsError> {
        Self::with_memory(options, partitions, hash, Arc::new(Heap))
    }

    /// As [`Self::new`], with items in blocks of `memory`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_memory(
        options: Options,
        partitions: &[Partition],
        hash: SeededState,
        memory: Arc<dyn Memory>,
    ) -> Result<Self, OptionsError> {
        options.validate(partitions)?;
        let budgets = partitions.iter().map(|partition| partition.budget_bytes).collect();
        let supply = Supply::new(memory);
        let plan = shard::Plan {
            partitions: partitions.len(),
            classes: options.deadline_classes,
            eviction: options.eviction,
            hash,
            stripes: options.stripes(),
            bytes: options.total_bytes / u64::from(options.shards),
            supply: Arc::clone(&supply),
            balances: Arc::new(shard::Balances::new(partitions.len(), options.shards)),
        };
        Ok(Self {
            options,
            partitions: partitions.into(),
            hash,
            shards: (0..options.shards).map(|_| Shard::new(&plan)).collect(),
            ledger: Ledger::new(options.total_bytes, budgets),
            flushes: Flushes::new(partitions.len()),
            ghosts: Ghosts::new(options.ghost_rate, options.total_bytes, partitions.len()),
            ticks: Line(AtomicU64::new(1)),
            next_death: AtomicU64::new(Instant::NEVER.as_nanos()),
            background: Mutex::default(),
            timeline: Timeline::default(),
            supply,
            held_max: options
                .total_bytes
                .saturating_add((options.total_bytes / RESERVE_DIVISOR).max(RESERVE_BYTES_MIN)),
            next_relief: AtomicUsize::new(0),
            next_shard: AtomicUsize::new(0),
        })
    }

    /// What the cache was built from.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The partitions as they were declared, in the order of their ids. Budgets in force are in
    /// [`Self::plan`].
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Reads an item: `read` sees it and its result is returned. Counts a hit, or a miss if it is
    /// stale or there is none, and refreshes the recency.
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
            shard.outcomes(partition).misses.increment();
            return None;
        };
        // Before the use is noted.
        let item = record.item();
        if self.sight(&record, access) != Sight::Fresh
            || !(access.flags.keeps_recency() || record.note_use(self.class(access)))
        {
            drop(shard);
            return self.get_and_change(&lookup, access, read);
        }
        shard.outcomes(partition).hits.increment();
        Some(read(item))
    }

    /// A [`Self::get`] that takes a dead item out, counts a stale one, or moves a live one in its
    /// queues.
    fn get_and_change<R>(
        &self,
        lookup: &Lookup<'_>,
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let mut shard = self.lock(lookup);
        let found = shard.find(lookup).map(|at| (at, self.sight(&shard.record(at), access)));
        let tick = || self.use_ticks(1);
        self.end_get(&mut shard, lookup.partition, found, (access, tick), |item| item.map(read))
    }

    /// Ends the `get` of a key whose record was `found`, if it has one: counts it, takes a dead
    /// item out and notes the use of one that is seen at `tick`.
    #[inline]
    pub(crate) fn end_get<R>(
        &self,
        shard: &mut Locked<'_>,
        partition: PartitionId,
        found: Option<(Handle, Sight)>,
        (access, tick): (&Access, impl FnOnce() -> u64),
        read: impl FnOnce(Option<Item<'_>>) -> R,
    ) -> R {
        let Some((at, sight)) = found.filter(|(_, sight)| sight.is_seen()) else {
            let dead = found.filter(|(_, sight)| *sight == Sight::Dead);
            drop(dead.map(|(at, _)| shard.remove(at, Cause::Expired)));
            shard.outcomes(partition).misses.increment();
            return read(None);
        };
        shard.outcomes(partition).count(sight);
        // Before the use is noted.
        let result = read(Some(shard.record(at).item()));
        if !access.flags.keeps_recency() {
            shard.note_get(at, self.class(access), tick());
        }
        result
    }

    /// Reads an item as [`Self::get`] does, but counts nothing and leaves the recency as it is.
    pub fn peek<R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let lookup = self.lookup(partition, key);
        let shard = self.shard(&lookup).read();
        let record = shard.find(&lookup)?;
        self.sight(&record, access).is_seen().then(|| read(record.item()))
    }

    /// Stores an item, over an older one or not, and returns its CAS.
    ///
    /// # Errors
    /// When the item is refused. The older one is gone then too, so that nobody reads what was to
    /// be replaced.
    pub fn set(
        &self,
        partition: PartitionId,
        key: &[u8],
        item: NewItem<'_>,
        access: &Access,
    ) -> Result<u64, Refused> {
        let lookup = self.lookup(partition, key);
        if let Err(refused) = self.admit(&lookup, &item, &Noted::default()) {
            self.take_out(&lookup, access);
            return Err(refused);
        }
        let mut new = self.new_record(key, item, Noted::default());
        let mut shard = self.lock(&lookup);
        shard.expect_insertion(&lookup);
        let found = shard.find(&lookup);
        let stored = self.put(&mut shard, &lookup, found, &mut new, access);
        drop(shard);
        Ok(self.settle(&lookup, stored, access))
    }

    /// Stores an item only if its key has none that `access` sees, as the fill after a miss does.
    /// Says whether it did; the item that was there keeps its place.
    ///
    /// # Errors
    /// When the item is refused. The cache is as it was.
    pub fn add(
        &self,
        partition: PartitionId,
        key: &[u8],
        item: NewItem<'_>,
        access: &Access,
    ) -> Result<bool, Refused> {
        let lookup = self.lookup(partition, key);
        self.admit(&lookup, &item, &Noted::default())?;
        let mut new = self.new_record(key, item, Noted::default());
        let mut shard = self.lock(&lookup);
        shard.expect_insertion(&lookup);
        let found = self.find_undead(&mut shard, &lookup, access);
        if found.seen().is_some() {
            return Ok(false);
        }
        let stored = self.put(&mut shard, &lookup, found.any(), &mut new, access);
        drop(shard);
        self.settle(&lookup, stored, access);
        Ok(true)
    }

    /// Reads an item and changes it in one step that no other operation on the key can come
    /// between. `decide` sees the item, or none, and returns what to do and a result of its own.
    /// Counts no hit and no miss.
    ///
    /// # Errors
    /// When `decide` wants to store what must be refused. The older item is gone then too.
    pub fn update<'a, R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'a>, R),
    ) -> Result<R, Refused> {
        self.update_with_cas(partition, key, access, decide).map(|(result, _)| result)
    }

    /// Does what [`Self::update`] does and also returns the CAS of the item it stored or amended;
    /// none where it did neither.
    ///
    /// # Errors
    /// When `decide` wants to store what must be refused. The older item is gone then too.
    pub fn update_with_cas<'a, R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        decide: impl FnOnce(Option<Item<'_>>) -> (Change<'a>, R),
    ) -> Result<(R, Option<u64>), Refused> {
        let lookup = self.lookup(partition, key);
        let mut shard = self.lock(&lookup);
        let found = self.find_undead(&mut shard, &lookup, access);
        let (change, result) = decide(found.seen().map(|at| shard.record(at).item()));
        let (cas, stored) = self.change(&mut shard, &lookup, found, &change, access)?;
        drop(shard);
        self.settle(&lookup, stored, access);
        Ok((result, cas))
    }

    /// How long ago an item was last used, at `now`; under S3-FIFO, where a use leaves no time, how
    /// long ago it was stored. A second too short at most for the last minutes and 3% for longer,
    /// provided that [`Self::step`] is called at least every second. Takes no lock of a shard;
    /// O(log n) of at most 1,024 moments remembered.
    #[must_use]
    pub fn since(&self, last_use: Use, now: Instant) -> Duration {
        self.timeline.since(last_use, now)
    }

    /// Removes an item, seen or not; says whether there was one that `access` sees.
    pub fn remove(&self, partition: PartitionId, key: &[u8], access: &Access) -> bool {
        let lookup = self.lookup(partition, key);
        self.ghosts.remove(partition, lookup.hash);
        self.take_out(&lookup, access)
    }

    /// Kills, from the time `at` on, what one partition (all of them, for `None`) has stored before
    /// then: at once when `at` is not after `now`, and what is stored afterwards lives. A flush
    /// still to come is replaced. O(partitions), whatever they hold.
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

    /// Puts a plan in force. O(partitions): only numbers change. Partitions that are over their new
    /// budget shrink to it by [`Self::step`] and by later stores.
    ///
    /// # Errors
    /// When the plan is for another number of partitions or its budgets exceed the total. The one
    /// in force stays.
    pub fn apply(&self, plan: &CachePlan) -> Result<(), PlanError> {
        self.ledger.apply(plan)
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> CachePlan {
        self.ledger.plan()
    }

    /// Lowers, for the time being, what all partitions may hold together to `bytes`, or raises it
    /// again up to the total. Stores evict towards it as in step 5 of the [crate]'s documentation;
    /// the plan stays, and nothing happens to a cache nothing is stored into. For a driver that
    /// sees the process take more memory than the items explain.
    pub fn set_ceiling(&self, bytes: u64) {
        self.ledger.set_ceiling(bytes);
    }

    /// What all partitions may hold together at the moment: the total, or less after
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

    /// What a partition holds and what happened in it. Takes no lock; O(shards × stripes of their
    /// locks).
    #[must_use]
    pub fn usage(&self, partition: PartitionId) -> Usage {
        let mut usage = Usage {
            budget_bytes: self.ledger.budget(partition),
            used_bytes: self.ledger.used(partition),
            ..Usage::default()
        };
        self.shards.iter().for_each(|shard| shard.add_to(partition, &mut usage));
        usage
    }

    /// What all partitions hold together, against the total. Takes no lock; O(partitions × shards ×
    /// stripes of their locks).
    #[must_use]
    pub fn total(&self) -> Usage {
        let mut total = Usage {
            budget_bytes: self.ledger.total_bytes(),
            used_bytes: self.ledger.total_used(),
            ..Usage::default()
        };
        for shard in &self.shards {
            for index in 0..self.partitions.len() {
                shard.add_to(PartitionId::from_index(index), &mut total);
            }
        }
        total
    }

    /// The miss ratio curve of a partition's gets as an LRU of any size up to twice the total would
    /// have served them, whatever this cache evicts by; none unless [`Options::ghost_rate`] is
    /// above 0. See [`Ghost`](crate::Ghost). Locks the partition's ghost for as long as it takes to
    /// read its buckets, a thousand or so.
    #[must_use]
    pub fn miss_ratio_curve(&self, partition: PartitionId) -> Option<Curve> {
        self.ghosts.curve(partition, self.gets(partition))
    }

    /// Bytes that the ghosts of all partitions take, beside the total: at most a 32nd of it (but up
    /// to 4 MiB of any, and at most 256 MiB), divided evenly among the partitions, of which each
    /// may take about 20 KiB however many there are. O(partitions).
    #[must_use]
    pub fn ghost_bytes(&self) -> u64 {
        self.ghosts.memory_bytes()
    }

    /// Shows the partition's ghost a `get` that is about to be counted.
    #[inline]
    pub(crate) fn note_get(&self, lookup: &Lookup<'_>) {
        self.ghosts.get(lookup.partition, lookup.hash, || self.gets(lookup.partition) + 1);
    }

    /// Shows the partition's ghost a store, or whatever else makes an item the most recent.
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
        // A flush still to come is as expiry is: not followed.
        if at <= now {
            self.ghosts.clear(partition);
        }
    }

    /// Moves the time of the next look for dead items forward to `dies`, if it is later than that.
    pub(crate) fn note_death(&self, dies: Instant) {
        // Most items die later than the next one to die: look before writing a number all threads
        // share.
        if dies.as_nanos() < self.next_death.load(Relaxed) {
            self.next_death.fetch_min(dies.as_nanos(), Release);
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self, record: &Record<'_>, now: Instant) -> bool {
        let flush_floor = self.flushes.floor(record.partition(), now, &self.ticks);
        record.is_dead(now, flush_floor, || self.grace(record.partition()))
    }

    /// What a record is to an access.
    #[inline(always)]
    pub(crate) fn sight(&self, record: &Record<'_>, access: &Access) -> Sight {
        let flush_floor = self.flushes.floor(record.partition(), access.now, &self.ticks);
        record.sight(access, flush_floor, || self.grace(record.partition()))
    }

    /// When nobody will see a record any more, by its own time.
    pub(crate) fn dies(&self, record: &Record<'_>) -> Instant {
        record.dies(|| self.grace(record.partition()))
    }

    pub(crate) fn grace(&self, partition: PartitionId) -> Duration {
        self.partitions[partition.index()].grace
    }

    /// Takes a key's item out, if it has one; says whether it had one that `access` sees.
    fn take_out(&self, lookup: &Lookup<'_>, access: &Access) -> bool {
        let mut shard = self.lock(lookup);
        let found = self.find_undead(&mut shard, lookup, access);
        let removed = found.any().map(|at| shard.remove(at, Cause::Removed));
        drop(shard);
        drop(removed);
        found.seen().is_some()
    }

    /// Checks sizes and budget.
    fn admit(&self, lookup: &Lookup<'_>, item: &NewItem<'_>, noted: &Noted) -> Result<(), Refused> {
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
        let charge = noted.charge(key.len(), item);
        let budget_bytes = self.ledger.budget(partition);
        if charge > budget_bytes {
            // A larger budget would take it: what that would bring is for the curve to say.
            self.note_store(lookup, charge);
            return Err(Refused::OverBudget { charge, budget_bytes });
        }
        Ok(())
    }

    /// Carries out what an update decided; also returns the CAS of what it stored or amended.
    fn change(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Found,
        change: &Change<'_>,
        access: &Access,
    ) -> Result<(Option<u64>, Stored), Refused> {
        let (item, noted) = match (change, found.seen()) {
            (Change::Store(item), _) => (*item, Noted::default()),
            (&Change::StoreOwned { ref value, flags, expires, tags }, _) => {
                (NewItem { flags, expires, tags, ..NewItem::bytes(value) }, Noted::default())
            }
            (&Change::StoreMarked { ref value, flags, expires, kind, tags, marks, cas }, _) => {
                (NewItem { value: Value::Bytes(value), flags, expires, kind, tags }, Noted { marks, cas })
            }
            (Change::Amend { expires, marks, cas }, Some(at)) => {
                let noted = Noted { marks: *marks, cas: self.number(*cas) };
                let (cas, stored) = self.amend(shard, at, (*expires, noted), access);
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
        match self.admit(lookup, &item, &noted) {
            Ok(()) => {
                let mut new = self.new_record(lookup.key, item, noted);
                let stored = self.put(shard, lookup, found.any(), &mut new, access);
                Ok((Some(noted.cas.unwrap_or(stored.cas)), stored))
            }
            Err(refused) => {
                drop(found.any().map(|at| shard.remove(at, Cause::Removed)));
                Err(refused)
            }
        }
    }

    /// The CAS that an item whose value stays is to get, if it is another.
    fn number(&self, cas: NewCas) -> Option<u64> {
        match cas {
            NewCas::Keep => None,
            NewCas::Next => Some(self.tick()),
            NewCas::Given(cas) => Some(cas),
        }
    }

    /// Changes everything about an item but its value and the client's bits; also returns its CAS.
    fn amend(
        &self,
        shard: &mut Locked<'_>,
        at: Handle,
        (expires, noted): (Option<Instant>, Noted),
        access: &Access,
    ) -> (u64, Stored) {
        let at = shard.note(at, noted);
        let at = shard.set_expires(at, expires);
        self.note_death(self.dies(&shard.record(at)));
        let (charge, cas) = (shard.record(at).charge(), shard.record(at).item().cas);
        let mut used_charge = 0;
        if !access.flags.keeps_recency() {
            used_charge = charge;
            shard.note_use(at, self.class(access), self.use_ticks(1));
        }
        let charge = if noted.cas.is_some() { charge } else { 0 };
        (cas, Stored { charge, used_charge, ..Stored::default() })
    }

    fn touch(&self, shard: &mut Locked<'_>, at: Handle, expires: Option<Instant>, access: &Access) -> Stored {
        let used_charge = shard.record(at).charge();
        let at = shard.set_expires(at, expires);
        self.note_death(self.dies(&shard.record(at)));
        shard.note_use(at, self.class(access), self.use_ticks(1));
        Stored { used_charge, ..Stored::default() }
    }

    /// Stores over the item `found`, or beside the others.
    fn put(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Option<Handle>,
        new: &mut NewRecord<'_>,
        access: &Access,
    ) -> Stored {
        // A flush whose time has come is for what was stored before, not for this.
        self.flushes.settle(lookup.partition, access.now, &self.ticks);
        let (charge, dies) = (new.charge(), new.dies(self.grace(lookup.partition)));
        let class = self.class(access);
        // Before anything is written: drawing it waits for all that was.
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
                let evicted = self.make_way(shard, lookup.partition, (charge, new.place_bytes()), access.now);
                shard.insert(lookup, new, class, cas, &evicted);
                Stored { cas, charge, used_charge: charge, freed: evicted.bytes, leftovers: (None, evicted) }
            }
        };
        // After the store, so that the background, when it has taken the time noted, finds the
        // item.
        self.note_death(dies);
        stored
    }

    /// After the lock: gives back what a store has left, makes what room is still missing and shows
    /// the store to the partition's ghost. Two stores of a key that overlap may be shown in the
    /// other order: one of them was the last either way. A key that is removed in between stays in
    /// the ghost until it sinks out of it. Returns the CAS.
    fn settle(&self, lookup: &Lookup<'_>, stored: Stored, access: &Access) -> u64 {
        let Stored { cas, charge, used_charge, freed, leftovers } = stored;
        drop(leftovers);
        if self.lacks_room(lookup.partition) {
            self.make_room(lookup.partition, charge, freed, access.now);
        }
        if used_charge > 0 {
            self.note_store(lookup, used_charge);
        }
        cas
    }

    /// The record of a key; a dead one is taken out.
    #[inline]
    fn find_undead(&self, shard: &mut Locked<'_>, lookup: &Lookup<'_>, access: &Access) -> Found {
        let Some(at) = shard.find(lookup) else { return Found::Nothing };
        match self.sight(&shard.record(at), access) {
            Sight::Fresh | Sight::Stale => Found::Seen(at),
            Sight::Hidden => Found::Hidden(at),
            Sight::Dead => {
                drop(shard.remove(at, Cause::Expired));
                Found::Nothing
            }
        }
    }

    fn new_record<'a>(&self, key: &'a [u8], item: NewItem<'a>, noted: Noted) -> NewRecord<'a> {
        NewRecord::new(key, item, noted, self.options.eviction == Eviction::Lru, &self.supply)
    }

    #[inline]
    pub(crate) fn lookup<'a>(&self, partition: PartitionId, key: &'a [u8]) -> Lookup<'a> {
        Lookup::new(&self.hash, partition, key)
    }

    /// The shard that owns a hash.
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

    /// The next moment in the order of uses. Only drawn under a shard's lock, so that stamps grow
    /// along its queues.
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Relaxed)
    }

    /// The first of so many ticks of uses. Only strict LRU orders uses, so only there the counter
    /// all threads share is written.
    #[inline]
    pub(crate) fn use_ticks(&self, count: u64) -> u64 {
        if self.options.eviction == Eviction::Lru { self.ticks.fetch_add(count, Relaxed) } else { 0 }
    }

    fn class(&self, access: &Access) -> u8 {
        access.class.0.min(self.options.deadline_classes - 1)
    }
}
