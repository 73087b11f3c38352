use super::*;
use crate::slo::{Composition, Costs};

/// Service times of 1 to 3 ms, with a stall in one of a hundred accesses.
fn times() -> ServiceTimes {
    ServiceTimes::new(vec![(1.0, 0.0), (3.0, 0.99), (100.0, 0.99), (300.0, 1.0)]).unwrap()
}

const OPTIONS: ManagerOptions = ManagerOptions {
    nodes: 8,
    accesses: 1,
    composition: Composition::Parallel,
    bound_ms: 15.0,
    level: 0.99,
    aim: ManagerAim::BestLevel,
    costs: Costs { node: 1.0, idle: 0.0 },
    gain_min: ManagerOptions::GAIN_MIN,
    move_cost: ManagerOptions::MOVE_COST,
    error_max: ManagerOptions::ERROR_MAX,
    hedged_max: 1.0,
    keeps_layout: false,
    dry_run: false,
};

/// Accesses a second at which eight nodes are hardly busy, at which they are busy for a fifth of
/// the time, so that hedges are a reserve, and at which they are nearly half busy.
const LIGHT: f64 = 20.0;
const MEDIUM: f64 = 400.0;
const HEAVY: f64 = 800.0;

fn divided() -> StorePlan {
    StorePlan::all_asked(8, 1)
}

#[test]
fn plan_changes_for_a_gain_that_the_sentence_names() {
    let mut manager = Manager::new(OPTIONS, divided());
    let decision = manager.decide(&times(), LIGHT, None);
    assert!(decision.is_change && decision.plan.duplicates > 1, "{decision:?}");
    let reason = &decision.reason;
    assert!(reason.starts_with("8 partitions of 1 node → "), "{reason}");
    assert!(reason.contains("at 20 accesses a second 99."), "{reason}");
    assert!(reason.contains("expected within 15 ms in place of 98."), "{reason}");
    assert!(reason.contains("of the data move"), "{reason}");
    assert_eq!(manager.plan(), &decision.plan);
}

#[test]
fn plan_stays_while_the_gain_is_small() {
    let mut manager = Manager::new(OPTIONS, divided());
    let plan = manager.decide(&times(), LIGHT, None).plan;
    let again = manager.decide(&times(), LIGHT * 1.1, None);
    assert_eq!((again.is_change, again.plan), (false, plan));
    assert!(again.reason.contains("stay"), "{}", again.reason);
    let mut reluctant = Manager::new(ManagerOptions { gain_min: 0.5, ..OPTIONS }, divided());
    assert!(!reluctant.decide(&times(), LIGHT, None).is_change);
}

#[test]
fn data_that_cost_more_than_their_move_gains_stay() {
    let four = StorePlan::all_asked(4, 2);
    let mut manager = Manager::new(ManagerOptions { move_cost: 10.0, ..OPTIONS }, four);
    let by_day = manager.decide(&times(), HEAVY, None);
    assert!(by_day.is_change && by_day.plan.asked == 1, "{by_day:?}");
    assert!(is_same_layout(&by_day.plan, &four) || moved_ratio(&four, &by_day.plan) == 0.0, "{by_day:?}");
}

#[test]
fn gain_at_the_forecast_rate_counts_as_much_as_the_present_one() {
    let decide = |forecast| {
        let options = ManagerOptions { gain_min: 0.02, ..OPTIONS };
        Manager::new(options, divided()).decide(&times(), LIGHT, forecast)
    };
    assert!(!decide(None).is_change, "duplicates gain one point");
    assert!(!decide(Some(LIGHT)).is_change);
    assert!(decide(Some(MEDIUM)).is_change, "a node that stalls holds up many accesses");
}

#[test]
fn measured_effect_of_a_change_is_said_once() {
    let mut manager = Manager::new(OPTIONS, divided());
    assert_eq!(manager.handle_measured(0.5), None, "nothing was predicted");
    let predicted = manager.decide(&times(), LIGHT, None).predicted;
    let effect = manager.handle_measured(predicted - 0.001).expect("the effect of the change");
    assert!(effect.contains("measured 99.") && effect.contains("predicted 99."), "{effect}");
    assert_eq!(manager.handle_measured(predicted), None);
}

#[test]
fn nothing_changes_while_predicted_and_measured_level_differ() {
    let options = ManagerOptions { gain_min: 0.02, ..OPTIONS };
    let mut manager = Manager::new(options, StorePlan::all_asked(4, 2));
    let first = manager.decide(&times(), LIGHT, None);
    assert!(!first.is_change, "{first:?}");
    let off = manager.handle_measured(first.predicted - 0.03).expect("changes are held back");
    assert!(manager.is_frozen() && off.contains("the plan stays"), "{off}");
    let kept = manager.decide(&times(), HEAVY, None);
    assert!(!kept.is_change && kept.reason.contains("the model is off: measured 9"), "{kept:?}");
    assert!(!manager.decide(&times(), HEAVY, None).is_change, "nothing was measured since");
    // The prediction for the new rate is right.
    let right = manager.handle_measured(kept.predicted).expect("changes are possible");
    assert!(!manager.is_frozen() && right.contains("may change again"), "{right}");
    assert!(manager.decide(&times(), HEAVY, None).is_change);
}

