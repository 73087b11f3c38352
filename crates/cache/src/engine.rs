//! The cache as its users see it.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex};

use sherwood_model::{CachePlan, Instant, PartitionId, SeededState};

use crate::access::Access;
use crate::background::Background;
use crate::charge;
use crate::flush::Flushes;
use crate::item::{Change, Item, NewItem, Refused};
use crate::ledger::{Ledger, PlanError};
use crate::memory::{Heap, Memory, Supply};
use crate::options::{Eviction, Options, OptionsError, Partition};
use crate::shard::{self, Cause, Evicted, Handle, Locked, Lookup, NewRecord, Record, Removed, Shard};
use crate::usage::Usage;

/// A cache of any number of partitions in one memory budget. See the [crate] for what is evicted and when.
///
/// Operations take O(1) but for evictions, which a store pays for in proportion to the bytes it needs; finding a victim
/// reads one number per shard and deadline class of a partition (of every partition, under `Shared`).
///
/// A closure passed to an operation runs while its key's shard is locked: it should be short, and calling the cache from
/// it deadlocks.
///
/// # Panics
/// Every method that takes a [`PartitionId`] panics when the cache has no such partition.
#[derive(Debug)]
pub struct Cache {
    pub(crate) options: Options,
    pub(crate) partitions: Box<[Partition]>,
    hash: SeededState,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) ledger: Ledger,
    pub(crate) flushes: Flushes,
    /// The next recency stamp or CAS. One counter orders all uses and stores of all shards.
    pub(crate) ticks: AtomicU64,
    /// No item dies before this many nanoseconds, as far as is known: when the background should next look.
    pub(crate) next_death: AtomicU64,
    pub(crate) background: Mutex<Background>,
    pub(crate) supply: Arc<Supply>,
    /// Bytes that blocks and tables may take together.
    pub(crate) held_max: u64,
    /// The shard whose pages to empty next where they take too much.
    pub(crate) next_relief: AtomicUsize,
    /// The shard to look for a victim in first, where no key says which.
    pub(crate) next_shard: AtomicUsize,
}

/// Blocks and tables may exceed the total by a tenth, or by 32 MiB where that is more: pages that are partly free, and what
/// some items have that is not charged. Chosen: two thirds of what a process may take beside its budget.
const RESERVE_DIVISOR: u64 = 10;
const RESERVE_BYTES_MIN: u64 = 32 << 20;

/// What a store leaves behind it.
#[derive(Debug, Default)]
struct Stored {
    cas: u64,
    charge: u64,
    /// Freed for it under its own lock already.
    freed: u64,
    /// What was replaced and evicted, held so that its blocks are given back after the lock.
    leftovers: (Option<Removed>, Evicted),
}

