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
        let mut world = world("spare-solr", policy, &[("seconds", "5+20")]);
        world.advance(world.end()).expect("requests end once");
        assert_eq!(world.results().extra_load_ratio, 0.0);
        (world.family.pages, world.family.sizes.whole(100))
    };
    assert_eq!(pages("none"), pages("quiet"));
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
fn queries_of_a_copy_go_to_the_server_of_its_connection() {
    let mut world = world("spare-mediawiki", "none", &[("seconds", "1+9")]);
    let mut servers: BTreeMap<u64, Vec<ReplicaId>> = BTreeMap::new();
    while world.now() < world.end() {
        world.advance(world.now() + Duration::from_millis(1)).expect("requests end once");
        for job in world.servers.jobs.iter() {
            if let crate::world::Work::Call { keys, .. } = &job.work
                && keys[0].partition == PartitionId(QUERIES.0)
            {
                servers.entry(keys[0].key.page).or_default().push(job.replica);
            }
        }
    }
    let (mut seen, mut of_pages) = (0, [0; 12]);
    for servers in servers.values() {
        assert!(servers.iter().all(|server| *server == servers[0]), "{servers:?}");
        seen += servers.len();
        of_pages[servers[0].index()] += 1;
    }
    assert!(seen > 1_000 && of_pages.iter().all(|pages| *pages > 0), "{seen} {of_pages:?}");
}
