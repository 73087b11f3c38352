//! The control loop: after every interval of decisions (Δ) it observes, decides and acts.
//!
//! The loop makes no decisions of its own: it fills an `Observation`, the policy decides, and the
//! actuator applies the plan. When the loop is late or fails, the cache keeps its last plan.

mod actuator;
mod admission;
mod change;
mod guard;
pub(crate) mod instances;
mod levels;
mod losses;
mod pins;
mod rates;
mod tenants;
mod tenants_view;
mod total;
mod view;
mod what_if;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sherwood_cache::Cache;
use sherwood_config::Pin;
use sherwood_model::{Band, CachePlan, Instant, PartitionId, Plan};
use sherwood_policy::tenants::TenantTerms;
use sherwood_policy::{CounterWindow, Decision, GuardStanding, Observation, Options, PartitionObservation};

use crate::clock::{Clock, millis};
use crate::names::Names;
use crate::observe::events::Events;
use crate::observe::shadow::Shadow;
use crate::observe::telemetry::Telemetry;
use actuator::ApplyError;
use losses::Noticed;
use pins::PinError;
use tenants_view::TenantDecisionView;
use view::DecisionView;
use what_if::WhatIf;

pub(crate) use actuator::{Actuator, Instances, OwnCache};
pub(crate) use admission::AdmissionTargets;
pub(crate) use change::{ChangeError, ControlChange};
pub(crate) use levels::Levels;
pub(crate) use losses::Losses;
pub(crate) use rates::RateLimits;
pub use tenants::TenancyError;
pub(crate) use tenants::{Quotas, SaidTrade, TenantLevels};
pub(crate) use tenants_view::{DivisionView, TenantsView};
pub(crate) use view::ControlView;

/// The policy under which partitions have no sizes of their own.
const SHARING: &str = "shared-lru";

/// Upper bound of partitions named in a warning.
const NAMED_MAX: usize = 6;

/// The range of a partition's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Minimum of the partition, bytes.
    pub(crate) min_bytes: u64,
    /// Maximum of the partition, or the total if it has none, bytes.
    pub(crate) max_bytes: u64,
    /// The total less the budgets of all other partitions, bytes.
    pub(crate) free_bytes: u64,
}

/// The parts that the control loop observes and reports to.
pub(crate) struct ControlParts {
    pub(crate) clock: Clock,
    pub(crate) names: Arc<Names>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) shadow: Arc<Shadow>,
    pub(crate) events: Arc<Events>,
    pub(crate) losses: Arc<Losses>,
    pub(crate) admission: AdmissionTargets,
}

/// The state of the control loop.
pub(crate) struct Control {
    levels: Levels,
    options: Options,
    pins: Vec<Pin>,
    actuator: Box<dyn Actuator>,
    parts: ControlParts,
    counters: CounterWindow,
    what_if: WhatIf,
    losses: Noticed,
    decisions: u64,
    latest: Option<Decision>,
}

impl Control {
    /// Creates a loop around `levels`, starting from the sizes that `actuator` reports.
    pub(crate) fn new(
        levels: Levels,
        options: Options,
        pins: Vec<Pin>,
        actuator: Box<dyn Actuator>,
        parts: ControlParts,
    ) -> Self {
        let counters = CounterWindow::new(options.rbc_window);
        let (what_if, losses) = (WhatIf::default(), Noticed::default());
        Self { levels, options, pins, actuator, parts, counters, what_if, losses, decisions: 0, latest: None }
    }

    /// Time between decisions.
    pub(crate) fn delta(&self) -> Duration {
        self.options.delta
    }

