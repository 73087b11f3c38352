//! Lifetimes of cached values, and the use of stale values.
//!
//! A cached value may differ from the store's current one. The operator limits its lifetime by key,
//! the store by value; the shorter limit counts. A value past its lifetime is *stale*. It is kept
//! for a while, because a stale value can be better than none: while the key is revalidated, when
//! the backend fails, and when the backend is late and the query accepts a stale value. [`Rules`]
//! decide how long a value is fresh and how it is stored, [`Staleness`] when a query accepts a
//! stale one. Neither has a clock or draws random numbers.
//!
//! Values that are fetched together would expire together, and the backend would have to answer for
//! all of them at once. So each key's lifetime is shortened by a share that depends only on the
//! key.

use std::time::Duration;

use sherwood_cache::{Access, Cache, Change, Item, ItemKind, NewItem, OUTDATED, Refused, Value};
use sherwood_model::{Instant, PartitionId, SeededState, Tags};

/// Lifetimes of one backend's values. By default each value is kept until it is evicted, and stale
/// and absent values are not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Lifetime of a value; unlimited if none.
    pub ttl: Option<Duration>,
    /// Lifetimes of keys by prefix, which replace `ttl`; the longest matching prefix counts. Values
    /// with a lifetime of zero are not cached.
    pub by_prefix: Vec<(Box<[u8]>, Duration)>,
    /// Largest share of a lifetime by which a key's own jitter shortens it, 0 to 1.
    pub jitter_ratio: f64,
    /// Lifetime of the cached information that a key has no value; not cached if zero.
    pub negative_ttl: Duration,
    /// Time past its lifetime during which a value is served while it is revalidated.
    pub stale_while_revalidate: Duration,
    /// Time past its lifetime during which a value is served when the backend fails.
    pub stale_if_error: Duration,
    /// Time past its lifetime during which a value is kept for queries that accept stale values.
    pub keep_stale: Duration,
}

/// Ages up to which a query accepts a stale value. The default, all zero, accepts none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Time past its lifetime during which a value is the answer at once, and is revalidated
    /// without the query waiting.
    pub while_revalidate: Duration,
    /// Time past its lifetime during which a value is the answer if the fetch fails.
    pub if_error: Duration,
    /// Time past its lifetime during which a value is the answer if the fetch fails or is late.
    pub when_late: Duration,
    /// Time after which a fetch counts as late.
    pub late_after: Duration,
}

/// The answer of a store for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's flags: 32 bits, returned as they were stored.
    pub flags: u32,
    /// The lifetime that the store sets, zero to forbid caching; none if it sets none.
    pub good_for: Option<Duration>,
    /// Tags by which the value can be invalidated.
    pub tags: Tags,
}

/// The lifetime of a value in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The value is not kept.
    NotKept,
    /// The value is fresh for this time, more than zero.
    For(Duration),
    /// The value is fresh until it is evicted.
    Unlimited,
}

impl Rules {
    /// Takes over the lifetimes of other rules: of values, by prefix, with their jitter, and of
    /// absent values. How stale values are kept and served stays.
    pub fn take_lifetimes(&mut self, of: &Self) {
        (self.ttl, self.jitter_ratio, self.negative_ttl) = (of.ttl, of.jitter_ratio, of.negative_ttl);
        self.by_prefix.clone_from(&of.by_prefix);
    }

    /// Returns the lifetime of a value of `key` for which the store sets `good_for`: the shorter of
    /// that and the rule of the key, less its jitter. O(prefixes).
    #[must_use]
    #[inline]
    pub fn lifetime(&self, key: &[u8], good_for: Option<Duration>) -> Lifetime {
        let of_key = if self.by_prefix.is_empty() { self.ttl } else { self.ttl_by_prefix(key) };
        match (of_key, good_for) {
            (None, None) => Lifetime::Unlimited,
            (Some(ttl), None) | (None, Some(ttl)) => self.jittered(key, ttl),
            (Some(of_key), Some(of_store)) => self.jittered(key, of_key.min(of_store)),
        }
    }

    /// Returns the time for which a partition of these values keeps stale ones, its
    /// [grace](sherwood_cache::Partition::grace): the longest time for which any rule may serve
    /// one.
    #[must_use]
    #[inline]
    pub fn grace(&self) -> Duration {
        self.keep_stale.max(self.stale_if_error).max(self.stale_while_revalidate)
    }

    /// Returns the staleness of a query that accepts values up to `when_late` past their lifetime
    /// once its fetch has taken `late_after`.
    #[must_use]
    pub fn staleness(&self, when_late: Duration, late_after: Duration) -> Staleness {
        Staleness {
            while_revalidate: self.stale_while_revalidate,
            if_error: self.stale_if_error,
            when_late,
            late_after,
        }
    }

