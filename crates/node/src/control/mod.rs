//! Drives the control loop: makes the observations that it needs, and carries out its acts.
//!
//! [`ControlLoop`] decides, but has no clock and no counters. This module reads those of the node,
//! applies plans with the node's [`Actuator`], and reports decisions as events and to the admin
//! API. When it is late or fails, the cache keeps its last plan.

mod actuator;
mod admission;
mod change;
mod guard;
pub(crate) mod instances;
mod losses;
mod observation;
mod rates;
mod replication;
mod stores;
mod tenants;
mod tenants_view;
mod total;
mod view;

use std::sync::Arc;

use serde_json::json;
use sherwood_cache::Cache;
use sherwood_control::cluster::Wants;
use sherwood_control::{Act, ControlLoop, Levels, Merger, Pin, PinError, Said, Seen};
use sherwood_model::{Band, CachePlan, Instant, PartitionId};
use sherwood_policy::tenants::TenantStanding;
use sherwood_policy::{GuardStanding, Needs, Options};
use sherwood_process::clock::{Clock, millis};

use crate::cluster::Statistics;
use crate::names::Names;
use crate::observe::events::Events;
use crate::observe::shadow::Shadow;
use crate::observe::telemetry::Telemetry;
use actuator::ApplyError;
use tenants_view::TenantDecisionView;
use view::DecisionView;

pub(crate) use actuator::{Actuator, Backends, Instances, OwnCache};
pub(crate) use admission::AdmissionTargets;
pub(crate) use change::{ChangeError, ControlChange};
pub(crate) use losses::Losses;
pub(crate) use rates::{PlanRates, RateLimits};
pub(crate) use replication::{ReplicationView, Tiers};
pub(crate) use stores::ManagedStores;
pub use tenants::TenancyError;
pub(crate) use tenants::{Quotas, SaidTrade, TenantLevels, TenantRecord};
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
    /// The tiers whose copies are chosen; none without `[replication]`.
    pub(crate) tiers: Option<Tiers>,
    /// The replicated stores that have managers; none without `[stores]`.
    pub(crate) stores: Option<ManagedStores>,
    /// Statistics of all nodes; none without `[cluster]`.
    pub(crate) statistics: Option<Arc<Statistics>>,
}

/// The control loop of a node, with the parts that it observes and controls.
pub(crate) struct Control {
    rounds: ControlLoop,
    merger: Merger,
    /// The counters, quotas and trades of the tenants; none without tenants.
    tenants: Option<TenantRecord>,
    actuator: Box<dyn Actuator>,
    parts: ControlParts,
}

impl Control {
    /// Creates a control loop that starts from the sizes reported by `actuator`. `levels` divide
    /// the cache; with tenants, the second element is their record.
    pub(crate) fn new(
        (levels, tenants): (Levels, Option<TenantRecord>),
        options: Options,
        pins: Vec<Pin>,
        actuator: Box<dyn Actuator>,
        parts: ControlParts,
    ) -> Self {
        let now = parts.clock.now();
        let mut rounds = ControlLoop::new(levels, parts.admission.lever(), options, pins, now);
        if let Some(tiers) = &parts.tiers {
            rounds = rounds.with_replication(tiers.lever(now));
        }
        if let Some(stores) = &parts.stores {
            rounds = rounds.with_stores(stores.lever(now), stores.slo());
        }
        let control = Self { rounds, merger: Merger::of_new([String::new()]), tenants, actuator, parts };
        control.want_statistics();
        control
    }

    /// Has snapshots of the node's statistics contain what its decisions need.
    fn want_statistics(&self) {
        if let Some(statistics) = &self.parts.statistics {
            statistics.want(self.wants(self.rounds.levels().needs()), self.band(), self.total_bytes());
        }
    }

    /// The statistics of all nodes from which a decision with these needs is made.
    fn wants(&self, needs: Needs) -> Wants {
        Wants { needs, by_tenant: self.rounds.levels().tenants().is_some() }
    }

