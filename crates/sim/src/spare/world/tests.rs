use super::*;
use crate::spare::Scenario;

fn world(scenario: &str, policy: &str, settings: &[(&str, &str)]) -> World {
    let mut setup = Setup::new(Scenario::by_name(scenario).expect("known"), policy, 1);
    for (key, value) in settings {
        setup.set(key, value).expect("a valid setting");
    }
    World::new(&setup).expect("a valid setup")
}

fn run(scenario: &str, policy: &str, settings: &[(&str, &str)]) -> Results {
    let mut world = world(scenario, policy, settings);
    world.advance(world.end()).expect("requests end once");
    world.results()
}

#[test]
fn results_do_not_depend_on_where_a_run_is_interrupted() {
    let settings = [("seconds", "10+30")];
    let whole = run("spare-mediawiki", "none", &settings);
    let mut world = world("spare-mediawiki", "none", &settings);
    while world.now() < world.end() {
        world.advance(world.now() + Duration::from_millis(37)).expect("requests end once");
    }
    assert_eq!(world.results(), whole);
    assert_eq!(world.samples().len(), 4);
}

/// Tiers of servers that share their cores are a network with a product form: by the theorem of
/// Baskett, Chandy, Muntz and Palacios, the mean latency depends on the distribution of work by its
/// mean alone, and at each tier it is that of M/M/2.
#[test]
fn mean_latency_without_interference_is_that_of_a_product_form_network() {
    for (scenario, rate, seconds, page_ms, query_ms, queries) in [
        ("spare-solr", 180.0, "10+300", 15.0, 7.5, 1.0),
        ("spare-mediawiki", 7.9, "30+3000", 355.0, 1.33, 60.0),
    ] {
        let results =
            run(scenario, "quiet", &[("servers", "2+1"), ("rate", &rate.to_string()), ("seconds", seconds)]);
        let latency = |work_ms: f64, servers: f64| {
            let load = rate * work_ms / 1e3 / (2.0 * servers);
            work_ms / (1.0 - load * load)
        };
        let query = latency(queries * query_ms, 1.0);
        let page = latency(page_ms, 2.0) + query;
        assert!((results.query_mean_ms * queries / query - 1.0).abs() < 0.03, "{query} {results:?}");
        assert!((results.page_mean_ms / page - 1.0).abs() < 0.03, "{page} {results:?}");
    }
}

#[test]
fn every_policy_meets_the_same_pages_and_one_copy_makes_no_extra_load() {
    let pages = |policy: &str| {
        let mut world = world("spare-solr", policy, &[("seconds", "5+20"), ("r", "2,2")]);
        world.advance(world.end()).expect("requests end once");
        (world.family.pages, world.results().extra_load_ratio > 0.0)
    };
    let (none, _) = pages("none");
    for (policy, has_copies) in
        [("none", false), ("quiet", false), ("prequal", false), ("tad-one", false), ("spare-tad", true)]
    {
        assert_eq!(pages(policy), (none, has_copies), "{policy}");
    }
}

#[test]
fn search_that_does_not_end_is_refused_with_the_remedy() {
    let mut world = world("spare-solr", "spare-tad", &[("rate", "1"), ("window", "1"), ("seconds", "1+5")]);
    let refusal = world.advance(world.end()).unwrap_err().to_string();
    assert!(refusal.contains("after 32 windows of 1 s: give a longer window"), "{refusal}");
}

#[test]
fn interference_slows_the_tiers_of_its_pattern() {
    let results = |policy: &str, pattern: &str| {
        run("spare-solr", policy, &[("pattern", pattern), ("seconds", "10+120")])
    };
    let quiet = results("quiet", "2");
    assert!(quiet.page_p99_ms < 1.5 * quiet.page_mean_ms, "{quiet:?}");
    let [second, both, first] = ["1", "2", "3"].map(|pattern| results("none", pattern));
    assert!(both.page_mean_ms > second.page_mean_ms && both.page_mean_ms > first.page_mean_ms);
    assert!(second.query_mean_ms > 1.3 * quiet.query_mean_ms, "{second:?}");
    assert!((first.query_mean_ms / quiet.query_mean_ms - 1.0).abs() < 0.01, "{first:?}");
    assert_eq!((both.errors, both.factors, both.tries), (0, [1, 1], 0));
}

#[test]
fn copies_of_pages_and_queries_are_as_many_as_the_setting_says() {
    let extra = |policy: &str, copies: &str| {
        let results = run("spare-solr", policy, &[("r", copies), ("seconds", "10+60")]);
        assert_eq!((results.tries, results.errors), (0, 0));
        (results.factors, results.extra_load_ratio)
    };
    // A query takes a third of the work of a page with its query.
    for (policy, copies, factors, ratio) in [
        ("spare-tad", "1,1", [1, 1], 0.0),
        ("spare-tad", "1,2", [1, 2], 1.0 / 3.0),
        ("spare-rr", "1,3", [1, 3], 2.0 / 3.0),
        ("spare-rr", "2,1", [2, 1], 1.0),
        ("none", "2,2", [1, 1], 0.0),
    ] {
        let (found, extra) = extra(policy, copies);
        assert!(found == factors && (extra - ratio).abs() < 0.02, "{policy} {copies}: {found:?} {extra}");
    }
}

#[test]
fn copies_are_searched_for_before_the_run() {
    let settings = [("window", "20"), ("seconds", "10+60")];
    let front = run("spare-solr", "front-rr", &settings);
    assert_eq!((front.tries, front.factors[1]), (2, 1), "two and three copies of pages are tried");
    let all = run("spare-solr", "exhaustive", &settings);
    let greedy = run("spare-solr", "spare-tad", &settings);
    assert!((3..=8).contains(&all.tries) && (1..=6).contains(&greedy.tries), "{all:?} {greedy:?}");
    let none = run("spare-solr", "none", &settings);
    for searched in [front, all, greedy] {
        // The pages are the same, and counted when they end.
        assert!(searched.requests.abs_diff(none.requests) <= 5, "{searched:?}");
        assert!(searched.page_p99_ms < none.page_p99_ms, "{searched:?}");
    }
}

#[test]
fn tokens_choose_quick_servers_and_bound_the_pages_at_one() {
    let settings = [("seconds", "10+120")];
    let (none, tokens) = (run("spare-solr", "none", &settings), run("spare-solr", "tad-one", &settings));
    assert!(tokens.page_p95_ms < none.page_p95_ms / 2.0, "{tokens:?}");
    let mut world = world("spare-solr", "tad-one", &[("servers", "4+4"), ("seconds", "1+20")]);
    let mut most = 0;
    while world.now() < world.end() {
        world.advance(world.now() + Duration::from_millis(1)).expect("requests end once");
        let stats = world.nodes[0].machines[PAGES.index()].stats();
        most = stats.replicas.iter().map(|server| server.in_flight_calls).max().max(Some(most)).unwrap_or(0);
    }
    assert_eq!(most, 1, "a token a server");
}
