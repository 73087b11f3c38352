//! This node's part while processes start and nodes change.

use super::*;

/// A node beside another one, `b`, which the test plays.
struct Node(PeerRates);

impl Node {
    fn start(now: Instant, weights: &[(&str, f64)]) -> Self {
        Self(PeerRates::new(now, options("a", nodes(weights), 1)))
    }

    /// Wakes the node every 50 ms until a time. While `b` answers, it states this part of `a`.
    fn run(&mut self, from: Instant, until: Instant, part: Option<f64>) {
        let mut now = from;
        while now < until {
            now += ms(50);
            self.0.handle_timeout(now);
            let (asks, _) = sent(&mut self.0);
            let Some(per_s) = part else { continue };
            for RateAsk { incarnation, stamp, .. } in asks {
                let parts = Some(vec![RatePart { resource: READS, per_s }]);
                self.0.handle_grant(now, "b", &RateGrant { incarnation, stamp, parts, loans: Vec::new() });
            }
        }
    }

    fn level(&self) -> f64 {
        self.0.rates(at(0), READS).without_loans.total_per_s
    }
}

#[test]
fn new_process_has_no_rates_until_loans_of_an_earlier_one_have_ended() {
    let mut node = Node::start(at(1_000), &[("a", 1.0), ("b", 2.0)]);
    node.run(at(1_000), at(1_500), Some(1_000.0));
    assert_eq!(node.level(), 0.0);
    node.run(at(1_500), at(1_600), Some(1_000.0));
    assert_eq!(node.level(), 1_000.0);
}

#[test]
fn new_process_waits_two_seconds_for_a_node_that_is_silent() {
    let mut node = Node::start(at(1_000), &[("a", 1.0), ("b", 2.0)]);
    node.run(at(1_000), at(2_950), None);
    assert_eq!(node.level(), 0.0);
    node.run(at(2_950), at(3_100), None);
    assert_eq!(node.level(), 1_000.0);
    // A node that is alive and has not settled is waited for.
    let mut node = Node::start(at(1_000), &[("a", 1.0), ("b", 2.0)]);
    for millis in (1_000..9_000).step_by(500) {
        let ask = RateAsk { incarnation: 7, stamp: at(millis), wants: Vec::new() };
        node.0.handle_ask(at(millis), "b", &ask);
        let (_, grants) = sent(&mut node.0);
        assert!(grants.iter().all(|grant| grant.parts.is_some() == (millis > 1_500)), "{grants:?}");
        node.run(at(millis), at(millis + 500), None);
    }
    assert_eq!(node.level(), 0.0);
}

#[test]
fn smaller_part_is_in_force_at_once_and_a_larger_one_when_the_others_know() {
    let mut node = Node::start(at(1_000), &[("a", 1.0), ("b", 2.0)]);
    node.run(at(1_000), at(2_000), Some(1_000.0));
    node.0.set_nodes(at(2_000), nodes(&[("a", 1.0), ("b", 4.0)]));
    assert_eq!(node.level(), 600.0);
    // The other node still has the former weights, then those after the next change.
    node.0.set_nodes(at(3_000), nodes(&[("a", 1.0), ("b", 1.0)]));
    node.run(at(3_000), at(4_000), Some(600.0));
    assert_eq!(node.level(), 600.0);
    node.run(at(4_000), at(5_000), Some(1_500.0));
    assert_eq!(node.level(), 1_500.0);
    // A node that does not answer may have the former configuration for a minute.
    node.0.set_nodes(at(6_000), nodes(&[("a", 2.0), ("b", 1.0)]));
    node.run(at(6_000), at(65_950), None);
    assert_eq!(node.level(), 1_500.0);
    node.run(at(65_950), at(66_100), None);
    assert_eq!(node.level(), 2_000.0);
}

#[test]
fn answer_from_before_a_change_is_none_to_it() {
    let mut node = Node::start(at(1_000), &[("a", 1.0), ("b", 2.0)]);
    node.run(at(1_000), at(2_000), Some(1_000.0));
    node.0.set_nodes(at(2_000), nodes(&[("a", 2.0), ("b", 1.0)]));
    let parts = Some(vec![RatePart { resource: READS, per_s: 2_000.0 }]);
    let grant = RateGrant { incarnation: 1, stamp: at(2_000), parts, loans: Vec::new() };
    node.0.handle_grant(at(2_010), "b", &grant);
    assert_eq!(node.level(), 1_000.0);
    node.0.handle_grant(at(2_020), "b", &RateGrant { stamp: at(2_001), ..grant.clone() });
    assert_eq!(node.level(), 2_000.0);
    // One to another process of this node, or of a node that is not configured.
    node.0.set_nodes(at(3_000), nodes(&[("a", 3.0), ("b", 1.0)]));
    node.0.handle_grant(at(3_010), "b", &RateGrant { stamp: at(3_005), incarnation: 2, ..grant.clone() });
    node.0.handle_grant(at(3_010), "c", &RateGrant { stamp: at(3_005), ..grant });
    assert_eq!(node.level(), 2_000.0);
}

#[test]
fn node_that_is_not_configured_is_told_that_it_has_no_part() {
    let mut node = Node::start(at(1_000), &[("a", 1.0), ("b", 2.0)]);
    node.run(at(1_000), at(2_000), Some(1_000.0));
    let want = RateAmount { resource: READS, tenant: T0, per_s: 10.0 };
    node.0.handle_ask(at(2_000), "x", &RateAsk { incarnation: 1, stamp: at(5), wants: vec![want] });
    let (_, grants) = sent(&mut node.0);
    let parts = Some(vec![RatePart { resource: READS, per_s: 0.0 }]);
    assert_eq!(grants, [RateGrant { incarnation: 1, stamp: at(5), parts, loans: Vec::new() }]);
    // And one that is configured, its part; at most 20 times a second.
    for millis in [2_010, 2_040, 2_060] {
        node.0.handle_ask(at(millis), "b", &RateAsk { incarnation: 1, stamp: at(millis), wants: vec![] });
    }
    let (_, grants) = sent(&mut node.0);
    let stamps: Vec<Instant> = grants.iter().map(|grant| grant.stamp).collect();
    assert_eq!(stamps, [at(2_010), at(2_060)]);
    assert_eq!(grants[0].parts, Some(vec![RatePart { resource: READS, per_s: 2_000.0 }]));
}
