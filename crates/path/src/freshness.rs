//! How long a value is good for, and what may be done with one that is not any more.
//!
//! A cache that answers faster than its backend answers with what was true a while ago, so somebody
//! has to say how long a while may be. That is the operator, by key, and the store, by value,
//! whoever allows less. A value past that time is *stale*: it is no answer, but it is kept for a
//! time, because there are moments when one that is a little too old is better than none: while
//! another is on its way, when the backend fails, and when the backend is late and whoever asks has
//! said so. [`Rules`] says for how long a value is good and how it is stored, [`Staleness`] when
//! one that is not any more is an answer. Neither has a clock or draws anything.
//!
//! Values that are fetched together expire together, and then a backend is asked for all of them at
//! once. So a part of the lifetime is taken away from each key, a part of its own that depends on
//! nothing but the key.

use std::time::Duration;

use sherwood_cache::{Access, Cache, Change, Item, Kind, NewItem, OUTDATED, Refused, Value};
use sherwood_model::{Instant, PartitionId, SeededState, Tags};

/// What a backend's values are kept by. The default keeps each until it is evicted, and none that
/// is stale or absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// How long a value is good for; for ever where none.
    pub ttl: Option<Duration>,
    /// The same for keys that begin so; of several the longest prefix counts. Zero keeps no value.
    pub by_prefix: Vec<(Box<[u8]>, Duration)>,
    /// Up to how much of its lifetime a key goes without, 0 to 1.
    pub jitter_ratio: f64,
    /// How long the word that there is no value is kept; zero for not at all.
    pub negative_ttl: Duration,
    /// How long past its freshness a value is served while another is fetched.
    pub stale_while_revalidate: Duration,
    /// How long past its freshness a value is served when the backend fails.
    pub stale_if_error: Duration,
    /// How long past its freshness a value is kept for queries that say that they take it.
    pub keep_stale: Duration,
}

/// When a query takes a stale value. All zero, the default, is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// Up to this far past its freshness a value is the answer at once, and another is fetched that
    /// nobody waits for.
    pub while_revalidate: Duration,
    /// Up to this far past its freshness a value is the answer when the fetch has failed.
    pub if_error: Duration,
    /// Up to this far past its freshness a value is the answer when the fetch has failed or is
    /// late.
    pub when_late: Duration,
    /// A fetch is late when it has taken this long.
    pub late_after: Duration,
}

/// What a store has answered for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched<'a> {
    /// The value or its size.
    pub value: Value<'a>,
    /// The client's 32 bits.
    pub flags: u32,
    /// How long the store says that it is good for, zero for not beyond this answer; none where it
    /// says nothing.
    pub good_for: Option<Duration>,
    /// What it may be invalidated by.
    pub tags: Tags,
}

/// How long a value is kept as a fresh one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It is not kept.
    NotKept,
    /// So long, more than zero.
    For(Duration),
    /// Until it is evicted.
    Unlimited,
}

impl Rules {
    /// How long a value of `key` is kept that its store says is `good_for` so long, if it says
    /// anything: the shorter of that and the rule of the key, less its jitter. O(prefixes).
    #[must_use]
    pub fn lifetime(&self, key: &[u8], good_for: Option<Duration>) -> Lifetime {
        let of_key = self.by_prefix.iter().filter(|(prefix, _)| key.starts_with(prefix));
        let of_key = of_key.max_by_key(|(prefix, _)| prefix.len()).map(|&(_, ttl)| ttl).or(self.ttl);
        match of_key.into_iter().chain(good_for).min() {
            None => Lifetime::Unlimited,
            Some(ttl) => self.jittered(key, ttl),
        }
    }

    /// How long a partition of these values keeps stale ones, its
    /// [grace](sherwood_cache::Partition::grace): as long as any rule may serve one.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.keep_stale.max(self.stale_if_error).max(self.stale_while_revalidate)
    }

    /// When a query takes a stale value that itself allows one `when_late` past its freshness where
    /// the backend has not answered `late_after` a while.
    #[must_use]
    pub fn staleness(&self, when_late: Duration, late_after: Duration) -> Staleness {
        Staleness {
            while_revalidate: self.stale_while_revalidate,
            if_error: self.stale_if_error,
            when_late,
            late_after,
        }
    }

    /// What is kept of an answer that came at `now`, none being the word that there is no value;
    /// none where nothing is.
    #[must_use]
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
        let kind = if self.grace().is_zero() { Kind::Plain } else { Kind::Graced };
        Some(NewItem { value, flags, expires, kind, tags })
    }

    /// Stores what a dispatcher delivered with `fill`, an absent value too, unless its key has a
    /// fresh value by now: who wrote it meanwhile knows better. One that is [outdated](OUTDATED) is
    /// not: what was fetched before somebody said so may not fill. What is not kept leaves no older
    /// one that would be served as stale. Says whether something was stored.
    ///
    /// To be called once per delivered key, before the dispatcher's lock is let go of, with an
    /// `access` that sees neither stale nor absent items.
    ///
    /// # Errors
    /// When the cache refuses the item for its size. Nobody is the worse for it: the waiters have
    /// their value, and the next request asks the backend again.
    pub(crate) fn fill(
        &self,
        cache: &Cache,
        partition: PartitionId,
        key: &[u8],
        fetched: Option<Fetched<'_>>,
        access: &Access,
    ) -> Result<bool, Refused> {
        let item = self.item(key, fetched, access.now);
        let added = item.map_or(Ok(false), |item| cache.add(partition, key, item, access));
        if added == Ok(true) {
            return added;
        }
        let replaced = cache.update(partition, key, access, |there| match (there, item) {
            (Some(there), _) if !there.marks.contains(OUTDATED) => (Change::Keep, false),
            (Some(_), Some(item)) if added.is_ok() => (Change::Store(item), true),
            _ => (Change::Remove, false),
        })?;
        added.map(|_| replaced)
    }

    /// A lifetime less the part that `key` goes without.
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
    /// Whether it ever takes one.
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

/// Since when an item is stale, if it is at `now`: its time is over, or somebody has said that it
/// is old, but not since when.
pub(crate) fn stale_since(item: &Item<'_>, now: Instant) -> Option<Instant> {
    item.stale_since(now).or(item.marks.contains(OUTDATED).then_some(now))
}

/// Whether a value that is `age` past its freshness is within a limit, of which zero allows none.
fn is_within(age: Duration, limit: Duration) -> bool {
    !limit.is_zero() && age <= limit
}

#[cfg(test)]
mod tests;
