//! The loop's one decision: from an observation to a plan, with reasons.
//!
//! Allocations are learnt from noise, and a wrong one costs minutes of misses. So the controller is conservative where
//! the policy is not asked to be: it keeps the last plan when nothing was learnt, moves only what the tax round moves,
//! and never lets floors, pins or the total be broken, whatever the policy answers or the observation says.

mod decision;
mod words;

use sherwood_model::{CachePlan, Instant, PartitionId};

use crate::approach::approach;
use crate::bounds::{Bounds, sum};
use crate::share::share_equally;
use crate::{Claims, Needs, Observation, Options, PartitionSeen, Policy, Proposal, Target, View};

use decision::Why;
pub use decision::{Aim, Decision, Kept, Move, Reason};

/// Owns a policy and the plan it has led to.
///
/// Drive it like this: build the cache with [`Controller::plan`], call [`Controller::decide`] every control interval, and
/// apply the decision's plan when it says so. Plans are absolute: each names the budget of every partition, so a plan that
/// was lost is made good by the next.
///
/// *Pending resizes.* The base of a round is the last plan, not what the cache has reached. A partition that is still
/// evicting towards its budget is therefore not asked to give the same bytes twice, and one that has yet to grow is not
/// given them twice; what is unfinished is carried over by the cache, netted with the new plan, and reported as
/// [`Decision::pending_bytes`].
///
/// *Dry run.* Decisions are made and reported from the allocation in force, each as if it were the first; nothing of them
/// is taken over.
///
/// *Changing the policy* moves nothing by itself. `shared-lru` leaves the budgets aside; when a policy with budgets
/// returns, it goes on from the last ones. Budgets of another number of partitions than observed are replaced by equal
/// ones.
#[derive(Clone)]
pub struct Controller {
    policy: Box<dyn Policy>,
    options: Options,
    names: Vec<String>,
    budgets: Vec<u64>,
    shared: bool,
    /// When the policy was first asked.
    since: Option<Instant>,
    /// Time of the last decision of any policy.
    last: Option<Instant>,
}

impl Controller {
    /// A controller that starts from `budgets` (see [`Options::start_budgets`]). `names` are the partitions' names for the
    /// reasons; a partition without one is called by its number. `options` are taken as valid ([`Options::validate`]).
    #[must_use]
    pub fn new(policy: Box<dyn Policy>, options: &Options, names: Vec<String>, budgets: Vec<u64>) -> Self {
        Self { policy, options: options.clone(), names, budgets, shared: false, since: None, last: None }
    }

    /// Name of the policy in force.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// What must be observed for the policy in force.
    #[must_use]
    pub fn needs(&self) -> Needs {
        self.policy.needs()
    }

    /// Whether decisions are only reported.
    #[must_use]
    pub fn dry_run(&self) -> bool {
        self.options.dry_run
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> CachePlan {
        if self.shared { CachePlan::Shared } else { CachePlan::Budgets(self.budgets.clone()) }
    }

    /// Budgets of the last plan that had any, in bytes, in the order of the partitions' ids.
    #[must_use]
    pub fn budgets(&self) -> &[u64] {
        &self.budgets
    }

    /// Replaces the policy from the next decision on.
    pub fn set_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
        self.since = None;
    }

    /// Switches between deciding and only reporting.
    pub fn set_dry_run(&mut self, dry_run: bool) {
        self.options.dry_run = dry_run;
    }

    /// Takes over budgets that were set by hand, or that the cache has instead of a plan it could not apply.
    pub fn set_budgets(&mut self, budgets: Vec<u64>) {
        self.budgets = budgets;
    }

    /// Decides at `now` from what was `seen`. O(n log n) for n partitions, O(n²) when many pins bind or many are unfilled.
    ///
    /// Budgets sum to the observed total exactly (under `static` at most to it; under `bubble_wrap` to the stage's total)
    /// and obey pins and floors (under `static` pins only: a floor keeps a policy from starving a partition, and is no word
    /// against the operator's). Where these contradict the total, floors give way first, then minimum pins, each in
    /// proportion; maximum pins are raised alike when together they are below the total.
    pub fn decide(&mut self, now: Instant, seen: &Observation) -> Decision {
        let since = *self.since.get_or_insert(now);
        let elapsed = now.since(since);
        let total_bytes = self.policy.total_bytes(elapsed, seen.total_bytes).min(seen.total_bytes);
        let before = self.base(seen, total_bytes);
        let floor_bytes = self.options.floor_bytes(seen.total_bytes);
        let bounds = Bounds::new(total_bytes, floor_bytes, &seen.partitions);
        let page_bytes = self.options.page_bytes(seen.total_bytes);
        let view = View { elapsed, seen, budgets: &before, total_bytes, page_bytes, floor_bytes };
        let proposal = match self.nothing_to_learn(now, seen) {
            Some(kept) => Proposal::Keep(kept),
            None => self.policy.propose(&view),
        };
        self.last = self.last.max(Some(now));
        let outcome = self.settle(proposal, &view, &bounds);
        self.conclude(outcome, &view, &bounds)
    }

