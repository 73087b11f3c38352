//! Tests of the control loop with the lever over copies.

use std::time::Duration;

use sherwood_model::{BackendPlan, Copies, Percent};
use sherwood_policy::replication::{
    ReplicationOptions, ReplicationPolicy, ReplicationState, Replicator, TierOptions, TierSeen,
};

use super::tests::{TOTAL, acts, at, budgets, latencies, options, plan, rounds, seen};
use super::*;
use crate::CopiesDecision;

const PAGES: BackendId = BackendId(1);
const QUERIES: BackendId = BackendId(0);

/// Returns a loop with windows of 7 s, whose tiers are the second and the first backend.
fn replicating(options: &Options) -> ControlLoop {
    let tier = |name: &str| TierOptions { name: name.to_owned(), cores: 2, factor: 1 };
    let tiers = vec![tier("pages"), tier("queries")];
    let window = Duration::from_secs(7);
    let replication =
        ReplicationOptions { policy: ReplicationPolicy::Spare, tiers, window, ..Default::default() };
    let lever = Replication::new(Replicator::new(replication), vec![PAGES, QUERIES], at(0));
    rounds("robinhood", options).with_replication(lever)
}

/// Returns a window in which queries varied most and pages took `ms` milliseconds.
fn window(ms: u64) -> Seen {
    let tier = |variability| TierSeen {
        servers: 12,
        cores: 2,
        requests: 1_000,
        mean: Duration::from_millis(ms),
        p99: variability * Duration::from_millis(ms),
        ..TierSeen::default()
    };
    let seen = |backend, variability| ReplicationSeen { backend, tier: tier(variability) };
    Seen { replication: Some(vec![seen(QUERIES, 9), seen(PAGES, 2)]), ..Seen::default() }
}

fn said(acts: &[Act]) -> Option<&CopiesDecision> {
    acts.iter().find_map(|act| if let Act::Say(Said::Copies(said)) = act { Some(said) } else { None })
}

/// Returns the copies of pages and queries in a plan of nothing else.
fn planned(acts: &[Act]) -> Option<[u8; 2]> {
    let copies = |backend, plan: &BackendPlan| {
        assert_eq!((plan.backend, plan.beta), (backend, None));
        plan.copies.map(|Copies { factor }| factor)
    };
    let [pages, queries] = &plan(acts)?.backends[..] else { panic!("{acts:?}") };
    Some([copies(PAGES, pages)?, copies(QUERIES, queries)?])
}

#[test]
fn first_copies_are_planned_at_once_and_a_trial_after_each_window() {
    let mut rounds = replicating(&options());
    assert_eq!((rounds.next_timeout(), rounds.needs(at(0)).replication), (at(0), Some(at(0))));
    rounds.handle_seen(at(1), window(100));
    assert_eq!(planned(&acts(&mut rounds)), Some([1, 1]));
    assert_eq!((rounds.next_timeout(), rounds.needs(at(7)).replication), (at(5), None), "levels first");
    rounds.handle_seen(at(7), window(100));
    assert_eq!(acts(&mut rounds), [], "not due");
    assert_eq!(rounds.needs(at(8)).replication, Some(at(1)));
    rounds.handle_seen(at(8), window(100));
    let acts = acts(&mut rounds);
    assert_eq!((planned(&acts), budgets(&acts)), (Some([1, 2]), Some(vec![TOTAL / 2; 2])));
    let said = said(&acts).unwrap();
    assert_eq!((&said.backends[..], said.applied), (&[PAGES, QUERIES][..], true));
    assert_eq!(said.outcome.reason, "P99 of pages is 200 ms with one copy; next try: queries: 1 → 2 copies");
    assert_eq!(rounds.replication().unwrap().replicator().outcome(), said.outcome);
    assert_eq!(rounds.needs(at(15)).replication, Some(at(8)), "a new window");
}

