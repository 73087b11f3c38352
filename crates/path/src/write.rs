//! What a write of a key means to the cache.
//!
//! A write goes to the store first, and while it is on its way nobody can say which value a fetch
//! meets there: the old one, the new one, or, when the answer to the write is lost, either of them
//! for a while yet. A cache that kept what such a fetch brings would serve the old value long after
//! somebody was told that the new one is stored. So somebody has to remember which keys are being
//! written, and which were written so lately, or so badly, that the store may not be believed yet.
//! That is [`Writes`]; it holds no value and no time-out, and it belongs under the same lock as the
//! backend's dispatcher and the fills.
//!
//! What was cached before stays while the write is under way. It is what readers are entitled to
//! until the write is acknowledged, and all of them read the same; were it taken out at the
//! beginning, they would see the new value and the old one in turn, as their fetches happen to meet
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use sherwood_model::{Instant, SeededState};
use thiserror::Error;

/// Of the writes that may be under way, one in so many may be of one key and wait for its turn; one
/// at least.
const WAITING_SHARE: u32 = 8;

/// Bounds and times of one backend's [`Writes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Writes under way at most, those that wait for their turn among them.
    pub under_way_max: u32,
    /// Keys that are held off one by one; where there are more, nothing that is fetched from the
    /// backend is kept for as long.
    pub held_keys_max: u32,
    /// Whether writes of one key are made one after the other, and none while an earlier one may
    /// still be carried out. Needed where several replicas are written to: two writes at once could
    /// meet in another order at each, and they would differ for good.
    pub in_turn: bool,
    /// How long after an acknowledged write, or a change that somebody else made, a fetch may still
    /// bring what was there before, as from a replica that lags behind.
    pub settle: Duration,
    /// How long after its end a write of unknown outcome may still be carried out.
    pub landing: Duration,
    /// How long a write waits for its turn at most. One whose turn cannot come by then is refused.
    pub patience: Duration,
}

/// How a write ended at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store has it.
    Acknowledged,
    /// The store has not and will not do it.
    NotDone,
    /// It was done, or will be, or neither: the connection broke, or nobody waited long enough.
    Unknown,
}

impl Outcome {
    /// What it was for all replicas together; of no replicas, that nothing was done.
    #[must_use]
    pub fn of_all(each: impl IntoIterator<Item = Self>) -> Self {
        let both = |all, one| if all == one { all } else { Self::Unknown };
        each.into_iter().reduce(both).unwrap_or(Self::NotDone)
    }
}

/// One write under way, to be given back to [`Writes::end`].
#[derive(Debug)]
#[must_use = "its key is held until the write has ended"]
pub struct Write<K> {
    id: WriteId,
    key: K,
}

impl<K> Write<K> {
    /// Its name while it waits for its turn.
    #[must_use]
    pub fn id(&self) -> WriteId {
        self.id
    }

    /// What is written.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }
}

/// Names one write of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u64);

/// A write that has been let in.
#[derive(Debug)]
pub struct Begun<K> {
    /// The write.
    pub write: Write<K>,
    /// Whether it is its turn already; else [`Ended::next`] or [`Writes::poll_turn`] says when it
    /// is.
    pub may_start: bool,
}

/// What follows from a write that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether the cache keeps what was written; else it must not have the key any more.
    pub keep: bool,
    /// The write whose turn it is now.
    pub next: Option<WriteId>,
}

/// Whose fetches under way lose the right to fill, since they may have read before the last write
/// settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled<K> {
    /// Those of one key.
    Key(K),
    /// All of the backend's.
    All,
}

/// Why a write was refused before anything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteRefused {
    /// The backend has as many as it may have.
    #[error(
        "{limit} writes to the backend are under way, the most there may be; nothing was sent, write again later"
    )]
    Full {
        /// How many may be under way.
        limit: u32,
    },
    /// As many wait for their turn as may of one key.
    #[error(
        "{limit} writes of the key wait for their turn, the most there may be; nothing was sent, write again later"
    )]
    KeyFull {
        /// How many may wait.
        limit: u32,
    },
    /// An earlier one, whose outcome is unknown, may land when this one has no time left to wait.
    #[error("an earlier write of the key may still land within {0:?}; nothing was sent, write again then")]
    NoTurn(Duration),
}

