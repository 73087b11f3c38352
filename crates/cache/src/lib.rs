//! The partitioned cache engine: one memory budget, divided among (tenant, backend) partitions by
//! numbers that may change at any moment.
//!
//! Caches that give each tenant pages of its own resize slowly, because a page must be emptied
//! before it changes hands. Here a partition owns no memory, only a number: its budget. Items of
//! all partitions lie side by side; whoever inserts evicts, and which item goes depends on the
//! numbers. So a change of plan costs nothing when it is made, moves nothing, flushes nothing, and
//! what one partition frees is at once free for another.
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
//! Under **strict LRU** a use makes an item the most recent of all, and the least recent goes. With
//! one thread the following is exact whatever the number of shards. (In a cache of one shard the
//! victims of step 3, or of step 4 under `Shared`, go just before the item is there, under the lock
//! that its store holds, the first 32 of them; the same go in the same order.)
//!
//! A store into partition *p* of an item charged *c* runs in this order:
//!
//! 1. An older value of the same key is freed. If *c* exceeds the budget of *p* (the total, where
//!    all share), the store is refused and nothing else happens.
//! 2. The item is there, the most recent of all.
//! 3. While *p* is over its budget and this store has freed less than 2*c* from it, the least
//!    recent item of *p* is evicted. A partition that was within its budget before is within it
//!    again; one whose budget was lowered shrinks by at least *c* with every store, and no store
//!    pays for the whole change.
//! 4. While the total is exceeded, the least recent item of the partition that exceeds its budget
//!    by the most bytes (the first of equals) is evicted.
//!
//! 5. While all items together exceed the ceiling ([`Cache::set_ceiling`]; the total, if nobody has
//!    lowered it) and this store has freed less than 8*c* for it, the same is evicted as in step 4.
//!
//! 6. While blocks and tables take more than the total and its reserve (a tenth, or 32 MiB where
//!    that is more), pages are emptied, at most 8*c* bytes of records, and where there are none to
//!    empty, items of at most 8*c* evicted as in step 4.
//!
//! Under [`CachePlan::Shared`](sherwood_model::CachePlan::Shared) there are no budgets: step 3 does
//! nothing and step 4 evicts the least recent item of all.
//!
//! Under **S3-FIFO**, the default, the same steps hold with other victims: what was not used again
//! goes, from a small queue of new items (1 to 30% of the bytes, by what comes back after it was
//! dropped) or from a main queue of those that were used. Every shard decides for its own items,
//! and the shard of the key that is stored is asked first, before the item is there, for 32 items
//! at most. `Shared` makes one S3-FIFO of all partitions' queues: they turn at the same speed, in
//! parts of their length, so that an item stays as long whichever partition it is of.
//!
//! # Where items lie
//!
//! In places of 64 KiB pages that are cut into places of one size, or, above 8 KiB, in runs of
//! whole system pages. Index and queues know an item by a 32-bit handle, so it can be moved: when
//! many places are free, [`Cache::step`] empties pages and gives them back to the [`Memory`] they
//! came from.
//!
//! [`Cache::step`] evicts like step 4 as long as any partition is over its budget, takes dead items
//! out, and gives back memory that metadata no longer needs. An item is dead from the moment it
//! expires or a flush hits it: no operation finds it, but it is charged until it is met by an
//! operation on its key, evicted, or reclaimed by `step`.
//!
//! # What is seen by some only
//!
//! Some [kinds](Kind) of items are for those who ask for them: one past its expiry, which its
//! partition's grace keeps for answers that are better old than late, the word that a key has no
//! value, and a place for one that somebody was told to fetch. To any other access they are as if
//! they were not there, so who never heard of them is right. A `get` that finds a stale item counts
//! as a miss, because whoever gets one fetches another; one that finds the word of an absent value
//! is a hit, because nobody has to be asked.
//!
//! # Threads
//!
//! A [`Cache`] may be shared. Items are spread over shards by the hash of (partition, key); an
//! operation locks the one shard of its key (for reading, if it is a `get` or a `peek`: readers
//! keep out writers and hardly each other), then, when it must evict, the shards of the victims,
//! one at a time, never two. Other threads may see the total exceeded by the items whose stores
//! have not returned yet. When all have returned it is not, but in one rare case: a store whose
//! victims other threads took first, 64 times in a row, gives up and leaves the rest to the next
//! store or [`Cache::step`].
//!
//! # What is not here
//!
//! No persistence, no threads of its own, no clock: `now` comes with every access and background
//! work is [`Cache::step`]. A key is looked up in its partition only.

mod access;
mod background;
mod batch;
mod charge;
mod copy;
mod engine;
mod eviction;
mod flush;
mod ghost;
mod item;
mod ledger;
mod line;
mod lock;
mod memory;
mod options;
mod prefetch;
mod scan;
mod shard;
#[cfg(test)]
mod tests;
mod timeline;
mod usage;

pub use access::{Access, AccessFlags, DeadlineClass};
pub use background::Work;
pub use charge::{ITEM_OVERHEAD_BYTES, charge};
pub use engine::Cache;
pub use ghost::{Curve, Ghost, GhostOptions};
pub use item::{Change, Item, Kind, Marks, NewCas, NewItem, Refused, Use, Value};
pub use ledger::PlanError;
pub use memory::{Heap, Memory};
pub use options::{Eviction, Options, OptionsError, Partition, SHARD_BYTES_LIMIT};
pub use prefetch::PREFETCH_KEYS_MAX;
pub use usage::Usage;
