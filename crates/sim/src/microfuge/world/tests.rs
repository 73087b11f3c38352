use super::*;

fn run(policy: &str, settings: &[(&str, &str)]) -> Results {
    let mut world = world(policy, settings);
    world.advance(world.end()).expect("requests end once");
    world.results()
}

/// Returns the simulation of a store with 2,000 records for a few seconds.
fn world(policy: &str, settings: &[(&str, &str)]) -> World {
    let mut setup = Setup::new(policy, 1);
    for (key, value) in [("records", "2000"), ("seconds", "4+8")].iter().chain(settings) {
        setup.set(key, value).expect("a valid setting");
    }
    World::new(&setup).expect("a valid setup")
}

#[test]
fn results_do_not_depend_on_where_a_run_is_interrupted() {
    let whole = run("memcached+p2c", &[]);
    let mut world = world("memcached+p2c", &[]);
    while world.now() < world.end() {
        world.advance(world.now() + Duration::from_millis(37)).expect("requests end once");
    }
    assert_eq!(world.results(), whole);
    assert_eq!(world.samples().len(), 12);
}

#[test]
fn clients_of_a_closed_loop_have_one_request_at_a_time() {
    let mut world = world("memcached", &[("clients", "7")]);
    for _ in 0..1_000 {
        world.advance(world.now() + Duration::from_millis(1)).expect("requests end once");
        assert_eq!(world.live.iter().count(), 7);
    }
}

#[test]
fn requests_of_an_open_loop_arrive_at_the_rate_although_answers_are_late() {
    let results = run("bare", &[("rate", "4000"), ("clients", "1")]);
    assert!(results.requests_per_s > 3_500.0, "{}", results.requests_per_s);
    assert!(results.deadline_miss_ratio > 0.5, "{}", results.deadline_miss_ratio);
    let results = run("memcached+p2c", &[("rate", "200"), ("S", "1")]);
    assert!((results.requests_per_s - 200.0).abs() < 15.0, "{}", results.requests_per_s);
    assert!(results.deadline_miss_ratio < 0.01, "{}", results.deadline_miss_ratio);
}

#[test]
fn cache_serves_its_share_of_the_reads_and_the_bare_store_none() {
    assert_eq!(run("bare", &[]).hit_ratio_overall, 0.0);
    let zipf = run("memcached", &[]).hit_ratio_overall;
    assert!((0.25..0.35).contains(&zipf), "{zipf}");
    let uniform = run("memcached", &[("keys", "uniform")]).hit_ratio_overall;
    assert!((uniform - 0.2).abs() < 0.02, "{uniform}");
}

#[test]
fn writes_are_acknowledged_by_the_servers_of_their_record() {
    let results = run("memcached", &[("writes", "1"), ("clients", "16")]);
    assert!(results.requests > 10_000 && results.deadline_miss_ratio < 0.001, "{results:?}");
    assert_eq!((results.hit_ratio_overall, results.rejection_ratio), (0.0, 0.0));
}

#[test]
fn reads_of_the_less_loaded_server_are_faster_than_of_a_random_one() {
    let (random, two) = (run("memcached", &[]), run("memcached+p2c", &[]));
    assert!(two.requests_per_s > random.requests_per_s * 1.05, "{two:?}");
}
