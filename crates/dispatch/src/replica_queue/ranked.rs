//! Entries that wait in the order of their ranks.

use std::collections::BTreeMap;

use sherwood_model::{Demand, DemandKind, Instant};

use super::QueuedCall;
use super::forecast::{Arriving, Counted, Forecast, Outlook};
use super::work::{KeyTimes, Work};
use crate::rules::names::AnyOrder;
use crate::rules::{QueueOrder as _, Rank};

/// Waiting entries with the least rank first, equal ones in the order of arrival. An entry is
/// added, removed, moved and started in a time logarithmic in their number.
#[derive(Clone, Debug)]
pub(super) struct Ranked<T> {
    entries: BTreeMap<Place, Waiting<T>>,
    places: BTreeMap<T, Place>,
    arrivals: u64,
    /// The rank of the write that arrived last among those that wait; later ones rank behind it.
    last_write: Option<Rank>,
    writes: usize,
    deferred: u64,
    /// True if extra calls rank behind all others.
    extra_behind: bool,
    /// The work of the entries of class 0.
    forecast: Box<Forecast>,
    /// The work of the other entries, which are behind those.
    last: Work,
}

/// Number of classes of an order; extra calls have as many behind them.
const EXTRA_CLASSES: u8 = 2;

/// The rank of an entry and the number of its arrival.
type Place = (Rank, u64);

/// An entry that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    pub(super) entry: T,
    pub(super) keys: u32,
    arrived: Instant,
    /// The demand of the entry, which always has a deadline.
    pub(super) demand: Demand,
    is_extra: bool,
    /// True if the entry was deferred, which happens once.
    is_deferred: bool,
}

