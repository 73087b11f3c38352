//! The lever over replicated stores: chooses how the duplicates of each store are asked.

use std::time::Duration;

use sherwood_model::{AttemptTimes, BackendId, BackendPlan, Instant, Slo, StoreLayout};
use sherwood_policy::slo::{ServiceTimes, StorePlan};
use sherwood_policy::stores::{Forecast, Manager, SlowPeriods, StoreDecision, service_times};

use crate::StoreSeen;
use crate::admission::Leave;
use crate::history::History;

/// Time from one observation to the next: the length of a slice for the correlation.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);
/// Accesses of a window, below which it goes on: fewer say little about 99.9% of them.
const ACCESSES_MIN: u64 = 1_000;
/// Observations after which a store is measured although its layout is not in force: a server that
/// it needs is out, and the manager has to see what that costs.
const MOVES_MAX: u32 = 600;
/// Share of attempts that are not slow: up to this percentile of the service times.
const NOT_SLOW: f64 = 0.95;

/// Chooses the plan of each replicated store (Zoolander), with a [`Manager`] for each.
///
/// Observations are due once a second, and a decision about a store at the end of a measuring
/// window, which is that of the SLO and goes on while there were few accesses.
#[derive(Clone, Debug)]
pub struct Stores {
    window: Duration,
    due: Instant,
    stores: Vec<ManagedStore>,
}

#[derive(Clone, Debug)]
struct ManagedStore {
    backend: BackendId,
    manager: Manager,
    forecast: Option<Forecast>,
    dry_run: bool,
    bound: Duration,
    /// The start of the measuring window, and the accesses since then.
    since: Instant,
    seen: AttemptTimes,
    slow_from: Duration,
    /// Configured number of duplicates, by which replicas are numbered.
    duplicates: u8,
    /// The latest known layout.
    layout: StoreLayout,
    /// Observations that may follow a change of partitions or duplicates until they are in force; 0
    /// once they are.
    moves_for: u32,
    periods: SlowPeriods,
    measured: Option<f64>,
    reason: Option<String>,
    /// The plan of the latest reported proposal of a dry run.
    proposed: Option<StorePlan>,
    /// The layouts that were put in force.
    history: History<StoreLayout>,
}

/// A report about a replicated store: a decision, or the measured effect of one.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSaid {
    /// The store's backend.
    pub backend: BackendId,
    /// The report, a sentence.
    pub line: String,
    /// The plan that is best; the present one in a report about effects.
    pub plan: StorePlan,
    /// True if the plan changes.
    pub applied: bool,
}

/// The measurement of a store that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreMeasure {
    /// The store's backend.
    pub backend: BackendId,
    /// Time within which an access is to be answered.
    pub bound: Duration,
    /// Time from which on an attempt is slow.
    pub slow_from: Duration,
}

/// The latest decision about a store, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreStanding {
    /// The store's backend.
    pub backend: BackendId,
    /// The latest decision, a sentence; none before the first.
    pub reason: Option<String>,
    /// The share of accesses within the bound that the model predicts for the latest window.
    pub predicted: Option<f64>,
    /// The share of accesses within the bound that was measured in that window.
    pub measured: Option<f64>,
    /// Correlation of the duplicates' slow periods.
    pub correlation: Option<f64>,
}

impl Stores {
    /// Returns the lever over these stores without any; decisions follow windows of the SLO.
    #[must_use]
    pub fn new(slo: &Slo, now: Instant) -> Self {
        Self { window: slo.window, due: now, stores: Vec::new() }
    }

    /// Adds a store in the layout that its manager has. With `dry_run` its changes are only
    /// reported.
    #[must_use]
    pub fn with(
        mut self,
        backend: BackendId,
        manager: Manager,
        forecast: Option<Forecast>,
        dry_run: bool,
    ) -> Self {
        let layout = manager.plan().layout();
        self.stores.push(ManagedStore {
            backend,
            duplicates: layout.duplicates,
            layout,
            moves_for: 0,
            periods: SlowPeriods::new(layout.duplicates.into()),
            manager,
            forecast,
            dry_run,
            bound: Duration::MAX,
            since: self.due,
            seen: AttemptTimes::default(),
            slow_from: Duration::MAX,
            measured: None,
            reason: None,
            proposed: None,
            history: History::default(),
        });
        self
    }

