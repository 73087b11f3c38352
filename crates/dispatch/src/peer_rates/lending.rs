//! The units that this node has lent to others.

use std::collections::BTreeMap;
use std::sync::Arc;

use sherwood_model::{Instant, ResourceId, TenantId};

use super::messages::{PeerLoan, RateAmount};
use super::steps::Steps;
use super::terms::{KEPT_RATIO, LOANS_MAX, Terms};

/// The loans of this node to others, by the resource and the tenant that uses the units.
#[derive(Clone, Debug, Default)]
pub(super) struct Lending {
    accounts: BTreeMap<(ResourceId, TenantId), Vec<Account>>,
}

/// The loans to a tenant at another node.
#[derive(Clone, Debug)]
struct Account {
    to: Arc<str>,
    /// Units of the same tenant.
    same: Steps,
    /// Units of any tenant.
    any: Steps,
    /// The rate that the other node wants, units per second, and the time of its request.
    want: f64,
    asked_at: Instant,
}

/// The units of a resource that this node may lend now, and has lent.
#[derive(Clone, Debug)]
pub(super) struct Lendable {
    /// Units per second that each tenant does not need of its part.
    idle: Vec<f64>,
    /// Units per second that may be lent to any tenant.
    any: f64,
    /// The most of them for one borrower, so that all get the same if they want too much.
    any_level: f64,
    /// Units per second of the node that may be lent in all.
    most: f64,
    lent: f64,
    lent_to_any: f64,
}

impl Lending {
    /// Notes the rate that another node wants for a tenant. No effect beyond a number of loans.
    pub(super) fn note_want(&mut self, now: Instant, to: &Arc<str>, want: RateAmount) {
        let of = (want.resource, want.tenant);
        let known = self.accounts.get_mut(&of).into_iter().flatten().find(|account| account.to == *to);
        if let Some(account) = known {
            (account.want, account.asked_at) = (want.per_s, now);
        } else if want.per_s > 0.0 && self.of(want.resource).count() < LOANS_MAX {
            let (same, any) = (Steps::default(), Steps::default());
            let account = Account { to: Arc::clone(to), same, any, want: want.per_s, asked_at: now };
            self.accounts.entry(of).or_default().push(account);
        }
    }

    /// Returns the units of a resource that may be lent: of each tenant those in `idle`, less those
    /// that its own node uses for other tenants (`used_by_others`) before they are lent to any.
    pub(super) fn lendable(
        &self,
        now: Instant,
        resource: ResourceId,
        (level, idle): (f64, Vec<f64>),
        used_by_others: f64,
        terms: &Terms,
    ) -> Lendable {
        let mut any: f64 = idle.iter().sum();
        let (mut lent, mut lent_to_any) = (0.0, 0.0);
        let mut wants = Vec::new();
        for (tenant, accounts) in self.by_tenant(resource) {
            let of_tenant = idle.get(tenant.index()).copied().unwrap_or(0.0);
            let same: f64 = accounts.iter().map(|account| account.same.at(now)).sum();
            let wanted: f64 = accounts.iter().map(|account| account.wants(now, terms)).sum();
            // The same tenant at other nodes comes first, also before it has the units.
            any -= wanted.max(same).min(of_tenant);
            lent_to_any += accounts.iter().map(|account| account.any.at(now)).sum::<f64>();
            lent += same;
            let rest = |account: &Account| account.wants(now, terms) - account.same.at(now);
            wants.extend(accounts.iter().map(rest).filter(|rest| *rest > 0.0));
        }
        let any = (any - used_by_others).max(0.0);
        let any_level = level_of(any, wants);
        let most = level * (1.0 - KEPT_RATIO);
        Lendable { idle, any, any_level, most, lent: lent + lent_to_any, lent_to_any }
    }

