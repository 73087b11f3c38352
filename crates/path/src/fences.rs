//! Fences: keys for which fetched values must not be cached.
//!
//! A write goes to the store first. While it is in flight, a fetch of its key may return the old
//! value or the new one; if the answer to the write is lost, that stays so for a while. If the
//! cache kept the old value from such a fetch, it would serve it long after the write was
//! acknowledged. So [`Fences`] remembers the keys that are being written, and the keys that were
//! written or changed so recently that the store may still return the value before. It holds
//! neither values nor the timeouts of writes.
//!
//! The cached value stays while a write is in flight. Readers may see it until the write is
//! acknowledged, and all of them see the same value; without it they would see the new value and
//! the old one in turn, depending on the replica and time of their fetches.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sherwood_dispatch::{LogRefused, TenantRefusal};
use sherwood_model::{Instant, SeededState};
use thiserror::Error;

/// Divisor of `writes_max` that gives the number of writes of one key that may wait for an earlier
/// one, at least one. It leaves room for writes of other keys.
const WAITING_SHARE: u32 = 8;

/// Bounds and times of one backend's [`Fences`]: keys for which fetched values must not be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FenceOptions {
    /// Upper bound of writes in flight, those that wait for an earlier write of their key included.
    pub(crate) writes_max: u32,
    /// Upper bound of keys fenced (their fetched values not cached) one by one. Beyond it all keys
    /// are fenced for the same time.
    pub(crate) fenced_keys_max: u32,
    /// True if writes of one key are made one after the other, and none while an earlier one may
    /// still land (be applied). Needed if several replicas are written to: they could apply two
    /// concurrent writes in different orders, and would differ for good.
    pub(crate) in_turn: bool,
    /// Time after an acknowledged write of a key, or another change of the store, during which a
    /// fetch may still return the value before it, as from a replica that lags.
    pub(crate) settle: Duration,
    /// Time for which a write of unknown outcome may still be applied after its end.
    pub(crate) landing: Duration,
    /// Longest wait of a write for an earlier write of its key. A write that would have to wait
    /// longer is refused.
    pub(crate) turn_timeout: Duration,
}

/// The outcome of a write at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The store has applied the write.
    Acknowledged,
    /// The store has not applied the write and never will.
    NotDone,
    /// The write was applied, or will be, or neither: the connection broke, or no answer came in
    /// time.
    Unknown,
}

impl WriteOutcome {
    /// Returns the combined outcome of all replicas; [`Self::NotDone`] if there are none.
    #[must_use]
    pub(crate) fn of_all(each: impl IntoIterator<Item = Self>) -> Self {
        let both = |all, one| if all == one { all } else { Self::Unknown };
        each.into_iter().reduce(both).unwrap_or(Self::NotDone)
    }
}

/// The id of one write to one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u64);

/// A write that has been accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) write: WriteId,
    /// True if the write may be sent now. If not, [`Ended::next`] or [`Fences::poll_turn`] returns
    /// its id when its turn comes.
    pub(crate) may_start: bool,
}

/// Consequences of the end of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// True if the cache may keep the written value. If not, it must drop the key.
    pub(crate) keep: bool,
    /// The waiting write of the same key whose turn has come, if any.
    pub(crate) next: Option<WriteId>,
}

/// A fence, during which fetched values were not cached, that has ended. The fetches that began
/// before may not fill: they may have read the value before the last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lifted<K> {
    /// The fence of this key.
    Key(K),
    /// The fence over all keys of the backend.
    All,
}