    /// Returns the item to store for an answer that came at `now`; `fetched` is none if the store
    /// has no value. Returns none if nothing is to be stored.
    #[must_use]
    #[inline]
    pub(crate) fn item<'a>(
        &self,
        key: &[u8],
        fetched: Option<Fetched<'a>>,
        now: Instant,
    ) -> Option<NewItem<'a>> {
        let Some(Fetched { value, flags, good_for, tags }) = fetched else {
            return match self.jittered(key, self.negative_ttl) {
                Lifetime::For(ttl) => Some(NewItem { expires: Some(now + ttl), ..NewItem::absent() }),
                Lifetime::NotKept | Lifetime::Unlimited => None,
            };
        };
        let expires = match self.lifetime(key, good_for) {
            Lifetime::NotKept => return None,
            Lifetime::For(ttl) => Some(now + ttl),
            Lifetime::Unlimited => None,
        };
        let kind = if self.grace().is_zero() { ItemKind::Plain } else { ItemKind::Graced };
        Some(NewItem { value, flags, expires, kind, tags, received: None })
    }

    /// Stores a fetched value, or the absence of one, and returns true if something was stored. A
    /// fresh item in the cache is kept, since it is newer than the fetch, unless the fetch
    /// `replaces` it: values of a shared backend may be older. A stale item is replaced, and so is
    /// one marked [outdated](OUTDATED): fetches from before the mark may not fill, so that this
    /// value is newer. If there is nothing to store, the item that would be replaced is removed, so
    /// that it is not served any longer.
    ///
    /// Call it once for each delivered key, before the dispatcher's lock is released, with an
    /// `access` that sees neither stale nor absent items.
    ///
    /// # Errors
    /// If the cache refuses the item for its size. The waiters have their value nevertheless, and
    /// the next request fetches the key again.
    pub(crate) fn fill(
        &self,
        cache: &Cache,
        partition: PartitionId,
        key: &[u8],
        fetched: Option<Fetched<'_>>,
        access: &Access,
        replaces: bool,
    ) -> Result<bool, Refused> {
        let item = self.item(key, fetched, access.now);
        let added = item.map_or(Ok(false), |item| cache.add(partition, key, item, access));
        if added == Ok(true) {
            return added;
        }
        let replaced = cache.update(partition, key, access, |there| match (there, item) {
            (Some(there), _) if !replaces && !there.marks.contains(OUTDATED) => (Change::Keep, false),
            (Some(_), Some(item)) if added.is_ok() => (Change::Store(item), true),
            _ => (Change::Remove, false),
        })?;
        added.map(|_| replaced)
    }

    fn ttl_by_prefix(&self, key: &[u8]) -> Option<Duration> {
        let matching = self.by_prefix.iter().filter(|(prefix, _)| key.starts_with(prefix));
        matching.max_by_key(|(prefix, _)| prefix.len()).map(|&(_, ttl)| ttl).or(self.ttl)
    }

    /// Returns the lifetime `ttl` less the jitter of `key`.
    fn jittered(&self, key: &[u8], ttl: Duration) -> Lifetime {
        if ttl.is_zero() {
            return Lifetime::NotKept;
        }
        let share = SeededState::new(0).hash_bytes(key) as f64 / u64::MAX as f64;
        let kept = ttl.mul_f64(1.0 - self.jitter_ratio.clamp(0.0, 1.0) * share);
        Lifetime::For(kept.clamp(Duration::from_nanos(1), ttl))
    }
}

impl Staleness {
    /// Returns true if the query accepts stale values at all.
    #[must_use]
    pub fn takes_any(&self) -> bool {
        let Self { while_revalidate, if_error, when_late, late_after: _ } = self;
        [while_revalidate, if_error, when_late].iter().any(|limit| !limit.is_zero())
    }

    pub(crate) fn serves_at_once(&self, age: Duration) -> bool {
        is_within(age, self.while_revalidate)
    }

    pub(crate) fn serves_late(&self, age: Duration) -> bool {
        is_within(age, self.when_late)
    }

    pub(crate) fn serves_failed(&self, age: Duration) -> bool {
        is_within(age, self.if_error.max(self.when_late))
    }
}

/// Returns the time since which an item is stale, none if it is fresh at `now`. An item that was
/// marked outdated counts as stale from `now` on, since the time of the mark is not recorded.
pub(crate) fn stale_since(item: &Item<'_>, now: Instant) -> Option<Instant> {
    item.stale_since(now).or(item.marks.contains(OUTDATED).then_some(now))
}

/// Returns true if a value of this `age` past its lifetime is within a limit; a limit of zero
/// allows none.
fn is_within(age: Duration, limit: Duration) -> bool {
    !limit.is_zero() && age <= limit
}

#[cfg(test)]
mod tests;
