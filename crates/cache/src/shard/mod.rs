//! A part of the cache under one lock.
//!
//! A shard holds the items whose hash it owns, of every partition, in one recency queue per (partition, deadline
//! class). It knows nothing of the other shards. What those who look for a victim need, the stamp of each queue's
//! oldest item, it publishes in atomics beside the lock, so that finding the oldest item of the whole cache takes no lock.

mod arena;
#[cfg(test)]
mod check;
mod entry;
mod index;
mod queue;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sherwood_model::PartitionId;

pub(crate) use self::entry::{Entry, Payload, Slot};
pub(crate) use self::queue::EMPTY;

use self::arena::Arena;
use self::index::Index;
use self::queue::Queue;
use crate::item::Marks;
use crate::ledger::Ledger;
use crate::usage::Counters;

/// One part of the cache.
#[derive(Debug)]
pub(crate) struct Shard {
    store: Mutex<Store>,
    board: Board,
}

/// What can be read without the lock; written only by its holder.
#[derive(Debug)]
struct Board {
    /// Stamp of each queue's oldest item, in the order of the queues.
    oldest: Box<[AtomicU64]>,
    /// By partition.
    counters: Box<[Counters]>,
}

#[derive(Debug)]
struct Store {
    arena: Arena,
    index: Index,
    /// By partition, then by deadline class.
    queues: Box<[Queue]>,
}

/// A key with its partition and its hash, computed once per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup<'a> {
    pub(crate) partition: PartitionId,
    pub(crate) key: &'a [u8],
    pub(crate) hash: u64,
}

impl Lookup<'_> {
    /// The half of the hash used inside a shard. The other half chooses the shard.
    fn inner_hash(&self) -> u32 {
        self.hash as u32
    }
}

/// Why an item leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Somebody asked for it to go.
    Removed,
    /// Its space is needed.
    Evicted,
    /// It was dead.
    Expired,
}

impl Shard {
    pub(crate) fn new(partitions: usize, classes: u8) -> Self {
        let queues = partitions * usize::from(classes);
        Self {
            store: Mutex::new(Store {
                arena: Arena::default(),
                index: Index::new(),
                queues: vec![Queue::new(); queues].into_boxed_slice(),
            }),
            board: Board {
                oldest: (0..queues).map(|_| AtomicU64::new(EMPTY)).collect(),
                counters: (0..partitions).map(|_| Counters::default()).collect(),
            },
        }
    }

    /// Stamps of the oldest items of all queues, [`EMPTY`] for a queue without any.
    pub(crate) fn oldest(&self) -> &[AtomicU64] {
        &self.board.oldest
    }

    pub(crate) fn counters(&self, partition: PartitionId) -> &Counters {
        &self.board.counters[partition.index()]
    }

    /// Waits for the lock. A caller's closure that panicked under it did so before anything was changed, so a poisoned
    /// lock protects a sound store.
    pub(crate) fn lock<'a>(&'a self, ledger: &'a Ledger) -> Locked<'a> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { store, board: &self.board, ledger }
    }
}

/// A locked shard. Every change keeps index, queues, published stamps, counters and ledger in step.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    store: MutexGuard<'a, Store>,
    board: &'a Board,
    ledger: &'a Ledger,
}