    /// Sets the SLO of all stores. Accesses of the present window were measured by the old one.
    pub(crate) fn set_slo(&mut self, slo: &Slo) {
        for store in &mut self.stores {
            store.bound = slo.bound;
            store.manager.set_slo(slo.bound.as_secs_f64() * 1e3, slo.percentile / 100.0);
        }
    }

    /// Returns the measurements to be made of each store from now on.
    pub fn measures(&self) -> impl Iterator<Item = StoreMeasure> {
        let measure = |&ManagedStore { backend, bound, slow_from, .. }: &ManagedStore| StoreMeasure {
            backend,
            bound,
            slow_from,
        };
        self.stores.iter().map(measure)
    }

    /// Returns the state of each store.
    pub fn standings(&self) -> impl Iterator<Item = StoreStanding> {
        self.stores.iter().map(|store| StoreStanding {
            backend: store.backend,
            reason: store.reason.clone(),
            predicted: store.manager.predicted().filter(|_| store.measured.is_some()),
            measured: store.measured,
            correlation: store.periods.correlation(),
        })
    }

    pub(crate) fn next_timeout(&self) -> Instant {
        self.due
    }

    /// Returns the managers, to [take back](Self::take_back) the next decisions.
    pub(crate) fn managers(&self) -> Vec<Manager> {
        self.stores.iter().map(|store| store.manager.clone()).collect()
    }

    /// Takes back the decisions since these were the managers.
    pub(crate) fn take_back(&mut self, managers: Vec<Manager>) {
        for (store, manager) in self.stores.iter_mut().zip(managers) {
            store.manager = manager;
        }
    }

    /// Takes in the layouts of the stores, which may have been set by hand.
    pub(crate) fn note_layouts(&mut self, seen: &[StoreSeen]) {
        for seen in seen {
            if let Some(store) = self.stores.iter_mut().find(|store| store.backend == seen.backend) {
                store.note_layout(seen.layout);
            }
        }
    }

    /// Takes in what was seen of each store, and returns the reports of windows that end.
    pub(crate) fn handle_seen(&mut self, now: Instant, seen: Vec<StoreSeen>, leave: Leave) -> Vec<StoreSaid> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + OBSERVE_EVERY;
        let mut said = Vec::new();
        for StoreSeen { backend, attempts, is_settled, .. } in seen {
            let Some(store) = self.stores.iter_mut().find(|store| store.backend == backend) else { continue };
            store.moves_for = if is_settled { 0 } else { store.moves_for.saturating_sub(1) };
            if store.moves_for > 0 {
                store.begin_window(now);
                continue;
            }
            store.take_in(attempts);
            if now.since(store.since) >= self.window && store.seen.accesses >= ACCESSES_MIN {
                said.extend(store.end_window(now, leave));
            }
        }
        said
    }

    /// Restores the layouts that were in force at `at`, and returns the reports of those that
    /// change.
    pub(crate) fn go_back(&mut self, now: Instant, at: Instant) -> Vec<StoreSaid> {
        self.stores.iter_mut().filter_map(|store| store.go_back(now, at)).collect()
    }
}

impl ManagedStore {
    /// Takes in the present layout. Slow periods of other duplicates say nothing about its own.
    fn note_layout(&mut self, layout: StoreLayout) {
        let placed = |layout: &StoreLayout| (layout.partitions, layout.duplicates);
        if placed(&layout) != placed(&self.layout) {
            self.periods = SlowPeriods::new(layout.duplicates.max(self.duplicates).into());
            self.moves_for = MOVES_MAX;
        }
        self.layout = layout;
    }

    fn put_in_force(&mut self, now: Instant, layout: StoreLayout) {
        self.history.note(now, layout);
        self.note_layout(layout);
    }