#[test]
fn dry_run_says_the_change_and_keeps_the_plan() {
    let mut manager = Manager::new(ManagerOptions { dry_run: true, ..OPTIONS }, divided());
    let decision = manager.decide(&times(), LIGHT, None);
    assert_eq!((decision.is_change, decision.plan), (false, divided()));
    let made = Manager::new(OPTIONS, divided()).decide(&times(), LIGHT, None);
    assert_eq!(decision.proposed, made.plan);
    assert!(decision.reason.contains("→") && decision.reason.ends_with("a dry run"), "{}", decision.reason);
}

#[test]
fn cheapest_plan_meets_the_level_with_fewer_nodes() {
    let options = ManagerOptions { aim: ManagerAim::Cheapest, ..OPTIONS };
    let mut manager = Manager::new(options, divided());
    let decision = manager.decide(&times(), LIGHT, None);
    assert!(decision.is_change && decision.plan.nodes() == 2, "{decision:?}");
    assert!(decision.predicted >= OPTIONS.level);
    // No plan reaches a level of one, and the best one is as good as it gets.
    let mut never = Manager::new(ManagerOptions { level: 1.0, ..options }, divided());
    let best = Manager::new(OPTIONS, divided()).decide(&times(), HEAVY, None).predicted;
    assert!((never.decide(&times(), HEAVY, None).predicted - best).abs() < 2.0 * OPTIONS.gain_min);
}

#[test]
fn only_the_way_to_ask_changes_where_the_layout_stays() {
    let options = ManagerOptions { keeps_layout: true, ..OPTIONS };
    let one_asked = StorePlan { asked: 1, ..StorePlan::all_asked(4, 2) };
    let best = Manager::new(options, one_asked).decide(&times(), LIGHT, None);
    assert!(best.is_change && is_same_layout(&best.plan, &one_asked), "{best:?}");
    assert!(best.plan.hedge_ms.is_some(), "a hedge makes less load than two copies: {best:?}");
    let unpaid = ManagerOptions { hedged_max: 0.0, ..options };
    let all = Manager::new(unpaid, one_asked).decide(&times(), LIGHT, None);
    assert_eq!(all.plan, StorePlan::all_asked(4, 2), "no access may have a hedge");
    // Three of a hundred accesses may be late: one duplicate suffices.
    let cheap = ManagerOptions { aim: ManagerAim::Cheapest, level: 0.97, ..options };
    let cheapest = Manager::new(cheap, StorePlan::all_asked(4, 2)).decide(&times(), LIGHT, None);
    assert_eq!(cheapest.plan, one_asked, "{cheapest:?}");
    let close = ManagerOptions { level: 0.988, ..cheap };
    let stays = Manager::new(close, StorePlan::all_asked(4, 2)).decide(&times(), LIGHT, None);
    assert!(!stays.is_change || stays.plan.hedge_ms.is_some(), "one has nothing to spare: {stays:?}");
}

#[test]
fn configured_plan_is_only_watched() {
    let mut manager = Manager::new(ManagerOptions { aim: ManagerAim::Present, ..OPTIONS }, divided());
    let decision = manager.decide(&times(), LIGHT, None);
    assert_eq!((decision.is_change, decision.proposed), (false, divided()));
    assert!(decision.reason.ends_with("expected: it is as configured"), "{}", decision.reason);
}

#[test]
fn window_is_compared_with_the_prediction_for_its_own_rate() {
    let mut manager = Manager::new(OPTIONS, StorePlan::all_asked(1, 2));
    let predicted = manager.decide(&times(), LIGHT, None).predicted;
    manager.adopt(StorePlan::all_asked(1, 1));
    assert!(manager.handle_window(&times(), HEAVY, predicted).is_some_and(|said| said.contains("stays")));
    assert!(manager.is_frozen() && manager.predicted() == Some(0.0), "one node cannot follow");
}

#[test]
fn hedge_that_may_overload_the_other_duplicates_is_neither_chosen_nor_kept() {
    let hedged = StorePlan { asked: 1, hedge_ms: Some(3.0), ..StorePlan::all_asked(4, 2) };
    let mut manager = Manager::new(OPTIONS, hedged);
    let light = manager.decide(&times(), LIGHT, None);
    assert!(!light.is_change, "{light:?}");
    let heavy = manager.decide(&times(), HEAVY, None);
    assert!(heavy.is_change && heavy.plan.hedge_ms.is_none(), "{heavy:?}");
    assert!(heavy.reason.contains(", which is in doubt: nodes are busy for 0."), "{}", heavy.reason);
}

/// Returns a manager that has changed the plan after a window whose level is as predicted, and that
/// level.
fn changed(options: ManagerOptions) -> (Manager, f64) {
    let mut manager = Manager::new(options, divided());
    let before = predict(&times(), &options.objective(LIGHT), &divided()).service_level;
    assert_eq!(manager.handle_window(&times(), LIGHT, before), None);
    assert!(manager.decide(&times(), LIGHT, None).is_change);
    (manager, before)
}

