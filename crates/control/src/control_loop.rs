//! The control loop around all levers.

use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, Plan, Slo, TenantId};
use sherwood_policy::stores::Manager;
use sherwood_policy::tenants::{TenantObservation, TenantPolicy, TenantTerms};
use sherwood_policy::{
    CounterWindow, Decision, GuardOptions, GuardStanding, Harm, Observation, Options, PartitionObservation,
    Policy,
};

use crate::acts::{Acts, Round, Undo};
use crate::admission::{Leave, planned};
use crate::check::check_levels;
use crate::losses::Noticed;
use crate::pins::while_absent;
use crate::{
    Act, Admission, BetaChoice, CacheSeen, CopiesDecision, Levels, PartitionSeen, Pin, PinError, PlanFault,
    Refused, Replication, ReplicationSeen, Said, Seen, StoreSaid, StoreSeen, Stores, check_least, check_sums,
};

/// Decides from the driver's observations at regular times, and hands the driver the acts to carry
/// out.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`handle_seen`](Self::handle_seen) with what [`needs`](Self::needs) asked for; changes
///   by the operator, each checked by the caller first; [`handle_refusal`](Self::handle_refusal)
///   when a plan could not be applied.
/// - Outputs: [`poll_act`](Self::poll_act) after each input, until it returns none. Nothing is
///   decided before that, so the acts that wait are those of one input.
/// - Wake-ups: [`next_timeout`](Self::next_timeout).
#[derive(Clone)]
pub struct ControlLoop {
    levels: Levels,
    admission: Admission,
    replication: Option<Replication>,
    stores: Option<Stores>,
    options: Options,
    pins: Vec<Pin>,
    /// The time of the next decision among partitions.
    due: Instant,
    counters: CounterWindow,
    noticed: Noticed,
    /// The time of the last decision among partitions, and the time of its observations.
    decided: Option<(Instant, Instant)>,
    decisions: u64,
    latest: Option<Decision>,
    acts: Acts,
}

/// Observations that the driver has to make now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// Observations for a decision among partitions; none if none is due.
    pub cache: Option<sherwood_policy::Needs>,
    /// True if the next step among tenants includes a decision, which reads their miss ratio
    /// curves; false for a step without one; none if no step is due.
    pub tenants: Option<bool>,
    /// Observations of the tiers of an application since this time, the start of the measuring
    /// window; none if no decision about copies is due. A time other than the one before begins a
    /// new window.
    pub replication: Option<Instant>,
    /// True if observations of the managed stores are due.
    pub stores: bool,
}

impl ControlLoop {
    /// Returns a loop around `levels`, whose first decision is due an interval after `now`.
    /// `options` must be valid ([`Options::validate`]).
    #[must_use]
    pub fn new(levels: Levels, admission: Admission, options: Options, pins: Vec<Pin>, now: Instant) -> Self {
        Self {
            levels,
            admission,
            replication: None,
            stores: None,
            pins,
            due: now + options.delta,
            counters: CounterWindow::new(options.rbc_window),
            options,
            noticed: Noticed::default(),
            decided: None,
            decisions: 0,
            latest: None,
            acts: Acts::default(),
        }
    }

    /// Adds the lever over the copies of requests.
    #[must_use]
    pub fn with_replication(self, replication: Replication) -> Self {
        Self { replication: Some(replication), ..self }
    }

    /// Adds the lever over replicated stores, whose accesses are measured by this SLO.
    #[must_use]
    pub fn with_stores(self, stores: Stores, slo: &Slo) -> Self {
        let mut with = Self { stores: Some(stores), ..self };
        with.set_slo(slo);
        with
    }

    /// Returns the levels that divide the cache.
    #[must_use]
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Returns the lever over admission.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns the lever over the copies of requests; none if there is none.
    #[must_use]
    pub fn replication(&self) -> Option<&Replication> {
        self.replication.as_ref()
    }

    /// Returns the lever over replicated stores; none if there is none.
    #[must_use]
    pub fn stores(&self) -> Option<&Stores> {
        self.stores.as_ref()
    }

    /// The options of decisions among partitions.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The operator's size limits (pins) of each partition.
    #[must_use]
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// Returns the number of reported decisions among partitions since the start.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Returns the latest reported decision among partitions; none before the first.
    #[must_use]
    pub fn latest(&self) -> Option<&Decision> {
        self.latest.as_ref()
    }

