//! Loans of one node to others that ask for them.

use super::*;
use crate::NodeRates;

const T1: TenantId = TenantId(1);

/// A node with half of the total, whose tenants are idle, beside `b` and `c`.
fn idle_node(lends: bool) -> PeerRates {
    let all = nodes(&[("a", 2.0), ("b", 1.0), ("c", 1.0)]);
    let options = PeerRateOptions { lends, totals: vec![6_400.0], ..options("a", all, 2) };
    let mut node = PeerRates::new(at(1_000), options);
    for millis in (1_000..=4_000).step_by(100) {
        node.handle_use(at(millis), READS, &[TenantUse::default(); 2]);
        node.handle_timeout(at(millis));
    }
    sent(&mut node);
    node
}

fn want(tenant: TenantId, per_s: f64) -> RateAmount {
    RateAmount { resource: READS, tenant, per_s }
}

/// Has another node ask for rates; returns those that it gets.
fn ask(node: &mut PeerRates, millis: u64, from: &str, wants: &[RateAmount]) -> Vec<f64> {
    let ask = RateAsk { incarnation: 1, stamp: at(millis), wants: wants.to_vec() };
    node.handle_ask(at(millis), from, &ask);
    let (_, grants) = sent(node);
    grants[0].loans.iter().map(|loan| loan.per_s).collect()
}

fn in_force(node: &PeerRates, millis: u64) -> (f64, Vec<f64>) {
    let NodeRates { total_per_s, per_s } = node.rates(at(millis), READS).rates;
    (total_per_s, per_s)
}

#[test]
fn rates_are_lowered_before_the_answer_and_until_the_lenders_end() {
    let mut node = idle_node(false);
    let ask = RateAsk { incarnation: 9, stamp: at(70), wants: vec![want(T0, 600.0)] };
    node.handle_ask(at(4_100), "b", &ask);
    let Some(RateAction::SetRates(READS, set)) = node.poll_action() else { panic!("rates come first") };
    assert_eq!(set.rates, NodeRates { total_per_s: 2_600.0, per_s: vec![1_000.0, 1_600.0] });
    let Some(RateAction::Grant(to, grant)) = node.poll_action() else { panic!("an answer") };
    assert_eq!((&*to, grant.incarnation, grant.stamp), ("b", 9, at(70)));
    assert_eq!(grant.loans, [want(T0, 600.0)]);
    let loans: Vec<_> = node.lent(at(4_600)).collect();
    assert_eq!(loans, [PeerLoan { node: "b".into(), amount: want(T0, 600.0) }]);
    assert_eq!((in_force(&node, 4_615).0, in_force(&node, 4_616).0), (2_600.0, 3_200.0));
}

#[test]
fn units_go_to_the_same_tenant_first_and_with_lending_to_any() {
    let mut node = idle_node(false);
    assert_eq!(ask(&mut node, 4_100, "b", &[want(T0, 1e6)]), [1_500.0], "a sixteenth stays");
    assert_eq!(in_force(&node, 4_100), (1_700.0, vec![100.0, 1_600.0]));
    let mut node = idle_node(true);
    assert_eq!(ask(&mut node, 4_100, "b", &[want(T0, 1e6)]), [3_000.0]);
    assert_eq!(in_force(&node, 4_100), (200.0, vec![100.0, 100.0]));
    // The other tenant asks at another node, and has its own units as soon as they are back.
    assert_eq!(ask(&mut node, 4_150, "c", &[want(T1, 1e6)]), [0.0]);
    assert_eq!(ask(&mut node, 4_200, "b", &[want(T0, 1e6)]), [1_500.0]);
    assert_eq!(ask(&mut node, 4_700, "c", &[want(T1, 1e6)]), [1_500.0]);
}

#[test]
fn nodes_that_want_too_much_get_the_same() {
    let mut node = idle_node(false);
    assert_eq!(ask(&mut node, 4_100, "b", &[want(T0, 1e6)]), [1_500.0]);
    assert_eq!(ask(&mut node, 4_200, "c", &[want(T0, 1e6)]), [0.0]);
    assert_eq!(ask(&mut node, 4_300, "b", &[want(T0, 1e6)]), [750.0]);
    assert_eq!(ask(&mut node, 4_650, "c", &[want(T0, 1e6)]), [750.0]);
    assert_eq!(ask(&mut node, 4_700, "b", &[want(T0, 100.0)]), [100.0]);
    assert_eq!(ask(&mut node, 5_190, "c", &[want(T0, 1e6)]), [1_400.0], "the first wants less");
}

