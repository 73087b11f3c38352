//! The guard: rolls back to an earlier allocation when moves have made requests slower.
//!
//! A control loop that learns from noise may take bytes from a partition that needs them. The guard
//! compares the tail of request latency with the tail under an earlier allocation. If the moves
//! since then caused an increase, it restores that allocation and freezes it for a while.
//!
//! *A longer tail alone is no evidence.* Requests also get slower because a backend got slower or
//! because the load grew, and then moves are needed most. Bytes affect latency only through the
//! miss ratio: a partition that lost bytes misses more often. Four conditions must therefore hold
//! together, and for as long as the observation window, so that two windows without a common
//! request agree:
//!
//! 1. the tail is above the SLO's bound;
//! 2. it is longer than under the last good allocation, by [`GuardOptions::worse_ratio`];
//! 3. some partitions have lost bytes since, and miss more often than then: by
//!    [`GuardOptions::miss_rise_ratio`] more than the partitions that lost nothing (which cancels a
//!    change of the workload that affects all), and by more than three standard deviations of the
//!    count. Each partition is tested by itself, since tenants of one backend may take bytes from
//!    each other;
//! 4. the backends of these partitions block at least [`GuardOptions::blame_ratio`] of the requests
//!    in the band.
//!
//! A backend that slows down by itself gains bytes and therefore fails condition 3, unless tenants
//! share it and one of them gave bytes to another. A spike of load raises the count of misses, but
//! not their ratio (3). The remaining false positive is a backend of which a partition gave bytes
//! away, misses slightly more often for it, and which then slows down by itself.
//!
//! An allocation is good if the tail over a window that began with it was within the bound, or no
//! longer than under the previous good one. The first allocation observed is good whatever its
//! tail, and so is one observed when the good one is older than [`GuardOptions::memory`], because
//! the workload has changed since. If pins no longer allow a step back to the good allocation, the
//! guard restarts from the present one without reporting or freezing. After a freeze it restarts
//! too, so that a tail which the rollback did not improve is not attributed to the moves again.

mod options;

use std::collections::BTreeSet;
use std::time::Duration;

use sherwood_model::{BackendId, Band, Instant};

use crate::{Observation, PartitionObservation};

pub use options::GuardOptions;

/// Least number of requests in the window for the guard to judge; with fewer, its percentile band
/// would hold fewer than three.
const REQUESTS_MIN: u64 = 300;

/// A partition has lost bytes if it has less than this share of its former budget. Chosen as two
/// rounds of RobinHood's tax, since every partition pays one round's at any time.
const KEPT_RATIO: f64 = 0.98;

/// Part of the increase of the tail latency that counts as harm, below which a suspicion ends.
/// Between this and the full increase a suspicion neither begins nor ends.
const CLEAR: f64 = 0.5;

/// Number of standard deviations above which a count of misses is significant.
const DEVIATIONS: f64 = 3.0;

/// Result of the guard's evaluation in a round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The policy decides; the guard does not intervene.
    Free,
    /// The guard rolls back to these budgets, for this reason.
    Back(Vec<u64>, Harm),
    /// The allocation of an earlier rollback is still frozen.
    Frozen,
}

/// Reason for a rollback by the guard.
#[derive(Clone, Debug, PartialEq)]
pub struct Harm {
    /// Tail of request latency at the rollback.
    pub tail: Duration,
    /// Tail of request latency under the last good allocation.
    pub good_tail: Duration,
    /// Time at which the last good allocation (to roll back to) was in force.
    pub good_at: Instant,
    /// Backends that block requests and of which a partition lost bytes and misses more often since
    /// then; in the order of their ids.
    pub blamed: Vec<BackendId>,
    /// End of the freeze, during which budgets stay as restored.
    pub until: Instant,
}

/// State of the guard, which rolls back moves that made requests slower.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuardStanding {
    /// Number of rollbacks since the start.
    pub trips: u64,
    /// End of the freeze after a rollback; none if not frozen.
    pub frozen_until: Option<Instant>,
    /// Time since which the moves of bytes look harmful; none if they do not.
    pub worse_since: Option<Instant>,
    /// Bytes of each partition in the last good allocation; empty before there is one.
    pub good_bytes: Vec<u64>,
    /// Tail of request latency under the last good allocation.
    pub good_tail: Option<Duration>,
}