/// The reason why a write was refused before anything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteRefused {
    /// The backend has as many writes in flight as it may have.
    #[error(
        "{limit} writes to the backend are under way, the most there may be; nothing was sent, write again later"
    )]
    Full {
        /// Upper bound of writes in flight.
        limit: u32,
    },
    /// As many writes of the key wait for earlier ones as may.
    #[error(
        "{limit} writes of the key wait for their turn, the most there may be; nothing was sent, write again later"
    )]
    KeyFull {
        /// Upper bound of the writes of one key that wait.
        limit: u32,
    },
    /// An earlier write of unknown outcome may be applied until after this one would have to be
    /// sent.
    #[error("an earlier write of the key may still land within {0:?}; nothing was sent, write again then")]
    NoTurn(Duration),
    /// Other nodes cache the backend's values, and do not know this process yet, so that they would
    /// miss the write. None if they will not know it before their configuration names this node.
    #[error("the other nodes of the cluster do not know this process yet and would serve older values; nothing was sent, write again {}", when(.0))]
    Unknown(Option<Duration>),
    /// The store's log takes no change.
    #[error("{0}")]
    Log(LogRefused),
    /// The rate at which the tenant may write to the backend is used, and the wait would be too
    /// long.
    #[error("nothing was sent because of the tenant's rate of writes to the backend: {0}")]
    OverRate(TenantRefusal),
}

/// Returns when a write is possible, for an error.
fn when(after: &Option<Duration>) -> String {
    match after {
        Some(after) => format!("in {after:?}"),
        None => "when the `nodes` of each of them name this node".to_owned(),
    }
}

/// The keys of one backend that are being written or fenced.
///
/// # Life of a key
/// ```text
///   begin ─▶ being written ─end, acknowledged─────────▶ value kept ─┬────────────────▶ forgotten
///            (fenced)      ├─not done─────────────────▶ not cached ─┤
///                          ├─concurrent with another──▶ not cached ─┤
///                          │                                        └─settle─▶ fenced ─▶ forgotten
///                          └─unknown────▶ not cached ──────landing, settle───▶ fenced ─▶ forgotten
///   fence ───────────────────────────────────────────────────────────settle──▶ fenced ─▶ forgotten
/// ```
/// Values fetched for a fenced key reach their waiters and are not cached. Nor is the value of a
/// write that begins before `landing` has passed: the write of unknown outcome may land after it.
/// Where writes are made in turn, no write of the key starts before then either.
///
/// # Inputs and outputs
/// All under the lock that fills are made under, and before each of them
/// [`poll_lifted`](Self::poll_lifted) and [`poll_turn`](Self::poll_turn) until they return none.
/// 1. [`begin`](Self::begin), or [`accept`](Self::accept) and later
///    [`begin_accepted`](Self::begin_accepted), and send the write when its turn has come.
/// 2. [`end`](Self::end) with its outcome, [`WriteOutcome::NotDone`] if its turn never came.
///    Whatever the outcome, no fetch of the key that is in flight may fill, and the cache either
///    gets the value or drops the key.
/// 3. [`is_fenced`](Self::is_fenced) before a fill.
///
/// # Wake-ups
/// At [`next_turn`](Self::next_turn), for writes that only wait for time to pass. The end of a
/// fence has no wake-up: the next input finds it, and until then less is cached than could be.
///
/// # Complexity and memory
/// A constant number of hash operations for each call, and one on an ordered map where a key is
/// fenced or its writes wait for time. At most `writes_max + fenced_keys_max` keys are remembered.
#[derive(Clone, Debug)]
pub(crate) struct Fences<K> {
    options: FenceOptions,
    keys: HashMap<K, Key, SeededState>,
    /// Fenced keys (their fetched values are not cached), by the end of their fence.
    fenced: BTreeMap<(Instant, WriteId), K>,
    /// Keys whose waiting writes need only time to pass, by the end of the wait.
    resting: BTreeMap<(Instant, WriteId), K>,
    /// A fence over every key, set when there were too many for one each.
    all: Option<Fence>,
    in_flight: u32,
    ids: u64,
}

/// Writes and fence of one key.
#[derive(Clone, Debug, Default)]
struct Key {
    /// Number of writes of the key that were sent and have not ended.
    running: u32,
    /// Writes of the key that wait for those to end, and for earlier ones that may still land (be
    /// applied).
    waiting: VecDeque<WriteId>,
    /// The key's place in [`Fences::resting`], while its waiting writes need only time to pass.
    rests: Option<(Instant, WriteId)>,
    /// True if the key's final value may differ from the value that a running write stores: two
    /// writes ran at once, one of unknown outcome could still land, or the key was changed by other
    /// means. Cleared when no write is running.
    contended: bool,
    fence: Option<Fence>,
}