impl Locked<'_> {
    /// The entry of a key, dead or alive.
    pub(crate) fn find(&self, lookup: &Lookup<'_>) -> Option<Slot> {
        let arena = &self.store.arena;
        self.store.index.find(lookup.inner_hash(), |slot| {
            let entry = &arena[slot];
            entry.partition == lookup.partition && entry.key() == lookup.key
        })
    }

    pub(crate) fn entry(&self, slot: Slot) -> &Entry {
        &self.store.arena[slot]
    }

    pub(crate) fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.store.arena[slot]
    }

    /// The oldest item of a queue.
    pub(crate) fn oldest(&self, queue: usize) -> Option<Slot> {
        self.store.queues[queue].oldest()
    }

    /// The item at `slot`, if that is a place with an item.
    pub(crate) fn occupied(&self, slot: usize) -> Option<&Entry> {
        let entry = (slot < self.store.arena.places()).then(|| &self.store.arena[slot as Slot])?;
        entry.occupied.then_some(entry)
    }

    /// Slots are below this.
    pub(crate) fn places(&self) -> usize {
        self.store.arena.places()
    }

    /// Adds an item whose key is not there, as the newest of its queue.
    pub(crate) fn insert(&mut self, lookup: &Lookup<'_>, payload: Payload, class: u8, tick: u64) -> Slot {
        let hash = lookup.inner_hash();
        let partition = lookup.partition;
        self.ledger.add(partition, payload.charge());
        let entry = Entry {
            payload,
            stamp: tick,
            cas: tick,
            hash,
            partition,
            class,
            occupied: true,
            ..Entry::free(0)
        };
        let Store { arena, index, queues } = &mut *self.store;
        let slot = arena.insert(entry);
        index.insert(hash, slot, arena);
        let queue = self.board.queue(partition, class);
        queues[queue].push(arena, slot);
        self.board.publish(queue, &queues[queue], arena);
        let counters = &self.board.counters[partition.index()];
        counters.items.increment();
        counters.stores.increment();
        slot
    }

    /// Gives an item another value and makes it the newest of its queue. Returns the old value, to be freed after the
    /// lock.
    pub(crate) fn overwrite(&mut self, slot: Slot, payload: Payload, class: u8, tick: u64) -> Payload {
        let entry = &mut self.store.arena[slot];
        let partition = entry.partition;
        entry.cas = tick;
        let old = std::mem::replace(&mut entry.payload, payload);
        let charge = entry.charge();
        self.ledger.release(partition, old.charge());
        self.ledger.add(partition, charge);
        self.refresh(slot, class, tick);
        self.board.counters[partition.index()].stores.increment();
        old
    }

    /// Sets marks and, if one is given, the CAS of an item.
    pub(crate) fn mark(&mut self, slot: Slot, marks: Marks, cas: Option<u64>) {
        let entry = &mut self.store.arena[slot];
        if cas.is_none() {
            entry.set_marks(marks);
            return;
        }
        let (partition, before) = (entry.partition, entry.charge());
        entry.payload = std::mem::replace(&mut entry.payload, Payload::free()).marked(marks, cas);
        let after = entry.charge();
        self.ledger.release(partition, before);
        self.ledger.add(partition, after);
    }

    /// Makes an item the newest of the queue of `class`.
    pub(crate) fn refresh(&mut self, slot: Slot, class: u8, tick: u64) {
        let Store { arena, queues, .. } = &mut *self.store;
        let (partition, old_class) = (arena[slot].partition, arena[slot].class);
        let (from, to) = (self.board.queue(partition, old_class), self.board.queue(partition, class));
        queues[from].remove(arena, slot);
        self.board.publish(from, &queues[from], arena);
        (arena[slot].stamp, arena[slot].class) = (tick, class);
        queues[to].push(arena, slot);
        self.board.publish(to, &queues[to], arena);
    }

    /// Takes an item out. Returns its entry, to be freed after the lock.
    pub(crate) fn remove(&mut self, slot: Slot, cause: Cause) -> Entry {
        let Store { arena, index, queues } = &mut *self.store;
        let (partition, class, hash) = (arena[slot].partition, arena[slot].class, arena[slot].hash);
        let queue = self.board.queue(partition, class);
        index.remove(hash, slot);
        queues[queue].remove(arena, slot);
        self.board.publish(queue, &queues[queue], arena);
        let entry = arena.remove(slot);
        self.ledger.release(partition, entry.charge());
        let counters = &self.board.counters[partition.index()];
        counters.items.decrement();
        match cause {
            Cause::Removed => {}
            Cause::Evicted => counters.evictions.increment(),
            Cause::Expired => counters.expired.increment(),
        }
        entry
    }

    /// Whether so many places are free that [`Self::evacuee`] should be called.
    pub(crate) fn has_slack(&self) -> bool {
        self.store.arena.has_slack()
    }

    /// An entry to pass to [`Self::relocate`], so that a chunk of memory can be given back. None when one was given back
    /// just now. Only to be called while there is slack.
    pub(crate) fn evacuee(&mut self) -> Option<Slot> {
        let Store { arena, index, .. } = &mut *self.store;
        let evacuee = arena.evacuee();
        if evacuee.is_none() {
            index.shrink_one(arena);
        }
        evacuee
    }

    /// Moves an entry to another free place.
    pub(crate) fn relocate(&mut self, from: Slot) {
        let Store { arena, index, queues } = &mut *self.store;
        let to = arena.relocate(from);
        let (hash, queue) = (arena[to].hash, self.board.queue(arena[to].partition, arena[to].class));
        index.rename(hash, from, to);
        queues[queue].relocate(arena, to);
    }
}

impl Board {
    fn queue(&self, partition: PartitionId, class: u8) -> usize {
        let classes = self.oldest.len() / self.counters.len();
        partition.index() * classes + usize::from(class)
    }

    fn publish(&self, queue: usize, items: &Queue, arena: &Arena) {
        self.oldest[queue].store(items.oldest_stamp(arena), Relaxed);
    }
}
