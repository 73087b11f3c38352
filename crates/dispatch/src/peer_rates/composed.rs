//! The rates in force at a node: its own parts, without what is lent, and with what is borrowed.

use crate::NodeRates;

/// The parts from which a node's rates are made.
pub(super) struct Parts<'a> {
    /// Units per second of each tenant from the node's own part.
    pub(super) own: &'a [f64],
    /// Units per second of each tenant that are idle and may be lent to other tenants.
    pub(super) idle: &'a [f64],
    /// Units per second of each tenant that are lent to the same tenant.
    pub(super) lent: &'a [f64],
    /// Units per second that are lent to tenants of other nodes, whose ever they are.
    pub(super) lent_to_any: f64,
    /// Units per second that are borrowed for each tenant.
    pub(super) borrowed: &'a [f64],
}

/// Returns the rates with these parts of a node that has `part` units per second of its own. The
/// sum of the tenants' rates is at most the total, and every tenant has one unit per second, unless
/// the total is less than the number of tenants.
pub(super) fn node_rates(part: f64, parts: &Parts<'_>, is_common: bool) -> NodeRates {
    let Parts { own, idle, lent, lent_to_any, borrowed } = parts;
    let lent_all = lent.iter().sum::<f64>() + lent_to_any;
    let total_per_s = (part - lent_all).max(0.0) + borrowed.iter().sum::<f64>();
    if is_common {
        return NodeRates { total_per_s, per_s: Vec::new() };
    }
    let base: Vec<f64> = own.iter().zip(*lent).map(|(own, lent)| (own - lent).max(0.0)).collect();
    let free = |(idle, lent): (&f64, &f64)| (idle - lent).max(0.0);
    let free: Vec<f64> = idle.iter().zip(*lent).map(free).collect();
    let free_all: f64 = free.iter().sum();
    // Units that are lent to any tenant are those of the tenants that are idle now.
    let taken = if free_all > 0.0 { (lent_to_any / free_all).min(1.0) } else { 0.0 };
    let rate = |((base, free), borrowed): ((&f64, &f64), &f64)| base - free * taken + borrowed;
    let per_s = base.iter().zip(&free).zip(*borrowed).map(rate).collect();
    NodeRates { total_per_s, per_s: fit(total_per_s, per_s) }
}

/// Returns rates whose sum is at most `total`: at least one unit per second each, and what exceeds
/// that in proportion to the given rates.
fn fit(total: f64, mut per_s: Vec<f64>) -> Vec<f64> {
    let count = per_s.len() as f64;
    if total <= count {
        per_s.fill(if count > 0.0 { total / count } else { 0.0 });
        return per_s;
    }
    let beyond: f64 = per_s.iter().map(|rate| (rate - 1.0).max(0.0)).sum();
    let scale = if beyond > total - count { (total - count) / beyond } else { 1.0 };
    per_s.iter_mut().for_each(|rate| *rate = 1.0 + (*rate - 1.0).max(0.0) * scale);
    per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(own: &'a [f64], lent: &'a [f64], borrowed: &'a [f64]) -> Parts<'a> {
        Parts { own, idle: own, lent, lent_to_any: 0.0, borrowed }
    }

    #[test]
    fn lent_units_are_missing_and_borrowed_units_are_added() {
        let rates = node_rates(300.0, &parts(&[100.0, 200.0], &[0.0, 150.0], &[70.0, 0.0]), false);
        assert_eq!(rates, NodeRates { total_per_s: 220.0, per_s: vec![170.0, 50.0] });
        let common = node_rates(300.0, &parts(&[300.0, 0.0], &[150.0, 0.0], &[0.0, 20.0]), true);
        assert_eq!(common, NodeRates { total_per_s: 170.0, per_s: vec![] });
    }

    #[test]
    fn units_lent_to_any_tenant_are_those_of_idle_tenants() {
        let own = [100.0, 100.0, 100.0];
        let zeros = [0.0; 3];
        let idle = [0.0, 60.0, 30.0];
        let parts = Parts { own: &own, idle: &idle, lent: &zeros, lent_to_any: 45.0, borrowed: &zeros };
        assert_eq!(node_rates(300.0, &parts, false).per_s, [100.0, 70.0, 85.0]);
        let lent = [0.0, 60.0, 0.0];
        let parts = Parts { own: &own, idle: &idle, lent: &lent, lent_to_any: 15.0, borrowed: &zeros };
        let rates = node_rates(300.0, &parts, false).per_s;
        assert_eq!(rates, [100.0, 40.0, 85.0], "what a tenant keeps is not lent to any");
    }

    #[test]
    fn rates_that_no_longer_fit_into_the_total_shrink_in_proportion_down_to_one() {
        let rates = node_rates(100.0, &parts(&[50.0, 50.0], &[80.0, 0.0], &[0.0, 0.0]), false);
        assert_eq!(rates, NodeRates { total_per_s: 20.0, per_s: vec![1.0, 19.0] });
        let few = node_rates(1.0, &parts(&[1.0, 0.0], &[0.0, 0.0], &[0.0, 0.0]), false);
        assert_eq!(few.per_s, [0.5, 0.5], "a total below the number of tenants is divided evenly");
    }
}