    /// The state of the guard; none if there is no guard.
    #[must_use]
    pub fn guard(&self) -> Option<GuardStanding> {
        self.levels.guard()
    }

    /// Returns the time at which the next observation is due.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        let step = self.levels.tenants().map(|levels| levels.between().next_timeout());
        let copies = self.replication.as_ref().map(Replication::next_timeout);
        let stores = self.stores.as_ref().map(Stores::next_timeout);
        [step, copies, stores].into_iter().flatten().fold(self.due, Instant::min)
    }

    /// Returns the observations that are due at `now`.
    #[must_use]
    pub fn needs(&self, now: Instant) -> Needs {
        let between = self.levels.tenants().map(sherwood_policy::TwoLevels::between);
        let step = between.filter(|between| now >= between.next_timeout());
        let copies = self.replication.as_ref().filter(|lever| now >= lever.next_timeout());
        Needs {
            cache: (now >= self.due).then(|| self.levels.needs()),
            tenants: step.map(|between| now >= between.decides_at()),
            replication: copies.map(Replication::since),
            stores: self.stores.as_ref().is_some_and(|lever| now >= lever.next_timeout()),
        }
    }

    /// Decides from the observations made at `now`, whether a decision was due or not; about copies
    /// only when one is due. Missed rounds are skipped, so that decisions do not follow each other
    /// too closely. While acts of an earlier input wait, nothing is decided.
    pub fn handle_seen(&mut self, now: Instant, seen: Seen) {
        if !self.acts.is_empty() {
            return;
        }
        let Seen { cache, tenants, replication, stores } = seen;
        if let (Some(lever), Some(seen)) = (&mut self.stores, &stores) {
            lever.note_layouts(seen);
        }
        if let Some(seen) = cache {
            self.decide(now, seen);
            if now >= self.due {
                let next = self.due + self.options.delta;
                self.due = if next > now { next } else { now + self.options.delta };
            }
        }
        if let Some(seen) = tenants {
            self.advance(now, &seen);
        }
        if let Some(seen) = replication {
            self.replicate(now, &seen);
        }
        if let Some(seen) = stores {
            self.manage(now, seen);
        }
    }

    /// Returns the next act for the driver to carry out, or none until the next input.
    pub fn poll_act(&mut self) -> Option<Act> {
        let act = self.acts.next()?;
        if let Act::Say(Said::Division(decision)) = &act {
            self.decisions += 1;
            self.latest = Some(decision.clone());
        }
        Some(act)
    }

    /// Handles the driver's refusal of the plan handed out last. The plan and the other choices of
    /// its round are taken back and not reported: the guard continues, β and copies return to their
    /// earlier values, and the next decision starts from the budgets `in_force` if the driver
    /// reports them. Plans that still wait are adapted. No effect if no plan was handed out since
    /// the last refusal.
    pub fn handle_refusal(&mut self, in_force: Option<Vec<u64>>) {
        match self.acts.refuse() {
            Some(Undo::Decision(before, admission, replication, managers)) => {
                self.levels.keep(in_force, before);
                self.admission = admission;
                self.take_back(replication);
                self.take_back_stores(managers);
            }
            Some(Undo::Copies(before)) => self.take_back(Some(before)),
            Some(Undo::Stores(before)) => self.take_back_stores(before),
            Some(Undo::Step(before)) => self.levels.restore(in_force, before),
            Some(Undo::Levels(levels)) => self.levels = *levels,
            None => return,
        }
        self.acts.replan(&self.levels.plan());
    }

    /// Adopts budgets that were set by hand. No effect with tenants.
    pub fn adopt(&mut self, budgets: Vec<u64>) {
        self.levels.change_one(|controller| controller.set_budgets(budgets));
    }

    fn decide(&mut self, now: Instant, seen: CacheSeen) {
        let given = seen.partitions.len();
        if given != self.pins.len() {
            let partitions = self.pins.len();
            return self.refuse(PlanFault::Observed { given, partitions }, Round::Partitions);
        }
        let (losses, restarts) = (seen.losses, seen.partitions.iter().map(|seen| seen.restarts).sum());
        if self.noticed.advance(now, &losses, restarts) {
            self.levels.change_one(sherwood_policy::Controller::note_loss);
        }
        let CacheSeen { at, total_bytes, partitions, requests, admissions, .. } = seen;
        let (now, is_new) = self.round_at(now, at);
        let (standing, admission) = (self.levels.standing(), self.admission.clone());
        let lever = self.replication.clone();
        let divided = self.divide(now, at, (total_bytes, partitions), &requests);
        let leave = self.leave(now, divided.as_ref().and_then(|decision| decision.harm.as_ref()));
        let seen = if is_new { &admissions[..] } else { &[] };
        let choices = self.admission.decide(now, seen, leave);
        let copies = self.replication.as_mut().and_then(|lever| match leave {
            Leave::BackTo(at) => lever.go_back(now, at),
            _ => None,
        });
        // A decision about copies of its own round is not taken back with this one.
        let lever = lever.filter(|_| copies.is_some()).map(Box::new);
        let managers = self.stores.as_ref().map(Stores::managers).unwrap_or_default();
        let stores = match (&mut self.stores, leave) {
            (Some(lever), Leave::BackTo(at)) => lever.go_back(now, at),
            _ => Vec::new(),
        };
        let managers = if stores.is_empty() { Vec::new() } else { managers };
        let before = Undo::Decision(standing, admission, lever, managers);
        let mut backends = planned(&choices);
        backends.extend(copies.iter().flat_map(CopiesDecision::plans));
        backends.extend(stores.iter().filter_map(StoreSaid::planned));
        let applies = divided.as_ref().map_or(!backends.is_empty(), |decision| decision.apply);
        if applies {
            self.acts.apply(Plan { backends, ..self.levels.plan() }, Round::Partitions, before);
        }
        for change in choices.into_iter().filter(BetaChoice::is_change) {
            self.acts.say(Said::Beta(change), Round::Partitions);
        }
        if let Some(copies) = copies {
            self.acts.say(Said::Copies(copies), Round::Partitions);
        }
        for said in stores {
            self.acts.say(Said::Store(said), Round::Partitions);
        }
        if let Some(decision) = divided {
            self.acts.say(Said::Division(decision), Round::Partitions);
        }
    }

    /// Decides about the copies of requests after a measuring window.
    fn replicate(&mut self, now: Instant, seen: &[ReplicationSeen]) {
        let leave = self.leave(now, None);
        let Some(lever) = &mut self.replication else { return };
        let before = Undo::Copies(Box::new(lever.clone()));
        let Some(decision) = lever.decide(now, seen, leave) else { return };
        let backends = decision.plans();
        if !backends.is_empty() {
            self.acts.apply(Plan { backends, ..self.levels.plan() }, Round::Copies, before);
        }
        self.acts.say(Said::Copies(decision), Round::Copies);
    }

    /// Decides about replicated stores whose measuring windows end.
    fn manage(&mut self, now: Instant, seen: Vec<StoreSeen>) {
        let leave = self.leave(now, None);
        let Some(lever) = &mut self.stores else { return };
        let before = lever.managers();
        let said = lever.handle_seen(now, seen, leave);
        let backends: Vec<_> = said.iter().filter_map(StoreSaid::planned).collect();
        if !backends.is_empty() {
            let plan = Plan { backends, ..self.levels.plan() };
            self.acts.apply(plan, Round::Stores, Undo::Stores(before));
        }
        for said in said {
            self.acts.say(Said::Store(said), Round::Stores);
        }
    }

    /// Takes back the latest decisions about replicated stores, if there were any.
    fn take_back_stores(&mut self, before: Vec<Manager>) {
        self.stores.iter_mut().for_each(|lever| lever.take_back(before.clone()));
    }

    /// Takes back the latest decision about copies.
    fn take_back(&mut self, before: Option<Box<Replication>>) {
        if let (Some(lever), Some(before)) = (&mut self.replication, before) {
            lever.take_back(*before);
        }
    }

    /// Returns the time of a decision, and true if there are newer observations than at the last
    /// one. A clock that was set back counts as a stopped one.
    fn round_at(&mut self, now: Instant, seen_at: Instant) -> (Instant, bool) {
        match self.decided {
            Some((last, last_seen)) if now <= last || seen_at <= last_seen => (now.min(last), false),
            _ => {
                self.decided = Some((now, seen_at));
                (now, true)
            }
        }
    }

    /// Lets the levels divide the cache, and returns their decision; none if it was refused.
    fn divide(
        &mut self,
        now: Instant,
        at: Instant,
        (total_bytes, partitions): (u64, Vec<PartitionSeen>),
        requests: &[Observation],
    ) -> Option<Decision> {
        let before = self.levels.standing();
        let count = partitions.len();
        let seen = self.observation(at, total_bytes, partitions);
        let decision = self.levels.decide(now, seen, requests);
        let Err(fault) = check_levels(&decision.plan, &self.levels, count, total_bytes) else {
            return Some(decision);
        };
        self.levels.keep(None, before);
        self.refuse(fault, Round::Partitions);
        None
    }

    /// Reports that the plan which the levels proposed was refused.
    fn refuse(&mut self, fault: PlanFault, round: Round) {
        let lever = match (round, self.levels.tenants()) {
            (Round::Tenants, Some(levels)) => levels.between().policy().name(),
            _ => self.levels.policy(),
        };
        self.acts.say(Said::Refused(Refused { lever, fault }), round);
    }

    /// Returns what other levers may do in this round; `harm` is the reason if the guard rolled
    /// back in it.
    fn leave(&self, now: Instant, harm: Option<&Harm>) -> Leave {
        if self.levels.dry_run() {
            return Leave::Report;
        }
        if let Some(harm) = harm {
            return Leave::BackTo(harm.good_at);
        }
        let frozen = self.levels.guard().and_then(|guard| guard.frozen_until);
        if frozen.is_some_and(|until| now < until) { Leave::Frozen } else { Leave::Act }
    }

    fn observation(&mut self, at: Instant, total_bytes: u64, partitions: Vec<PartitionSeen>) -> Observation {
        let reached: Vec<bool> = partitions.iter().map(|seen| seen.reached).collect();
        let pins = while_absent(&self.pins, &self.levels.budgets(), &reached, total_bytes);
        let counts = partitions.iter().map(|seen| (seen.hits, seen.misses)).collect();
        let counts = self.counters.advance(at, counts);
        let each = partitions.into_iter().zip(counts).zip(pins);
        let each = each.map(|((seen, (hits, misses)), pin)| PartitionObservation {
            allocated_bytes: seen.allocated_bytes,
            used_bytes: seen.used_bytes,
            min_bytes: pin.min_bytes,
            max_bytes: pin.max_bytes,
            dry_run: pin.dry_run,
            hits,
            misses,
            queries: hits.saturating_add(misses),
            query_p99: seen.query_p99,
            hit_ratio_slope: seen.hit_ratio_slope,
            shadow_hits: seen.shadow_hits,
            miss_ratio_curve: seen.miss_ratio_curve,
            miss_latency: seen.miss_latency,
            ..PartitionObservation::new(seen.tenant, seen.backend)
        });
        Observation { total_bytes, partitions: each.collect(), ..Observation::default() }
    }

    fn advance(&mut self, now: Instant, seen: &[TenantObservation]) {
        let before = self.levels.standing();
        let Some(round) = self.levels.advance(now, seen) else { return };
        if round.fades_curves {
            self.acts.fade_curves();
        }
        if round.changed {
            let plan = self.levels.plan();
            let total = self.levels.tenants().map_or(0, |levels| levels.between().total().bytes);
            if let Err(fault) = check_levels(&plan, &self.levels, self.pins.len(), total) {
                self.levels.restore(None, before);
                return self.refuse(fault, Round::Tenants);
            }
            self.acts.apply(plan, Round::Tenants, Undo::Step(before));
        }
        if let Some(decision) = round.decision {
            self.acts.say(Said::Tenants(decision), Round::Tenants);
        }
        if let Some(fault) = round.refused {
            self.refuse(PlanFault::Tenants(fault), Round::Tenants);
        }
    }
}

