//! The control loop: after every interval of decisions (Δ) it observes, decides and acts.
//!
//! The loop makes no decisions of its own: it fills an `Observation`, the policy decides, and the
//! actuator applies the plan. When the loop is late or fails, the cache keeps its last plan.

mod actuator;
mod admission;
mod guard;
pub(crate) mod instances;
mod losses;
mod pins;
mod what_if;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sherwood_cache::Cache;
use sherwood_model::{Band, CachePlan, Instant, PartitionId};
use sherwood_policy::{
    Controller, CounterWindow, Decision, GuardStanding, Observation, Options, PartitionObservation, Policy,
    PolicyError, by_name,
};

use crate::clock::{Clock, millis};
use crate::events::Events;
use crate::names::Names;
use crate::shadow::Shadow;
use crate::telemetry::Telemetry;
use actuator::ApplyError;
use losses::Noticed;
use pins::PinError;
use what_if::WhatIf;

pub(crate) use actuator::{Actuator, Instances, OwnCache};
pub(crate) use admission::AdmissionTargets;
pub use instances::{InstanceKind, InstanceSetup, InstancesSetup};
pub(crate) use losses::Losses;
pub use pins::Pin;

/// Characters of a policy's name that an error quotes.
const NAME_CHARS_MAX: usize = 64;

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

