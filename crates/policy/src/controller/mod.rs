//! The control loop's decision: from an observation to a plan, with reasons.
//!
//! Policies estimate from noisy measurements, and a wrong allocation costs minutes of misses. The
//! controller therefore keeps the last plan when nothing was learnt, moves at most what a tax round
//! or a step moves, and enforces floors, pins and the total whatever the policy proposes or the
//! observation contains.

mod decision;
pub(crate) mod words;

use sherwood_model::{BackendId, CachePlan, Instant, PartitionId, Plan, TenantId};

use crate::approach::approach;
use crate::bounds::{Bounds, sum};
use crate::guard::{Guard, Verdict};
use crate::share::share_equally;
use crate::{
    Claims, GuardOptions, GuardStanding, Harm, Needs, Observation, Options, PartitionObservation, Policy,
    Proposal, Target, View,
};

use decision::Why;
pub use decision::{Aim, Decision, Kept, Move, Reason};

/// Owns a policy and the plan in force.
///
/// Build the cache with [`Controller::plan`], call [`Controller::decide`] every control interval,
/// and apply the decision's plan if [`Decision::apply`] is set. Plans are absolute: each contains
/// the budget of every partition, so a lost plan is repaired by the next.
///
/// *Pending resizes.* The base of a round is the last plan, not the sizes that the cache has
/// reached. A partition that is still evicting towards its budget is not taxed for the same bytes
/// twice, and a growing one does not receive them twice; the cache carries unfinished resizes over
/// and combines them with the new plan. They are reported as [`Decision::pending_bytes`].
///
/// *Dry run.* Decisions are made and reported, each from the allocation in force; none is adopted.
///
/// *Dry run of a partition* ([`PartitionObservation::dry_run`]): the partition keeps its budget,
/// and the decision reports the budget it would have.
///
/// *The guard* ([`Options::guard`]) may override the policy: first with an earlier allocation, then
/// with a freeze. It is active only outside a dry run and for policies that move bytes. Setting
/// budgets or a policy by hand restarts it; after a change of pins the caller should restart it
/// ([`Controller::restart_guard`]).
///
/// *Changing the policy* moves nothing by itself. `shared-lru` leaves the budgets unused; a later
/// policy with budgets continues from the last ones. If the number of budgets differs from the
/// number of partitions observed, equal ones replace them.
#[derive(Clone)]
pub struct Controller {
    policy: Box<dyn Policy>,
    options: Options,
    names: Vec<String>,
    budgets: Vec<u64>,
    shared: bool,
    guard: Option<Guard>,
    /// Time of the policy's first decision.
    since: Option<Instant>,
    /// Time of the last decision, by any policy.
    last: Option<Instant>,
}