/// Changes by the operator, which the caller has checked.
impl ControlLoop {
    /// Checks that the partitions can have these pins (size limits) together, in a cache of
    /// `total_bytes` with `budgets`. `bytes_min` returns the smallest size that a partition's cache
    /// accepts.
    ///
    /// # Errors
    /// When budgets that obey all pins, with those in a dry run unchanged, could not sum to the
    /// total, or when a partition's cache does not accept so small a size.
    pub fn check_pins(
        &self,
        changed: &[(PartitionId, Pin)],
        budgets: &[u64],
        total_bytes: u64,
        bytes_min: impl Fn(PartitionId) -> u64,
    ) -> Result<(), PinError> {
        let mut pins = self.pins.clone();
        for &(partition, pin) in changed {
            check_least(&pin, bytes_min(partition))?;
            pins[partition.index()] = pin;
        }
        check_sums(&pins, budgets, total_bytes)
    }

    /// Sets a partition's pin (size limits) from the next decision on. The guard restarts, because
    /// the effects of a new pin are the operator's choice and must not be rolled back.
    pub fn pin(&mut self, partition: PartitionId, pin: Pin) {
        if std::mem::replace(&mut self.pins[partition.index()], pin) != pin {
            self.levels.change_one(sherwood_policy::Controller::restart_guard);
        }
    }

