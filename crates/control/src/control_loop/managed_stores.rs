//! Tests of the control loop with the lever over replicated stores.

use std::time::Duration;

use sherwood_model::{AttemptTimes, Percent, SlowCount, StoreLayout};
use sherwood_policy::slo::{Composition, Costs, StorePlan};
use sherwood_policy::stores::{Forecast, ManagerAim, ManagerOptions};

use super::tests::{acts, at, budgets, latencies, options, plan, rounds, seen};
use super::*;
use crate::StoreStanding;

const STORE: BackendId = BackendId(1);
const SLO: Slo = Slo {
    percentile: 99.0,
    bound: Duration::from_millis(15),
    window: Duration::from_secs(10),
    observe: Duration::from_secs(5),
};
/// A store of two duplicates, of which one is asked.
const ONE: StoreLayout = StoreLayout { partitions: 1, duplicates: 2, asked: 1, hedge: None };

const MANAGED: ManagerOptions = ManagerOptions {
    nodes: 2,
    accesses: 1,
    composition: Composition::Parallel,
    bound_ms: 15.0,
    level: 0.99,
    aim: ManagerAim::BestLevel,
    costs: Costs { node: 1.0, idle: 1.0 },
    gain_min: ManagerOptions::GAIN_MIN,
    move_cost: ManagerOptions::MOVE_COST,
    error_max: ManagerOptions::ERROR_MAX,
    hedged_max: 0.1,
    keeps_layout: true,
    dry_run: false,
};

/// Returns a loop with a managed store.
fn managing(options: &Options, managed: ManagerOptions, dry_run: bool) -> ControlLoop {
    let manager = Manager::new(managed, StorePlan::of_layout(&ONE)).among([(1, 1), (1, 2)]);
    let forecast = Some(Forecast { day: 1_000.0, night: 10.0 });
    let stores = Stores::new(&SLO, at(0)).with(STORE, manager, forecast, dry_run);
    rounds("robinhood", options).with_stores(stores, &SLO)
}

/// Returns a second of 200 accesses in this layout, of which `late` were not answered within the
/// bound. One of a hundred attempts stalls.
fn second(layout: StoreLayout, late: u64) -> Seen {
    let mut attempts = AttemptTimes { accesses: 200, within: 200 - late, ..AttemptTimes::default() };
    (0..198).for_each(|number| attempts.answered.record(Duration::from_micros(300 + 2 * number)));
    attempts.answered.record_times(Duration::from_millis(16), 2);
    attempts.replicas = vec![SlowCount { attempts: 100, slow: 1 }; 2];
    let seen = StoreSeen { backend: STORE, layout, is_settled: true, attempts };
    Seen { stores: Some(vec![seen]), ..Seen::default() }
}

/// Has the loop see seconds, in each of which the duplicates had as many slow attempts as each
/// other.
fn slow_together(rounds: &mut ControlLoop, seconds: std::ops::RangeInclusive<u64>) {
    for now in seconds {
        let mut seen = second(ONE, 2);
        let replicas = &mut seen.stores.as_mut().unwrap()[0].attempts.replicas;
        replicas.iter_mut().for_each(|replica| replica.slow = now % 3);
        rounds.handle_seen(at(now), seen);
        acts(rounds);
    }
}

/// Has the loop see the seconds of a window that ends at `end`. Returns the acts of that end.
fn window(rounds: &mut ControlLoop, end: u64, layout: StoreLayout, late: u64) -> Vec<Act> {
    for now in end - 9..end {
        rounds.handle_seen(at(now), second(layout, late));
        assert_eq!(acts(rounds), [], "the window goes on");
    }
    rounds.handle_seen(at(end), second(layout, late));
    acts(rounds)
}

fn said(acts: &[Act]) -> Vec<&StoreSaid> {
    acts.iter()
        .filter_map(|act| if let Act::Say(Said::Store(said)) = act { Some(said) } else { None })
        .collect()
}

/// Returns the layout in a plan of nothing else.
fn planned(acts: &[Act]) -> Option<StoreLayout> {
    let [only] = &plan(acts)?.backends[..] else { panic!("{acts:?}") };
    assert_eq!((only.backend, only.beta, only.copies), (STORE, None, None));
    only.layout
}

fn standing(rounds: &ControlLoop) -> StoreStanding {
    rounds.stores().unwrap().standings().next().unwrap()
}