/// The keys of one backend that are being written, or are not to be believed yet.
///
/// # Life of a key
/// ```text
///   begin ──▶ being written ──end, acknowledged────────▶ the value is kept ─┬─────────▶ forgotten
///             nothing fetched ├─not done─────────────▶ not cached ──────────┤
///             is kept         ├─beside another write─▶ not cached ──────────┤
///                             │                                             └─settle──▶ held off ─▶ forgotten
///                             └─unknown──────────────▶ not cached ──landing, settle───▶ held off ─▶ forgotten
///   doubt ──────────────────────────────────────────────────────────────────settle──▶ held off ─▶ forgotten
/// ```
/// Where writes are made in turn, none of the key starts before `landing` has passed either.
///
/// While a key is held off, what is fetched of it reaches who asked and is not kept. What is
/// written by a write that begins before `landing` has passed is not kept either: the one whose
/// outcome nobody knows may land after it.
///
/// # Inputs and outputs
/// All under the lock that fills are made under, and before each of them
/// [`poll_settled`](Self::poll_settled) and [`poll_turn`](Self::poll_turn) until they have nothing
/// more.
/// 1. [`begin`](Self::begin); when it is the write's turn, send it to the store.
/// 2. [`end`](Self::end) with its outcome, or with [`Outcome::NotDone`] when its turn never came.
///    Whatever the outcome, fetches of the key that are under way lose the right to fill
///    (`sherwood_dispatch::Dispatch::invalidate`), for each of the backend's partitions; then the
///    cache gets the value, or loses the key.
/// 3. Before a fill, [`may_fill`](Self::may_fill).
///
/// # Wake-ups
/// At [`next_turn`](Self::next_turn), for writes that wait for nothing but time. What has settled
/// has none: it is seen to with the next input, and until then less is kept than could be.
///
/// # Complexity and memory
/// A constant number of hash operations for each call, and one on an ordered map where a key is
/// held off or its writes wait for time. At most `under_way_max + held_keys_max` keys are
/// remembered.
#[derive(Clone, Debug)]
pub struct Writes<K> {
    options: WriteOptions,
    keys: HashMap<K, Key, SeededState>,
    /// The keys that are held off, by the end of it.
    held: BTreeMap<(Instant, WriteId), K>,
    /// The keys whose writes wait for nothing but time, by the end of it.
    resting: BTreeMap<(Instant, WriteId), K>,
    /// A hold over every key, since there were too many for one each.
    all: Option<Hold>,
    under_way: u32,
    ids: u64,
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
struct Key {
    /// Writes that have been started.
    running: u32,
    /// Writes that wait for those to end, and for what may still land.
    waiting: VecDeque<WriteId>,
    /// Its place among the keys whose writes wait for nothing but time.
    rests: Option<(Instant, WriteId)>,
    /// What is being written may not be what the key has in the end, for one that was running at
    /// the time still is: two were at once, or one of unknown outcome could still land when it was
    /// started, or somebody changed the key otherwise.
    contended: bool,
    hold: Option<Hold>,
}

/// For how long the store is not believed.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Until then a write of unknown outcome may land.
    unsettled: Instant,
    /// Until then nothing fetched is kept; not before `unsettled`.
    until: Instant,
    /// The write that asked for it, which tells apart holds with the same end.
    by: WriteId,
}

impl Key {
    fn doubt(&mut self) {
        self.contended = self.running > 0;
    }

    /// One more is running.
    fn start(&mut self, now: Instant, all: Option<Hold>) {
        self.contended |= self.running > 0 || self.unsettled(now, all).is_some();
        self.running += 1;
    }

    /// Until when a write of unknown outcome may land, if one may after `now`.
    fn unsettled(&self, now: Instant, all: Option<Hold>) -> Option<Instant> {
        let holds = [self.hold, all].into_iter().flatten();
        holds.map(|hold| hold.unsettled).max().filter(|&unsettled| now < unsettled)
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty() && self.hold.is_none()
    }
}

impl<K: Clone + Eq + Hash> Writes<K> {
    /// No writes so far.
    #[must_use]
    pub fn new(options: WriteOptions, hash: SeededState) -> Self {
        Self {
            options,
            keys: HashMap::with_hasher(hash),
            held: BTreeMap::new(),
            resting: BTreeMap::new(),
            all: None,
            under_way: 0,
            ids: 0,
        }
    }