impl Cache {
    /// An empty cache. `hash` should be drawn from entropy by a driver that takes keys from strangers.
    ///
    /// # Errors
    /// When an option is out of range, a partition is declared twice, or the budgets exceed the total.
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
            bytes: options.total_bytes / u64::from(options.shards),
            supply: Arc::clone(&supply),
        };
        Ok(Self {
            options,
            partitions: partitions.into(),
            hash,
            shards: (0..options.shards).map(|_| Shard::new(&plan)).collect(),
            ledger: Ledger::new(options.total_bytes, budgets),
            flushes: Flushes::new(partitions.len()),
            ticks: AtomicU64::new(1),
            next_death: AtomicU64::new(Instant::NEVER.as_nanos()),
            background: Mutex::default(),
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

    /// The partitions as they were declared, in the order of their ids. Budgets in force are in [`Self::plan`].
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Reads an item: `read` sees it and its result is returned. Counts a hit or a miss and refreshes the recency.
    pub fn get<R>(
        &self,
        partition: PartitionId,
        key: &[u8],
        access: &Access,
        read: impl FnOnce(Item<'_>) -> R,
    ) -> Option<R> {
        let lookup = self.lookup(partition, key);
        let (index, mut shard) = self.lock(&lookup);
        let counters = self.shards[index].counters(partition);
        let Some(at) = self.find_live(&mut shard, &lookup, access.now) else {
            counters.misses.increment();
            return None;
        };
        counters.hits.increment();
        shard.note_use(at, self.class(access), self.use_tick());
        Some(read(shard.record(at).item()))
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
        let (_, shard) = self.lock(&lookup);
        let record = shard.record(shard.find(&lookup)?);
        (!self.is_dead(&record, access.now)).then(|| read(record.item()))
    }

    /// Stores an item, over an older one or not, and returns its CAS.
    ///
    /// # Errors
    /// When the item is refused. The older one is gone then too, so that nobody reads what was to be replaced.
    pub fn set(
        &self,
        partition: PartitionId,
        key: &[u8],
        item: NewItem<'_>,
        access: &Access,
    ) -> Result<u64, Refused> {
        if let Err(refused) = self.admit(partition, key, item.value.len()) {
            self.remove(partition, key, access);
            return Err(refused);
        }
        let new = self.new_record(key, item);
        let lookup = self.lookup(partition, key);
        let (_, mut shard) = self.lock(&lookup);
        let found = shard.find(&lookup);
        let stored = self.put(&mut shard, &lookup, found, new, access);
        drop(shard);
        Ok(self.settle(partition, stored, access))
    }

    /// Stores an item only if its key has none, as the fill after a miss does. Says whether it did; the item that was
    /// there keeps its place.
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
        self.admit(partition, key, item.value.len())?;
        let new = self.new_record(key, item);
        let lookup = self.lookup(partition, key);
        let (_, mut shard) = self.lock(&lookup);
        if self.find_live(&mut shard, &lookup, access.now).is_some() {
            return Ok(false);
        }
        let stored = self.put(&mut shard, &lookup, None, new, access);
        drop(shard);
        self.settle(partition, stored, access);
        Ok(true)
    }

    /// Reads an item and changes it in one step that no other operation on the key can come between. `decide` sees the
    /// item, or none, and returns what to do and a result of its own. Counts no hit and no miss.
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
        let lookup = self.lookup(partition, key);
        let (_, mut shard) = self.lock(&lookup);
        let found = self.find_live(&mut shard, &lookup, access.now);
        let (change, result) = decide(found.map(|at| shard.record(at).item()));
        let stored = self.change(&mut shard, &lookup, found, &change, access)?;
        drop(shard);
        self.settle(partition, stored, access);
        Ok(result)
    }

    /// Removes an item; says whether a live one was there.
    pub fn remove(&self, partition: PartitionId, key: &[u8], access: &Access) -> bool {
        let lookup = self.lookup(partition, key);
        let (_, mut shard) = self.lock(&lookup);
        let Some(at) = self.find_live(&mut shard, &lookup, access.now) else { return false };
        let removed = shard.remove(at, Cause::Removed);
        drop(shard);
        drop(removed);
        true
    }

    /// Kills, from the time `at` on, what one partition (all of them, for `None`) has stored before then: at once when
    /// `at` is not after `now`, and what is stored afterwards lives. A flush still to come is replaced. O(partitions),
    /// whatever they hold.
    pub fn flush(&self, partition: Option<PartitionId>, at: Instant, now: Instant) {
        match partition {
            Some(partition) => self.flushes.set(partition, at, now, &self.ticks),
            None => {
                for index in 0..self.partitions.len() {
                    self.flushes.set(PartitionId::from_index(index), at, now, &self.ticks);
                }
            }
        }
        self.note_death(at);
    }

    /// Puts a plan in force. O(partitions): only numbers change. Partitions that are over their new budget shrink to it
    /// by [`Self::step`] and by later stores.
    ///
    /// # Errors
    /// When the plan is for another number of partitions or its budgets exceed the total. The one in force stays.
    pub fn apply(&self, plan: &CachePlan) -> Result<(), PlanError> {
        self.ledger.apply(plan)
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> CachePlan {
        self.ledger.plan()
    }

    /// Lowers, for the time being, what all partitions may hold together to `bytes`, or raises it again up to the total.
    /// Stores evict towards it as in step 5 of the [crate]'s documentation; the plan stays, and nothing happens to a
    /// cache nothing is stored into. For a driver that sees the process take more memory than the items explain.
    pub fn set_ceiling(&self, bytes: u64) {
        self.ledger.set_ceiling(bytes);
    }

    /// What all partitions may hold together at the moment: the total, or less after [`Self::set_ceiling`].
    #[must_use]
    pub fn ceiling(&self) -> u64 {
        self.ledger.ceiling()
    }

    /// Charges of all items. Takes no lock; O(1).
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.ledger.total_used()
    }

    /// What a partition holds and what happened in it. Takes no lock; O(shards).
    #[must_use]
    pub fn usage(&self, partition: PartitionId) -> Usage {
        let mut usage = Usage {
            budget_bytes: self.ledger.budget(partition),
            used_bytes: self.ledger.used(partition),
            ..Usage::default()
        };
        for shard in &self.shards {
            shard.counters(partition).add_to(&mut usage);
        }
        usage
    }

    /// What all partitions hold together, against the total. Takes no lock; O(partitions × shards).
    #[must_use]
    pub fn total(&self) -> Usage {
        let mut total = Usage {
            budget_bytes: self.ledger.total_bytes(),
            used_bytes: self.ledger.total_used(),
            ..Usage::default()
        };
        for shard in &self.shards {
            for index in 0..self.partitions.len() {
                shard.counters(PartitionId::from_index(index)).add_to(&mut total);
            }
        }
        total
    }

    /// Moves the time of the next look for dead items forward to `expires`, if it is later than that.
    pub(crate) fn note_death(&self, expires: Instant) {
        // Most items die later than the next one to die: look before writing a number all threads share.
        if expires.as_nanos() < self.next_death.load(Relaxed) {
            self.next_death.fetch_min(expires.as_nanos(), Release);
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self, record: &Record<'_>, now: Instant) -> bool {
        record.is_dead(now, self.flushes.floor(record.partition(), now, &self.ticks))
    }

    /// Checks sizes and budget.
    fn admit(&self, partition: PartitionId, key: &[u8], value_bytes: usize) -> Result<(), Refused> {
        let Options { item_bytes_max, key_bytes_max, .. } = self.options;
        if key.len() > usize::from(key_bytes_max) {
            return Err(Refused::KeyTooLong { bytes: key.len(), max: key_bytes_max });
        }
        if value_bytes > item_bytes_max as usize {
            return Err(Refused::ValueTooLarge { bytes: value_bytes, max: item_bytes_max });
        }
        let charge = charge(key.len(), value_bytes);
        let budget_bytes = self.ledger.budget(partition);
        if charge > budget_bytes {
            return Err(Refused::OverBudget { charge, budget_bytes });
        }
        Ok(())
    }

    /// Carries out what an update decided.
    fn change(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Option<Handle>,
        change: &Change<'_>,
        access: &Access,
    ) -> Result<Stored, Refused> {
        let item = match (change, found) {
            (Change::Store(item), _) => *item,
            (Change::StoreOwned { value, flags, expires }, _) => {
                NewItem { flags: *flags, expires: *expires, ..NewItem::bytes(value) }
            }
            (Change::Touch(expires), Some(at)) => {
                self.touch(shard, at, *expires, access);
                return Ok(Stored::default());
            }
            (Change::Remove, Some(at)) => {
                let removed = shard.remove(at, Cause::Removed);
                return Ok(Stored { leftovers: (Some(removed), Evicted::default()), ..Stored::default() });
            }
            (Change::Keep, _) | (Change::Touch(_) | Change::Remove, None) => return Ok(Stored::default()),
        };
        match self.admit(lookup.partition, lookup.key, item.value.len()) {
            Ok(()) => Ok(self.put(shard, lookup, found, self.new_record(lookup.key, item), access)),
            Err(refused) => {
                drop(found.map(|at| shard.remove(at, Cause::Removed)));
                Err(refused)
            }
        }
    }

    fn touch(&self, shard: &mut Locked<'_>, at: Handle, expires: Option<Instant>, access: &Access) {
        let at = shard.set_expires(at, expires);
        self.note_death(expires.unwrap_or(Instant::NEVER));
        shard.note_use(at, self.class(access), self.use_tick());
    }

    /// Stores over the item `found`, or beside the others.
    fn put(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Option<Handle>,
        new: NewRecord<'_>,
        access: &Access,
    ) -> Stored {
        // A flush whose time has come is for what was stored before, not for this.
        self.flushes.settle(lookup.partition, access.now, &self.ticks);
        let (charge, expires) = (new.charge(), new.expires());
        let class = self.class(access);
        let stored = match found {
            Some(at) => {
                let cas = self.tick();
                let old = shard.overwrite(at, lookup, new, class, cas);
                Stored { cas, charge, freed: 0, leftovers: (Some(old), Evicted::default()) }
            }
            None => {
                let evicted = self.make_way(shard, lookup.partition, charge, access.now);
                let cas = self.tick();
                shard.insert(lookup, new, class, cas, evicted.own);
                Stored { cas, charge, freed: evicted.bytes, leftovers: (None, evicted) }
            }
        };
        // After the store, so that the background, when it has taken the time noted, finds the item.
        self.note_death(expires);
        stored
    }

    /// After the lock: gives back what a store has left and makes what room is still missing. Returns the CAS.
    fn settle(&self, partition: PartitionId, stored: Stored, access: &Access) -> u64 {
        let Stored { cas, charge, freed, leftovers } = stored;
        drop(leftovers);
        self.make_room(partition, charge, freed, access.now);
        cas
    }

    /// The live record of a key; a dead one is taken out.
    #[inline]
    fn find_live(&self, shard: &mut Locked<'_>, lookup: &Lookup<'_>, now: Instant) -> Option<Handle> {
        let at = shard.find(lookup)?;
        if self.is_dead(&shard.record(at), now) {
            drop(shard.remove(at, Cause::Expired));
            return None;
        }
        Some(at)
    }

    fn new_record<'a>(&self, key: &'a [u8], item: NewItem<'a>) -> NewRecord<'a> {
        NewRecord::new(key, item, self.options.eviction == Eviction::Lru, &self.supply)
    }

    #[inline]
    fn lookup<'a>(&self, partition: PartitionId, key: &'a [u8]) -> Lookup<'a> {
        Lookup::new(&self.hash, partition, key)
    }

    #[inline]
    fn lock(&self, lookup: &Lookup<'_>) -> (usize, Locked<'_>) {
        let index = (lookup.hash >> 48) as usize & (self.shards.len() - 1);
        (index, self.shards[index].lock(&self.ledger))
    }

    /// The next moment in the order of uses. Only drawn under a shard's lock, so that stamps grow along its queues.
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Relaxed)
    }

    /// The tick of a use. Only strict LRU orders uses, so only there the counter all threads share is written.
    #[inline]
    fn use_tick(&self) -> u64 {
        if self.options.eviction == Eviction::Lru { self.tick() } else { 0 }
    }

    fn class(&self, access: &Access) -> u8 {
        access.class.0.min(self.options.deadline_classes - 1)
    }
}