#[test]
fn window_without_all_tiers_goes_on_and_settled_copies_are_not_planned_again() {
    let mut rounds = replicating(&options());
    rounds.handle_seen(at(0), window(100));
    acts(&mut rounds);
    let mut part = window(100);
    part.replication.iter_mut().for_each(|seen| seen.truncate(1));
    rounds.handle_seen(at(7), part);
    assert_eq!((acts(&mut rounds), rounds.needs(at(14)).replication), (vec![], Some(at(0))));
    let mut last = None;
    for number in 2..20 {
        rounds.handle_seen(at(7 * number), window(100));
        last = said(&acts(&mut rounds)).cloned().or(last);
    }
    assert_eq!(last.unwrap().outcome.state, ReplicationState::Settled, "nothing improves");
}

#[test]
fn dry_run_reports_the_first_trial_without_applying_it() {
    let mut rounds = replicating(&Options { dry_run: true, ..options() });
    for number in 0..3 {
        rounds.handle_seen(at(7 * number), window(100));
        let acts = acts(&mut rounds);
        let said = said(&acts).unwrap();
        assert_eq!((plan(&acts), &said.outcome.factors[..], said.applied), (None, &[1, 2][..], false));
    }
    let replicator = rounds.replication().unwrap().replicator();
    assert_eq!((replicator.factors(), replicator.standings().len()), (&[1, 1][..], 2));
}

#[test]
fn refused_copies_are_not_reported_and_those_in_force_are_measured_again() {
    let mut rounds = replicating(&options());
    for number in 0..2 {
        rounds.handle_seen(at(7 * number), window(100));
        assert!(matches!(rounds.poll_act(), Some(Act::Apply(_))));
        rounds.handle_refusal(None);
        assert_eq!(acts(&mut rounds), []);
    }
    rounds.handle_seen(at(14), window(100));
    assert_eq!(planned(&acts(&mut rounds)), Some([1, 1]), "the first copies");
    rounds.handle_seen(at(21), window(100));
    assert!(matches!(rounds.poll_act(), Some(Act::Apply(_))));
    rounds.handle_refusal(None);
    assert_eq!(rounds.needs(at(28)).replication, Some(at(21)));
    rounds.handle_seen(at(28), window(100));
    assert_eq!(planned(&acts(&mut rounds)), Some([1, 2]), "the trial that was refused");
}

#[test]
fn guard_restores_the_copies_of_the_good_allocation_and_freezes_them() {
    let guard = Some(GuardOptions { freeze: Duration::from_secs(20), ..GuardOptions::default() });
    let interval = options().delta;
    let mut rounds = replicating(&Options { guard, tax: 0.1, rbc_window: interval, ..options() });
    rounds.handle_seen(at(0), window(100));
    acts(&mut rounds);
    // The first partition gives bytes away, then it misses and blocks slower requests.
    let mut copies = Vec::new();
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
        rounds.handle_seen(now, Seen { replication: window(100).replication, ..seen });
        let acts = acts(&mut rounds);
        copies.extend(said(&acts).map(|said| (round, said.outcome.factors.clone(), plan(&acts).cloned())));
    }
    let rounds_and_factors: Vec<_> =
        copies.iter().map(|(round, factors, _)| (*round, &factors[..])).collect();
    assert_eq!(rounds_and_factors, [(2, &[1, 2][..]), (4, &[1, 1][..])]);
    let restored = copies[1].2.as_ref().unwrap();
    let factors: Vec<_> = restored.backends.iter().filter_map(|plan| plan.copies).collect();
    assert_eq!(factors, [Copies { factor: 1 }; 2]);
    assert!(rounds.guard().unwrap().frozen_until.is_some_and(|until| until > at(35)));
    assert_eq!(rounds.needs(at(99)).replication, Some(at(30)), "the window of the freeze does not count");
    let reason = rounds.replication().unwrap().replicator().outcome().reason;
    assert_eq!(reason, "moves made requests slower: queries: 2 → 1 copies");
}