    /// Replaces the policy that divides among partitions from the next decision on.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.levels.set_policy(policy);
    }

    /// Replaces the policy that divides among tenants from the next step on; no effect without
    /// tenants.
    pub fn set_between(&mut self, policy: Box<dyn TenantPolicy>) {
        if let Some(levels) = self.levels.tenants_mut() {
            levels.set_between(policy);
        }
    }

    /// Switches between applying decisions and only reporting them; no effect with tenants.
    pub fn set_dry_run(&mut self, dry_run: bool) {
        self.levels.change_one(|controller| controller.set_dry_run(dry_run));
    }

    /// Switches the guard on, in its initial state, or off; no effect with tenants.
    pub fn set_guard(&mut self, guard: Option<GuardOptions>) {
        self.options.guard = guard.or(self.options.guard);
        self.levels.set_guard(guard);
    }

    /// Sets the SLO that replicated stores are to meet, with the same window; no effect without
    /// managed stores.
    pub fn set_slo(&mut self, slo: &Slo) {
        self.stores.iter_mut().for_each(|lever| lever.set_slo(slo));
    }

    /// Sets the terms (weights, baselines, minimums) of all tenants, and hands the driver a plan
    /// with the changes at once; no effect without tenants.
    pub fn set_terms(&mut self, terms: Vec<TenantTerms>) {
        let before = Undo::Levels(Box::new(self.levels.clone()));
        let Some(levels) = self.levels.tenants_mut() else { return };
        levels.set_terms(terms).expect("the number of tenants is the same");
        let plan = self.levels.plan();
        if !self.acts.replan(&plan) {
            self.acts.apply(plan, Round::Operator, before);
        }
    }

    /// Adapts the levels to another total, and returns the resulting plan, which the driver applies
    /// together with the total or [refuses](Self::handle_refusal). `terms` are the terms of all
    /// tenants under that total, if there are tenants; `owners` are the tenant and backend of each
    /// partition; `shared` is true while the partitions share one LRU.
    pub fn resize(
        &mut self,
        total_bytes: u64,
        terms: Option<Vec<TenantTerms>>,
        owners: impl Iterator<Item = (TenantId, BackendId)>,
        shared: bool,
    ) -> Plan {
        self.acts.hand_out(Undo::Levels(Box::new(self.levels.clone())));
        let plan = match (&mut self.levels, terms) {
            (Levels::Two(levels), terms) => {
                let terms = terms.unwrap_or_else(|| levels.between().terms().to_vec());
                levels.resize(total_bytes, terms).expect("the number of tenants is the same");
                levels.plan()
            }
            (Levels::One(controller), _) => {
                let pinned = |((tenant, backend), pin): ((TenantId, BackendId), &Pin)| PartitionObservation {
                    min_bytes: pin.min_bytes,
                    max_bytes: pin.max_bytes,
                    dry_run: pin.dry_run,
                    ..PartitionObservation::new(tenant, backend)
                };
                let pinned: Vec<_> = owners.zip(&self.pins).map(pinned).collect();
                controller.resize(total_bytes, &pinned);
                let budgets = CachePlan::Budgets(controller.budgets().to_vec());
                if shared { CachePlan::Shared.into() } else { budgets.into() }
            }
        };
        self.acts.replan(&plan);
        plan
    }
}

#[cfg(test)]
mod copies;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod managed_stores;
#[cfg(test)]
mod tests;