    /// Somebody wants to write `key` at `now`. From then on nothing that is fetched of it is kept.
    ///
    /// # Errors
    /// When as many writes are under way as may be, or it is one that could only wait: behind as
    /// many of its key as may, or in vain.
    pub fn begin(&mut self, now: Instant, key: K) -> Result<Begun<K>, WriteRefused> {
        self.admit(now, &key)?;
        self.under_way += 1;
        self.ids += 1;
        let id = WriteId(self.ids);
        let state = self.keys.entry(key.clone()).or_default();
        if !self.options.in_turn {
            state.start(now, self.all);
            return Ok(Begun { write: Write { id, key }, may_start: true });
        }
        state.waiting.push_back(id);
        let may_start = state.waiting.len() == 1 && self.take_turn(now, &key).is_some();
        Ok(Begun { write: Write { id, key }, may_start })
    }

    /// A write ended at `now`. One that waited for its turn, in vain, was
    /// [`NotDone`](Outcome::NotDone).
    pub fn end(&mut self, now: Instant, write: Write<K>, outcome: Outcome) -> Ended {
        let Write { id, key } = write;
        let Some(state) = self.keys.get_mut(&key) else {
            // Of another backend: it has nothing to say here.
            return Ended { keep: false, next: None };
        };
        self.under_way -= 1;
        if let Some(position) = state.waiting.iter().position(|waiting| *waiting == id) {
            state.waiting.remove(position);
            if state.waiting.is_empty()
                && let Some(place) = state.rests.take()
            {
                self.resting.remove(&place);
            }
            self.forget_idle(key);
            return Ended { keep: false, next: None };
        }
        let keep = outcome == Outcome::Acknowledged && !state.contended;
        state.running -= 1;
        state.contended &= state.running > 0;
        let settles = match outcome {
            Outcome::Acknowledged => Some(now),
            Outcome::Unknown => Some(now + self.options.landing),
            Outcome::NotDone => None,
        };
        if let Some(unsettled) = settles {
            let hold = self.settling(unsettled);
            self.hold(&key, hold, now);
        }
        let next = self.take_turn(now, &key);
        self.forget_idle(key);
        Ended { keep, next }
    }

    /// The next write whose turn has come by `now` because nothing before it may land any more.
    pub fn poll_turn(&mut self, now: Instant) -> Option<WriteId> {
        loop {
            let first = self.resting.first_entry().filter(|first| first.key().0 <= now)?;
            let key = first.remove();
            if let Some(state) = self.keys.get_mut(&key) {
                state.rests = None;
            }
            // Meanwhile the time may have become longer.
            if let Some(turn) = self.take_turn(now, &key) {
                return Some(turn);
            }
        }
    }

