//! Rates of tenants in a cluster: each node's part, and loans of idle units between nodes.
//!
//! ```text
//!   Members     this node's part of each resource, also while nodes change
//!   Demands     idle and missing units, from the counters of use
//!   Lending     units lent to others: missing here until the lender's end
//!   Borrowing   units borrowed from others: used here until the borrower's end
//!   node_rates  the rates in force, from all of these
//! ```

mod borrowing;
mod composed;
mod demand;
mod lending;
mod members;
mod messages;
mod steps;
mod terms;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sherwood_model::{Instant, Rates, ResourceId, TenantId};

use crate::{RatesInForce, TenantUse};
use borrowing::{Borrowing, Need};
use composed::{Parts, node_rates};
use demand::Demands;
use lending::Lending;
use members::Members;
pub use members::PeerNode;
pub use messages::{PeerLoan, RateAction, RateAmount, RateAsk, RateGrant, RatePart};
use terms::{AMOUNTS_MAX, LOOK_EVERY, Terms};

/// The rates of tenants at one node of a cluster that shares the totals of resources.
///
/// A node has `total × weight / Σ weights` of each resource, which the plan of its control loop
/// divides among the tenants. Units that a tenant does not use go to the same tenant on nodes where
/// it waits, then, with lending among tenants, to any tenant that waits. They are lent: a node that
/// misses units asks others with a time stamp; the lender lowers its own rates, then answers. The
/// borrower uses a loan for 500 ms from its own stamp, and the lender has the units back 515.6 ms
/// after its answer. Since the answer was given after the stamp and the clocks of two nodes run
/// within 1% of the time, the borrower's end comes first. So **the rates of all nodes never exceed
/// the total**, at any moment, whichever messages are lost, late, repeated or reordered, whichever
/// nodes pause or restart, and without common time.
///
/// A new process has no rates for 515.6 ms, until the loans of an earlier one have ended, and then
/// until every other node has answered, or has been silent for 2 s. After
/// [`set_nodes`](Self::set_nodes) a part that has become smaller is so at once; a larger one comes
/// into force when every other node has answered, or has been silent for 60 s. Until all nodes have
/// the new nodes, weights and totals, each uses the least of its parts in any of them. While there
/// is one configuration, the sums are exact in any case; while there are two, if nodes that are
/// removed, or silent for these times, have been stopped.
///
/// An idle tenant that becomes busy starts with a sixteenth of its part and has all of it 616 ms
/// later, whichever messages are lost: from the next look at the use on, its units are not lent
/// again.
///
/// A rate below one unit per second counts as one wherever rates are enforced. So the use may
/// exceed the total by one unit per second for each tenant of a node that has almost no rates.
///
/// # Inputs, outputs, wake-ups
/// - Inputs: [`handle_use`](Self::handle_use) with the counters of every resource just before a
///   wake-up, [`handle_ask`](Self::handle_ask) and [`handle_grant`](Self::handle_grant) with
///   messages of other nodes, [`set_plan`](Self::set_plan) with the rates of each plan that is
///   applied, [`set_nodes`](Self::set_nodes) after a reload. The time `now` is read after the
///   message has come, from a clock that does not stop while the machine is suspended.
/// - Outputs: after every input, [`poll_action`](Self::poll_action) until it returns none. Actions
///   are carried out one after the other, in this order, since rates are lowered before the answer
///   that lends them is sent; a driver with several threads sets the rates under the machine's
///   lock. Only [`TenantQueues::set_rates_in_force`] and [`TenantGate::set_rates_in_force`] set
///   them.
/// - Wake-ups: [`handle_timeout`](Self::handle_timeout) at [`next_timeout`](Self::next_timeout).
///   When one comes late, loans still end in time ([`RatesInForce`]).
///
/// [`TenantQueues::set_rates_in_force`]: crate::TenantQueues::set_rates_in_force
/// [`TenantGate::set_rates_in_force`]: crate::TenantGate::set_rates_in_force
///
/// # Bounds
/// A node sends each other node at most 10 requests and 20 answers a second, of at most 256 rates
/// each. A resource has at most 4,096 loans each way, of some 100 bytes. Every input takes a time
/// linear in the loans, tenants and rates of a message, at most.
///
/// ```
/// use sherwood_dispatch::{RateAction, PeerNode, PeerRateOptions, PeerRates, TenantUse};
/// use sherwood_model::{Instant, ResourceId, TenantId};
///
/// let nodes = ["a", "b"].map(|name| PeerNode { name: name.into(), weight: 1.0 });
/// let open = |name: &str| {
///     let options = PeerRateOptions {
///         node: name.into(),
///         nodes: nodes.to_vec(),
///         incarnation: 1,
///         totals: vec![1_600.0],
///         tenants: 1,
///         lends: true,
///     };
///     PeerRates::new(Instant::from_secs(1), options)
/// };
/// // A network that loses nothing.
/// fn deliver(name: &str, from: &mut PeerRates, now: Instant, to: &mut PeerRates) {
///     while let Some(action) = from.poll_action() {
///         match action {
///             RateAction::SetRates(..) => {}
///             RateAction::Ask(_, ask) => to.handle_ask(now, name, &ask),
///             RateAction::Grant(_, grant) => to.handle_grant(now, name, &grant),
///         }
///     }
/// }
/// let (mut a, mut b, reads) = (open("a"), open("b"), ResourceId(0));
/// // The tenant waits at node a, where it uses all that it may, and is idle at node b.
/// let mut waits = TenantUse { waiting: 5, ..TenantUse::default() };
/// for millis in (1_000..=3_000).step_by(100) {
///     let now = Instant::from_millis(millis);
///     waits.own_units += a.rates(now, reads).at(now).total_per_s * 0.1;
///     a.handle_use(now, reads, &[waits]);
///     a.handle_timeout(now);
///     b.handle_use(now, reads, &[TenantUse::default()]);
///     b.handle_timeout(now);
///     deliver("a", &mut a, now, &mut b);
///     deliver("b", &mut b, now, &mut a);
///     deliver("a", &mut a, now, &mut b);
/// }
/// let now = Instant::from_millis(3_050);
/// let rate = |node: &PeerRates| node.rates(now, reads).at(now).total_per_s;
/// assert_eq!((rate(&a), rate(&b)), (1_550.0, 50.0));
/// ```
#[derive(Clone, Debug)]
pub struct PeerRates {
    incarnation: u64,
    tenants: usize,
    lends: bool,
    terms: Terms,
    members: Members,
    /// The plan's rates; none before the first plan, while all tenants have the same.
    plan: Option<Rates>,
    /// Use of each resource.
    demands: Vec<Demands>,
    lending: Lending,
    borrowing: Borrowing,
    /// The rates that were set last, of each resource.
    set: Vec<Option<RatesInForce>>,
    actions: VecDeque<RateAction>,
    /// Time of the next look at the use.
    looks_at: Instant,
    /// Time at which the next loan returns, of those that do before the next look.
    returns_at: Instant,
    /// Number of looks, from which follows which of too many rates are asked for.
    looks: usize,
}