    /// Name of the policy in force among partitions.
    pub(crate) fn policy(&self) -> &'static str {
        self.rounds.levels().policy()
    }

    /// The configured range of latency percentiles in which blocking counts are shown.
    pub(crate) fn band(&self) -> Band {
        self.rounds.options().band
    }

    /// Total bytes of all partitions.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.actuator.total_bytes()
    }

    /// The state of the guard; none if there is no guard.
    pub(crate) fn guard(&self) -> Option<GuardStanding> {
        self.rounds.guard()
    }

    /// The operator's size limits (pins) of each partition.
    pub(crate) fn pins(&self) -> &[Pin] {
        self.rounds.pins()
    }

    /// Checks that a partition can be pinned, and set to `bytes` by hand, if given.
    ///
    /// # Errors
    /// The errors of [`ControlLoop::check_pins`].
    pub(crate) fn check_pin(
        &self,
        partition: PartitionId,
        pin: Pin,
        bytes: Option<u64>,
    ) -> Result<(), PinError> {
        let mut budgets = self.rounds.levels().budgets();
        budgets[partition.index()] = bytes.unwrap_or(budgets[partition.index()]);
        self.check_within(&[(partition, pin)], &budgets, self.total_bytes())
    }

    /// Checks that these partitions can be pinned together, in a cache of so many bytes.
    ///
    /// # Errors
    /// The errors of [`ControlLoop::check_pins`].
    pub(crate) fn check_pins(
        &self,
        changed: &[(PartitionId, Pin)],
        total_bytes: u64,
    ) -> Result<(), PinError> {
        self.check_within(changed, &self.rounds.levels().budgets(), total_bytes)
    }

    fn check_within(
        &self,
        pins: &[(PartitionId, Pin)],
        budgets: &[u64],
        total_bytes: u64,
    ) -> Result<(), PinError> {
        self.rounds.check_pins(pins, budgets, total_bytes, |partition| self.actuator.bytes_min(partition))
    }

    /// Sets a partition's pin (size limits) from the next decision on. The caller has checked the
    /// pin with [`Control::check_pin`].
    pub(crate) fn pin(&mut self, partition: PartitionId, pin: Pin) {
        self.rounds.pin(partition, pin);
    }

    /// Decisions made since the start.
    pub(crate) fn decisions(&self) -> u64 {
        self.rounds.decisions()
    }

    /// The level between tenants; none without tenants.
    pub(crate) fn tenants(&self) -> Option<TenantLevels<'_>> {
        let (levels, record) = self.rounds.levels().tenants().zip(self.tenants.as_ref())?;
        Some(TenantLevels { levels, record })
    }

    /// Warns that pins (the operator's size limits) and dry runs have no effect while all
    /// partitions share one LRU.
    pub(crate) fn warn_of_idle_pins(&self) {
        let pinned =
            self.parts.names.partitions().iter().zip(self.pins()).filter(|(_, pin)| **pin != Pin::default());
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
        self.rounds.adopt(budgets);
        Ok(())
    }

    /// Restores the budgets of a node with the same partitions, unless the policy leaves budgets to
    /// the operator, tenants start from their baselines, or they do not fit.
    pub(crate) fn restore(&mut self, budgets: &[u64]) {
        let fits = |(pin, &bytes): (&Pin, &u64)| {
            (pin.min_bytes..=pin.max_bytes.unwrap_or(u64::MAX)).contains(&bytes)
        };
        let sum = budgets.iter().try_fold(0_u64, |sum, &bytes| sum.checked_add(bytes));
        let all_fit = budgets.len() == self.pins().len() && self.pins().iter().zip(budgets).all(fits);
        let sized = self.policy() == "static" || self.tenants.is_some();
        if sized || !all_fit || sum != Some(self.total_bytes()) {
            return;
        }
        let plan = CachePlan::Budgets(budgets.to_vec()).into();
        let shared = self.parts.cache.plan() == CachePlan::Shared;
        if shared || self.actuator.apply(&plan).is_ok() {
            self.rounds.adopt(budgets.to_vec());
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
        self.actuator.budgets().unwrap_or_else(|| self.rounds.levels().budgets())
    }

    /// Applies the plan that the node starts from, which gives each tenant its baseline; without
    /// tenants, the cache starts with its budgets.
    pub(crate) fn start(&self) -> Result<(), ApplyError> {
        self.tenants().map_or(Ok(()), |tenants| self.actuator.apply(&tenants.levels().plan()))
    }

    /// Returns the time at which [`run`](Self::run) has to be called next.
    pub(crate) fn next_timeout(&self) -> Instant {
        self.rounds.next_timeout()
    }

    /// Makes the observations that are due, lets the loop decide, and carries out and reports its
    /// decisions.
    pub(crate) fn run(&mut self, now: Instant) {
        let needs = self.rounds.needs(now);
        let cache = needs.cache.map(|needs| self.observe(now, &needs));
        let tenants =
            needs.tenants.and_then(|decides| Some(self.tenants.as_ref()?.traffic().observe(decides)));
        let tiers = self.parts.tiers.as_ref().zip(needs.replication);
        let replication = tiers.map(|(tiers, since)| tiers.observe(since));
        let managed = self.parts.stores.as_ref().zip(self.rounds.stores()).filter(|_| needs.stores);
        let stores = managed.map(|(stores, lever)| stores.observe(lever));
        self.take_in(now, Seen { cache, tenants, replication, stores });
    }

    /// The choice of copies; none without `[replication]`.
    pub(crate) fn replication(&self) -> Option<ReplicationView> {
        self.parts.tiers.as_ref()?.view(&self.rounds)
    }

    /// Makes a decision among partitions now, whether it is due or not.
    pub(crate) fn decide(&mut self, now: Instant) {
        let needs = self.rounds.levels().needs();
        let seen = self.observe(now, &needs);
        self.take_in(now, Seen { cache: Some(seen), ..Seen::default() });
    }

    /// Makes a step of the division among tenants now, whether it is due or not; does nothing
    /// without tenants.
    pub(crate) fn advance(&mut self, now: Instant) {
        let Some(tenants) = self.tenants() else { return };
        let decides = now >= tenants.levels().between().decides_at();
        let seen = tenants.traffic().observe(decides);
        self.take_in(now, Seen { tenants: Some(seen), ..Seen::default() });
    }

    fn take_in(&mut self, now: Instant, seen: Seen) {
        let window = self.window();
        self.rounds.handle_seen(now, seen);
        self.carry_out(now);
        // A window that a decision has begun is measured from now on.
        if let (Some(tiers), Some(since)) = (&self.parts.tiers, self.window())
            && window != Some(since)
        {
            tiers.observe(since);
        }
    }

    /// The start of the present measuring window of the tiers.
    fn window(&self) -> Option<Instant> {
        self.rounds.replication().map(sherwood_control::Replication::since)
    }

    /// Carries out the waiting acts of the loop.
    fn carry_out(&mut self, now: Instant) {
        while let Some(act) = self.rounds.poll_act() {
            match act {
                Act::Apply(plan) => match self.actuator.apply(&plan) {
                    Ok(()) => self.publish(None),
                    Err(error) => {
                        tracing::error!("the plan was not applied: {error}");
                        self.rounds.handle_refusal(self.actuator.budgets());
                    }
                },
                Act::FadeCurves => self.parts.cache.fade_curves(),
                Act::Say(said) => self.say(now, &said),
            }
        }
    }

    /// Publishes the tenants' bytes and rates to other threads, with the measured throughput of
    /// `standings`.
    fn publish(&self, standings: Option<&[TenantStanding]>) {
        if let Some(tenants) = self.tenants() {
            tenants.record.publish(tenants.levels().between(), standings);
        }
    }

    fn say(&mut self, now: Instant, said: &Said) {
        let ControlParts { names, events, admission, tiers, stores, clock, .. } = &self.parts;
        match said {
            Said::Beta(change) => {
                let (line, data) = admission.changed(change);
                events.say("decision", line, data);
            }
            Said::Copies(decision) => {
                if let Some((line, data)) = tiers.as_ref().map(|tiers| tiers.decided(decision)) {
                    events.say("decision", line, data);
                }
            }
            Said::Store(said) => {
                if let Some((line, data)) = stores.as_ref().map(|stores| stores.said(said)) {
                    events.say("decision", line, data);
                }
            }
            Said::Division(decision) => {
                if let Some(harm) = &decision.harm {
                    let (line, data) = guard::tripped(names, now, harm);
                    events.warn("guard", line, data);
                }
                events.say("decision", decision.line.clone(), json!(DecisionView::of(names, decision)));
            }
            Said::Refused(refused) => {
                let data = json!({ "policy": refused.lever, "refused": refused.fault.to_string() });
                events.warn("policy", refused.to_string(), data);
            }
            Said::Tenants(decision) => {
                let unix_ms = u64::try_from(clock.unix(now).as_millis()).unwrap_or(u64::MAX);
                events.say("tenants", decision.line.clone(), json!(TenantDecisionView::of(decision)));
                self.tenants.iter_mut().for_each(|tenants| tenants.note(decision, unix_ms));
                let standings = self.tenants().map(|tenants| tenants.levels().between().standings());
                self.publish(standings.as_deref());
            }
        }
    }

    /// The state of the control loop as the admin API shows it.
    pub(crate) fn view(&self) -> ControlView {
        let Options { delta, rbc_window, band, tax, .. } = self.rounds.options();
        let ControlParts { names, clock, admission, .. } = &self.parts;
        let between = self.tenants().map(|tenants| tenants.levels().between().policy().name());
        ControlView {
            admission: admission.view(self.rounds.admission()),
            available: sherwood_policy::available_without_options(),
            band: [band.low, band.high],
            between,
            decisions: self.decisions(),
            delta_ms: millis(*delta),
            dry_run: self.rounds.levels().dry_run(),
            guard: self.guard().map(|standing| guard::described(names, clock.now(), &standing)),
            latest: self.rounds.latest().map(|decision| DecisionView::of(names, decision)),
            policy: self.policy(),
            rbc_window_ms: millis(*rbc_window),
            tax_ratio: *tax,
        }
    }
}
