//! When moves have made requests slower: go back, and hold still for a while.
//!
//! A loop that learns from noise may one day take bytes from where they were needed. The guard
//! compares the tail of request latency with what it was under an earlier allocation, and where the
//! moves since are to blame it asks for that allocation again and for a freeze.
//!
//! *The tail alone proves nothing.* Requests get slower because a backend got slower, or because
//! there are more of them, and those are the moments at which moves are needed most. Bytes act on
//! latency in one way only: who has fewer of them misses more often. So four things must be true
//! together, and stay true for as long as the window of the figures is, so that two windows without
//! a request in common agree:
//!
//! 1. the tail is beyond the SLO's bound: within it, a longer tail breaks no promise;
//! 2. it is longer than under the last good allocation, by [`GuardOptions::worse_ratio`];
//! 3. some partitions have lost bytes since, and miss more often than then, by
//!    [`GuardOptions::miss_rise_ratio`] more than those that lost nothing (so that a change of what
//!    is asked for, which all feel, does not count), and by more than three standard deviations of
//!    the count; each by itself, since tenants of one backend may take from each other;
//! 4. their backends block at least [`GuardOptions::blame_ratio`] of the requests in the band.
//!
//! A backend that slows down by itself gets bytes and is none of those that lost some (3), unless
//! it is shared: of its tenants one may have given bytes to another. A spike of load raises the
//! count of misses and not their ratio (3). What is left to be taken for harm by mistake is a
//! backend of which a partition gave bytes away, feels it a little, and which then gets slow by
//! itself.
//!
//! An allocation is good when the tail over a window that began with it was within the bound, or no
//! worse than under the good one before. The first one seen is good whatever its tail, and so is
//! one that is seen when the good one is older than [`GuardOptions::memory`]: what was asked for
//! then says little about now. Where pins no longer allow a step back to it, the guard neither says
//! that it went nor freezes: it begins anew from what is. After a freeze the guard begins anew, so
//! that a tail which going back did not mend is not held against the moves twice.

mod options;

use std::collections::BTreeSet;
use std::time::Duration;

use sherwood_model::{BackendId, Band, Instant};

use crate::{Observation, PartitionSeen};

pub use options::GuardOptions;

/// With fewer requests in the window the guard looks away: the band would hold fewer than three.
const REQUESTS_MIN: u64 = 300;

/// A partition has lost bytes when it has less than this share of what it had. Chosen: two rounds
/// of RobinHood's tax, since one is what everybody pays all the time.
const KEPT_RATIO: f64 = 0.98;

/// What the tail must fall below to end a suspicion, as a part of the way to where it began:
/// between the two it neither begins nor ends.
const CLEAR: f64 = 0.5;

/// Standard deviations of a count of misses that are no accident.
const DEVIATIONS: f64 = 3.0;

/// What the guard says of a round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Decide as ever.
    Free,
    /// Apply these budgets again, and say why.
    Back(Vec<u64>, Harm),
    /// Move nothing.
    Frozen,
}

/// Why the guard went back.
#[derive(Clone, Debug, PartialEq)]
pub struct Harm {
    /// The tail at that time.
    pub tail: Duration,
    /// The tail under the last good allocation.
    pub good_tail: Duration,
    /// When the last good allocation was in force.
    pub good_at: Instant,
    /// Those of which partitions lost bytes since and miss more often, and that block requests; in
    /// the order of their ids.
    pub blamed: Vec<BackendId>,
    /// Until when nothing moves.
    pub until: Instant,
}

/// The guard as it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuardStanding {
    /// Times it went back since the start.
    pub trips: u64,
    /// Until when nothing moves; none when it is not frozen.
    pub frozen_until: Option<Instant>,
    /// Since when the moves look harmful; none when they do not.
    pub worse_since: Option<Instant>,
    /// Bytes of each partition in the last good allocation; empty before there is one.
    pub good_bytes: Vec<u64>,
    /// The tail then.
    pub good_tail: Option<Duration>,
}