/// An allocation and the latencies and counts measured under it. Memory is a few words per
/// partition.
#[derive(Clone, Debug)]
struct Mark {
    at: Instant,
    budgets: Vec<u64>,
    tail: Duration,
    /// Budget, look-ups and misses of each partition.
    counts: Vec<Counts>,
}

/// Budget, look-ups and misses of one partition, or of several together.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    bytes: u64,
    look_ups: u64,
    misses: u64,
}

/// Monitors one controller and rolls back moves that made requests slower. Call [`Guard::watch`]
/// every round with the budgets in force before it.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    options: GuardOptions,
    band: Band,
    window: Duration,
    good: Option<Mark>,
    /// Start and budgets of the time window in which an allocation is measured that may become the
    /// good one (to roll back to).
    trial: Option<(Instant, Vec<u64>)>,
    worse_since: Option<Instant>,
    frozen_until: Option<Instant>,
    trips: u64,
    /// If the latest round rolled back: the good allocation, and the time since which moves had
    /// looked harmful.
    tripped: Option<(Mark, Option<Instant>)>,
}

impl Guard {
    /// Returns a guard that judges requests of the percentile band `band`, observed over `window`.
    pub(crate) fn new(options: GuardOptions, band: Band, window: Duration) -> Self {
        let (good, trial, worse_since, frozen_until, tripped) = (None, None, None, None, None);
        Self { options, band, window, good, trial, worse_since, frozen_until, trips: 0, tripped }
    }

    /// Quantile of request latency that the guard compares, 0 to 1.
    pub(crate) fn quantile(&self) -> f64 {
        self.options.percentile / 100.0
    }

    /// Discards the guard's state and ends a freeze, because budgets or bounds were changed by
    /// hand.
    pub(crate) fn restart(&mut self) {
        let trips = self.trips;
        *self = Self { trips, ..Self::new(self.options, self.band, self.window) };
    }

    /// Discards the guard's state but continues a freeze, because items were lost for another
    /// reason than the moves.
    pub(crate) fn forget(&mut self) {
        let frozen_until = self.frozen_until;
        self.restart();
        self.frozen_until = frozen_until;
    }

    /// Takes back the roll-back of the latest round, if there was one, because it was not applied.
    pub(crate) fn take_back(&mut self) {
        let Some((good, worse_since)) = self.tripped.take() else { return };
        (self.good, self.worse_since, self.frozen_until) = (Some(good), worse_since, None);
        self.trips -= 1;
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

    /// Evaluates the observation `seen`, made under `budgets`. `fit` adapts an earlier allocation
    /// to the present bounds; if the result equals `budgets`, the guard restarts instead of rolling
    /// back. O(n) for n partitions, and one call of `fit`.
    pub(crate) fn watch(
        &mut self,
        now: Instant,
        seen: &Observation,
        budgets: &[u64],
        fit: impl FnOnce(&[u64]) -> Vec<u64>,
    ) -> Verdict {
        self.tripped = None;
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
            self.tripped = Some((good, self.worse_since.take()));
            self.trial = None;
            self.trips += 1;
            return Verdict::Back(back, harm);
        }
        self.try_budgets(now, tail, seen, budgets);
        Verdict::Free
    }

    /// The harm that requires a rollback to the good allocation now, if any.
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

    /// Returns the backends of partitions that lost bytes and therefore miss more often, if they
    /// block enough of the slow requests; else none.
    fn blamed(&self, good: &Mark, counts: &[Counts], seen: &Observation) -> Vec<BackendId> {
        let blocking = seen.blocking(self.band);
        let lost = |then: &Counts, now: &Counts| (now.bytes as f64) < then.bytes as f64 * KEPT_RATIO;
        let pairs = || good.counts.iter().zip(counts);
        let others = pairs().filter(|(then, now)| !lost(then, now));
        let none = (Counts::default(), Counts::default());
        let (then, now) = others.fold(none, |(a, b), (then, now)| (plus(a, then), plus(b, now)));
        // Rise of the miss ratio common to all partitions. A fall is ignored, since it is the
        // effect of the bytes that the others gained.
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

    /// Completes the measurement of an allocation when its window has passed, and begins the next.
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
            // Tail and counts are those of the window, the bytes those at its start.
            let counts = counts(seen, &budgets);
            self.good = Some(Mark { at, budgets, tail, counts });
        }
    }
}

/// Budget, look-ups and misses of each partition, in the order of their ids.
fn counts(seen: &Observation, budgets: &[u64]) -> Vec<Counts> {
    let of = |(seen, &bytes): (&PartitionObservation, &u64)| Counts {
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
