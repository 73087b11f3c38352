//! The units that this node has borrowed from others, and those that it asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use sherwood_model::{Instant, ResourceId, TenantId};

use super::messages::{PeerLoan, RateAmount};
use super::steps::Steps;
use super::terms::{ANSWER_WITHIN, LOANS_MAX, MORE_AFTER, Terms};

/// The loans of other nodes to this one, by the resource and the tenant that uses the units.
#[derive(Clone, Debug, Default)]
pub(super) struct Borrowing {
    accounts: BTreeMap<(ResourceId, TenantId), Vec<Account>>,
}

/// The loans of another node to a tenant.
#[derive(Clone, Debug)]
struct Account {
    from: Arc<str>,
    loans: Steps,
    /// The rate that was asked for last, units per second.
    want: f64,
    /// Time of the first request since the latest answer; none if there was none.
    unanswered_since: Option<Instant>,
    /// Time from which more is asked for, after the other node gave less or did not answer.
    more_at: Instant,
}

/// The units that a tenant misses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Need {
    /// Units per second that it needs in all, of those that it has borrowed.
    AtMost(f64),
    /// Units per second that it wants beyond those that it has borrowed.
    More(f64),
}

impl Borrowing {
    /// Returns the rate to ask each of these nodes for; none from which nothing is wanted.
    ///
    /// What was borrowed is asked for again, in proportion. More is asked of those nodes that have
    /// not just given less than they were asked for.
    pub(super) fn asks(
        &mut self,
        now: Instant,
        of: (ResourceId, TenantId),
        nodes: &[Arc<str>],
        need: Need,
        terms: &Terms,
    ) -> Vec<(Arc<str>, f64)> {
        let borrowed = self.borrowed_for(now, of);
        let wants_more = matches!(need, Need::More(_));
        if borrowed <= 0.0 && !wants_more {
            return Vec::new();
        }
        if wants_more {
            self.open(now, of, nodes);
        }
        let accounts = self.accounts.entry(of).or_default();
        for account in accounts.iter_mut() {
            if account.unanswered_since.is_some_and(|since| now >= since + ANSWER_WITHIN) {
                (account.more_at, account.unanswered_since) = (now + terms.loan, None);
            }
        }
        let is_member = |account: &Account| nodes.contains(&account.from);
        let givers = accounts.iter().filter(|account| is_member(account) && account.more_at <= now).count();
        let (scale, more) = match need {
            Need::AtMost(most) => ((most / borrowed).clamp(0.0, 1.0), 0.0),
            Need::More(more) => (1.0, more / givers.max(1) as f64),
        };
        let mut asks = Vec::new();
        for account in accounts.iter_mut().filter(|account| is_member(account)) {
            let more = if account.more_at <= now { more } else { 0.0 };
            account.want = account.loans.at(now) * scale + more;
            if account.want > 0.0 {
                account.unanswered_since.get_or_insert(now);
                asks.push((Arc::clone(&account.from), account.want));
            }
        }
        asks
    }

    /// Opens accounts with these nodes, up to the number of loans of a resource.
    fn open(&mut self, now: Instant, of: (ResourceId, TenantId), nodes: &[Arc<str>]) {
        let accounts = self.accounts.entry(of).or_default();
        let has = |node: &Arc<str>| accounts.iter().any(|account| account.from == *node);
        let missing: Vec<_> = nodes.iter().filter(|node| !has(node)).cloned().collect();
        if !missing.is_empty() {
            let room = LOANS_MAX.saturating_sub(self.of(of.0).count());
            let new = missing.into_iter().take(room).map(|node| Account::new(now, node));
            self.accounts.entry(of).or_default().extend(new);
        }
    }

    /// Takes in a loan that ends at `end`. No effect if it was not asked for.
    pub(super) fn borrow(&mut self, now: Instant, end: Instant, from: &str, loan: RateAmount) {
        let Some(accounts) = self.accounts.get_mut(&(loan.resource, loan.tenant)) else { return };
        let Some(account) = accounts.iter_mut().find(|account| *account.from == *from) else { return };
        account.unanswered_since = None;
        if loan.per_s < account.want {
            account.more_at = now + MORE_AFTER;
        }
        account.loans.add(end, loan.per_s.min(account.want));
    }

    /// Units per second of a resource that are borrowed for each tenant.
    pub(super) fn borrowed(&self, now: Instant, resource: ResourceId, tenants: usize) -> Vec<f64> {
        let mut borrowed = vec![0.0; tenants];
        for (tenant, account) in self.of(resource) {
            if let Some(sum) = borrowed.get_mut(tenant.index()) {
                *sum += account.loans.at(now);
            }
        }
        borrowed
    }

    fn borrowed_for(&self, now: Instant, of: (ResourceId, TenantId)) -> f64 {
        self.accounts.get(&of).into_iter().flatten().map(|account| account.loans.at(now)).sum()
    }

    /// Returns the end of the loan of a resource that ends first.
    pub(super) fn next_end(&self, now: Instant, resource: ResourceId) -> Option<Instant> {
        self.of(resource).filter_map(|(_, account)| account.loans.next_end(now)).min()
    }

    /// Returns the loans in force.
    pub(super) fn loans(&self, now: Instant) -> impl Iterator<Item = PeerLoan> {
        let all = self.accounts.iter().flat_map(|(of, accounts)| accounts.iter().map(move |one| (*of, one)));
        all.filter_map(move |((resource, tenant), account)| {
            let amount = RateAmount { resource, tenant, per_s: account.loans.at(now) };
            (amount.per_s > 0.0).then(|| PeerLoan { node: Arc::clone(&account.from), amount })
        })
    }

    /// Forgets loans of nodes other than these.
    pub(super) fn keep_those_of(&mut self, nodes: &[Arc<str>]) {
        self.accounts.values_mut().for_each(|all| all.retain(|account| nodes.contains(&account.from)));
    }

    /// Forgets loans that have ended and requests without an answer.
    pub(super) fn prune(&mut self, now: Instant, terms: &Terms) {
        self.accounts.retain(|_, accounts| {
            accounts.retain_mut(|account| account.loans.prune(now) || account.is_recent(now, terms));
            !accounts.is_empty()
        });
    }

    fn of(&self, resource: ResourceId) -> impl Iterator<Item = (TenantId, &Account)> {
        let all = self.accounts.range((resource, TenantId(0))..=(resource, TenantId(u16::MAX)));
        all.flat_map(|((_, tenant), all)| all.iter().map(move |account| (*tenant, account)))
    }
}

impl Account {
    fn new(now: Instant, from: Arc<str>) -> Self {
        let (loans, more_at) = (Steps::default(), now);
        Self { from, loans, want: 0.0, unanswered_since: None, more_at }
    }

    /// True if an answer may come, or the latest one still tells what to ask for.
    fn is_recent(&self, now: Instant, terms: &Terms) -> bool {
        now < self.more_at || self.unanswered_since.is_some_and(|since| now < since + terms.loan)
    }
}