/// Settings of [`PeerRates`].
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRateOptions {
    /// Name of this node.
    pub node: Arc<str>,
    /// All nodes of the cluster.
    pub nodes: Vec<PeerNode>,
    /// A number that no other process of this node has.
    pub incarnation: u64,
    /// Units per second of each resource, in the whole cluster, by its id.
    pub totals: Vec<f64>,
    /// Number of tenants, whose ids are below it.
    pub tenants: u16,
    /// True if units may be lent to other tenants.
    pub lends: bool,
}

impl PeerRates {
    /// Creates the rates of a process that has just started, at `now`. Rates are 0 at first.
    #[must_use]
    pub fn new(now: Instant, options: PeerRateOptions) -> Self {
        Self::with_terms(now, options, Terms::default())
    }

    fn with_terms(now: Instant, options: PeerRateOptions, terms: Terms) -> Self {
        let PeerRateOptions { node, nodes, incarnation, totals, tenants, lends } = options;
        let resources = totals.len();
        let mut rates = Self {
            incarnation,
            tenants: tenants.into(),
            lends,
            terms,
            members: Members::new(now, node, nodes, totals, &terms),
            plan: None,
            demands: vec![Demands::default(); resources],
            lending: Lending::default(),
            borrowing: Borrowing::default(),
            set: vec![None; resources],
            actions: VecDeque::new(),
            looks_at: now,
            returns_at: Instant::NEVER,
            looks: 0,
        };
        rates.set_changed(now, None);
        rates
    }