#[test]
fn hedge_is_planned_at_the_end_of_a_window_and_its_effect_said_after_the_next() {
    let mut rounds = managing(&options(), MANAGED, false);
    assert_eq!((rounds.next_timeout(), rounds.needs(at(0)).stores), (at(0), true));
    rounds.handle_seen(at(0), second(ONE, 2));
    assert_eq!((rounds.needs(at(0)).stores, rounds.needs(at(1)).stores), (false, true));
    let acts = window(&mut rounds, 10, ONE, 2);
    let hedged = planned(&acts).unwrap();
    assert!(hedged.asked == 1 && hedged.hedge.is_some_and(|hedge| hedge < SLO.bound), "{hedged:?}");
    assert_eq!(budgets(&acts), Some(rounds.levels().budgets()));
    let [change] = said(&acts)[..] else { panic!("{acts:?}") };
    assert!(change.applied && change.line.contains(", one asked → "), "{}", change.line);
    assert!(change.line.contains("at 220 accesses a second 99."), "{}", change.line);
    let shown = standing(&rounds);
    assert_eq!((shown.reason, shown.measured), (Some(change.line.clone()), Some(0.99)));
    let acts = window(&mut rounds, 20, hedged, 0);
    let [effect] = said(&acts)[..] else { panic!("{acts:?}") };
    assert!(effect.line.contains("measured 100.00%, predicted 99.9"), "{}", effect.line);
    assert_eq!((planned(&acts), standing(&rounds).measured), (None, Some(1.0)));
    assert!(standing(&rounds).predicted.is_some_and(|level| level > 0.999));
}

#[test]
fn slow_attempts_are_beyond_the_bound_and_correlated_from_the_second_window_on() {
    let mut rounds = managing(&options(), MANAGED, false);
    let measure = |rounds: &ControlLoop| rounds.stores().unwrap().measures().next().unwrap();
    assert_eq!(measure(&rounds).slow_from, Duration::MAX);
    window(&mut rounds, 10, ONE, 2);
    // 95 of 100 attempts take less than a millisecond.
    assert_eq!((measure(&rounds).slow_from, measure(&rounds).bound), (SLO.bound, SLO.bound));
    slow_together(&mut rounds, 11..=60);
    assert!(standing(&rounds).correlation.is_some_and(|correlation| correlation > 0.99));
}

#[test]
fn window_of_few_accesses_goes_on() {
    let mut rounds = managing(&options(), MANAGED, false);
    for now in [0, 20, 40, 60] {
        rounds.handle_seen(at(now), second(ONE, 2));
        assert_eq!(acts(&mut rounds), []);
    }
    rounds.handle_seen(at(80), second(ONE, 2));
    assert!(said(&acts(&mut rounds))[0].line.contains("at 12 accesses a second"));
}

#[test]
fn dry_run_of_the_store_or_of_the_loop_says_a_change_once_and_plans_nothing() {
    let of_loop = Options { dry_run: true, ..options() };
    for (options, dry_run) in [(options(), true), (of_loop, false)] {
        let mut rounds = managing(&options, MANAGED, dry_run);
        let first = window(&mut rounds, 10, ONE, 2);
        let [proposal] = said(&first)[..] else { panic!("{first:?}") };
        assert!(!proposal.applied && proposal.plan.hedge_ms.is_some(), "{proposal:?}");
        assert!(proposal.line.ends_with("not made, since this is a dry run"), "{}", proposal.line);
        assert_eq!((planned(&first), window(&mut rounds, 20, ONE, 2)), (None, vec![]));
    }
}

#[test]
fn plan_stays_while_the_model_is_off_and_where_it_is_only_watched() {
    let mut rounds = managing(&options(), MANAGED, false);
    let acts = window(&mut rounds, 10, ONE, 20);
    assert!(said(&acts)[0].line.contains("measured 90.00%, predicted 98."), "{acts:?}");
    assert_eq!(planned(&acts), None);
    assert!(standing(&rounds).reason.is_some_and(|reason| reason.contains("the model is off")));
    let fixed = ManagerOptions { aim: ManagerAim::Present, ..MANAGED };
    let mut rounds = managing(&options(), fixed, false);
    assert_eq!(window(&mut rounds, 10, ONE, 2), []);
    assert_eq!(standing(&rounds).measured, Some(0.99));
}

#[test]
fn refused_layout_is_decided_again() {
    let mut rounds = managing(&options(), MANAGED, false);
    for end in [10, 20] {
        for now in end - 9..=end {
            rounds.handle_seen(at(now), second(ONE, 2));
        }
        assert!(matches!(rounds.poll_act(), Some(Act::Apply(_))));
        rounds.handle_refusal(None);
        assert_eq!(acts(&mut rounds), []);
    }
}

