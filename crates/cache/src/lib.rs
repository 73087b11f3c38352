//! The partitioned cache engine: one memory budget, divided among (tenant, backend) partitions by
//! numbers that may change at any time.
//!
//! Caches that give each tenant its own pages resize slowly, because a page must be emptied before
//! another tenant can use it. Here a partition owns no memory but only a number, its budget. Items
//! of all partitions are stored together; a store evicts, and the budgets determine the victim. A
//! change of plan therefore costs nothing when it is made, moves nothing and flushes nothing, and
//! bytes freed by one partition are immediately available to another.
//!
//! ```
//! use sherwood_cache::{Access, Cache, NewItem, Options, Partition, Value};
//! use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, SeededState, TenantId};
//!
//! let partition = |backend| Partition::new(TenantId(0), BackendId(backend), 1 << 20);
//! let options = Options { total_bytes: 2 << 20, ..Options::default() };
//! let cache = Cache::new(options, &[partition(0), partition(1)], SeededState::new(7))?;
//!
//! let (catalog, access) = (PartitionId(1), Access::at(Instant::from_secs(1)));
//! cache.set(catalog, b"p:1", NewItem::bytes(b"chair"), &access)?;
//! let found = cache.get(catalog, b"p:1", &access, |item| item.value == Value::Bytes(b"chair"));
//! assert_eq!(found, Some(true));
//!
//! // Half a megabyte changes hands; the background makes room in small steps, or inserts do.
//! cache.apply(&CachePlan::Budgets(vec![3 << 19, 1 << 19]))?;
//! while cache.step(access.now, 100) {}
//! assert!(cache.usage(catalog).used_bytes <= 1 << 19);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is evicted
//!
//! Every item is charged [`charge`]`(key, value)` bytes. A use is a `get` that hits, a store over
//! an older value, or a touch. Which item of a partition goes first is the choice of [`Eviction`].
//!
//! Under **strict LRU** a use makes an item the most recent of all, and the least recent one is
//! evicted. With one thread the following is exact for any number of shards. (In a cache of one
//! shard the first 32 victims of step 3, or of step 4 under `Shared`, are evicted just before the
//! item is inserted, under the store's own lock; they are the same items in the same order.)
//!
//! A store into partition *p* of an item of charge *c* takes these steps:
//!
//! 1. An older value of the same key is freed. If *c* exceeds the budget of *p* (the total under
//!    `Shared`), the store is refused and nothing else happens.
//! 2. The item is inserted as the most recent of all.
//! 3. While *p* is over its budget and this store has freed less than 2*c* from it, the least
//!    recent item of *p* is evicted. A partition that was within its budget before is within it
//!    again; one whose budget was lowered shrinks by at least *c* with every store, and no single
//!    store pays for the whole change.
//! 4. While all items together exceed the ceiling ([`Cache::set_ceiling`]; the total by default)
//!    and this store has freed less than 8*c* for it, the least recent item of the partition that
//!    exceeds its budget by the most bytes (the first of equals) is evicted. So no single store
//!    pays for a lowered ceiling or total ([`Cache::resize`]).
//!
//! 5. While blocks and tables exceed the total plus its reserve (a tenth, or 32 MiB if that is
//!    more), pages are emptied, at most 8*c* bytes of records, and if that is not enough, items of
//!    at most 8*c* are evicted as in step 4.
//!
//! Under [`CachePlan::Shared`](sherwood_model::CachePlan::Shared) there are no budgets: step 3 does
//! nothing and step 4 evicts the least recent item of all.
//!
//! Under **S3-FIFO**, the default, the same steps apply with other victims: items that were not
//! used again are evicted from a small queue of new items (1 to 30% of the bytes, adapted by the
//! keys that return after being dropped) or from a main queue of items that were used. Every shard
//! selects victims among its own items, and the shard of the stored key is first, before the item
//! is inserted, for at most 32 items. `Shared` makes one S3-FIFO of all partitions' queues: they
//! turn at the same relative speed, so that an item stays equally long in every partition.
//!
//! # Deadline classes
//!
//! A partition may tell several classes of deadlines apart ([`DeadlineOptions`]). An access with a
//! class moves the item to that class's queues. Each class has a multiplier, which says how long
//! its items stay in relation to those of other classes, and which follows the missed deadlines
//! that stores tell of ([`AccessFlags::DEADLINE_MISSED`]).
//!
//! Under strict LRU the victim is the item, among the least recent of each class, with the largest
//! age divided by the multiplier of its class; the less recent of equals. The age is the number of
//! uses and stores, of any item of the cache, since the item's last use. Under S3-FIFO each class's
//! queues turn at a speed divided by its multiplier. With one class, the default, this is what is
//! said above.
//!
//! # Storage of items
//!
//! Items are stored in slots of 64 KiB pages, each page divided into slots of one size, or, above 8
//! KiB, in runs of whole system pages. Index and queues refer to an item by a 32-bit handle, so it
//! can be moved: when many slots are free, [`Cache::step`] empties pages and returns them to the
//! [`Memory`] they came from.
//!
//! [`Cache::step`] evicts as in step 4 while any partition is over its budget, removes dead items,
//! and returns memory that metadata no longer needs. An item is dead once it has expired or been
//! flushed: no operation finds it, but it is charged until an operation on its key, an eviction or
//! `step` removes it.
//!
//! # Items of limited visibility
//!
//! Some [kinds](ItemKind) of items are visible only to accesses that ask for them: items past their
//! expiry, which their partition's grace keeps as stale answers; negative entries, which record
//! that a key has no value; and placeholders for a value that a client has been told to fetch. Any
//! other access treats them as absent. A `get` that finds a stale item counts as a miss, because a
//! fetch follows; one that finds a negative entry counts as a hit, because no fetch follows.
//!
//! # Threads
//!
//! A [`Cache`] may be shared between threads. Items are distributed over shards by the hash of
//! (partition, key); an operation locks the shard of its key (for reading, if it is a `get` or a
//! `peek`; readers exclude writers and hardly each other), then, if it must evict, the shards of
//! the victims one at a time, never two. Other threads may observe the total exceeded by stores
//! that have not returned yet. When all have returned it is not exceeded, with one rare exception:
//! a store whose victims other threads took first, 64 times in a row, leaves the rest to the next
//! store or [`Cache::step`].
//!
//! # Limitations
//!
//! No persistence, no threads of its own, no clock: `now` is part of every access and background
//! work is done by [`Cache::step`]. A key is looked up in its partition only.