    /// Lends units to a tenant at another node that wants `want`, which was noted before. Returns
    /// the units per second.
    pub(super) fn lend(
        &mut self,
        now: Instant,
        to: &str,
        want: RateAmount,
        lendable: &mut Lendable,
        (lends_to_any, terms): (bool, &Terms),
    ) -> f64 {
        let Some(accounts) = self.accounts.get_mut(&(want.resource, want.tenant)) else { return 0.0 };
        let idle = lendable.idle.get(want.tenant.index()).copied().unwrap_or(0.0);
        let lent_same: f64 = accounts.iter().map(|account| account.same.at(now)).sum();
        let level = level_of(idle, accounts.iter().map(|account| account.wants(now, terms)).collect());
        let Some(account) = accounts.iter_mut().find(|account| *account.to == *to) else { return 0.0 };
        let end = now + terms.returns_after;
        let mut lend = |steps: &mut Steps, wanted: f64, free: f64| {
            // A renewal needs no other units than those that the other node has.
            let before = steps.at(now);
            let left = (lendable.most - lendable.lent).min(free);
            let per_s = wanted.min(before + left).max(0.0);
            lendable.lent += (per_s - before).max(0.0);
            steps.add(end, per_s);
            per_s
        };
        let same = lend(&mut account.same, want.per_s.min(level), idle - lent_same);
        if !lends_to_any {
            return same;
        }
        let rest = (want.per_s - same).min(lendable.any_level);
        let before = account.any.at(now);
        let any = lend(&mut account.any, rest, lendable.any - lendable.lent_to_any);
        lendable.lent_to_any += (any - before).max(0.0);
        same + any
    }

    /// Units per second of a resource that are lent to each tenant from its own, and to any.
    pub(super) fn lent(&self, now: Instant, resource: ResourceId, tenants: usize) -> (Vec<f64>, f64) {
        let (mut same, mut any) = (vec![0.0; tenants], 0.0);
        for (tenant, accounts) in self.by_tenant(resource) {
            for account in accounts {
                any += account.any.at(now);
                match same.get_mut(tenant.index()) {
                    Some(same) => *same += account.same.at(now),
                    None => any += account.same.at(now),
                }
            }
        }
        (same, any)
    }

    /// Units per second of a resource that are lent.
    pub(super) fn sum(&self, now: Instant, resource: ResourceId) -> f64 {
        self.of(resource).map(|(_, account)| account.same.at(now) + account.any.at(now)).sum()
    }

    /// Returns the loans in force.
    pub(super) fn loans(&self, now: Instant) -> impl Iterator<Item = PeerLoan> {
        let all = self.accounts.iter().flat_map(|(of, accounts)| accounts.iter().map(move |one| (*of, one)));
        all.filter_map(move |((resource, tenant), account)| {
            let per_s = account.same.at(now) + account.any.at(now);
            let amount = RateAmount { resource, tenant, per_s };
            (per_s > 0.0).then(|| PeerLoan { node: Arc::clone(&account.to), amount })
        })
    }

    /// Returns the time at which the next loan returns; never if there is none.
    pub(super) fn next_end(&self, now: Instant) -> Instant {
        let loans = self.accounts.values().flatten().flat_map(|account| [&account.same, &account.any]);
        loans.filter_map(|loan| loan.next_end(now)).min().unwrap_or(Instant::NEVER)
    }

    /// Forgets loans that have ended and requests that are not renewed.
    pub(super) fn prune(&mut self, now: Instant, terms: &Terms) {
        self.accounts.retain(|_, accounts| {
            accounts.retain_mut(|account| {
                let (same, any) = (account.same.prune(now), account.any.prune(now));
                same || any || account.wants(now, terms) > 0.0
            });
            !accounts.is_empty()
        });
    }

    fn by_tenant(&self, resource: ResourceId) -> impl Iterator<Item = (TenantId, &[Account])> {
        let all = self.accounts.range((resource, TenantId(0))..=(resource, TenantId(u16::MAX)));
        all.map(|((_, tenant), accounts)| (*tenant, accounts.as_slice()))
    }

    fn of(&self, resource: ResourceId) -> impl Iterator<Item = (TenantId, &Account)> {
        self.by_tenant(resource).flat_map(|(tenant, all)| all.iter().map(move |account| (tenant, account)))
    }
}

impl Account {
    /// Units per second that the other node wants, unless it has not asked for some time.
    fn wants(&self, now: Instant, terms: &Terms) -> f64 {
        if now < self.asked_at + terms.loan { self.want } else { 0.0 }
    }
}

/// Returns the largest amount such that everyone who wants that much, or less, can have it.
fn level_of(mut amount: f64, mut wants: Vec<f64>) -> f64 {
    wants.sort_by(f64::total_cmp);
    let count = wants.len();
    for (before, want) in wants.into_iter().enumerate() {
        let each = amount / (count - before) as f64;
        if want > each {
            return each;
        }
        amount -= want;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_divided_evenly_among_those_who_want_more_than_their_part() {
        assert_eq!(level_of(90.0, vec![10.0, 100.0, 50.0]), 40.0);
        assert_eq!(level_of(90.0, vec![10.0, 80.0]), f64::INFINITY);
        assert_eq!(level_of(0.0, vec![1.0]), 0.0);
    }
}