impl<T: Copy + Ord> Ranked<T> {
    pub(super) fn new(extra_behind: bool) -> Self {
        Self {
            entries: BTreeMap::new(),
            places: BTreeMap::new(),
            arrivals: 0,
            last_write: None,
            writes: 0,
            deferred: 0,
            extra_behind,
            forecast: Box::new(Forecast::new()),
            last: Work::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of times that an entry was deferred.
    pub(super) fn deferred(&self) -> u64 {
        self.deferred
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.entries.values().map(|waiting| waiting.entry)
    }

    /// Adds an entry. A write ranks behind the writes before it.
    pub(super) fn push(
        &mut self,
        now: Instant,
        order: &AnyOrder,
        entry: T,
        demand: Demand,
        QueuedCall { keys, is_extra }: QueuedCall,
    ) {
        self.advance(now);
        let rank = self.rank(now, order, &demand, is_extra);
        if demand.kind == DemandKind::Write {
            self.last_write = Some(rank);
            self.writes += 1;
        }
        let place = (rank, self.arrivals);
        self.arrivals += 1;
        self.insert(place, Waiting { entry, keys, arrived: now, demand, is_extra, is_deferred: false });
    }

    /// Returns the rank that a new entry gets.
    fn rank(&self, now: Instant, order: &AnyOrder, demand: &Demand, is_extra: bool) -> Rank {
        let mut rank = order.rank(now, demand);
        if is_extra && self.extra_behind {
            rank.class += EXTRA_CLASSES;
        }
        let last = if demand.kind == DemandKind::Write { self.last_write } else { None };
        last.map_or(rank, |last| rank.max(last))
    }

    fn insert(&mut self, place: Place, waiting: Waiting<T>) {
        match place.0.class {
            0 => self.forecast.add(waiting.counted(place)),
            _ => self.last += waiting.work(),
        }
        self.places.insert(waiting.entry, place);
        self.entries.insert(place, waiting);
    }

    pub(super) fn remove(&mut self, entry: T) -> Option<Waiting<T>> {
        let place = *self.places.get(&entry)?;
        self.remove_at(place)
    }

    fn remove_at(&mut self, place: Place) -> Option<Waiting<T>> {
        let waiting = self.entries.remove(&place)?;
        self.places.remove(&waiting.entry);
        match place.0.class {
            0 => self.forecast.remove(waiting.counted(place)),
            _ => self.last -= waiting.work(),
        }
        if waiting.demand.kind == DemandKind::Write {
            self.writes -= 1;
            if self.writes == 0 {
                self.last_write = None;
            }
        }
        Some(waiting)
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        *self = Self { arrivals: self.arrivals, deferred: self.deferred, ..Self::new(self.extra_behind) };
    }

    /// Moves an entry forward because its demand has become more urgent. A write keeps its place
    /// among the writes, and a deferred entry its later one.
    pub(super) fn update(&mut self, now: Instant, order: &AnyOrder, entry: T, demand: Demand) {
        let Some(&place) = self.places.get(&entry) else { return };
        let Some(waiting) = self.entries.get_mut(&place) else { return };
        let demand = Demand { kind: waiting.demand.kind, ..demand };
        waiting.demand = demand;
        let (is_extra, is_deferred) = (waiting.is_extra, waiting.is_deferred);
        let rank = self.rank(now, order, &demand, is_extra);
        if is_deferred || demand.kind == DemandKind::Write || rank >= place.0 {
            return;
        }
        if let Some(waiting) = self.remove_at(place) {
            self.insert((rank, place.1), waiting);
        }
    }

    /// Removes the entry to start next, after it has deferred those before it that `order` defers.
    /// Each entry is deferred once at most, in all calls together.
    pub(super) fn pop(&mut self, now: Instant, order: &AnyOrder, quickest: KeyTimes) -> Option<Waiting<T>> {
        let place = self.head(now, order, quickest)?;
        self.remove_at(place)
    }

    /// Removes the first entry for which `may_start` returns true, after deferring entries as
    /// [`pop`](Self::pop) does.
    pub(super) fn pop_where(
        &mut self,
        now: Instant,
        order: &AnyOrder,
        quickest: KeyTimes,
        mut may_start: impl FnMut(T) -> bool,
    ) -> Option<Waiting<T>> {
        self.head(now, order, quickest)?;
        let (&place, _) = self.entries.iter().find(|(_, waiting)| may_start(waiting.entry))?;
        self.remove_at(place)
    }

    /// Defers the entries that `order` defers, and returns the place of the entry that is then
    /// first.
    fn head(&mut self, now: Instant, order: &AnyOrder, quickest: KeyTimes) -> Option<Place> {
        self.advance(now);
        loop {
            let (&place, head) = self.entries.first_key_value()?;
            let may_defer = !head.is_deferred
                && !head.is_extra
                && head.demand.kind != DemandKind::Write
                && self.len() > 1;
            let least = head.work().time(quickest);
            let defer = || order.defer(now, head.arrived, &head.demand, least);
            let Some(later) = may_defer.then(defer).flatten() else { return Some(place) };
            let waiting = self.remove_at(place)?;
            self.deferred += 1;
            self.insert((later, place.1), Waiting { is_deferred: true, ..waiting });
        }
    }

    /// Looks at the waiting work around a new entry with this demand.
    pub(super) fn outlook(&self, now: Instant, order: &AnyOrder, demand: &Demand, new: &Arriving) -> Outlook {
        let rank = self.rank(now, order, demand, false);
        let ranked = |at| self.forecast.outlook(at, new);
        if rank.class == 0 {
            return ranked(rank.at);
        }
        let Outlook { before, .. } = ranked(Instant::NEVER);
        Outlook { before: before + self.last.time(new.times) / new.workers, breaks_another: false }
    }

    /// Arranges the forecast around `now`.
    fn advance(&mut self, now: Instant) {
        let Self { entries, forecast, .. } = self;
        let first = |at| match at {
            Instant::NEVER => (Rank { class: 1, at: Instant::ZERO }, 0),
            at => (Rank { class: 0, at }, 0),
        };
        forecast.advance(now, entries.len(), |from, to| {
            entries.range(first(from)..first(to)).map(|(place, waiting)| waiting.counted(*place))
        });
    }
}

impl<T> Waiting<T> {
    fn work(&self) -> Work {
        Work::new(self.demand.kind, self.keys)
    }

    fn counted(&self, place: Place) -> Counted {
        Counted { at: place.0.at, work: self.work(), is_bound: !self.is_deferred }
    }
}
