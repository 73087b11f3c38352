//! Sliding window over finished requests and their blocking backends.
//!
//! The input of RobinHood is one statistic: of the requests near the tail, which backend's query
//! ended last (Berger et al., OSDI 2018, section 4)? It must be computed from single requests,
//! because a latency sketch per backend does not know which request a latency belonged to. A
//! finished request takes eight bytes, so up to a million are kept exactly; a busier window counts
//! requests per time slot, blocking backend and latency bucket.

mod collector;
mod snapshot;
mod table;

use std::collections::VecDeque;
use std::time::Duration;

pub use collector::{CollectedRequests, RequestCollector, RequestCount};
pub use snapshot::{Band, RequestSelection, RequestSnapshot};

use self::snapshot::Cell;
use self::table::Table;
use crate::{FinishedRequest, Instant, TenantId};

/// Parameters of a [`RequestWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowOptions {
    /// Time span of the window while it holds at most `exact_max` requests.
    pub span: Duration,
    /// Time span that is covered at any load, at most `span`.
    pub keep: Duration,
    /// Length of the time slots, the unit of expiry: one second for a window of a minute.
    pub slot: Duration,
    /// Largest number of requests kept exactly, 8 bytes each.
    pub exact_max: usize,
}

impl WindowOptions {
    /// Returns options for a window of `span`, in slots of a second (or a sixtieth of a span
    /// shorter than a minute), with at most a million exact requests (8 MB).
    #[must_use]
    pub fn of(span: Duration) -> Self {
        let slot = Duration::from_secs(1).min(span / 60).max(Duration::from_millis(1));
        Self { span, keep: span, slot, exact_max: 1_000_000 }
    }
}

/// The finished requests of the last `span`, in a ring of time slots.
///
/// Up to `exact_max` requests are kept exactly, 8 bytes each (plus the spare capacity of the newest
/// slot's vector). When that many are held, slots older than `keep` are dropped; if that is not
/// enough, further requests are counted in tables, one for each slot of `keep`, with a relative
/// latency error of at most 1/128. A table has at most 16,384 cells of (tenant, blocking backend,
/// latency bucket), and beyond them one for each further tenant and backend; a request that would
/// need another cell is counted in that of its tenant and backend with the nearest latency.
///
/// Recording takes amortised constant time while exact, and logarithmic time in the cells of a
/// table; [`select`](Self::select) copies the selected requests.
#[derive(Clone, Debug)]
pub struct RequestWindow {
    options: WindowOptions,
    /// Time slots with requests, in order of time.
    slots: VecDeque<Slot>,
    exact: usize,
    dropped: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    /// Start of the time slot, as a multiple of the slot length since the origin of time.
    number: u64,
    exact: Vec<FinishedRequest>,
    table: Table,
}

impl RequestWindow {
    /// Returns an empty window.
    ///
    /// # Panics
    /// If the slot length is zero.
    #[must_use]
    pub fn new(options: WindowOptions) -> Self {
        assert!(!options.slot.is_zero(), "a window's slots have a length");
        Self { options, slots: VecDeque::new(), exact: 0, dropped: 0 }
    }

    /// Records a request that ended at `at`; an `at` after `now` counts as `now`. Returns false for
    /// a request older than the window, which is dropped and counted in [`dropped`](Self::dropped).
    pub fn record(&mut self, now: Instant, at: Instant, request: FinishedRequest) -> bool {
        self.expire(now);
        if self.exact >= self.options.exact_max {
            self.expire_before(self.slot_number(now - self.options.keep));
        }
        if self.exact >= self.options.exact_max {
            return self.record_times(now, at, request, 1);
        }
        let Some(slot) = self.slot_at(now, at, 1) else { return false };
        slot.exact.push(request);
        self.exact += 1;
        true
    }

    /// Records `times` equal requests like [`record`](Self::record), but counts them in a table
    /// even if few are held, which costs less where most requests are hits of a cache.
    pub fn record_times(&mut self, now: Instant, at: Instant, request: FinishedRequest, times: u64) -> bool {
        let Some(slot) = self.slot_at(now, at, times) else { return false };
        slot.table.add(request, times);
        true
    }

    /// Returns the time slot of `at`; none if it is older than the window, in which case `dropped`
    /// requests are.
    fn slot_at(&mut self, now: Instant, at: Instant, dropped: u64) -> Option<&mut Slot> {
        self.expire(now);
        let number = self.slot_number(at.min(now));
        if number < self.first_number(now) {
            self.dropped += dropped;
            return None;
        }
        Some(self.slot(number))
    }