    /// The last budgets, or equal ones when they are of other partitions.
    fn base(&self, seen: &Observation, total_bytes: u64) -> Vec<u64> {
        if self.budgets.len() == seen.partitions.len() {
            return self.budgets.clone();
        }
        share_equally(total_bytes.into(), &vec![u64::MAX; seen.partitions.len()])
    }

    /// Why a policy that learns would learn nothing now.
    fn nothing_to_learn(&self, now: Instant, seen: &Observation) -> Option<Kept> {
        let Needs { requests, look_ups, .. } = self.policy.needs();
        if (requests || look_ups) && self.last.is_some_and(|last| now <= last) {
            return Some(Kept::NoTimePassed);
        }
        let looked_up = |seen: &PartitionSeen| seen.hits > 0 || seen.misses > 0;
        if look_ups && !seen.partitions.iter().any(looked_up) {
            return Some(Kept::NoLookUps);
        }
        if requests { Self::no_requests(seen) } else { None }
    }

    /// Why the requests of the window tell nothing of their tail.
    fn no_requests(seen: &Observation) -> Option<Kept> {
        match (seen.requests, seen.latency_range) {
            (0, _) | (_, None) => Some(Kept::NoRequests),
            (1, _) => Some(Kept::OneRequest),
            (_, Some((shortest, longest))) if shortest >= longest => Some(Kept::EqualLatencies),
            _ => None,
        }
    }

    /// Turns a proposal into budgets that obey every rule.
    fn settle(&self, proposal: Proposal, view: &View<'_>, bounds: &Bounds) -> Outcome {
        match proposal {
            Proposal::Shared => Outcome::kept(view.budgets.to_vec(), Kept::Shared),
            Proposal::AsSet => {
                let pins = Bounds::new(view.total_bytes, 0, &view.seen.partitions);
                Outcome::kept(pins.fit_under(view.budgets), Kept::AsSet)
            }
            Proposal::Keep(kept) => Outcome::kept(bounds.fit(view.budgets), kept),
            Proposal::Budgets(mut wanted) => {
                wanted.resize(view.budgets.len(), 0);
                Outcome { budgets: bounds.fit(&wanted), kept: None, why: Why::Same(Reason::Planned) }
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
    ) -> Outcome {
        budgets.resize(view.budgets.len(), 0);
        reasons.resize(view.budgets.len(), Reason::Planned);
        let limit_bytes = self.options.step_bytes(view.seen.total_bytes);
        let (from, to) = (bounds.fit(view.budgets), bounds.fit(&budgets));
        let budgets = approach(&from, &to, limit_bytes, view.page_bytes);
        let kept = (budgets == from).then_some(Kept::NothingToMove);
        Outcome { budgets, kept, why: kept.map_or(Why::Each(reasons), |_| Why::Same(Reason::Fitted)) }
    }

    fn tax(&self, claims: Claims, view: &View<'_>, bounds: &Bounds) -> Outcome {
        if !claims.weights.iter().any(|&weight| weight.is_finite() && weight > 0.0) {
            let kept = if claims.unfilled.is_empty() { Kept::NoClaim } else { Kept::Unfilled };
            return Outcome::kept(bounds.fit(view.budgets), kept);
        }
        let tax = self.options.tax(view.seen.total_bytes);
        let budgets = tax.round(view.budgets, view.total_bytes, &claims.weights, bounds);
        Outcome { budgets, kept: None, why: Why::Claims(claims) }
    }

    /// Reports the outcome, and takes it over unless this is a dry run.
    fn conclude(&mut self, outcome: Outcome, view: &View<'_>, bounds: &Bounds) -> Decision {
        let Outcome { budgets, mut kept, why } = outcome;
        let shared = kept == Some(Kept::Shared);
        if budgets == view.budgets {
            kept = kept.or(Some(Kept::NothingToMove));
        }
        let moves = decision::moves(view, &budgets, bounds, &why);
        let apply = !self.options.dry_run;
        let pending = view.seen.partitions.iter().zip(view.budgets);
        let pending: Vec<u64> =
            pending.map(|(seen, &budget)| seen.used_bytes.saturating_sub(budget)).collect();
        let pending_bytes = if shared { 0 } else { u64::try_from(sum(&pending)).unwrap_or(u64::MAX) };
        let line = words::line(apply, kept, &moves, &|id| self.name(id));
        let plan = if shared { CachePlan::Shared } else { CachePlan::Budgets(budgets.clone()) };
        if apply {
            self.budgets = budgets;
            self.shared = shared;
        }
        Decision { policy: self.policy.name(), plan, apply, kept, moves, pending_bytes, line }
    }

    /// A partition's name, short enough for a line.
    fn name(&self, id: PartitionId) -> String {
        match self.names.get(id.index()) {
            Some(name) => words::shortened(name),
            None => format!("partition {}", id.0),
        }
    }
}

/// Budgets a proposal has led to, and what is needed to explain them.
struct Outcome {
    budgets: Vec<u64>,
    kept: Option<Kept>,
    why: Why,
}

impl Outcome {
    fn kept(budgets: Vec<u64>, kept: Kept) -> Self {
        Self { budgets, kept: Some(kept), why: Why::Same(Reason::Fitted) }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