    /// When to call [`poll_turn`](Self::poll_turn); none while no write waits for time.
    #[must_use]
    pub fn next_turn(&self) -> Option<Instant> {
        self.resting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Somebody had changed `key` otherwise by `now`, at the store or in the cache: what is being
    /// written to it may not be the latest, and is not kept; nor is what is fetched until `settle`
    /// has passed.
    pub fn doubt(&mut self, now: Instant, key: &K) {
        if let Some(state) = self.keys.get_mut(key) {
            state.doubt();
        }
        let hold = self.settling(now);
        self.hold(key, hold, now);
    }

    /// As [`doubt`](Self::doubt) for every key for which `which` holds; linear in those remembered.
    /// Which they are is not known of the others, so all are held off where there is something to
    /// settle.
    pub fn doubt_where(&mut self, now: Instant, mut which: impl FnMut(&K) -> bool) {
        self.keys.iter_mut().filter(|(key, _)| which(key)).for_each(|(_, state)| state.doubt());
        self.hold_all(now, now);
    }

    /// What was written before `now` is not remembered, as at a start: until `settle` has passed,
    /// nothing that is fetched is kept. One of unknown outcome may land until `unsettled`, if that
    /// is later, but no longer than `landing` after its end; nothing is believed for as long after
    /// it.
    pub fn hold_all(&mut self, now: Instant, unsettled: Instant) {
        let unsettled = unsettled.clamp(now, now + self.options.landing);
        let hold = self.settling(unsettled);
        if hold.until > now {
            self.all = Some(self.all.map_or(hold, |all| all.longer(hold)));
        }
    }

    /// Until when a write may land that has ended, or that is given up at `now`; none where there
    /// is no such. Linear in the keys remembered.
    #[must_use]
    pub fn unsettled(&self, now: Instant) -> Option<Instant> {
        let of_key = |state: &Key| match state.running {
            0 => state.unsettled(now, None),
            _ => Some(now + self.options.landing),
        };
        let of_all = self.all.map(|hold| hold.unsettled).filter(|&unsettled| now < unsettled);
        self.keys.values().filter_map(of_key).chain(of_all).max()
    }

    /// Whether a value of `key` that was fetched may be kept, if its fetch has not lost the right
    /// to.
    #[must_use]
    pub fn may_fill(&self, key: &K) -> bool {
        self.all.is_none() && (self.keys.is_empty() || !self.keys.contains_key(key))
    }

    /// The next whose time has passed by `now`: fetches that began before then may have read what
    /// was there before.
    pub fn poll_settled(&mut self, now: Instant) -> Option<Settled<K>> {
        if self.all.is_some_and(|hold| hold.until <= now) {
            self.all = None;
            return Some(Settled::All);
        }
        let first = self.held.first_entry().filter(|first| first.key().0 <= now)?;
        let key = first.remove();
        if let Some(state) = self.keys.get_mut(&key) {
            state.hold = None;
        }
        self.forget_idle(key.clone());
        Some(Settled::Key(key))
    }

    /// Writes under way, those that wait among them.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Keys remembered: being written or held off.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Whether another write of a key is let in. Those of one key that wait must not take the
    /// places of all others.
    fn admit(&self, now: Instant, key: &K) -> Result<(), WriteRefused> {
        let WriteOptions { under_way_max, in_turn, patience, .. } = self.options;
        if self.under_way >= under_way_max {
            return Err(WriteRefused::Full { limit: under_way_max });
        }
        if !in_turn {
            return Ok(());
        }
        let unknown = Key::default();
        let state = self.keys.get(key).unwrap_or(&unknown);
        let limit = (under_way_max / WAITING_SHARE).max(1);
        if state.waiting.len() >= limit as usize {
            return Err(WriteRefused::KeyFull { limit });
        }
        match state.unsettled(now, self.all) {
            Some(unsettled) if unsettled > now + patience => Err(WriteRefused::NoTurn(unsettled.since(now))),
            _ => Ok(()),
        }
    }

    /// Starts the first of the writes of a key that wait, if it is its turn. Where that is only a
    /// matter of time, it is remembered.
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

    /// A hold for as long as replicas may lag behind what is settled by `unsettled`.
    fn settling(&mut self, unsettled: Instant) -> Hold {
        self.ids += 1;
        Hold { unsettled, until: unsettled + self.options.settle, by: WriteId(self.ids) }
    }

    /// Holds a key off for at least as long as `more` says.
    fn hold(&mut self, key: &K, more: Hold, now: Instant) {
        if more.until <= now {
            return;
        }
        let is_held = self.keys.get(key).is_some_and(|state| state.hold.is_some());
        if !is_held && self.held.len() >= self.options.held_keys_max as usize {
            self.all = Some(self.all.map_or(more, |hold| hold.longer(more)));
            return;
        }
        let state = self.keys.entry(key.clone()).or_default();
        let hold = match state.hold {
            Some(hold) => {
                self.held.remove(&(hold.until, hold.by));
                hold.longer(more)
            }
            None => more,
        };
        state.hold = Some(hold);
        self.held.insert((hold.until, hold.by), key.clone());
    }

    fn forget_idle(&mut self, key: K) {
        if let Entry::Occupied(entry) = self.keys.entry(key)
            && entry.get().is_idle()
        {
            entry.remove();
        }
    }
}

impl Hold {
    /// As long as both say.
    fn longer(self, other: Self) -> Self {
        let longest = if other.until > self.until { other } else { self };
        Self { unsettled: self.unsettled.max(other.unsettled), ..longest }
    }
}

#[cfg(test)]
mod tests;