    /// Name of the policy in force among partitions.
    pub(crate) fn policy(&self) -> &'static str {
        self.levels.policy()
    }

    /// The configured range of latency percentiles in which blocking counts are shown.
    pub(crate) fn band(&self) -> Band {
        self.options.band
    }

    /// Total bytes of all partitions.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.actuator.total_bytes()
    }

    /// The state of the guard; none if there is no guard.
    pub(crate) fn guard(&self) -> Option<GuardStanding> {
        self.levels.guard()
    }

    /// The operator's size limits (pins) of each partition.
    pub(crate) fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// Checks that a partition can be pinned, and set to `bytes` by hand, if given.
    ///
    /// # Errors
    /// When budgets that obey all pins, with those in a dry run unchanged, could not sum to the
    /// total, or when the partition's cache does not accept so small a size.
    pub(crate) fn check_pin(
        &self,
        partition: PartitionId,
        pin: Pin,
        bytes: Option<u64>,
    ) -> Result<(), PinError> {
        let total = self.actuator.total_bytes();
        let mut pins = self.pins.clone();
        pins[partition.index()] = pin;
        pins::check(&pin, self.actuator.bytes_min(partition))?;
        let mut budgets = self.levels.budgets();
        budgets[partition.index()] = bytes.unwrap_or(budgets[partition.index()]);
        pins::check_sums(&pins, &budgets, total)
    }

    /// Checks that these partitions can be pinned together, in a cache of so many bytes.
    ///
    /// # Errors
    /// As those of [`check_pin`](Self::check_pin).
    pub(crate) fn check_pins(
        &self,
        changed: &[(PartitionId, Pin)],
        total_bytes: u64,
    ) -> Result<(), PinError> {
        let mut pins = self.pins.clone();
        for &(partition, pin) in changed {
            pins::check(&pin, self.actuator.bytes_min(partition))?;
            pins[partition.index()] = pin;
        }
        pins::check_sums(&pins, &self.levels.budgets(), total_bytes)
    }

    /// Pins a partition from the next decision on. The caller has checked it
    /// ([`Control::check_pin`]). The guard starts anew, because effects of a new pin are the
    /// operator's choice and not to be rolled back.
    pub(crate) fn pin(&mut self, partition: PartitionId, pin: Pin) {
        if std::mem::replace(&mut self.pins[partition.index()], pin) != pin {
            self.levels.restart_guard();
        }
    }

    /// Decisions made since the start.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// The level between tenants; none without tenants.
    pub(crate) fn tenants(&self) -> Option<&TenantLevels> {
        self.levels.tenants()
    }

    /// Sets the terms of tenants, which were checked, and decides; no effect without tenants.
    fn set_terms(&mut self, terms: Vec<TenantTerms>) {
        let Some(tenants) = self.levels.tenants_mut() else { return };
        tenants.set_terms(terms);
        let plan = tenants.plan();
        self.apply_division(&plan);
        self.advance(self.parts.clock.now());
    }

    /// Applies a plan of the level between tenants. It fits the cache, so that a failure is a bug.
    fn apply_division(&self, plan: &Plan) {
        if let Err(error) = self.actuator.apply(plan) {
            tracing::error!("the division among tenants was not applied: {error}");
        }
    }

    /// Warns that pins (the operator's size limits) and dry runs have no effect while all
    /// partitions share one LRU.
    pub(crate) fn warn_of_idle_pins(&self) {
        let pinned =
            self.parts.names.partitions().iter().zip(&self.pins).filter(|(_, pin)| **pin != Pin::default());
        let pinned: Vec<&str> = pinned.map(|(partition, _)| partition.name.as_str()).collect();
        if self.policy() == SHARING && !pinned.is_empty() {
            let names = pinned.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = pinned.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!(
                "{SHARING} gives no partition a size: min, max and dry_run of {names}{more} wait until another policy is chosen"
            );
            self.parts.events.warn("policy", message, json!({ "policy": SHARING, "idle_pins": pinned }));
        }
    }

    /// Sets one partition's budget by hand, at once.
    pub(crate) fn set_by_hand(&mut self, partition: PartitionId, bytes: u64) -> Result<(), ApplyError> {
        let mut budgets = self.budgets();
        budgets[partition.index()] = bytes;
        self.actuator.apply(&CachePlan::Budgets(budgets.clone()).into())?;
        self.levels.set_budgets(budgets);
        Ok(())
    }

    /// Restores the budgets of a node with the same partitions, unless the policy leaves budgets to
    /// the operator, tenants start from their baselines, or they do not fit.
    pub(crate) fn restore(&mut self, budgets: &[u64]) {
        let fits = |(pin, &bytes): (&Pin, &u64)| {
            (pin.min_bytes..=pin.max_bytes.unwrap_or(u64::MAX)).contains(&bytes)
        };
        let sum = budgets.iter().try_fold(0_u64, |sum, &bytes| sum.checked_add(bytes));
        let all_fit = budgets.len() == self.pins.len() && self.pins.iter().zip(budgets).all(fits);
        let sized = self.policy() == "static" || self.levels.tenants().is_some();
        if sized || !all_fit || sum != Some(self.total_bytes()) {
            return;
        }
        let plan = CachePlan::Budgets(budgets.to_vec()).into();
        let shared = self.parts.cache.plan() == CachePlan::Shared;
        if shared || self.actuator.apply(&plan).is_ok() {
            self.levels.set_budgets(budgets.to_vec());
        }
    }

    /// Returns the range that `partition` may be set to by hand under `pin`.
    pub(crate) fn room(&self, partition: PartitionId, pin: Pin) -> Room {
        let total = self.actuator.total_bytes();
        let others = self.budgets().into_iter().enumerate().filter(|(i, _)| *i != partition.index());
        Room {
            min_bytes: pin.min_bytes,
            max_bytes: pin.max_bytes.unwrap_or(total),
            free_bytes: total.saturating_sub(others.map(|(_, bytes)| bytes).sum()),
        }
    }

    /// The budgets in force; where all partitions share one LRU, those that apply once they no
    /// longer do.
    pub(crate) fn budgets(&self) -> Vec<u64> {
        self.actuator.budgets().unwrap_or_else(|| self.levels.budgets())
    }

    /// Runs one round of the control loop: observes, decides, acts, and reports the decision.
    pub(crate) fn decide(&mut self, now: Instant) {
        self.parts.admission.decide(&self.parts.events, self.levels.dry_run());
        let seen = self.observe(now);
        let backends = self.parts.names.backends().len();
        let decision = self.levels.decide(now, seen, &self.parts.telemetry, backends);
        self.decisions += 1;
        if decision.apply
            && let Err(error) = self.actuator.apply(&decision.plan)
        {
            tracing::error!("the plan was not applied: {error}");
            self.levels.set_budgets(self.budgets());
            return;
        }
        if let Some(harm) = &decision.harm {
            let (line, data) = guard::tripped(&self.parts.names, now, harm);
            self.parts.events.warn("guard", line, data);
        }
        self.parts.events.say(
            "decision",
            decision.line.clone(),
            json!(DecisionView::of(&self.parts.names, &decision)),
        );
        self.latest = Some(decision);
    }

    /// Applies the plan that the node starts from, which gives each tenant its baseline; without
    /// tenants, the cache starts with its budgets.
    pub(crate) fn start(&self) -> Result<(), ApplyError> {
        self.levels.tenants().map_or(Ok(()), |tenants| self.actuator.apply(&tenants.plan()))
    }

    /// The time at which [`advance`](Self::advance) has something to do; none without tenants.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.levels.tenants().map(TenantLevels::next_timeout)
    }

    /// Has the level between tenants observe, decide if it is time to, and make the next step of a
    /// move.
    pub(crate) fn advance(&mut self, now: Instant) {
        let Some(tenants) = self.levels.tenants_mut() else { return };
        let unix_ms = u64::try_from(self.parts.clock.unix(now).as_millis()).unwrap_or(u64::MAX);
        let round = tenants.advance(now, unix_ms);
        let plan = round.changed.then(|| tenants.plan());
        if round.fades_curves {
            self.parts.cache.fade_curves();
        }
        if let Some(plan) = plan {
            self.apply_division(&plan);
        }
        if let Some(decision) = round.decision {
            let data = json!(TenantDecisionView::of(&decision));
            self.parts.events.say("tenants", decision.line, data);
        }
    }

    /// Observes everything but finished requests.
    fn observe(&mut self, now: Instant) -> Observation {
        let needs = self.levels.needs();
        let held = self.actuator.observe();
        if self.losses.advance(now, &self.parts.losses, held.iter().map(|held| held.restarts).sum()) {
            self.levels.note_loss();
        }
        let reached: Vec<bool> = held.iter().map(|held| held.reached).collect();
        let total_bytes = self.actuator.total_bytes();
        let pins = pins::while_absent(&self.pins, &self.levels.budgets(), &reached, total_bytes);
        let counts = self.counters.advance(now, held.iter().map(|held| (held.hits, held.misses)).collect());
        let slopes = if needs.hit_ratio_slope {
            self.parts.shadow.slopes(&self.levels.budgets())
        } else {
            self.parts.shadow.rest(now);
            vec![None; held.len()]
        };
        let partitions =
            self.parts.names.partitions().iter().zip(held.iter().zip(counts)).zip(pins).zip(slopes);
        let mut partitions: Vec<_> = partitions
            .map(|(((partition, (held, (hits, misses))), pin), hit_ratio_slope)| PartitionObservation {
                allocated_bytes: held.allocated_bytes,
                used_bytes: held.used_bytes,
                min_bytes: pin.min_bytes,
                max_bytes: pin.max_bytes,
                dry_run: pin.dry_run,
                hits,
                misses,
                queries: hits + misses,
                hit_ratio_slope,
                query_p99: self.parts.telemetry.query_sketch(now, partition.backend).quantile(0.99),
                ..PartitionObservation::new(partition.tenant, partition.backend)
            })
            .collect();
        self.what_if.add(
            (&self.parts.cache, &self.parts.telemetry, now),
            &needs,
            total_bytes,
            &held,
            &mut partitions,
        );
        Observation { total_bytes, partitions, ..Observation::default() }
    }

    /// The state of the control loop as the admin API shows it.
    pub(crate) fn view(&self) -> ControlView {
        let Options { delta, rbc_window, band, tax, .. } = &self.options;
        let ControlParts { names, clock, admission, .. } = &self.parts;
        let between = self.levels.tenants().map(|tenants| tenants.levels().between().policy().name());
        ControlView {
            admission: admission.view(),
            available: sherwood_policy::available_without_options(),
            band: [band.low, band.high],
            between,
            decisions: self.decisions,
            delta_ms: millis(*delta),
            dry_run: self.levels.dry_run(),
            guard: self.guard().map(|standing| guard::described(names, clock.now(), &standing)),
            latest: self.latest.as_ref().map(|decision| DecisionView::of(names, decision)),
            policy: self.policy(),
            rbc_window_ms: millis(*rbc_window),
            tax_ratio: *tax,
        }
    }
}
