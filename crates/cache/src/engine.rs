//! The cache as its users see it.

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::time::Duration;

use sherwood_model::{CachePlan, Instant, PartitionId, SeededState};

use crate::access::Access;
use crate::background::Background;
use crate::charge;
use crate::flush::Flushes;
use crate::ghost::{Curve, Ghosts};
use crate::item::{Change, Item, Marks, NewCas, NewItem, Refused, Use};
use crate::ledger::{Ledger, PlanError};
use crate::options::{Options, OptionsError, Partition};
use crate::shard::{Cause, Entry, Locked, Lookup, Payload, Shard, Slot};
use crate::timeline::Timeline;
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
    ghosts: Ghosts,
    /// The next recency stamp or CAS. One counter orders all uses and stores of all shards.
    pub(crate) ticks: AtomicU64,
    /// No item dies before this many nanoseconds, as far as is known: when the background should next look.
    pub(crate) next_death: AtomicU64,
    pub(crate) background: Mutex<Background>,
    pub(crate) timeline: Timeline,
}

/// What an update did.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    /// The charge of what was stored, or 0.
    charge: u64,
    /// The CAS of what was stored or amended.
    cas: Option<u64>,
}

impl Cache {
    /// An empty cache. `hash` should be drawn from entropy by a driver that takes keys from strangers.
    ///
    /// # Errors
    /// When an option is out of range, a partition is declared twice, or the budgets exceed the total.
    pub fn new(options: Options, partitions: &[Partition], hash: SeededState) -> Result<Self, OptionsError> {
        options.validate(partitions)?;
        let budgets = partitions.iter().map(|partition| partition.budget_bytes).collect();
        let shard = |_| Shard::new(partitions.len(), options.deadline_classes);
        Ok(Self {
            options,
            partitions: partitions.into(),
            hash,
            shards: (0..options.shards).map(shard).collect(),
            ledger: Ledger::new(options.total_bytes, budgets),
            flushes: Flushes::new(partitions.len()),
            ghosts: Ghosts::new(options.ghost_rate, options.total_bytes, partitions.len()),
            ticks: AtomicU64::new(1),
            next_death: AtomicU64::new(Instant::NEVER.as_nanos()),
            background: Mutex::default(),
            timeline: Timeline::default(),
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
        self.ghosts.get(partition, lookup.hash, || self.gets(partition) + 1);
        let (index, mut shard) = self.lock(&lookup);
        let counters = self.shards[index].counters(partition);
        let Some(slot) = self.find_live(&mut shard, &lookup, access.now) else {
            counters.misses.increment();
            return None;
        };
        counters.hits.increment();
        let (marks, last_use) = (shard.entry(slot).marks(), shard.entry(slot).last_use());
        if !access.flags.keeps_recency() {
            shard.refresh(slot, self.class(access), self.tick());
            shard.entry_mut(slot).set_marks(marks.with(Marks::USED));
        }
        Some(read(Item { marks, last_use, ..shard.entry(slot).item() }))
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
        let entry = shard.entry(shard.find(&lookup)?);
        (!self.is_dead(entry, access.now)).then(|| read(entry.item()))
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
        let lookup = self.lookup(partition, key);
        let charge = match self.admit(&lookup, item.value.len()) {
            Ok(charge) => charge,
            Err(refused) => {
                self.take_out(&lookup, access);
                return Err(refused);
            }
        };
        let payload = Payload::new(key, &item);
        let (_, mut shard) = self.lock(&lookup);
        let found = shard.find(&lookup);
        let (cas, old) = self.put(&mut shard, &lookup, found, payload, access);
        drop(shard);
        drop(old);
        self.make_room(partition, charge, access.now);
        Ok(cas)
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
        let lookup = self.lookup(partition, key);
        let charge = self.admit(&lookup, item.value.len())?;
        let payload = Payload::new(key, &item);
        let (_, mut shard) = self.lock(&lookup);
        if self.find_live(&mut shard, &lookup, access.now).is_some() {
            return Ok(false);
        }
        self.put(&mut shard, &lookup, None, payload, access);
        drop(shard);
        self.make_room(partition, charge, access.now);
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
        self.update_with_cas(partition, key, access, decide).map(|(result, _)| result)
    }

    /// Does what [`Self::update`] does and also returns the CAS of the item it stored or amended; none where it did neither.
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
        let (_, mut shard) = self.lock(&lookup);
        let found = self.find_live(&mut shard, &lookup, access.now);
        let (change, result) = decide(found.map(|slot| shard.entry(slot).item()));
        let changed = self.change(&mut shard, &lookup, found, &change, access)?;
        drop(shard);
        self.make_room(partition, changed.charge, access.now);
        Ok((result, changed.cas))
    }

    /// How long ago an item was last used, at `now`: a second too short at most for the last minutes and 3% for
    /// longer, provided that [`Self::step`] is called at least every second. Takes no lock of a shard; O(log n) of at most 1,024
    /// moments remembered.
    #[must_use]
    pub fn since(&self, last_use: Use, now: Instant) -> Duration {
        self.timeline.since(last_use, now)
    }

    /// Removes an item; says whether a live one was there.
    pub fn remove(&self, partition: PartitionId, key: &[u8], access: &Access) -> bool {
        let lookup = self.lookup(partition, key);
        self.ghosts.remove(partition, lookup.hash);
        self.take_out(&lookup, access)
    }

    /// Kills, from the time `at` on, what one partition (all of them, for `None`) has stored before then: at once when
    /// `at` is not after `now`, and what is stored afterwards lives. A flush still to come is replaced. O(partitions),
    /// whatever they hold.
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

    /// The miss ratio curve of a partition's gets as an LRU of any size up to twice the total would have served them; none
    /// unless [`Options::ghost_rate`] is above 0. See [`Ghost`](crate::Ghost). Locks the partition's ghost for as long as
    /// it takes to read its buckets, a thousand or so.
    #[must_use]
    pub fn miss_ratio_curve(&self, partition: PartitionId) -> Option<Curve> {
        self.ghosts.curve(partition, self.gets(partition))
    }

    /// Bytes that the ghosts of all partitions take, beside the total: at most a 32nd of it (but up to 4 MiB of any, and at
    /// most 256 MiB), divided evenly among the partitions, of which each may take about 20 KiB however many there are.
    /// O(partitions).
    #[must_use]
    pub fn ghost_bytes(&self) -> u64 {
        self.ghosts.memory_bytes()
    }

    /// Shows the partition's ghost a store, or whatever else makes an item the most recent.
    fn note_store(&self, lookup: &Lookup<'_>, charge: u64) {
        self.ghosts.store(lookup.partition, lookup.hash, charge, || self.gets(lookup.partition));
    }

    /// Gets of a partition so far. O(shards).
    fn gets(&self, partition: PartitionId) -> u64 {
        let mut usage = Usage::default();
        self.shards.iter().for_each(|shard| shard.counters(partition).add_to(&mut usage));
        usage.hits + usage.misses
    }

    fn flush_one(&self, partition: PartitionId, at: Instant, now: Instant) {
        self.flushes.set(partition, at, now, &self.ticks);
        // A flush still to come is as expiry is: not followed.
        if at <= now {
            self.ghosts.clear(partition);
        }
    }

    /// Moves the time of the next look for dead items forward to `expires`, if it is later than that.
    pub(crate) fn note_death(&self, expires: Instant) {
        // Most items die later than the next one to die: look before writing a number all threads share.
        if expires.as_nanos() < self.next_death.load(Relaxed) {
            self.next_death.fetch_min(expires.as_nanos(), Release);
        }
    }

    pub(crate) fn is_dead(&self, entry: &Entry, now: Instant) -> bool {
        entry.is_dead(now, self.flushes.floor(entry.partition(), now, &self.ticks))
    }

    /// Takes a key's item out, if it has a live one; says whether it did.
    fn take_out(&self, lookup: &Lookup<'_>, access: &Access) -> bool {
        let (_, mut shard) = self.lock(lookup);
        let Some(slot) = self.find_live(&mut shard, lookup, access.now) else { return false };
        let removed = shard.remove(slot, Cause::Removed);
        drop(shard);
        drop(removed);
        true
    }

    /// Checks sizes and budget; returns the charge.
    fn admit(&self, lookup: &Lookup<'_>, value_bytes: usize) -> Result<u64, Refused> {
        let Options { item_bytes_max, key_bytes_max, .. } = self.options;
        let &Lookup { partition, key, hash } = lookup;
        if key.len() > usize::from(key_bytes_max) {
            return Err(Refused::KeyTooLong { bytes: key.len(), max: key_bytes_max });
        }
        if value_bytes > item_bytes_max as usize {
            self.ghosts.remove(partition, hash);
            return Err(Refused::ValueTooLarge { bytes: value_bytes, max: item_bytes_max });
        }
        let charge = charge(key.len(), value_bytes);
        let budget_bytes = self.ledger.budget(partition);
        if charge > budget_bytes {
            // A larger budget would take it: what that would bring is for the curve to say.
            self.note_store(lookup, charge);
            return Err(Refused::OverBudget { charge, budget_bytes });
        }
        Ok(charge)
    }

    /// Carries out what an update decided.
    fn change(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Option<Slot>,
        change: &Change<'_>,
        access: &Access,
    ) -> Result<Changed, Refused> {
        let (item, marks, own_cas) = match (change, found) {
            (Change::Store(item), _) => (*item, Marks::NONE, None),
            (Change::StoreOwned { value, flags, expires }, _) => {
                let item = NewItem { flags: *flags, expires: *expires, ..NewItem::bytes(value) };
                (item, Marks::NONE, None)
            }
            (Change::StoreMarked { value, flags, expires, marks, cas }, _) => {
                let item = NewItem { flags: *flags, expires: *expires, ..NewItem::bytes(value) };
                (item, *marks, *cas)
            }
            (Change::Amend { expires, marks, cas }, Some(slot)) => {
                return Ok(self.amend(shard, lookup, slot, (*expires, *marks, *cas), access));
            }
            (Change::Touch(expires), Some(slot)) => {
                self.touch(shard, lookup, slot, *expires, access);
                return Ok(Changed::default());
            }
            (Change::Remove, Some(slot)) => {
                self.ghosts.remove(lookup.partition, lookup.hash);
                shard.remove(slot, Cause::Removed);
                return Ok(Changed::default());
            }
            (Change::Keep, _) | (Change::Amend { .. } | Change::Touch(_) | Change::Remove, None) => {
                return Ok(Changed::default());
            }
        };
        let admitted = self.admit(lookup, item.value.len());
        match (admitted, found) {
            (Ok(_), _) => {
                let payload = Payload::new(lookup.key, &item).marked(marks, own_cas);
                let charge = payload.charge();
                let (cas, _) = self.put(shard, lookup, found, payload, access);
                Ok(Changed { charge, cas: Some(own_cas.unwrap_or(cas)) })
            }
            (Err(refused), found) => {
                if let Some(slot) = found {
                    shard.remove(slot, Cause::Removed);
                }
                Err(refused)
            }
        }
    }

    /// Changes everything about an item but its value and the client's bits.
    fn amend(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        slot: Slot,
        (expires, marks, cas): (Option<Instant>, Marks, NewCas),
        access: &Access,
    ) -> Changed {
        let cas = match cas {
            NewCas::Keep => None,
            NewCas::Next => Some(self.tick()),
            NewCas::Given(cas) => Some(cas),
        };
        shard.mark(slot, marks, cas);
        shard.entry_mut(slot).set_expires(expires);
        self.note_death(shard.entry(slot).expires());
        if !access.flags.keeps_recency() {
            self.note_store(lookup, shard.entry(slot).charge());
            shard.refresh(slot, self.class(access), self.tick());
        }
        let entry = shard.entry(slot);
        Changed { charge: if cas.is_some() { entry.charge() } else { 0 }, cas: Some(entry.cas()) }
    }

    fn touch(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        slot: Slot,
        expires: Option<Instant>,
        access: &Access,
    ) {
        self.note_store(lookup, shard.entry(slot).charge());
        shard.entry_mut(slot).set_expires(expires);
        self.note_death(shard.entry(slot).expires());
        shard.refresh(slot, self.class(access), self.tick());
    }

    /// Stores over the entry `found`, or beside the others. Returns the CAS, and the old value to be freed after the
    /// lock.
    fn put(
        &self,
        shard: &mut Locked<'_>,
        lookup: &Lookup<'_>,
        found: Option<Slot>,
        payload: Payload,
        access: &Access,
    ) -> (u64, Option<Payload>) {
        // A flush whose time has come is for what was stored before, not for this.
        self.flushes.settle(lookup.partition, access.now, &self.ticks);
        self.note_store(lookup, payload.charge());
        let (class, tick) = (self.class(access), self.tick());
        let (slot, old) = match found {
            Some(slot) => (slot, Some(shard.overwrite(slot, payload, class, tick))),
            None => (shard.insert(lookup, payload, class, tick), None),
        };
        // After the store, so that the background, when it has taken the time noted, finds the item.
        self.note_death(shard.entry(slot).expires());
        (tick, old)
    }

    /// The live entry of a key; a dead one is taken out.
    fn find_live(&self, shard: &mut Locked<'_>, lookup: &Lookup<'_>, now: Instant) -> Option<Slot> {
        let slot = shard.find(lookup)?;
        if self.is_dead(shard.entry(slot), now) {
            shard.remove(slot, Cause::Expired);
            return None;
        }
        Some(slot)
    }

    fn lookup<'a>(&self, partition: PartitionId, key: &'a [u8]) -> Lookup<'a> {
        // Equal keys of different partitions must not share a hash; the seed is secret, so a constant apart is enough.
        let apart = (u64::from(partition.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Lookup { partition, key, hash: self.hash.hash_bytes(key) ^ apart }
    }

    fn lock(&self, lookup: &Lookup<'_>) -> (usize, Locked<'_>) {
        let index = (lookup.hash >> 48) as usize & (self.shards.len() - 1);
        (index, self.shards[index].lock(&self.ledger))
    }

    /// The next moment in the order of uses. Only drawn under a shard's lock, so that stamps grow along its queues.
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Relaxed)
    }

    fn class(&self, access: &Access) -> u8 {
        access.class.0.min(self.options.deadline_classes - 1)
    }
}
