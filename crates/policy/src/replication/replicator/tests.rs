use std::time::Duration;

use super::super::options::TierOptions;
use super::*;

fn options(policy: ReplicationPolicy) -> ReplicationOptions {
    let tier = |name: &str| TierOptions { name: name.to_owned(), cores: 2, factor: 2 };
    let tiers = vec![tier("pages"), tier("queries")];
    ReplicationOptions { policy, tiers, ..ReplicationOptions::default() }
}

/// Pages and queries of which one copy of each uses a tenth of the cores at 20 pages a second.
#[derive(Clone, Copy)]
struct World {
    pages_per_s: f64,
    requests: u64,
    /// P99 over the mean.
    variability: [u32; 2],
}

const WORLD: World = World { pages_per_s: 20.0, requests: 1_200, variability: [3, 5] };

impl World {
    /// Returns a window with these factors in force. The best factors are (1, 2).
    fn seen(self, factors: &[u8]) -> Vec<TierSeen> {
        let mean_ms = match factors {
            [1, 1] => 400,
            [1, 2] => 300,
            _ => 350,
        };
        let tier = |servers: u32, per_s: f64, at_twenty: f64, variability: u32| TierSeen {
            servers,
            cores: 2,
            arrivals_per_s: per_s,
            connections_per_s: per_s,
            demand: Duration::from_secs_f64(0.1 * f64::from(2 * servers) / at_twenty),
            requests: self.requests,
            mean: Duration::from_millis(mean_ms),
            p95: Duration::from_millis(2 * mean_ms),
            p99: variability * Duration::from_millis(mean_ms),
            ..TierSeen::default()
        };
        let queries_per_s = self.pages_per_s * f64::from(factors[0]) * 60.0;
        let [pages, queries] = self.variability;
        vec![tier(36, self.pages_per_s, 20.0, pages), tier(12, queries_per_s, 1_200.0, queries)]
    }
}

fn window(replicator: &mut Replicator, world: World) -> Outcome {
    let seen = world.seen(replicator.factors());
    replicator.handle_window(&seen)
}

fn settled() -> Replicator {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Spare));
    let settles = (0..10).any(|_| window(&mut replicator, WORLD).state == ReplicationState::Settled);
    assert!(settles && replicator.factors() == [1, 2], "{replicator:?}");
    replicator
}

#[test]
fn search_says_of_each_trial_what_came_of_it_and_what_follows() {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Spare));
    assert_eq!(replicator.outcome().state, ReplicationState::Searching);
    let said: Vec<_> = (0..4).map(|_| window(&mut replicator, WORLD)).collect();
    let reasons: Vec<_> = said.iter().map(|outcome| outcome.reason.as_str()).collect();
    let expected = [
        "P99 of pages is 1.20 s with one copy; next try: queries: 1 → 2 copies",
        "queries: 1 → 2 copies: P99 of pages fell from 1.20 s to 900 ms; next try: queries: 2 → 3 copies",
        "queries: 2 → 3 copies, given up: P99 of pages rose from 900 ms to 1.05 s; next try: pages: 1 → 2 copies",
        "pages: 1 → 2 copies, given up: P99 of pages rose from 900 ms to 1.05 s; settled after 3 tries",
    ];
    assert_eq!(reasons, expected);
    let last = &said[3];
    assert_eq!((&last.factors[..], last.state, last.tries), (&[1, 2][..], ReplicationState::Settled, 3));
    let next = window(&mut replicator, WORLD);
    assert_eq!(&next, last, "nothing moves");
}

#[test]
fn window_with_too_few_requests_goes_on_and_decides_nothing() {
    for (target, needed) in [(TargetLatency::Mean, 20), (TargetLatency::P95, 20), (TargetLatency::P99, 100)] {
        let options = ReplicationOptions { target, ..options(ReplicationPolicy::Spare) };
        let mut replicator = Replicator::new(options);
        let few = window(&mut replicator, World { requests: needed - 1, ..WORLD });
        assert!(few.goes_on && few.factors == [1, 1], "{few:?}");
        let reason =
            format!("only {} requests were seen, of {needed} needed: the window goes on", needed - 1);
        assert_eq!(few.reason, reason);
        let enough = window(&mut replicator, World { requests: needed, ..WORLD });
        assert!(!enough.goes_on && enough.factors != [1, 1], "{enough:?}");
    }
}

#[test]
fn load_beyond_the_capacity_of_the_factors_falls_to_ones_and_a_search_follows_an_undisturbed_window() {
    let mut replicator = settled();
    // Two copies of the queries use 0.2 at 20 pages a second, and all cores at 100.
    let high = World { pages_per_s: 110.0, requests: 1, ..WORLD };
    let fallen = window(&mut replicator, high);
    let reason = "load 6600/s of queries exceeds what 2 copies leave (6000/s of 12 servers): ones";
    assert_eq!((fallen.reason.as_str(), fallen.state), (reason, ReplicationState::Ones));
    assert_eq!((fallen.factors, fallen.goes_on), (vec![1, 1], false));
    let high = World { requests: 1_200, ..high };
    for _ in 0..3 {
        let stays = window(&mut replicator, high);
        assert_eq!((stays.state, stays.factors), (ReplicationState::Ones, vec![1, 1]), "no room for more");
    }
    let again = window(&mut replicator, WORLD);
    assert_eq!((again.state, again.factors), (ReplicationState::Searching, vec![1, 1]));
    assert_eq!(again.reason, "there is capacity for copies: a search begins");
    assert_eq!(window(&mut replicator, WORLD).factors, [1, 2]);
}

