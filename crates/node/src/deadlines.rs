//! Deadlines by rule, and counts of deadlines met and missed.
//!
//! A rule gives keys a deadline that their client does not state itself. Callers that state one
//! have that instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sherwood_config::DeadlineRule;
use sherwood_model::{BackendId, DeadlineClass, Demand, TenantId};
use sherwood_path::Status;

/// The rules of a node, the most specific first.
#[derive(Debug)]
pub(crate) struct DeadlineRules(Vec<DeadlineRule>);

impl DeadlineRules {
    /// Orders the rules: the one with the longest prefix applies, then one for a tenant, then one
    /// for a backend.
    pub(crate) fn new(mut rules: Vec<DeadlineRule>) -> Self {
        let specific =
            |rule: &DeadlineRule| (rule.prefix.len(), rule.tenant.is_some(), rule.backend.is_some());
        rules.sort_by_key(|rule| std::cmp::Reverse(specific(rule)));
        Self(rules)
    }

    /// Returns true if no key has a deadline by rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the time by which `tenant` wants a key of `backend`; none if no rule applies.
    pub(crate) fn within(&self, tenant: TenantId, backend: BackendId, key: &[u8]) -> Option<Duration> {
        let applies = |rule: &&DeadlineRule| {
            rule.backend.is_none_or(|of| of == backend)
                && rule.tenant.is_none_or(|of| of == tenant)
                && key.starts_with(rule.prefix.as_bytes())
        };
        self.0.iter().find(applies).map(|rule| rule.within)
    }

    /// Returns the earliest deadline of `keys`, which end together.
    pub(crate) fn within_all<'k>(
        &self,
        tenant: TenantId,
        backend: BackendId,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        keys.filter_map(|key| self.within(tenant, backend, key)).min()
    }
}

/// The keys whose deadline was met, and those whose was missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadlineOutcomes {
    /// Keys answered by their deadline.
    pub(crate) met: u64,
    /// Keys answered later, or not at all; rejected ones excluded.
    pub(crate) missed: u64,
}

impl DeadlineOutcomes {
    /// Counts a key with a deadline that ended with `status`, late or not.
    pub(crate) fn count(&mut self, status: Status, late: bool) {
        match status {
            Status::Rejected => {}
            _ if late || status.is_failure() => self.missed += 1,
            _ => self.met += 1,
        }
    }
}

/// Counts of keys by backend, tenant and class of their deadline. Their number is bounded by the
/// configuration.
#[derive(Debug, Default)]
pub(crate) struct DeadlineCounts(Mutex<BTreeMap<(BackendId, TenantId, DeadlineClass), DeadlineOutcomes>>);

impl DeadlineCounts {
    /// Adds the keys of a query with this demand that have ended.
    pub(crate) fn add(&self, backend: BackendId, demand: &Demand, kept: DeadlineOutcomes) {
        if kept == DeadlineOutcomes::default() {
            return;
        }
        let mut counts = self.lock();
        let counted = counts.entry((backend, demand.tenant, demand.class)).or_default();
        counted.met += kept.met;
        counted.missed += kept.missed;
    }

    /// Returns all counts, in the order of backends, tenants and classes.
    pub(crate) fn all(&self) -> Vec<((BackendId, TenantId, DeadlineClass), DeadlineOutcomes)> {
        self.lock().iter().map(|(of, kept)| (*of, *kept)).collect()
    }

    /// Returns the counts of a backend, over all tenants and classes.
    pub(crate) fn of_backend(&self, backend: BackendId) -> DeadlineOutcomes {
        let mut sum = DeadlineOutcomes::default();
        for ((of, ..), kept) in &*self.lock() {
            if *of == backend {
                sum.met += kept.met;
                sum.missed += kept.missed;
            }
        }
        sum
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(BackendId, TenantId, DeadlineClass), DeadlineOutcomes>> {
        self.0.lock().expect("no panics while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(backend: Option<u16>, prefix: &str, tenant: Option<u16>, ms: u64) -> DeadlineRule {
        DeadlineRule {
            backend: backend.map(BackendId),
            prefix: prefix.to_owned(),
            tenant: tenant.map(TenantId),
            within: Duration::from_millis(ms),
        }
    }

    #[test]
    fn most_specific_rule_applies_and_the_earliest_of_keys_that_end_together() {
        let rules = DeadlineRules::new(vec![
            rule(None, "", None, 900),
            rule(Some(0), "", None, 800),
            rule(None, "", Some(1), 700),
            rule(Some(0), "", Some(1), 600),
            rule(None, "p:", None, 500),
            rule(Some(1), "p:q", None, 950),
        ]);
        let within = |tenant, backend, key: &str| {
            rules
                .within(TenantId(tenant), BackendId(backend), key.as_bytes())
                .map(|within| within.as_millis())
        };
        let found =
            [(0, 1, "a"), (0, 0, "a"), (1, 1, "a"), (1, 0, "a"), (1, 0, "p:q"), (0, 1, "p:q"), (0, 1, "p")];
        let expected = [900, 800, 700, 600, 500, 950, 900].map(Some);
        assert_eq!(found.map(|(tenant, backend, key)| within(tenant, backend, key)), expected);
        let keys = [&b"p:q"[..], b"p:", b"a"];
        let all = |backend| rules.within_all(TenantId(0), BackendId(backend), keys.into_iter());
        assert_eq!(all(1), Some(Duration::from_millis(500)));
        let none = DeadlineRules::new(vec![rule(Some(1), "p:q", None, 950)]);
        assert_eq!(none.within_all(TenantId(0), BackendId(1), [&b"p:"[..]].into_iter()), None);
    }

    #[test]
    fn late_and_failed_keys_miss_their_deadline_and_rejected_ones_do_not_count() {
        let mut kept = DeadlineOutcomes::default();
        let ends = [
            (Status::Hit, false),
            (Status::NotFound, false),
            (Status::Miss, true),
            (Status::Error, false),
            (Status::Timeout, true),
            (Status::Rejected, false),
            (Status::Rejected, true),
        ];
        ends.into_iter().for_each(|(status, late)| kept.count(status, late));
        assert_eq!(kept, DeadlineOutcomes { met: 2, missed: 3 });
    }

    #[test]
    fn deadlines_are_counted_by_backend_tenant_and_class() {
        let counts = DeadlineCounts::default();
        let demand = |class| Demand { class: DeadlineClass(class), ..Demand::default() };
        counts.add(BackendId(1), &demand(2), DeadlineOutcomes { met: 2, missed: 1 });
        counts.add(BackendId(0), &demand(0), DeadlineOutcomes { met: 1, missed: 0 });
        counts.add(BackendId(1), &demand(2), DeadlineOutcomes { met: 0, missed: 4 });
        counts.add(BackendId(3), &demand(2), DeadlineOutcomes::default());
        let of = |backend, class| (BackendId(backend), TenantId(0), DeadlineClass(class));
        let expected = [
            (of(0, 0), DeadlineOutcomes { met: 1, missed: 0 }),
            (of(1, 2), DeadlineOutcomes { met: 2, missed: 5 }),
        ];
        assert_eq!(counts.all(), expected);
        counts.add(BackendId(1), &demand(4), DeadlineOutcomes { met: 3, missed: 0 });
        assert_eq!(counts.of_backend(BackendId(1)), DeadlineOutcomes { met: 5, missed: 5 });
    }
}