/// The reason a change of the loop is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// No policy has this name.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The caches do not support the policy.
    #[error(transparent)]
    Apply(#[from] ApplyError),
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
    controller: Controller,
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
    /// Creates a loop around `controller`, starting from the sizes that `actuator` reports.
    pub(crate) fn new(
        controller: Controller,
        options: Options,
        pins: Vec<Pin>,
        actuator: Box<dyn Actuator>,
        parts: ControlParts,
    ) -> Self {
        let counters = CounterWindow::new(options.rbc_window);
        let (what_if, losses) = (WhatIf::default(), Noticed::default());
        Self {
            controller,
            options,
            pins,
            actuator,
            parts,
            counters,
            what_if,
            losses,
            decisions: 0,
            latest: None,
        }
    }

    /// Time between decisions.
    pub(crate) fn delta(&self) -> Duration {
        self.options.delta
    }

    /// Name of the policy in force.
    pub(crate) fn policy(&self) -> &'static str {
        self.controller.policy()
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
        self.controller.guard()
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
        pin.check(self.actuator.bytes_min(partition))?;
        let mut budgets = self.controller.budgets().to_vec();
        budgets[partition.index()] = bytes.unwrap_or(budgets[partition.index()]);
        pins::check_sums(&pins, &budgets, total)
    }

    /// Pins a partition from the next decision on. The caller has checked it
    /// ([`Control::check_pin`]). The guard starts anew, because effects of a new pin are the
    /// operator's choice and not to be rolled back.
    pub(crate) fn pin(&mut self, partition: PartitionId, pin: Pin) {
        if std::mem::replace(&mut self.pins[partition.index()], pin) != pin {
            self.controller.restart_guard();
        }
    }

    /// Decisions made since the start.
    pub(crate) fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Switches between acting on decisions and only reporting them, then switches the policy,
    /// which decides at once.
    pub(crate) fn change(
        &mut self,
        policy: Option<&str>,
        dry_run: Option<bool>,
        guard: Option<bool>,
    ) -> Result<(), ChangeError> {
        let policy = policy.map(|name| self.policy_called(name)).transpose()?;
        if policy.as_ref().is_some_and(|policy| policy.starts_shared()) && !self.actuator.can_share() {
            return Err(ApplyError::Sharing.into());
        }
        if let Some(dry_run) = dry_run {
            self.controller.set_dry_run(dry_run);
            let state = if dry_run { "on: decisions are reported and not applied" } else { "off" };
            self.parts.events.say("policy", format!("dry run {state}"), json!({ "dry_run": dry_run }));
        }
        if let Some(guard) = guard {
            let options = self.options.guard.unwrap_or_default();
            self.controller.set_guard(guard.then_some(options));
            let state = if guard { "on, and begins anew" } else { "off: nothing goes back by itself" };
            self.parts.events.say("guard", format!("guard {state}"), json!({ "guard": guard }));
        }
        if let Some(policy) = policy {
            let name = policy.name();
            self.controller.set_policy(policy);
            self.parts.events.say("policy", format!("policy switched to {name}"), json!({ "policy": name }));
            self.warn_of_idle_pins();
            self.decide(self.parts.clock.now());
        }
        Ok(())
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

    /// Returns the policy called `name`. An error quotes only the beginning of a long name.
    fn policy_called(&self, name: &str) -> Result<Box<dyn Policy>, PolicyError> {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        by_name(&name, &self.options)
    }

    /// Sets one partition's budget by hand, at once.
    pub(crate) fn set_by_hand(&mut self, partition: PartitionId, bytes: u64) -> Result<(), ApplyError> {
        let mut budgets = self.budgets();
        budgets[partition.index()] = bytes;
        self.actuator.apply(&CachePlan::Budgets(budgets.clone()).into())?;
        self.controller.set_budgets(budgets);
        Ok(())
    }

    /// Restores the budgets of a node with the same partitions, unless the policy leaves budgets to
    /// the operator or they do not fit.
    pub(crate) fn restore(&mut self, budgets: &[u64]) {
        let fits = |(pin, &bytes): (&Pin, &u64)| {
            (pin.min_bytes..=pin.max_bytes.unwrap_or(u64::MAX)).contains(&bytes)
        };
        let sum = budgets.iter().try_fold(0_u64, |sum, &bytes| sum.checked_add(bytes));
        let all_fit = budgets.len() == self.pins.len() && self.pins.iter().zip(budgets).all(fits);
        if self.policy() == "static" || !all_fit || sum != Some(self.total_bytes()) {
            return;
        }
        let plan = CachePlan::Budgets(budgets.to_vec()).into();
        let shared = self.parts.cache.plan() == CachePlan::Shared;
        if shared || self.actuator.apply(&plan).is_ok() {
            self.controller.set_budgets(budgets.to_vec());
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
        self.actuator.budgets().unwrap_or_else(|| self.controller.budgets().to_vec())
    }

    /// Runs one round of the control loop: observes, decides, acts, and reports the decision.
    pub(crate) fn decide(&mut self, now: Instant) {
        self.parts.admission.decide(&self.parts.events, self.controller.dry_run());
        let seen = self.observe(now);
        let decision = self.controller.decide(now, &seen);
        self.decisions += 1;
        if decision.apply
            && let Err(error) = self.actuator.apply(&decision.plan)
        {
            tracing::error!("the plan was not applied: {error}");
            self.controller.set_budgets(self.budgets());
            return;
        }
        if let Some(harm) = &decision.harm {
            let (line, data) = guard::tripped(&self.parts.names, now, harm);
            self.parts.events.warn("guard", line, data);
        }
        self.parts.events.say("decision", decision.line.clone(), described(&self.parts.names, &decision));
        self.latest = Some(decision);
    }

    fn observe(&mut self, now: Instant) -> Observation {
        let needs = self.controller.needs();
        let held = self.actuator.observe();
        if self.losses.advance(now, &self.parts.losses, held.iter().map(|held| held.restarts).sum()) {
            self.controller.note_loss();
        }
        let reached: Vec<bool> = held.iter().map(|held| held.reached).collect();
        let total_bytes = self.actuator.total_bytes();
        let pins = pins::while_absent(&self.pins, self.controller.budgets(), &reached, total_bytes);
        let counts = self.counters.advance(now, held.iter().map(|held| (held.hits, held.misses)).collect());
        let slopes = if needs.hit_ratio_slope {
            self.parts.shadow.slopes(self.controller.budgets())
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
        let mut seen = Observation { total_bytes, partitions, ..Observation::default() };
        if needs.requests {
            seen.see_requests(&self.parts.telemetry.snapshot(now), &needs, self.parts.names.backends().len());
        }
        seen
    }

    /// The state of the control loop as the admin API shows it.
    pub(crate) fn view(&self) -> Value {
        let Options { delta, rbc_window, band, tax, .. } = &self.options;
        json!({
            "policy": self.policy(),
            "available": sherwood_policy::available_without_options(),
            "dry_run": self.controller.dry_run(),
            "delta_ms": millis(*delta),
            "rbc_window_ms": millis(*rbc_window),
            "band": [band.low, band.high],
            "tax_ratio": tax,
            "guard": self.guard().map(|standing| guard::described(&self.parts.names, self.parts.clock.now(), &standing)),
            "decisions": self.decisions,
            "admission": self.parts.admission.view(),
            "latest": self.latest.as_ref().map(|decision| described(&self.parts.names, decision)),
        })
    }
}

/// Returns a decision of the control loop as JSON.
fn described(names: &Names, decision: &Decision) -> Value {
    let moves: Vec<_> = decision
        .moves
        .iter()
        .map(|step| {
            json!({
                "partition": names.partitions()[step.partition.index()].name,
                "before_bytes": step.before_bytes,
                "after_bytes": step.after_bytes,
                "reason": step.reason.to_string(),
            })
        })
        .collect();
    json!({
        "policy": decision.policy,
        "applied": decision.apply,
        "kept": decision.kept.map(|kept| kept.to_string()),
        "pending_bytes": decision.pending_bytes,
        "moves": moves,
        "line": decision.line,
    })
}
