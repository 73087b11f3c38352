//! Fills of the cache with fetched answers.

use sherwood_cache::{Access, AccessFlags, Cache, NewItem, Refused};
use sherwood_model::{Demand, Instant, PartitionId};

use super::key::FetchKey;
use crate::{Fetched, Rules, SharedValues};

/// The cache behind one backend's fills, and the form in which it keeps an answer.
pub trait AnswerCache<V> {
    /// The cache that holds the backend's partitions.
    fn cache(&self) -> &Cache;

    /// The answer as the cache is to store it.
    fn fetched<'a>(&self, value: &'a V) -> Fetched<'a>;

    /// Observes that an answer fills the cache, none where the backend has no value.
    fn note_fill(&self, now: Instant, partition: PartitionId, key: &[u8], value: Option<&V>) {
        let _ = (now, partition, key, value);
    }

    /// Observes that the cache refused an answer or a written value for its size.
    fn note_refused(&self, partition: PartitionId, key: &[u8], refused: &Refused) {
        let _ = (partition, key, refused);
    }
}

/// Counts of fetched answers, by permission to fill the cache, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillCounts {
    /// Answers that were allowed to fill the cache. [`Rules`] may have kept none of them.
    pub allowed: u64,
    /// Answers that were not allowed to fill the cache, since their key was invalidated, being
    /// written, or fenced after a write.
    pub withheld: u64,
}

/// Returns the access that stores an answer to `demand` at `now`: of the class of the deadline, if
/// there is one, and with a flag if that was missed.
pub(super) fn filling(now: Instant, demand: &Demand) -> Access {
    let is_late = demand.deadline.is_some_and(|deadline| deadline < now);
    let flags = if is_late { AccessFlags::DEADLINE_MISSED } else { AccessFlags::NONE };
    Access { class: demand.deadline_class(), flags, ..Access::at(now) }
}

/// Tells the cache of a missed deadline where no answer is stored.
pub(super) fn note_missed<K, V>(
    cache: &impl AnswerCache<V>,
    FetchKey { partition, .. }: &FetchKey<K>,
    access: &Access,
) {
    if let Some(class) = access.class
        && access.flags == AccessFlags::DEADLINE_MISSED
    {
        cache.cache().note_deadline_missed(*partition, class);
    }
}

/// Stores a fetched answer in the cache as `rules` say. For a shared backend, `shared` has the time
/// at which the fetch began.
pub(super) fn fill<K: AsRef<[u8]>, V>(
    rules: &Rules,
    shared: Option<(&SharedValues, Instant)>,
    access: &Access,
    cache: &impl AnswerCache<V>,
    FetchKey { partition, key }: &FetchKey<K>,
    value: Option<&V>,
) {
    let (partition, key) = (*partition, key.as_ref());
    cache.note_fill(access.now, partition, key, value);
    let fetched = value.map(|value| cache.fetched(value));
    if let Err(refused) = rules.fill(cache.cache(), partition, key, fetched, access, shared.is_some()) {
        cache.note_refused(partition, key, &refused);
    }
    // Afterwards, or a look-up in between would take the older value for the new one.
    if let Some((shared, began)) = shared {
        shared.note_fetched(access.now, partition, key, began);
    }
}

/// Stores `item` over any item of the key, or removes that if `item` is none.
pub(super) fn replace<V>(
    cache: &impl AnswerCache<V>,
    partition: PartitionId,
    key: &[u8],
    item: Option<NewItem<'_>>,
    access: &Access,
) {
    let Some(item) = item else {
        cache.cache().remove(partition, key, access);
        return;
    };
    if let Err(refused) = cache.cache().set(partition, key, item, access) {
        cache.note_refused(partition, key, &refused);
    }
}