#[test]
fn search_without_room_for_copies_stays_at_ones() {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Spare));
    let outcome = window(&mut replicator, World { pages_per_s: 110.0, ..WORLD });
    assert_eq!((outcome.state, &outcome.factors[..]), (ReplicationState::Ones, &[1, 1][..]));
    assert!(outcome.reason.starts_with("one copy in each tier: more would exceed"), "{outcome:?}");
}

#[test]
fn trial_that_alone_overloads_a_tier_is_given_up() {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Spare));
    window(&mut replicator, WORLD);
    window(&mut replicator, WORLD);
    assert_eq!(replicator.factors(), [1, 3]);
    // Three copies need more than three times the cores.
    let mut seen = WORLD.seen(&[1, 3]);
    seen[1].demand *= 4;
    let outcome = replicator.handle_window(&seen);
    let reason = "queries: 2 → 3 copies, given up: load 1200/s of queries exceeds what 3 copies leave (1000/s of 12 \
                  servers); next try: pages: 1 → 2 copies";
    assert_eq!((outcome.reason.as_str(), outcome.factors), (reason, vec![2, 2]));
    // Now the factors kept would overload it as well.
    let mut seen = WORLD.seen(&[2, 2]);
    seen[1].demand *= 6;
    let outcome = replicator.handle_window(&seen);
    assert_eq!((outcome.state, outcome.factors), (ReplicationState::Ones, vec![1, 1]));
}

#[test]
fn search_begins_anew_when_load_or_variability_moved_in_two_windows_in_a_row() {
    let load = (World { pages_per_s: 30.0, ..WORLD }, "load of pages went from 20/s to 30/s");
    let variability =
        (World { variability: [3, 11], ..WORLD }, "variability of queries went from 5.0 to 11.0");
    for (world, what) in [load, variability] {
        let mut replicator = settled();
        for world in [world, WORLD, world] {
            let outcome = window(&mut replicator, world);
            assert_eq!(outcome.state, ReplicationState::Settled, "{what}");
        }
        let outcome = window(&mut replicator, world);
        assert_eq!(outcome.reason, format!("{what}: a new search begins with one copy"));
        assert_eq!((outcome.state, outcome.factors), (ReplicationState::Searching, vec![1, 1]));
        assert_eq!(window(&mut replicator, world).tries, 0);
    }
    let mut replicator = settled();
    let slightly = World { pages_per_s: 24.0, variability: [5, 9], ..WORLD };
    let states = [(); 4].map(|()| window(&mut replicator, slightly).state);
    assert_eq!(states, [ReplicationState::Settled; 4]);
}

#[test]
fn exhaustive_search_tries_all_feasible_factors_and_keeps_the_best() {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Exhaustive));
    let mut tried = Vec::new();
    let last = loop {
        let outcome = window(&mut replicator, WORLD);
        if outcome.state != ReplicationState::Searching {
            break outcome;
        }
        tried.push(outcome.factors);
    };
    assert_eq!(tried, [[1, 2], [1, 3], [2, 1], [2, 2], [3, 1]], "(2, 3) and more collide too often");
    assert_eq!((&last.factors[..], last.tries), (&[1, 2][..], 5));
}

#[test]
fn fixed_factors_are_withdrawn_during_an_overload_and_none_are_always_one() {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Fixed));
    assert_eq!(replicator.factors(), [2, 2]);
    let at = |replicator: &mut Replicator, pages_per_s| {
        let outcome = window(replicator, World { pages_per_s, requests: 0, ..WORLD });
        (outcome.factors, outcome.state)
    };
    let (given, ones) = ((vec![2, 2], ReplicationState::Settled), (vec![1, 1], ReplicationState::Ones));
    assert_eq!(at(&mut replicator, 20.0), given);
    assert_eq!(at(&mut replicator, 51.0), ones, "0.4 of the cores of queries at 20 pages a second");
    assert_eq!(at(&mut replicator, 46.0), ones, "more than 0.9 of the cores");
    assert_eq!(at(&mut replicator, 44.0), given);
    let mut none = Replicator::new(options(ReplicationPolicy::None));
    assert_eq!(at(&mut none, 20.0), ones);
}

#[test]
fn standings_show_the_latest_window_with_the_factors_decided_after_it() {
    let mut replicator = Replicator::new(options(ReplicationPolicy::Fixed));
    assert_eq!(replicator.standings(), []);
    window(&mut replicator, WORLD);
    let [pages, queries] = replicator.standings()[..] else { panic!("two tiers") };
    let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9;
    assert!(near(pages.utilisation, 0.2) && near(queries.utilisation, 0.4));
    assert!(near(pages.variability, 3.0) && near(queries.variability, 5.0));
    assert_eq!((pages.token_utilisation, pages.collision_probability), (None, 0.0));
    assert!(near(queries.collision_probability, 1.0 - 45.0 / 66.0));
}

#[test]
fn restored_factors_stay_until_load_or_variability_move_from_the_next_window() {
    let mut replicator = settled();
    replicator.restore(vec![2, 1], "a cause");
    assert_eq!(replicator.outcome().reason, "a cause: pages: 1 → 2 copies, queries: 2 → 1 copies");
    let high = World { pages_per_s: 40.0, ..WORLD };
    for _ in 0..3 {
        let outcome = window(&mut replicator, high);
        assert_eq!((outcome.state, outcome.factors), (ReplicationState::Settled, vec![2, 1]));
    }
    window(&mut replicator, WORLD);
    assert_eq!(window(&mut replicator, WORLD).state, ReplicationState::Searching);
}