    /// Begins another window, without what was seen in the present one.
    fn begin_window(&mut self, now: Instant) {
        (self.since, self.seen) = (now, AttemptTimes::default());
    }

    fn take_in(&mut self, attempts: AttemptTimes) {
        if self.slow_from < Duration::MAX {
            self.periods.note(&attempts.replicas);
        }
        self.seen.merge(attempts);
    }

    /// Compares what was measured with the model, and decides; the next window begins.
    fn end_window(&mut self, now: Instant, leave: Leave) -> Vec<StoreSaid> {
        let window_s = now.since(std::mem::replace(&mut self.since, now)).as_secs_f64();
        let seen = std::mem::take(&mut self.seen);
        let (Some(times), Some(level)) = (service_times(&seen), seen.level()) else { return Vec::new() };
        let rate_per_s = seen.accesses as f64 / window_s.max(f64::MIN_POSITIVE);
        // Below the bound, delays that the node and its machine add would count.
        let not_slow = Duration::from_secs_f64(times.quantile_ms(NOT_SLOW) / 1e3);
        self.slow_from = not_slow.max(self.bound);
        self.measured = Some(level);
        self.manager.adopt(StorePlan::of_layout(&self.layout));
        let effect = self.manager.handle_window(&times, rate_per_s, level);
        let plan = *self.manager.plan();
        let effect = effect.map(|line| StoreSaid { backend: self.backend, line, plan, applied: false });
        let decision = match leave {
            Leave::Act => self.decide(now, &times, rate_per_s, self.dry_run),
            Leave::Report => self.decide(now, &times, rate_per_s, true),
            Leave::Frozen | Leave::BackTo(_) => None,
        };
        effect.into_iter().chain(decision).collect()
    }

    /// Decides on the plan, and returns the decision if it says something new.
    fn decide(
        &mut self,
        now: Instant,
        times: &ServiceTimes,
        rate_per_s: f64,
        dry_run: bool,
    ) -> Option<StoreSaid> {
        self.history.note(now, self.manager.plan().layout());
        self.manager.set_dry_run(dry_run);
        let forecast = self.forecast.map(|forecast| forecast.next(rate_per_s));
        let decision = self.manager.decide(times, rate_per_s, forecast);
        let StoreDecision { plan, proposed, is_change, reason, .. } = decision;
        self.reason = Some(reason.clone());
        if is_change {
            self.put_in_force(now, plan.layout());
        }
        // Delays before hedges follow the service times and differ in each window.
        let kind = |plan: StorePlan| StorePlan { hedge_ms: plan.hedge_ms.map(|_| 0.0), ..plan };
        let differs = (proposed != plan).then_some(kind(proposed));
        let is_new = is_change || (differs.is_some() && differs != self.proposed);
        self.proposed = differs;
        let said = StoreSaid { backend: self.backend, line: reason, plan: proposed, applied: is_change };
        is_new.then_some(said)
    }

    fn go_back(&mut self, now: Instant, at: Instant) -> Option<StoreSaid> {
        let here = |asking: &StoreLayout| StoreLayout {
            asked: asking.asked.min(self.layout.duplicates),
            hedge: asking.hedge,
            ..self.layout
        };
        let (noted, present) = (*self.history.at(at)?, here(&self.manager.plan().layout()));
        // Partitions and duplicates that the manager keeps were changed by hand, if at all.
        let then = if self.dry_run || self.manager.keeps_layout() { here(&noted) } else { noted };
        if then == present {
            return None;
        }
        self.put_in_force(now, then);
        let then = StorePlan::of_layout(&then);
        self.manager.adopt(then);
        self.begin_window(now);
        let line = format!("moves made requests slower: back to {then}");
        self.reason = Some(line.clone());
        Some(StoreSaid { backend: self.backend, line, plan: then, applied: true })
    }
}

impl StoreSaid {
    /// Returns the backend's plan if it changes.
    pub(crate) fn planned(&self) -> Option<BackendPlan> {
        let plan = BackendPlan { layout: Some(self.plan.layout()), ..BackendPlan::unchanged(self.backend) };
        self.applied.then_some(plan)
    }
}