/// A period in which the store may return an old value, so that fetched values are not cached.
#[derive(Clone, Copy, Debug)]
struct Fence {
    /// Time until which a write of unknown outcome may land (be applied).
    unsettled: Instant,
    /// Time at which the fence ends, not before `unsettled`.
    until: Instant,
    /// The id of the write that set the fence, which tells apart fences with the same end.
    by: WriteId,
}

impl Key {
    /// Marks the running writes as contended: the key was changed by something else.
    fn contend(&mut self) {
        self.contended = self.running > 0;
    }

    /// Counts one more running write of the key.
    fn start(&mut self, now: Instant, all: Option<Fence>) {
        self.contended |= self.running > 0 || self.unsettled(now, all).is_some();
        self.running += 1;
    }

    /// Returns the time until which a write of unknown outcome may land (be applied by the store);
    /// none if it has passed.
    fn unsettled(&self, now: Instant, all: Option<Fence>) -> Option<Instant> {
        let fences = [self.fence, all].into_iter().flatten();
        fences.map(|fence| fence.unsettled).max().filter(|&unsettled| now < unsettled)
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.fence.is_none()
    }
}

impl<K: Clone + Eq + Hash> Fences<K> {
    /// Creates the fences of a backend without writes.
    #[must_use]
    pub(crate) fn new(options: FenceOptions, hash: SeededState) -> Self {
        Self {
            options,
            keys: HashMap::with_hasher(hash),
            fenced: BTreeMap::new(),
            resting: BTreeMap::new(),
            all: None,
            in_flight: 0,
            ids: 0,
        }
    }

    /// Accepts a write of `key`. From now on nothing fetched for the key may fill the cache.
    ///
    /// # Errors
    /// If as many writes are in flight as may be, if as many writes of the key wait as may, or if
    /// the turn of this write cannot come in time.
    pub(crate) fn begin(&mut self, now: Instant, key: K) -> Result<Begun, WriteRefused> {
        let write = self.accept(now, &key)?;
        Ok(Begun { write, may_start: self.begin_accepted(now, write, key) })
    }

    /// Accepts a write of `key` that does not begin yet. Until
    /// [`begin_accepted`](Self::begin_accepted) or [`withdraw`](Self::withdraw), it counts as in
    /// flight and has no effect on the key.
    ///
    /// # Errors
    /// As those of [`begin`](Self::begin).
    pub(crate) fn accept(&mut self, now: Instant, key: &K) -> Result<WriteId, WriteRefused> {
        self.admit(now, key)?;
        self.in_flight += 1;
        self.ids += 1;
        Ok(WriteId(self.ids))
    }

    /// Begins an accepted write of `key`: from now on nothing fetched for the key may fill the
    /// cache. Returns true if the write may be sent now.
    pub(crate) fn begin_accepted(&mut self, now: Instant, write: WriteId, key: K) -> bool {
        let state = self.keys.entry(key.clone()).or_default();
        if !self.options.in_turn {
            state.start(now, self.all);
            return true;
        }
        state.waiting.push_back(write);
        state.waiting.len() == 1 && self.take_turn(now, &key).is_some()
    }

    /// Ends an accepted write that has not begun.
    pub(crate) fn withdraw(&mut self) {
        self.in_flight -= 1;
    }

    /// Ends a write of `key` that has begun and not ended.
    pub(crate) fn end(&mut self, now: Instant, write: WriteId, key: &K, outcome: WriteOutcome) -> Ended {
        let Some(state) = self.keys.get_mut(key) else { return Ended { keep: false, next: None } };
        self.in_flight -= 1;
        if let Some(position) = state.waiting.iter().position(|waiting| *waiting == write) {
            state.waiting.remove(position);
            if state.waiting.is_empty()
                && let Some(place) = state.rests.take()
            {
                self.resting.remove(&place);
            }
            self.forget_idle(key.clone());
            return Ended { keep: false, next: None };
        }
        let keep = outcome == WriteOutcome::Acknowledged && !state.contended;
        state.running -= 1;
        state.contended &= state.running > 0;
        let settles = match outcome {
            WriteOutcome::Acknowledged => Some(now),
            WriteOutcome::Unknown => Some(now + self.options.landing),
            WriteOutcome::NotDone => None,
        };
        if let Some(unsettled) = settles {
            let fence = self.settling(unsettled);
            self.extend(key, fence, now);
        }
        let next = self.take_turn(now, key);
        self.forget_idle(key.clone());
        Ended { keep, next }
    }