    /// Takes the rates that the plan of the control loop gives the tenants. They divide the node's
    /// part of a resource in this proportion, whatever their sum is.
    ///
    /// # Panics
    /// If the plan has other resources or tenants.
    pub fn set_plan(&mut self, now: Instant, plan: &Rates) {
        assert!(plan.is_of(self.tenants, self.members.resources()), "the plan is for other tenants");
        self.plan = Some(plan.clone());
        self.set_changed(now, None);
    }

    /// Takes other nodes, or other weights. No effect if they are the present ones.
    pub fn set_nodes(&mut self, now: Instant, nodes: Vec<PeerNode>) {
        if self.members.are(&nodes) {
            return;
        }
        self.members.change(now, nodes, self.terms.silent_at_change);
        let others: Vec<_> = self.members.others().cloned().collect();
        self.borrowing.keep_those_of(&others);
        self.members.settle(now, &self.terms);
        self.set_changed(now, None);
    }

    /// Takes in the use of a resource by each tenant, and what waits, by the tenants' ids.
    ///
    /// # Panics
    /// If the resource is unknown.
    pub fn handle_use(&mut self, now: Instant, resource: ResourceId, uses: &[TenantUse]) {
        let is_common = self.is_common();
        self.demands[resource.index()].look(now, uses, is_common);
    }

    /// Answers a request of the node `from`: lends idle units, and lowers this node's rates first.
    pub fn handle_ask(&mut self, now: Instant, from: &str, ask: &RateAsk) {
        let Some(to) = self.members.note_ask(now, from, ask) else { return };
        let loans = if self.members.has(from) { self.lend(now, &to, &ask.wants) } else { Vec::new() };
        self.set_changed(now, Some(&loans));
        let sum = |resource| self.lending.sum(now, ResourceId::from_index(resource));
        let parts = self.members.parts_of(now, from, &self.terms, sum);
        let grant = RateGrant { incarnation: ask.incarnation, stamp: ask.stamp, parts, loans };
        self.actions.push_back(RateAction::Grant(to, grant));
    }

    /// Takes in an answer of the node `from`. No effect if it is one to an earlier process, or to a
    /// request that is not made yet.
    pub fn handle_grant(&mut self, now: Instant, from: &str, grant: &RateGrant) {
        let RateGrant { incarnation, stamp, parts, loans } = grant;
        if *incarnation != self.incarnation || *stamp > now || !self.members.has(from) {
            return;
        }
        self.members.note_parts(now, from, *stamp, parts.as_deref());
        let end = *stamp + self.terms.loan;
        for loan in loans {
            if self.is_valid(loan) {
                self.borrowing.borrow(now, end, from, *loan);
            }
        }
        let has_settled = self.members.settle(now, &self.terms);
        self.set_changed(now, (!has_settled).then_some(loans));
    }