/// An allocation, and how requests fared under it. Memory is a few words for each partition.
#[derive(Clone, Debug)]
struct Mark {
    at: Instant,
    budgets: Vec<u64>,
    tail: Duration,
    /// Bytes, look-ups and misses of each partition.
    counts: Vec<Counts>,
}

/// Of one partition, or of several together.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    bytes: u64,
    look_ups: u64,
    misses: u64,
}

/// Watches one controller. Call [`Guard::watch`] every round with the budgets in force before it.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    options: GuardOptions,
    band: Band,
    window: Duration,
    good: Option<Mark>,
    /// Since when, and with which budgets, a window is under way that may show these to be good.
    trial: Option<(Instant, Vec<u64>)>,
    worse_since: Option<Instant>,
    frozen_until: Option<Instant>,
    trips: u64,
}

impl Guard {
    /// A guard over requests of `band`, seen through a window of `window`.
    pub(crate) fn new(options: GuardOptions, band: Band, window: Duration) -> Self {
        let (good, trial, worse_since, frozen_until) = (None, None, None, None);
        Self { options, band, window, good, trial, worse_since, frozen_until, trips: 0 }
    }

    /// The quantile of request latency that is to be observed, 0 to 1.
    pub(crate) fn quantile(&self) -> f64 {
        self.options.percentile / 100.0
    }

    /// Forgets what it knew and ends a freeze: somebody else has decided.
    pub(crate) fn restart(&mut self) {
        let trips = self.trips;
        *self = Self { trips, ..Self::new(self.options, self.band, self.window) };
    }

    /// Forgets what it knew, and goes on with a freeze: items went away, and nobody has decided
    /// anything.
    pub(crate) fn forget(&mut self) {
        let frozen_until = self.frozen_until;
        self.restart();
        self.frozen_until = frozen_until;
    }

    pub(crate) fn standing(&self) -> GuardStanding {
        GuardStanding {
            trips: self.trips,
            frozen_until: self.frozen_until,
            worse_since: self.worse_since,
            good_bytes: self.good.as_ref().map(|good| good.budgets.clone()).unwrap_or_default(),
            good_tail: self.good.as_ref().map(|good| good.tail),
        }
    }

    /// Looks at what was `seen` under `budgets`. `fit` brings an earlier allocation within today's
    /// bounds; where that leads nowhere, there is nothing to go back to, and it begins anew from
    /// what is. O(n) for n partitions, and a call of `fit`.
    pub(crate) fn watch(
        &mut self,
        now: Instant,
        seen: &Observation,
        budgets: &[u64],
        fit: impl FnOnce(&[u64]) -> Vec<u64>,
    ) -> Verdict {
        match self.frozen_until {
            Some(until) if now < until => return Verdict::Frozen,
            Some(_) => self.restart(),
            None => {}
        }
        if self.good.as_ref().is_some_and(|good| good.budgets.len() != budgets.len()) {
            self.restart();
        }
        let Some(tail) = seen.tail.filter(|_| seen.requests >= REQUESTS_MIN) else {
            (self.worse_since, self.trial) = (None, None);
            return Verdict::Free;
        };
        if let Some(harm) = self.harm(now, tail, &counts(seen, budgets), seen) {
            let good = self.good.take().expect("harm is in comparison with it");
            let back = fit(&good.budgets);
            if back == budgets {
                self.restart();
                return Verdict::Free;
            }
            self.frozen_until = Some(harm.until);
            (self.trial, self.worse_since) = (None, None);
            self.trips += 1;
            return Verdict::Back(back, harm);
        }
        self.try_budgets(now, tail, seen, budgets);
        Verdict::Free
    }

    /// Why to go back now, if so.
    fn harm(&mut self, now: Instant, tail: Duration, counts: &[Counts], seen: &Observation) -> Option<Harm> {
        let good = self.good.as_ref()?;
        let above = |part: f64| {
            let limit = good.tail.as_secs_f64() * (1.0 + part * self.options.worse_ratio);
            tail > self.options.bound && tail.as_secs_f64() > limit
        };
        if !above(CLEAR) {
            self.worse_since = None;
            return None;
        }
        let blamed = self.blamed(good, counts, seen);
        if blamed.is_empty() {
            self.worse_since = None;
            return None;
        }
        if self.worse_since.is_none() && !above(1.0) {
            return None;
        }
        let since = *self.worse_since.get_or_insert(now);
        let until = now + self.options.freeze;
        let lasted = now.since(since) >= self.window && above(1.0);
        lasted.then_some(Harm { tail, good_tail: good.tail, good_at: good.at, blamed, until })
    }