#[test]
fn busy_tenant_lends_nothing_and_takes_back_what_it_has_lent() {
    let mut node = idle_node(false);
    ask(&mut node, 4_100, "b", &[want(T0, 1_000.0)]);
    let waits = TenantUse { waiting: 1, ..TenantUse::default() };
    node.handle_use(at(4_100), READS, &[waits, TenantUse::default()]);
    assert_eq!(ask(&mut node, 4_200, "b", &[want(T0, 1_000.0), want(T1, 200.0)]), [0.0, 200.0]);
    assert_eq!(in_force(&node, 4_620).1, [1_600.0, 1_400.0]);
    // One that refuses work instead of having it wait is busy as well.
    let refused = TenantUse { refused: 3, ..TenantUse::default() };
    node.handle_use(at(4_700), READS, &[TenantUse::default(), refused]);
    assert_eq!(ask(&mut node, 4_750, "b", &[want(T1, 200.0)]), [0.0]);
}

#[test]
fn common_rate_is_lent_and_borrowed_as_that_of_the_first_tenant() {
    let mut node = idle_node(false);
    let plan = Rates::zero(2, 1).into_common();
    node.set_plan(at(4_050), &plan);
    node.handle_use(at(4_100), READS, &[TenantUse::default(); 2]);
    assert_eq!(ask(&mut node, 4_100, "b", &[want(T0, 1_000.0)]), [1_000.0]);
    assert_eq!(in_force(&node, 4_100), (2_200.0, Vec::new()));
    // The second tenant waits, which both share the rate with.
    let waits = TenantUse { waiting: 1, own_units: 80.0, ..TenantUse::default() };
    node.handle_use(at(4_200), READS, &[TenantUse::default(), waits]);
    node.handle_timeout(at(4_200));
    let (asks, _) = sent(&mut node);
    assert_eq!(asks[0].wants, [want(T0, 400.0)], "800 a second more, half of each other node");
    let (incarnation, stamp) = (asks[0].incarnation, asks[0].stamp);
    let grant = RateGrant { incarnation, stamp, parts: None, loans: asks[0].wants.clone() };
    node.handle_grant(at(4_210), "c", &grant);
    assert_eq!(in_force(&node, 4_615), (2_600.0, Vec::new()));
    assert_eq!(in_force(&node, 4_616), (3_600.0, Vec::new()), "lent units are back");
    assert_eq!(in_force(&node, 4_700), (3_200.0, Vec::new()), "borrowed units have gone");
}

#[test]
fn tenants_divide_the_part_as_the_plan_does() {
    let mut node = idle_node(true);
    let mut plan = Rates::zero(2, 1);
    (plan.row_mut(T0)[0], plan.row_mut(T1)[0]) = (100.0, 300.0);
    node.set_plan(at(4_050), &plan);
    assert_eq!(in_force(&node, 4_050), (3_200.0, vec![800.0, 2_400.0]));
}

#[test]
fn invalid_and_unknown_rates_of_messages_are_ignored() {
    let mut node = idle_node(true);
    let wants = [
        want(T0, f64::NAN),
        want(T0, f64::INFINITY),
        want(T0, -1.0),
        want(TenantId(2), 5.0),
        RateAmount { resource: ResourceId(7), tenant: T0, per_s: 5.0 },
    ];
    assert!(ask(&mut node, 4_100, "b", &wants).is_empty());
    let many = vec![want(T0, 1.0); 1_000];
    assert_eq!(ask(&mut node, 4_200, "b", &many).len(), 256);
    // Loans that were not asked for.
    let parts = Some(vec![RatePart { resource: ResourceId(7), per_s: f64::NAN }]);
    let grant = RateGrant { incarnation: 1, stamp: at(4_300), parts, loans: wants.to_vec() };
    node.handle_grant(at(4_310), "b", &grant);
    node.handle_grant(at(4_310), "b", &RateGrant { loans: vec![want(T0, 50.0)], ..grant });
    assert_eq!(node.borrowed(at(4_310)).count(), 0);
    assert_eq!(in_force(&node, 5_000).0, 3_200.0);
}