/// Has the guard go back while a store hedges since the second round, and is set by hand to
/// `by_hand` duplicates in the third. Returns the layouts that were put in force, by round, and the
/// last reason.
fn guarded(managed: ManagerOptions, by_hand: u8) -> (Vec<(u64, StoreLayout)>, String) {
    let guard = Some(GuardOptions { freeze: Duration::from_secs(20), ..GuardOptions::default() });
    let interval = options().delta;
    let mut rounds =
        managing(&Options { guard, tax: 0.1, rbc_window: interval, ..options() }, managed, false);
    // The first partition gives bytes away, then it misses and blocks slower requests.
    let (mut layout, mut changes) = (ONE, Vec::new());
    for round in 1..=7_u64 {
        let now = at(5 * round);
        let needs = rounds.needs(now).cache.unwrap();
        let is_slow = round > 2;
        let mut seen = seen(&rounds, now, Percent::BETA);
        let cache = seen.cache.as_mut().unwrap();
        cache.requests = vec![latencies(u16::from(!is_slow), now, if is_slow { 2 } else { 1 }, &needs)];
        let missed = 1_000 * round.saturating_sub(2);
        (cache.partitions[0].hits, cache.partitions[0].misses) = (1_000 * round - missed, missed);
        cache.partitions[1].hits = 1_000 * round;
        layout.duplicates = if round == 3 { by_hand } else { layout.duplicates };
        let mut store = second(layout, 2).stores.unwrap();
        (store[0].attempts.accesses, store[0].attempts.within) = (1_000, 990);
        rounds.handle_seen(now, Seen { stores: Some(store), ..seen });
        let acts = acts(&mut rounds);
        let backends =
            || acts.iter().filter_map(|act| if let Act::Apply(plan) = act { Some(plan) } else { None });
        if let Some(next) = backends().flat_map(|plan| &plan.backends).find_map(|plan| plan.layout) {
            layout = next;
            changes.push((round, layout));
        }
    }
    (changes, standing(&rounds).reason.unwrap())
}

#[test]
fn guard_restores_the_layout_of_the_good_allocation() {
    for keeps_layout in [true, false] {
        let (changes, reason) = guarded(ManagerOptions { keeps_layout, ..MANAGED }, 2);
        let [(2, hedged), (4, ONE)] = changes[..] else { panic!("{changes:?}") };
        assert!(hedged.hedge.is_some(), "{hedged:?}");
        assert_eq!(reason, "moves made requests slower: back to 1 partition of 2 duplicates, one asked");
    }
}

#[test]
fn guard_leaves_duplicates_that_were_set_by_hand_where_the_manager_keeps_the_layout() {
    let (changes, reason) = guarded(MANAGED, 1);
    let expected = StoreLayout { duplicates: 1, ..ONE };
    assert_eq!(changes.last(), Some(&(4, expected)), "{changes:?}");
    assert_eq!(reason, "moves made requests slower: back to 1 partition of 1 node");
}

#[test]
fn duplicates_change_where_they_may_and_windows_wait_until_the_layout_is_in_force() {
    let costs = Costs { node: 1.0, idle: 0.0 };
    let managed = ManagerOptions { aim: ManagerAim::Cheapest, costs, keeps_layout: false, ..MANAGED };
    let mut rounds = managing(&options(), managed, false);
    let quick = |layout, is_settled| {
        let mut seen = second(layout, 0);
        let store = &mut seen.stores.as_mut().unwrap()[0];
        store.attempts.answered = AttemptTimes::default().answered;
        (0..200).for_each(|number| store.attempts.answered.record(Duration::from_micros(300 + number)));
        store.is_settled = is_settled;
        seen
    };
    (0..10).for_each(|now| rounds.handle_seen(at(now), quick(ONE, true)));
    rounds.handle_seen(at(10), quick(ONE, true));
    let change = acts(&mut rounds);
    let single = StoreLayout { duplicates: 1, ..ONE };
    assert_eq!(planned(&change), Some(single));
    let line = &said(&change)[0].line;
    assert!(
        line.starts_with("1 partition of 2 duplicates, one asked → 1 partition of 1 node: at "),
        "{line}"
    );
    for now in 11..40 {
        rounds.handle_seen(at(now), quick(single, false));
        assert_eq!(acts(&mut rounds), [], "duplicates are on their way");
    }
    for now in 40..49 {
        rounds.handle_seen(at(now), quick(single, true));
        assert_eq!(acts(&mut rounds), [], "the window goes on");
    }
    rounds.handle_seen(at(49), quick(single, true));
    let effect = acts(&mut rounds);
    assert!(said(&effect)[0].line.starts_with("1 partition of 1 node: measured 100.00%"), "{effect:?}");
}

#[test]
fn window_goes_on_where_no_layout_was_changed_and_a_server_is_out_since_the_start() {
    let mut rounds = managing(&options(), MANAGED, false);
    for now in 0..=10 {
        let mut seen = second(ONE, 2);
        seen.stores.as_mut().unwrap()[0].is_settled = false;
        rounds.handle_seen(at(now), seen);
    }
    assert!(planned(&acts(&mut rounds)).is_some());
}

#[test]
fn slow_periods_begin_anew_after_a_change_of_duplicates() {
    let mut rounds = managing(&options(), MANAGED, false);
    slow_together(&mut rounds, 0..=60);
    assert!(standing(&rounds).correlation.is_some());
    rounds.handle_seen(at(61), second(StoreLayout { duplicates: 1, ..ONE }, 2));
    assert_eq!(standing(&rounds).correlation, None);
}
