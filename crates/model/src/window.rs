//! The requests that ended lately, and whom they waited for.
//!
//! RobinHood's whole input is "of the requests near the tail, which backend was last?" (Berger et al., OSDI 2018, section 4).
//! The answer must come from single requests, because a sketch per backend no longer knows which request a latency belonged to.
//! A finished request is eight bytes, so a million of them are kept exactly; a busier window falls back to counting, per slot
//! of time, how many requests of each backend fell into which latency bucket.

mod snapshot;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use snapshot::{Band, RequestSelection, RequestSnapshot};

use crate::{BackendId, FinishedRequest, Instant};

/// Shape of a [`RequestWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowOptions {
    /// How far back the window reaches.
    pub span: Duration,
    /// Time expires in slots of this length: one second for a window of a minute.
    pub slot: Duration,
    /// Requests kept exactly, 8 bytes each; beyond it slots are kept as bucket tables.
    pub exact_max: usize,
}

impl WindowOptions {
    /// A window that reaches back `span`, in slots of a second (or a sixtieth of a span shorter than a minute), with at
    /// most a million exact requests (8 MB).
    #[must_use]
    pub fn of(span: Duration) -> Self {
        let slot = Duration::from_secs(1).min(span / 60).max(Duration::from_millis(1));
        Self { span, slot, exact_max: 1_000_000 }
    }
}

/// The finished requests of the last `span`, in a ring of time slots.
///
/// Exact up to `exact_max` requests (8 bytes each); a slot that would exceed it becomes a table of (latency bucket, blocking
/// backend) counts with a relative latency error of at most 1/128, of at most 3,328 x (backends + 1) cells. Recording is
/// amortised constant; [`select`](Self::select) copies what it selects.
#[derive(Debug)]
pub struct RequestWindow {
    options: WindowOptions,
    /// Slots in order of time, without gaps only where something ended.
    slots: VecDeque<Slot>,
    exact: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Slot {
    /// Which multiple of the slot length since the origin.
    number: u64,
    requests: Requests,
}

#[derive(Debug)]
enum Requests {
    Exact(Vec<FinishedRequest>),
    Bucketed(BTreeMap<(u32, Option<BackendId>), u64>),
}

impl RequestWindow {
    /// An empty window.
    ///
    /// # Panics
    /// When the slot length is zero.
    #[must_use]
    pub fn new(options: WindowOptions) -> Self {
        assert!(!options.slot.is_zero(), "a window's slots have a length");
        Self { options, slots: VecDeque::new(), exact: 0, dropped: 0 }
    }

    /// Takes a request that ended at `at`. One from the future counts as ending now; one that is older than the window is
    /// dropped and counted, and the answer is false.
    pub fn record(&mut self, now: Instant, at: Instant, request: FinishedRequest) -> bool {
        self.expire(now);
        let number = self.slot_number(at.min(now));
        if number < self.first_number(now) {
            self.dropped += 1;
            return false;
        }
        let position = self.position(number);
        if self.exact >= self.options.exact_max {
            self.bucket(position);
        }
        match &mut self.slots[position].requests {
            Requests::Exact(requests) => {
                requests.push(request);
                self.exact += 1;
            }
            Requests::Bucketed(table) => count(table, request),
        }
        true
    }

    /// What ended within `last` before `now`, at most the window's span.
    #[must_use]
    pub fn snapshot(&self, now: Instant, last: Duration) -> RequestSnapshot {
        self.select(now, last).into()
    }

    /// The same in no order yet: a copy, quick enough to be made under a lock and sorted outside of it.
    #[must_use]
    pub fn select(&self, now: Instant, last: Duration) -> RequestSelection {
        let first = self.slot_number(now - last.min(self.options.span)).max(self.first_number(now));
        let mut cells = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.number >= first) {
            match &slot.requests {
                Requests::Exact(requests) => {
                    cells.extend(requests.iter().map(|r| (r.latency_us, r.blocking, 1)))
                }
                Requests::Bucketed(table) => {
                    cells.extend(table.iter().map(|(&(low, backend), &n)| (low, backend, n)))
                }
            }
        }
        RequestSelection { cells }
    }

    /// The selection of the last `last`, reaching further back (doubling, up to the window's span) while it holds fewer than
    /// `count` requests: a percentile band of a handful of requests is noise, and an older request says more than none.
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

    /// Requests that arrived too late for the window, since the start.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn slot_number(&self, at: Instant) -> u64 {
        at.as_nanos() / u64::try_from(self.options.slot.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The oldest slot that still counts at `now`: the slots that count cover the span and at most one slot more.
    fn first_number(&self, now: Instant) -> u64 {
        self.slot_number(now - self.options.span)
    }

    fn expire(&mut self, now: Instant) {
        let first = self.first_number(now);
        while self.slots.front().is_some_and(|slot| slot.number < first) {
            if let Some(Slot { requests: Requests::Exact(requests), .. }) = self.slots.pop_front() {
                self.exact -= requests.len();
            }
        }
    }

    /// Where the slot `number` stands, made when there is none.
    fn position(&mut self, number: u64) -> usize {
        let position = self.slots.partition_point(|slot| slot.number < number);
        if self.slots.get(position).is_none_or(|slot| slot.number != number) {
            self.slots.insert(position, Slot { number, requests: Requests::Exact(Vec::new()) });
        }
        position
    }

    /// Turns the slot at `position` into a bucket table, which frees its share of the exact requests.
    fn bucket(&mut self, position: usize) {
        let slot = &mut self.slots[position];
        if let Requests::Exact(requests) = &mut slot.requests {
            self.exact -= requests.len();
            let mut table = BTreeMap::new();
            requests.drain(..).for_each(|request| count(&mut table, request));
            slot.requests = Requests::Bucketed(table);
        }
    }
}

fn count(table: &mut BTreeMap<(u32, Option<BackendId>), u64>, request: FinishedRequest) {
    *table.entry((bucket_middle(request.latency_us), request.blocking)).or_default() += 1;
}

/// The middle of the bucket a latency falls into: 2^6 buckets to a power of two, so no value is further than 1/128 of itself
/// from its bucket's middle.
fn bucket_middle(latency_us: u32) -> u32 {
    let width_power = (32 - latency_us.leading_zeros()).saturating_sub(7);
    let low = latency_us >> width_power << width_power;
    low + (1u32 << width_power) / 2
}

#[cfg(test)]
mod tests;