#[test]
fn change_that_makes_requests_late_is_taken_back_and_not_made_again_soon() {
    let options = ManagerOptions { gain_min: 0.005, ..OPTIONS };
    let (mut manager, before) = changed(options);
    let refuted = *manager.plan();
    manager.handle_measured(before - 0.1);
    let back = manager.decide(&times(), LIGHT, None);
    assert_eq!((back.is_change, back.plan, manager.plan()), (true, divided(), &divided()), "{back:?}");
    let expected = "8 partitions of 1 node: back, since 8";
    assert!(back.reason.contains(expected) && back.reason.contains("% before it"), "{}", back.reason);
    assert!(manager.is_frozen() && !manager.decide(&times(), LIGHT, None).is_change);
    let is_same = |plan: StorePlan| {
        is_same_layout(&plan, &refuted) && plan.hedge_ms.is_some() == refuted.hedge_ms.is_some()
    };
    manager.handle_measured(back.predicted);
    assert!(!is_same(manager.clone().decide(&times(), LIGHT, None).plan));
    (0..60).for_each(|_| drop(manager.handle_measured(back.predicted)));
    assert!(is_same(manager.decide(&times(), LIGHT, None).plan), "it may be right now");
}

#[test]
fn change_stays_where_requests_are_no_later_than_before_or_others_have_changed_the_plan() {
    let options = ManagerOptions { gain_min: 0.005, error_max: 0.001, ..OPTIONS };
    let (mut better, before) = changed(options);
    let plan = *better.plan();
    better.handle_measured(before + 0.001);
    assert!(better.is_frozen());
    assert_eq!(better.decide(&times(), LIGHT, None).plan, plan);
    let (mut by_hand, _) = changed(options);
    let other = StorePlan::all_asked(1, 8);
    by_hand.adopt(other);
    by_hand.handle_measured(0.1);
    assert_eq!(by_hand.decide(&times(), LIGHT, None).plan, other);
    let (mut dry, _) = changed(options);
    dry.set_dry_run(true);
    dry.handle_measured(0.1);
    assert_eq!(dry.decide(&times(), LIGHT, None).plan, plan);
}

#[test]
fn layout_is_chosen_among_the_possible_ones() {
    let two = StorePlan::all_asked(2, 2);
    let decide = |options, rate| {
        let possible = [(2, 1), (2, 2), (1, 4)];
        Manager::new(ManagerOptions { nodes: 4, ..options }, two).among(possible).decide(&times(), rate, None)
    };
    // Ten of a hundred accesses may be late: two duplicates are one too many.
    let cheapest = ManagerOptions { aim: ManagerAim::Cheapest, level: 0.9, ..OPTIONS };
    let fewer = decide(cheapest, LIGHT);
    assert_eq!((fewer.is_change, fewer.plan), (true, StorePlan::all_asked(2, 1)), "{fewer:?}");
    assert!(!fewer.reason.contains("of the data move"), "{}", fewer.reason);
    let rare = ServiceTimes::new(vec![(1.0, 0.0), (3.0, 0.9), (100.0, 0.9), (300.0, 1.0)]).unwrap();
    let possible = [(2, 1), (2, 2), (1, 4)];
    let options = ManagerOptions { nodes: 4, ..OPTIONS };
    let more = Manager::new(options, two).among(possible).decide(&rare, 1.0, None);
    assert_eq!((more.plan.partitions, more.plan.duplicates), (1, 4), "{more:?}");
    assert!(more.reason.ends_with("; 50% of the data move"), "{}", more.reason);
    let few = ManagerOptions { nodes: 2, ..OPTIONS };
    let on_two = Manager::new(few, two).among(possible).decide(&rare, 1.0, None);
    assert_eq!((on_two.is_change, on_two.plan.nodes()), (true, 2), "{on_two:?}");
    let kept = ManagerOptions { keeps_layout: true, ..cheapest };
    assert!(is_same_layout(&decide(kept, LIGHT).plan, &two));
}

#[test]
fn fewer_nodes_are_chosen_only_with_a_margin_to_the_level() {
    let options = ManagerOptions { nodes: 4, aim: ManagerAim::Cheapest, ..OPTIONS };
    let two = StorePlan { asked: 1, hedge_ms: Some(3.5), ..StorePlan::all_asked(2, 2) };
    let single = predict(&times(), &options.objective(LIGHT), &StorePlan::all_asked(2, 1)).service_level;
    let decide = |level| {
        let manager = Manager::new(ManagerOptions { level, ..options }, two);
        manager.among([(2, 1), (2, 2)]).decide(&times(), LIGHT, None)
    };
    let barely = decide(single - 0.001);
    assert_eq!(barely.plan.duplicates, 2, "{barely:?}");
    assert_eq!(decide(2.0 * single - 1.0 - 0.001).plan.duplicates, 1);
}