impl Controller {
    /// Returns a controller that starts from `budgets` (see [`Options::start_budgets`]). `names`
    /// are the partitions' names in reasons; a partition without a name is called by its number.
    /// `options` must be valid ([`Options::validate`]).
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, options: &Options, names: Vec<String>, budgets: Vec<u64>) -> Self {
        let guard = guard(options);
        Self {
            policy,
            options: options.clone(),
            names,
            budgets,
            shared: false,
            guard,
            since: None,
            last: None,
        }
    }

    /// Name of the policy in force.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// The observations required by the policy in force and the guard.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let mut needs = self.policy.needs();
        if let Some(guard) = &self.guard {
            (needs.requests, needs.quantile) = (true, Some(guard.quantile()));
            if !needs.bands.contains(&self.options.band) {
                needs.bands.push(self.options.band);
            }
        }
        needs
    }

    /// State of the guard, which rolls back harmful moves; none if it is off.
    #[must_use]
    pub fn guard(&self) -> Option<GuardStanding> {
        self.guard.as_ref().map(Guard::standing)
    }

    /// Switches the guard on (with these options, in its initial state) or off. They must be valid
    /// ([`GuardOptions::validate`]).
    pub fn set_guard(&mut self, options: Option<GuardOptions>) {
        self.options.guard = options;
        self.guard = guard(&self.options);
    }

    /// True in a dry run: decisions are reported but not applied.
    #[must_use]
    pub fn dry_run(&self) -> bool {
        self.options.dry_run
    }

    /// Returns the plan in force: the budget of each partition, or `Shared`, and no rates.
    #[must_use]
    pub fn plan(&self) -> Plan {
        planned(self.shared, &self.budgets)
    }

    /// Budgets of the last plan that has any, in bytes, in the order of the partitions' ids.
    #[must_use]
    pub fn budgets(&self) -> &[u64] {
        &self.budgets
    }

    /// Replaces the policy from the next decision on.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
        self.since = None;
        self.restart_guard();
    }

    /// Switches between applying decisions and only reporting them.
    pub fn set_dry_run(&mut self, dry_run: bool) {
        self.options.dry_run = dry_run;
        self.restart_guard();
    }

    /// Replaces the budgets by ones that were set by hand.
    pub fn set_budgets(&mut self, budgets: Vec<u64>) {
        self.budgets = budgets;
        self.restart_guard();
    }

    /// Takes back the latest decision, because its plan was not applied. The next decision starts
    /// from these `budgets`, which are in force, or unused if the partitions share one LRU. The
    /// guard continues; if the plan was its roll-back, it rolls back again.
    pub fn keep_budgets(&mut self, budgets: Vec<u64>, is_shared: bool) {
        (self.budgets, self.shared) = (budgets, is_shared);
        self.guard.iter_mut().for_each(Guard::take_back);
    }

    /// True if the policy shares one LRU among all partitions.
    pub(crate) fn shares(&self) -> bool {
        self.policy.starts_shared()
    }

    /// True if the policy divides the cache by what it observes, and not as it was set.
    pub(crate) fn learns(&self) -> bool {
        let needs = self.policy.needs();
        !self.options.dry_run && (needs.requests || needs.look_ups)
    }

    /// Fits the budgets to another total, and to the pins of `partitions`, as far as these are
    /// known. The guard's good allocation is fitted as well when it is needed; misses that follow
    /// are not the moves' fault.
    pub fn resize(&mut self, total_bytes: u64, partitions: &[PartitionObservation]) {
        let unpinned = vec![PartitionObservation::new(TenantId(0), BackendId(0)); self.budgets.len()];
        let known = partitions.len() == self.budgets.len();
        let partitions = if known { partitions } else { &unpinned };
        let floor_bytes = self.options.floor_bytes(total_bytes);
        let bounds = Bounds::holding(total_bytes, floor_bytes, partitions, &self.budgets);
        self.budgets = bounds.fit(&self.budgets);
        self.note_loss();
    }

    /// Restarts the guard and ends a freeze; to be called when bounds or budgets were changed by
    /// hand.
    pub fn restart_guard(&mut self) {
        self.guard.iter_mut().for_each(Guard::restart);
    }

    /// Makes the guard discard earlier allocations: items were lost for another reason, and the
    /// misses that follow are not the moves' fault. A freeze continues.
    pub fn note_loss(&mut self) {
        self.guard.iter_mut().for_each(Guard::forget);
    }

    /// Decides at `now` from the observation `seen`. O(n log n) for n partitions, O(n²) if many
    /// pins bind or many partitions are unfilled.
    ///
    /// Budgets sum to the observed total exactly (under `static` at most to it; under `bubble_wrap`
    /// to the stage's total) and obey pins and floors (under `static` pins only: a floor limits
    /// policies, not the operator). Where these contradict the total, floors shrink first, then
    /// minimum pins, each in proportion; maximum pins are raised by equal bytes if together they
    /// are below the total.
    pub fn decide(&mut self, now: Instant, seen: &Observation) -> Decision {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.since(since);
        let total_bytes = self.policy.total_bytes(elapsed, seen.total_bytes).min(seen.total_bytes);
        let before = self.base(seen, total_bytes);
        let floor_bytes = self.options.floor_bytes(seen.total_bytes);
        let bounds = Bounds::holding(total_bytes, floor_bytes, &seen.partitions, &before);
        let page_bytes = self.options.page_bytes(seen.total_bytes);
        let view = View { elapsed, seen, budgets: &before, total_bytes, page_bytes, floor_bytes };
        let proposal = match self.nothing_to_learn(now, seen) {
            Some(kept) => Proposal::Keep(kept),
            None => self.policy.propose(&view),
        };
        self.last = self.last.max(Some(now));
        let (proposal, harm) = self.guarded(now, proposal, &view, &bounds);
        let planned = if harm.is_some() { Reason::Restored } else { Reason::Planned };
        let undecided = seen.partitions.iter().any(|seen| seen.dry_run);
        let wanted = undecided.then(|| {
            let free = Bounds::new(total_bytes, floor_bytes, &seen.partitions);
            self.settle(proposal.clone(), planned, &view, &free).budgets
        });
        let outcome = self.settle(proposal, planned, &view, &bounds);
        let mut decision = self.conclude(outcome, wanted.as_deref(), &view, &bounds);
        decision.harm = harm;
        decision
    }

    /// Returns the policy's `proposal` or, while the guard overrides it, the guard's; and the harm,
    /// in the round in which the guard rolls back.
    fn guarded(
        &mut self,
        now: Instant,
        proposal: Proposal,
        view: &View<'_>,
        bounds: &Bounds,
    ) -> (Proposal, Option<Harm>) {
        let Some(guard) = &mut self.guard else { return (proposal, None) };
        if self.options.dry_run || matches!(proposal, Proposal::Shared | Proposal::AsSet) {
            guard.restart();
            return (proposal, None);
        }
        match guard.watch(now, view.seen, view.budgets, |good| bounds.fit(good)) {
            Verdict::Free => (proposal, None),
            Verdict::Frozen => (Proposal::Keep(Kept::Frozen), None),
            Verdict::Back(budgets, harm) => (Proposal::Budgets(budgets), Some(harm)),
        }
    }

    /// The budgets of the last plan, or equal ones if their number differs from that of the
    /// observed partitions.
    fn base(&self, seen: &Observation, total_bytes: u64) -> Vec<u64> {
        if self.budgets.len() == seen.partitions.len() {
            return self.budgets.clone();
        }
        share_equally(total_bytes.into(), &vec![u64::MAX; seen.partitions.len()])
    }

    /// Reason why a policy that learns cannot learn from this observation; none if it can.
    fn nothing_to_learn(&self, now: Instant, seen: &Observation) -> Option<Kept> {
        let Needs { requests, look_ups, .. } = self.policy.needs();
        if (requests || look_ups) && self.last.is_some_and(|last| now <= last) {
            return Some(Kept::NoTimePassed);
        }
        let looked_up = |seen: &PartitionObservation| seen.hits > 0 || seen.misses > 0;
        if look_ups && !seen.partitions.iter().any(looked_up) {
            return Some(Kept::NoLookUps);
        }
        if requests { Self::no_requests(seen) } else { None }
    }

    /// Reason why the requests of the window have no tail to learn from; none if they have.
    fn no_requests(seen: &Observation) -> Option<Kept> {
        match (seen.requests, seen.latency_range) {
            (0, _) | (_, None) => Some(Kept::NoRequests),
            (1, _) => Some(Kept::OneRequest),
            (_, Some((shortest, longest))) if shortest >= longest => Some(Kept::EqualLatencies),
            _ => None,
        }
    }

    /// Turns a proposal into budgets that obey all bounds; `planned` is the reason for budgets that
    /// the proposal names itself.
    fn settle(
        &self,
        proposal: Proposal,
        planned: Reason,
        view: &View<'_>,
        bounds: &Bounds,
    ) -> SettledBudgets {
        match proposal {
            Proposal::Shared => SettledBudgets::kept(view.budgets.to_vec(), Kept::Shared),
            Proposal::AsSet => {
                let pins = Bounds::holding(view.total_bytes, 0, &view.seen.partitions, view.budgets);
                SettledBudgets::kept(pins.fit_under(view.budgets), Kept::AsSet)
            }
            Proposal::Keep(kept) => SettledBudgets::kept(bounds.fit(view.budgets), kept),
            Proposal::Budgets(mut wanted) => {
                wanted.resize(view.budgets.len(), 0);
                SettledBudgets { budgets: bounds.fit(&wanted), kept: None, why: Why::Same(planned) }
            }
            Proposal::Toward(target) => self.approach(target, view, bounds),
            Proposal::Claims(mut claims) => {
                claims.weights.resize(view.budgets.len(), 0.0);
                self.tax(claims, view, bounds)
            }
        }
    }

    fn approach(
        &self,
        Target { mut budgets, mut reasons }: Target,
        view: &View<'_>,
        bounds: &Bounds,
    ) -> SettledBudgets {
        budgets.resize(view.budgets.len(), 0);
        reasons.resize(view.budgets.len(), Reason::Planned);
        let limit_bytes = self.options.step_bytes(view.seen.total_bytes);
        let (from, to) = (bounds.fit(view.budgets), bounds.fit(&budgets));
        let budgets = approach(&from, &to, limit_bytes, view.page_bytes);
        let kept = (budgets == from).then_some(Kept::NothingToMove);
        SettledBudgets { budgets, kept, why: kept.map_or(Why::Each(reasons), |_| Why::Same(Reason::Fitted)) }
    }

    fn tax(&self, claims: Claims, view: &View<'_>, bounds: &Bounds) -> SettledBudgets {
        if !claims.weights.iter().any(|&weight| weight.is_finite() && weight > 0.0) {
            let kept = if claims.unfilled.is_empty() { Kept::NoClaim } else { Kept::Unfilled };
            return SettledBudgets::kept(bounds.fit(view.budgets), kept);
        }
        let tax = self.options.tax(view.seen.total_bytes);
        let budgets = tax.round(view.budgets, view.total_bytes, &claims.weights, bounds);
        SettledBudgets { budgets, kept: None, why: Why::Claims(claims) }
    }

    /// Builds the decision, and adopts its budgets unless in a dry run. `wanted` are the budgets
    /// that would result without partitions in a dry run of their own.
    fn conclude(
        &mut self,
        outcome: SettledBudgets,
        wanted: Option<&[u64]>,
        view: &View<'_>,
        bounds: &Bounds,
    ) -> Decision {
        let SettledBudgets { budgets, mut kept, why } = outcome;
        let shared = kept == Some(Kept::Shared);
        if budgets == view.budgets {
            kept = kept.or(Some(Kept::NothingToMove));
        }
        let mut moves = decision::moves(view, &budgets, bounds, &why);
        if let Some(wanted) = wanted {
            decision::add_dry_runs(view, wanted, &mut moves);
        }
        let apply = !self.options.dry_run;
        let pending = view.seen.partitions.iter().zip(view.budgets);
        let pending: Vec<u64> =
            pending.map(|(seen, &budget)| seen.used_bytes.saturating_sub(budget)).collect();
        let pending_bytes = if shared { 0 } else { u64::try_from(sum(&pending)).unwrap_or(u64::MAX) };
        let line = words::line(apply, kept, &moves, &|id| self.name(id));
        let plan = planned(shared, &budgets);
        if apply {
            self.budgets = budgets;
            self.shared = shared;
        }
        Decision { policy: self.policy.name(), plan, apply, kept, moves, pending_bytes, harm: None, line }
    }

    /// A partition's name, shortened for the decision's log line.
    fn name(&self, id: PartitionId) -> String {
        match self.names.get(id.index()) {
            Some(name) => words::shortened(name),
            None => format!("partition {}", id.0),
        }
    }
}

/// The plan with these budgets, which `shared` sets aside.
fn planned(shared: bool, budgets: &[u64]) -> Plan {
    if shared { CachePlan::Shared.into() } else { CachePlan::Budgets(budgets.to_vec()).into() }
}

/// Builds the guard of `options`.
fn guard(options: &Options) -> Option<Guard> {
    options.guard.map(|guard| Guard::new(guard, options.band, options.rbc_window))
}

/// Budgets that result from a policy's proposal, and their reasons.
struct SettledBudgets {
    budgets: Vec<u64>,
    kept: Option<Kept>,
    why: Why,
}

impl SettledBudgets {
    fn kept(budgets: Vec<u64>, kept: Kept) -> Self {
        Self { budgets, kept: Some(kept), why: Why::Same(Reason::Fitted) }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