    /// Backends of partitions that lost bytes and miss more often for it, when they block most of
    /// the slow requests; none when they do not.
    fn blamed(&self, good: &Mark, counts: &[Counts], seen: &Observation) -> Vec<BackendId> {
        let blocking = seen.blocking(self.band);
        let lost = |then: &Counts, now: &Counts| (now.bytes as f64) < then.bytes as f64 * KEPT_RATIO;
        let pairs = || good.counts.iter().zip(counts);
        let others = pairs().filter(|(then, now)| !lost(then, now));
        let none = (Counts::default(), Counts::default());
        let (then, now) = others.fold(none, |(a, b), (then, now)| (plus(a, then), plus(b, now)));
        // What all feel. Where the others miss less often than then, that is what more bytes have
        // done for them.
        let common = match (miss_ratio(&then), miss_ratio(&now)) {
            (Some(then), Some(now)) if then > 0.0 => (now / then).max(1.0),
            _ => 1.0,
        };
        let suffers = |then: &Counts, now: &Counts| {
            let Some(then) = miss_ratio(then) else { return false };
            let expected = now.look_ups as f64 * (then * common).min(1.0);
            let more = now.misses as f64 - expected;
            more > expected * self.options.miss_rise_ratio && more > DEVIATIONS * expected.max(1.0).sqrt()
        };
        let blocks = |backend: &BackendId| blocking.get(backend.index()).copied().unwrap_or(0);
        let blamed: BTreeSet<BackendId> = seen
            .partitions
            .iter()
            .zip(pairs())
            .filter(|(_, (then, now))| lost(then, now) && suffers(then, now))
            .map(|(seen, _)| seen.backend)
            .filter(|backend| blocks(backend) > 0)
            .collect();
        let count: u64 = blamed.iter().map(blocks).sum();
        let all: u64 = blocking.iter().sum();
        if count as f64 >= all as f64 * self.options.blame_ratio {
            blamed.into_iter().collect()
        } else {
            Vec::new()
        }
    }

    /// Ends a trial whose window is over, and begins the next.
    fn try_budgets(&mut self, now: Instant, tail: Duration, seen: &Observation, budgets: &[u64]) {
        let over = self.trial.take_if(|(at, _)| now.since(*at) >= self.window);
        if self.trial.is_none() {
            self.trial = Some((now, budgets.to_vec()));
        }
        let Some((at, budgets)) = over else { return };
        let better = |good: &Mark| {
            now.since(good.at) <= self.options.memory && tail > good.tail.max(self.options.bound)
        };
        if !self.good.as_ref().is_some_and(better) {
            // Tail and counts are those of the window, the bytes those it began with.
            let counts = counts(seen, &budgets);
            self.good = Some(Mark { at, budgets, tail, counts });
        }
    }
}

/// What each partition may hold and has counted, in the order of their ids.
fn counts(seen: &Observation, budgets: &[u64]) -> Vec<Counts> {
    let of = |(seen, &bytes): (&PartitionSeen, &u64)| Counts {
        bytes,
        look_ups: seen.hits.saturating_add(seen.misses),
        misses: seen.misses,
    };
    seen.partitions.iter().zip(budgets).map(of).collect()
}

fn plus(a: Counts, b: &Counts) -> Counts {
    Counts {
        bytes: a.bytes.saturating_add(b.bytes),
        look_ups: a.look_ups.saturating_add(b.look_ups),
        misses: a.misses.saturating_add(b.misses),
    }
}

/// Share of the look-ups that missed; none without look-ups.
fn miss_ratio(counts: &Counts) -> Option<f64> {
    (counts.look_ups > 0).then(|| counts.misses as f64 / counts.look_ups as f64)
}

#[cfg(test)]
mod tests;