mod access;
mod background;
mod batch;
mod cache_padded;
mod charge;
mod classes;
mod copy;
mod deadlines;
mod engine;
mod eviction;
mod flush;
mod ghost;
mod held;
mod in_place;
mod item;
mod ledger;
mod lines;
mod lock;
mod memory;
mod options;
mod prefetch;
mod scan;
mod shard;
#[cfg(test)]
mod tests;
mod timeline;
mod total;
mod usage;

pub use access::{Access, AccessFlags};
pub use background::Work;
pub use charge::{ITEM_OVERHEAD_BYTES, charge};
pub use engine::Cache;
pub use ghost::{Curve, Ghost, GhostOptions};
pub use held::Held;
pub use in_place::{Pinned, Received, Reserved};
pub use item::{Change, Item, ItemKind, Marks, NewCas, NewItem, OUTDATED, Refused, Use, Value};
pub use ledger::PlanError;
pub use memory::{Heap, Memory};
pub use options::{
    DeadlineCost, DeadlineOptions, Eviction, Options, OptionsError, Partition, SHARD_BYTES_LIMIT,
};
pub use prefetch::PREFETCH_KEYS_MAX;
pub use sherwood_model::{DeadlineClass, DeadlineClasses};
pub use total::ResizeError;
pub use usage::{ClassUsage, Usage};