    /// The requests that ended within `last` before `now`, sorted; `last` is limited to the
    /// window's span.
    #[must_use]
    pub fn snapshot(&self, now: Instant, last: Duration) -> RequestSnapshot {
        self.select(now, last).into()
    }

    /// Like [`snapshot`](Self::snapshot), but unsorted: a copy that is quick enough to make under a
    /// lock, to be sorted after the lock is released.
    #[must_use]
    pub fn select(&self, now: Instant, last: Duration) -> RequestSelection {
        let first = self.slot_number(now - last.min(self.options.span)).max(self.first_number(now));
        let mut cells = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.number >= first) {
            cells.extend(slot.cells().map(|(_, cell)| cell));
        }
        RequestSelection { cells, reach: last.min(self.options.span) }
    }

    /// The requests of the last `last`, or of a longer time (doubled up to the window's span) if
    /// they are fewer than `count`. A percentile band of a handful of requests is noise; older
    /// requests are the better estimate.
    #[must_use]
    pub fn select_at_least(&self, now: Instant, last: Duration, count: u64) -> RequestSelection {
        let mut reach = last.max(self.options.slot);
        loop {
            let selection = self.select(now, reach);
            if selection.count() >= count || reach >= self.options.span {
                return selection;
            }
            reach = reach.saturating_mul(2);
        }
    }

    /// Returns the selection of [`select_at_least`](Self::select_at_least) for each of `tenants`
    /// tenants, of that tenant's requests alone; a quiet tenant's covers a longer time than
    /// another's. Reads every request at most once.
    #[must_use]
    pub fn select_by_tenant(
        &self,
        now: Instant,
        last: Duration,
        count: u64,
        tenants: usize,
    ) -> Vec<RequestSelection> {
        let mut selections = vec![RequestSelection::default(); tenants];
        let mut is_open = vec![true; tenants];
        let mut slots = self.slots.iter().rev().peekable();
        let mut reach = last.max(self.options.slot);
        loop {
            let first = self.slot_number(now - reach.min(self.options.span)).max(self.first_number(now));
            while let Some(slot) = slots.next_if(|slot| slot.number >= first) {
                for (tenant, cell) in slot.cells() {
                    if is_open.get(tenant.index()) == Some(&true) {
                        selections[tenant.index()].cells.push(cell);
                    }
                }
            }
            for (selection, is_open) in selections.iter_mut().zip(&mut is_open).filter(|(_, open)| **open) {
                selection.reach = reach.min(self.options.span);
                *is_open = selection.count() < count;
            }
            if reach >= self.options.span || !is_open.contains(&true) {
                return selections;
            }
            reach = reach.saturating_mul(2);
        }
    }

    /// Number of requests that were too old for the window when recorded, since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn slot_number(&self, at: Instant) -> u64 {
        at.as_nanos() / u64::try_from(self.options.slot.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Number of the oldest time slot that counts at `now`. The slots that count cover the span and
    /// at most one slot more.
    fn first_number(&self, now: Instant) -> u64 {
        self.slot_number(now - self.options.span)
    }

    fn expire(&mut self, now: Instant) {
        self.expire_before(self.first_number(now));
    }

    fn expire_before(&mut self, first: u64) {
        while self.slots.front().is_some_and(|slot| slot.number < first) {
            self.exact -= self.slots.pop_front().map_or(0, |slot| slot.exact.len());
        }
    }

    /// The time slot `number`, inserted if absent. The vector of the slot that was newest until
    /// then is shrunk to fit.
    fn slot(&mut self, number: u64) -> &mut Slot {
        let position = self.slots.partition_point(|slot| slot.number < number);
        if self.slots.get(position).is_none_or(|slot| slot.number != number) {
            if let Some(newest) = self.slots.back_mut() {
                newest.exact.shrink_to_fit();
            }
            self.slots.insert(position, Slot { number, exact: Vec::new(), table: Table::default() });
        }
        &mut self.slots[position]
    }
}

impl Slot {
    /// The requests of the slot, in no particular order.
    fn cells(&self) -> impl Iterator<Item = (TenantId, Cell)> {
        let exact = self.exact.iter();
        let exact = exact.map(|request| (request.tenant, (request.latency_us, request.blocking(), 1)));
        let counted = self.table.iter();
        exact.chain(counted.map(|(tenant, backend, middle, n)| (tenant, (middle, backend, n))))
    }
}

#[cfg(test)]
mod tests;