    /// Ends loans that are over. When a look at the use is due, asks for units.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.looks_at {
            self.looks_at = now + LOOK_EVERY;
            self.looks += 1;
            self.lending.prune(now, &self.terms);
            self.borrowing.prune(now, &self.terms);
            self.members.settle(now, &self.terms);
            self.ask(now);
        }
        self.returns_at = self.lending.next_end(now);
        self.set_changed(now, None);
    }

    /// Returns the time of the next wake-up. Use is looked at then, ten times a second.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        let ends = self.set.iter().flatten().map(|rates| rates.ends_at);
        ends.fold(self.looks_at.min(self.returns_at), Instant::min)
    }

    /// Returns true in the first moments of a process, while it waits for its part of the rates:
    /// for at most as long as that takes with a silent node.
    #[must_use]
    pub fn is_starting(&self, now: Instant) -> bool {
        self.members.is_starting(now, &self.terms)
    }

    /// Returns the next step of the driver; none until the next input.
    pub fn poll_action(&mut self) -> Option<RateAction> {
        self.actions.pop_front()
    }

    /// Returns the rates of a resource at this node.
    ///
    /// # Panics
    /// If the resource is unknown.
    #[must_use]
    pub fn rates(&self, now: Instant, resource: ResourceId) -> RatesInForce {
        let level = self.members.level(resource.index());
        let (own, idle) = self.own_and_idle(resource);
        let (lent, lent_to_any) = self.lending.lent(now, resource, self.tenants);
        let borrowed = self.borrowing.borrowed(now, resource, self.tenants);
        let with = |borrowed: &[f64]| {
            let parts = Parts { own: &own, idle: &idle, lent: &lent, lent_to_any, borrowed };
            node_rates(level, &parts, self.is_common())
        };
        RatesInForce {
            rates: with(&borrowed),
            ends_at: self.borrowing.next_end(now, resource).unwrap_or(Instant::NEVER),
            without_loans: with(&vec![0.0; self.tenants]),
        }
    }

    /// Returns the loans of this node to others that are in force.
    pub fn lent(&self, now: Instant) -> impl Iterator<Item = PeerLoan> {
        self.lending.loans(now)
    }

    /// Returns the loans of other nodes to this one that are in force.
    pub fn borrowed(&self, now: Instant) -> impl Iterator<Item = PeerLoan> {
        self.borrowing.loans(now)
    }

    /// Returns true if the total of each resource pays for the work of all tenants. Its use is then
    /// that of the first tenant.
    fn is_common(&self) -> bool {
        self.plan.as_ref().is_some_and(Rates::are_common)
    }

    /// Returns the units per second of each tenant from this node's part, and those among them that
    /// the tenant does not need.
    fn own_and_idle(&self, resource: ResourceId) -> (Vec<f64>, Vec<f64>) {
        let level = self.members.level(resource.index());
        let planned = |tenant: usize| match &self.plan {
            Some(plan) if plan.are_common() => f64::from(u8::from(tenant == 0)),
            Some(plan) => plan.get(TenantId::from_index(tenant), resource).clamp(0.0, f64::MAX),
            None => 1.0,
        };
        let mut own: Vec<f64> = (0..self.tenants).map(planned).collect();
        let sum: f64 = own.iter().sum();
        match sum > 0.0 {
            true => own.iter_mut().for_each(|rate| *rate *= level / sum),
            false => own.fill(level / self.tenants as f64),
        }
        let demands = &self.demands[resource.index()];
        let idle = |(tenant, own): (usize, &f64)| match demands.are_known() {
            true => own - demands.of(tenant).kept_per_s(*own),
            false => 0.0,
        };
        let idle = own.iter().enumerate().map(idle).collect();
        (own, idle)
    }

    /// Has the driver set the rates that have changed: of the resources of `loans`, or of all.
    fn set_changed(&mut self, now: Instant, loans: Option<&[RateAmount]>) {
        for index in 0..self.set.len() {
            let resource = ResourceId::from_index(index);
            if loans.is_some_and(|loans| loans.iter().all(|loan| loan.resource != resource)) {
                continue;
            }
            let rates = self.rates(now, resource);
            if self.set[index].as_ref() != Some(&rates) {
                self.actions.push_back(RateAction::SetRates(resource, rates.clone()));
                self.set[index] = Some(rates);
            }
        }
    }

    /// Lends what is wanted and idle; returns an amount for each that is wanted.
    fn lend(&mut self, now: Instant, to: &Arc<str>, wants: &[RateAmount]) -> Vec<RateAmount> {
        let wants = wants.iter().filter(|want| self.is_valid(want)).take(AMOUNTS_MAX);
        let wants: Vec<RateAmount> = wants.copied().collect();
        wants.iter().for_each(|want| self.lending.note_want(now, to, *want));
        let lendable = |resource: ResourceId| {
            let (_, idle) = self.own_and_idle(resource);
            let level = self.members.level(resource.index());
            let used_by_others = self.demands[resource.index()].lent_per_s();
            self.lending.lendable(now, resource, (level, idle), used_by_others, &self.terms)
        };
        let mut resources: BTreeMap<_, _> =
            wants.iter().map(|want| (want.resource, lendable(want.resource))).collect();
        let lends_to_any = self.lends || self.is_common();
        let mut loans = Vec::new();
        for want in wants {
            let lendable = resources.get_mut(&want.resource).expect("one for each");
            let per_s = self.lending.lend(now, to, want, lendable, (lends_to_any, &self.terms));
            loans.push(RateAmount { per_s, ..want });
        }
        loans
    }

    /// Sends every other node a request, if anything is wanted of it.
    fn ask(&mut self, now: Instant) {
        let nodes: Vec<Arc<str>> = self.members.others().cloned().collect();
        let mut wants: BTreeMap<Arc<str>, Vec<RateAmount>> = BTreeMap::new();
        if self.members.has_just_changed(now) || self.looks.is_multiple_of(10) {
            wants.extend(self.members.unheard().into_iter().map(|node| (node, Vec::new())));
        }
        for index in 0..self.members.resources() {
            let resource = ResourceId::from_index(index);
            let (own, _) = self.own_and_idle(resource);
            let (lent, _) = self.lending.lent(now, resource, self.tenants);
            for tenant in 0..self.tenants {
                let (tenant_id, base) = (TenantId::from_index(tenant), (own[tenant] - lent[tenant]).max(0.0));
                let need = self.need(index, tenant, base);
                let asks = self.borrowing.asks(now, (resource, tenant_id), &nodes, need, &self.terms);
                for (node, per_s) in asks {
                    wants.entry(node).or_default().push(RateAmount { resource, tenant: tenant_id, per_s });
                }
            }
        }
        for (node, mut wants) in wants {
            if wants.len() > AMOUNTS_MAX {
                // A loan outlives some looks, so that five times as many are renewed in turn.
                let first = self.looks * AMOUNTS_MAX % wants.len();
                wants.rotate_left(first);
                wants.truncate(AMOUNTS_MAX);
            }
            let ask = RateAsk { incarnation: self.incarnation, stamp: now, wants };
            self.actions.push_back(RateAction::Ask(node, ask));
        }
    }

    /// Returns the units that a tenant misses, which has `base` units per second without loans. A
    /// tenant that waits wants twice what it uses.
    fn need(&self, resource: usize, tenant: usize, base: f64) -> Need {
        let demand = self.demands[resource].of(tenant);
        if demand.waits() {
            return Need::More(demand.per_s().max(self.members.total(resource) * LEAST_GROWTH_RATIO));
        }
        Need::AtMost((demand.needed_per_s() - base).max(0.0))
    }

    /// Returns true if a rate in a message is one of a known resource and tenant.
    fn is_valid(&self, amount: &RateAmount) -> bool {
        let RateAmount { resource, tenant, per_s } = *amount;
        let is_known = resource.index() < self.members.resources() && tenant.index() < self.tenants;
        is_known && per_s.is_finite() && per_s >= 0.0
    }
}

/// The part of a total by which a waiting tenant's rate grows at a look, at least.
const LEAST_GROWTH_RATIO: f64 = 1.0 / 64.0;

#[cfg(test)]
mod tests;