    /// Returns the next write whose turn has come by `now`, because no earlier one can land (be
    /// applied) any more.
    pub(crate) fn poll_turn(&mut self, now: Instant) -> Option<WriteId> {
        loop {
            let first = self.resting.first_entry().filter(|first| first.key().0 <= now)?;
            let key = first.remove();
            if let Some(state) = self.keys.get_mut(&key) {
                state.rests = None;
            }
            // The wait may have become longer since it began.
            if let Some(turn) = self.take_turn(now, &key) {
                return Some(turn);
            }
        }
    }

    /// Returns the time to call [`poll_turn`](Self::poll_turn), which starts waiting writes; none
    /// while no write waits only for time to pass.
    #[must_use]
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        self.resting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Returns the time at which a waiting write may start or a fence ends; none while no key waits
    /// or is fenced.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let fenced = self.fenced.first_key_value().map(|((at, _), _)| *at);
        let all = self.all.map(|fence| fence.until);
        self.next_turn().into_iter().chain(fenced).chain(all).min()
    }

    /// Has the running writes of a key keep no value, because the cache was changed by other means.
    pub(crate) fn contend(&mut self, key: &K) {
        if let Some(state) = self.keys.get_mut(key) {
            state.contend();
        }
    }

    /// Fences a key that was changed by other means, at the store or in the cache. The values of
    /// running writes are not kept, nor those fetched until `settle` has passed.
    pub(crate) fn fence(&mut self, now: Instant, key: &K) {
        self.fence_unsettled(now, key, now);
    }

    /// Fences a key as [`fence`](Self::fence) does, whose value at the store may still change until
    /// `unsettled`.
    pub(crate) fn fence_unsettled(&mut self, now: Instant, key: &K, unsettled: Instant) {
        self.contend(key);
        let fence = self.settling(unsettled);
        self.extend(key, fence, now);
    }

    /// Fences all keys until `settle` has passed, because keys of which `which` holds were changed
    /// and any of them may be fetched. Marks their running writes as contended. Linear in the keys
    /// remembered.
    pub(crate) fn fence_where(&mut self, now: Instant, mut which: impl FnMut(&K) -> bool) {
        self.keys.iter_mut().filter(|(key, _)| which(key)).for_each(|(_, state)| state.contend());
        self.fence_all(now, now);
    }

    /// Fences all keys (no fetched value is cached) because of writes that are not remembered, as
    /// at a start. A write of unknown outcome may land until `unsettled`, at most until `landing`
    /// from `now`.
    pub(crate) fn fence_all(&mut self, now: Instant, unsettled: Instant) {
        let unsettled = unsettled.clamp(now, now + self.options.landing);
        let fence = self.settling(unsettled);
        if fence.until > now {
            self.all = Some(self.all.map_or(fence, |all| all.later(fence)));
        }
    }

    /// Returns the time until which a write may land (be applied) that has ended, or that is
    /// abandoned at `now`; none if there is no such write. Linear in the keys remembered.
    #[must_use]
    pub(crate) fn unsettled(&self, now: Instant) -> Option<Instant> {
        let of_key = |state: &Key| match state.running {
            0 => state.unsettled(now, None),
            _ => Some(now + self.options.landing),
        };
        let of_all = self.all.map(|fence| fence.unsettled).filter(|&unsettled| now < unsettled);
        self.keys.values().filter_map(of_key).chain(of_all).max()
    }

    /// Returns true if `key` is being written or the store may return an old value of it.
    #[must_use]
    pub(crate) fn is_fenced(&self, key: &K) -> bool {
        self.all.is_some() || (!self.keys.is_empty() && self.keys.contains_key(key))
    }

    /// Removes and returns the next fence that has ended by `now`.
    pub(crate) fn poll_lifted(&mut self, now: Instant) -> Option<Lifted<K>> {
        if self.all.is_some_and(|fence| fence.until <= now) {
            self.all = None;
            return Some(Lifted::All);
        }
        let first = self.fenced.first_entry().filter(|first| first.key().0 <= now)?;
        let key = first.remove();
        if let Some(state) = self.keys.get_mut(&key) {
            state.fence = None;
        }
        self.forget_idle(key.clone());
        Some(Lifted::Key(key))
    }

    /// Returns the number of keys that are being written or fenced.
    #[must_use]
    pub(crate) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Refuses a write beyond the bounds, or one that would wait too long for earlier writes of its
    /// key.
    fn admit(&self, now: Instant, key: &K) -> Result<(), WriteRefused> {
        let FenceOptions { writes_max, in_turn, turn_timeout, .. } = self.options;
        if self.in_flight >= writes_max {
            return Err(WriteRefused::Full { limit: writes_max });
        }
        if !in_turn {
            return Ok(());
        }
        let unknown = Key::default();
        let state = self.keys.get(key).unwrap_or(&unknown);
        let limit = (writes_max / WAITING_SHARE).max(1);
        if state.waiting.len() >= limit as usize {
            return Err(WriteRefused::KeyFull { limit });
        }
        match state.unsettled(now, self.all) {
            Some(unsettled) if unsettled > now + turn_timeout => {
                Err(WriteRefused::NoTurn(unsettled.since(now)))
            }
            _ => Ok(()),
        }
    }

    /// Starts the first of a key's waiting writes if its turn has come. If it only waits for time
    /// to pass, the key is added to `resting`.
    fn take_turn(&mut self, now: Instant, key: &K) -> Option<WriteId> {
        let state = self.keys.get_mut(key).filter(|state| state.running == 0)?;
        let first = *state.waiting.front()?;
        if let Some(unsettled) = state.unsettled(now, self.all) {
            if state.rests.is_none() {
                state.rests = Some((unsettled, first));
                self.resting.insert((unsettled, first), key.clone());
            }
            return None;
        }
        state.waiting.pop_front();
        state.start(now, self.all);
        Some(first)
    }

    /// Returns a fence for the time that replicas may lag behind a store that is settled at
    /// `unsettled`.
    fn settling(&mut self, unsettled: Instant) -> Fence {
        self.ids += 1;
        Fence { unsettled, until: unsettled + self.options.settle, by: WriteId(self.ids) }
    }

    /// Extends the fence of a key to last at least as long as `more`.
    fn extend(&mut self, key: &K, more: Fence, now: Instant) {
        if more.until <= now {
            return;
        }
        let is_fenced = self.keys.get(key).is_some_and(|state| state.fence.is_some());
        if !is_fenced && self.fenced.len() >= self.options.fenced_keys_max as usize {
            self.all = Some(self.all.map_or(more, |fence| fence.later(more)));
            return;
        }
        let state = self.keys.entry(key.clone()).or_default();
        let fence = match state.fence {
            Some(fence) => {
                self.fenced.remove(&(fence.until, fence.by));
                fence.later(more)
            }
            None => more,
        };
        state.fence = Some(fence);
        self.fenced.insert((fence.until, fence.by), key.clone());
    }

    fn forget_idle(&mut self, key: K) {
        if let Entry::Occupied(entry) = self.keys.entry(key)
            && entry.get().is_idle()
        {
            entry.remove();
        }
    }
}

impl Fence {
    /// Returns the fence that ends later, with the later landing time of both.
    fn later(self, other: Self) -> Self {
        let longest = if other.until > self.until { other } else { self };
        Self { unsettled: self.unsettled.max(other.unsettled), ..longest }
    }
}

#[cfg(test)]
mod tests;
