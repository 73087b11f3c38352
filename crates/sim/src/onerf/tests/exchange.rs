//! Statistics that arrive late, in part or not at all.

use sherwood_model::CachePlan;

use super::*;
use crate::bus::Bus;

/// Returns a run of the built-in workload in which partitions fill and budgets move within seconds.
fn moving(bus: Bus) -> Setup {
    let mut setup = brief("onerf-spikes", "robinhood");
    setup.knobs.control.unfilled_ratio_max = f64::INFINITY;
    (setup.knobs.cache_ratio, setup.knobs.load_ratio) = (0.02, 0.3);
    setup.knobs.measure_min = Some(0.1);
    setup.knobs.bus = bus;
    setup
}

/// Results of a run and the budgets of its servers.
fn outcome(setup: &Setup) -> (String, Vec<Vec<u64>>) {
    let world = run(setup);
    let budgets = world.nodes.iter().map(|server| server.control.levels().budgets()).collect();
    (serde_json::to_string(&world.results()).expect("plain figures"), budgets)
}

#[test]
fn servers_that_merge_all_reports_themselves_decide_as_those_that_know_all() {
    // The bus is down after the run alone. All requests are within the window of decisions, in
    // which one counts from the arrival of its report.
    let own = Bus { down_min: Some((1.0, 2.0)), ..Bus::default() };
    assert_eq!(outcome(&moving(own)), outcome(&moving(Bus::default())));
}

#[test]
fn servers_whose_reports_are_lost_divide_their_caches_differently() {
    let budgets = |bus| outcome(&moving(bus)).1;
    let are_equal = |budgets: &[Vec<u64>]| budgets.iter().all(|each| *each == budgets[0]);
    let followed = Bus { statistics: 2, ..Bus::default() };
    let lossy = Bus { report_loss: 0.5, ..Bus::default() };
    assert!(are_equal(&budgets(Bus::default())) && are_equal(&budgets(followed)));
    assert!(!are_equal(&budgets(lossy)), "{:?}", budgets(lossy)[0]);
    assert_eq!(budgets(lossy), budgets(lossy), "losses are drawn from the seed");
    let down = Bus { down_min: Some((0.0, 1.0)), ..followed };
    assert!(!are_equal(&budgets(down)), "each decides on its own requests");
}

/// Returns a world of four servers with this bus at `seconds`.
fn world_at(bus: Bus, seconds: f64) -> World {
    let mut setup = opposite();
    setup.knobs.servers = Some(4);
    setup.knobs.bus = bus;
    let mut world = World::new(&setup).expect("valid");
    world.advance(Instant::ZERO + Duration::from_secs_f64(seconds)).expect("the books balance");
    world
}

/// Returns the number of requests that each server would decide on now, and that each has
/// reported.
fn known_and_own(world: &World) -> (Vec<u64>, Vec<u64>) {
    let needs = world.nodes[0].control.levels().needs();
    let mut exchange = world.family.exchange.clone().expect("the bus is not perfect");
    let own = exchange.own_requests(world.now, &needs);
    let known = exchange.known(world.now, &needs, &world.nodes, 2);
    let known = known.iter().map(|known| known.requests[0].requests).collect();
    (known, own.iter().map(|own| own.requests).collect())
}

#[test]
fn server_knows_the_reports_of_others_that_arrive_and_all_of_its_own() {
    let known = |report_loss| known_and_own(&world_at(Bus { report_loss, ..Bus::default() }, 40.5));
    let (nothing, own) = known(1.0);
    assert_eq!(nothing, own, "no report of another one");
    let all: u64 = own.iter().sum();
    assert!((3_700..4_300).contains(&all), "{own:?}");
    let (some, _) = known(0.25);
    for (some, own) in some.iter().zip(own) {
        let share = (some - own) as f64 / (all - own) as f64;
        assert!((share - 0.75).abs() < 0.1, "{share} of the others' requests");
    }
    assert!(some.iter().any(|&known| known != some[0]), "each receiver loses others: {some:?}");
}

#[test]
fn servers_follow_a_snapshot_until_it_is_three_seconds_old_and_again_when_the_bus_is_back() {
    let bus = Bus { statistics: 2, down_min: Some((0.5, 1.0)), ..Bus::default() };
    let known = |seconds| known_and_own(&world_at(bus, seconds));
    let (before, own) = known(29.5);
    assert_eq!(before, [own.iter().sum::<u64>(); 4], "snapshots of second 29 have all");
    let (down, _) = known(31.9);
    assert_eq!(down[2..], before[2..], "their last snapshot");
    let (down, own) = known(32.1);
    assert_eq!(down[2..], own[2..], "snapshots of second 29 are three seconds old");
    assert!(down[..2].iter().zip(&own).all(|(known, own)| known > own), "they follow themselves");
    let (back, own) = known(60.5);
    assert_eq!(back, [back[0]; 4]);
    assert!(back[0] > own[0] && back[0] < own.iter().sum::<u64>(), "reports of 30 s are lost");
}

#[test]
fn fork_of_a_world_with_a_lossy_bus_equals_the_run_simulated_from_its_start() {
    for statistics in [0, 2] {
        let bus = Bus { statistics, report_loss: 0.3, down_min: Some((0.03, 0.06)) };
        let spikes = moving(bus);
        let setup = Setup { scenario: "ramp-7-quick".to_owned(), ..spikes.clone() };
        let mut warm = World::new(&spikes).expect("valid");
        warm.advance(warm.measured_from()).expect("the books balance");
        let mut fork = warm.fork(&setup).expect("only what comes afterwards differs");
        fork.advance(fork.end()).expect("the books balance");
        let alone = run(&setup);
        assert_eq!(fork.results(), alone.results());
        assert_eq!(fork.samples(), alone.samples());
    }
}

#[test]
fn statistics_kept_for_each_server_count_in_the_bound_of_their_memory() {
    let mut setup = moving(Bus { report_loss: 0.1, ..Bus::default() });
    setup.knobs.stale = Duration::from_secs(900);
    // A quarter of the ten thousand, for each of four servers, every 0.4 s.
    assert_eq!(setup.validate(), Ok(()));
    setup.knobs.servers = Some(5);
    let error = setup.validate().unwrap_err().to_string();
    assert!(error.contains("controllers may be told 2000 times") && error.contains("at most 800"), "{error}");
    setup.knobs.bus = Bus::default();
    assert_eq!(setup.validate(), Ok(()));
}

/// Bytes of a page in [`opposite`].
const PAGE: u64 = 64;
/// Pages of a server's cache, as many as by default.
const PAGES: u64 = 32_768;

/// Returns two servers that follow one statistics server, before two backends of which both block
/// requests, with traffic that fills any division of the caches.
fn opposite() -> Setup {
    let cache = PAGES * PAGE;
    let backend = |id: u16, base_ms: f64| {
        format!(
            r#"{{"id":{id},"name":"b0{id}","kind":"kv","objects":{{"two":20000}},"zipf_alpha":0.8,
            "unique_fraction":0.02,
            "size":{{"dist":"lognormal","mean_bytes":1000,"ln_mu":6.907755,"ln_sigma":0,"min":1000,"max":1000}},
            "service":{{"base_ms":{base_ms},"per_item_ms":0,"cv":1,"workers":{{"two":16}}}}}}"#
        )
    };
    let (slower, faster) = (backend(1, 8.0), backend(2, 5.0));
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"two",
        "slo":{{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5}},
        "timeout_ms":1000,"hit_latency_ms":0.5,"max_batch":10,"empty_request_fraction":0,
        "profiles":{{"two":{{"app_servers":2,"request_rate":100,"cache_bytes_per_server":{cache},
            "alloc_granularity_bytes":{PAGE},"alloc_floor_bytes":{floor},"verified":false}}}},
        "backends":[{slower},{faster}],
        "request_types":[[1.0,[[1,1],[2,1]]]],
        "scenarios":{{"none":{{"warmup_min":0,"measure_min":40,"kind":"piecewise_linear","limits":{{}}}}}}}}"#,
        floor = 30 * PAGE,
    );
    let model = Arc::new(Model::from_json(&document).expect("a valid model"));
    let mut setup = Setup { model, profile: "two".to_owned(), ..Setup::new("none", "robinhood", 5) };
    setup.knobs.bus.statistics = 1;
    setup
}

/// Gives each server's cache nine tenths to another backend.
fn divide_oppositely(world: &mut World) {
    let (most, least) = (PAGES * PAGE / 10 * 9, PAGES * PAGE - PAGES * PAGE / 10 * 9);
    for (node, budgets) in [[most, least], [least, most]].into_iter().enumerate() {
        world.nodes[node].control.adopt(budgets.to_vec());
        world.apply(node, CachePlan::Budgets(budgets.to_vec()).into());
    }
}

/// Returns the difference between the two servers' budgets, by backend.
fn differences(world: &World) -> Vec<u64> {
    let [one, other] = [0, 1].map(|node| world.nodes[node].control.levels().budgets());
    one.iter().zip(&other).map(|(one, other)| one.abs_diff(*other)).collect()
}

#[test]
fn opposite_divisions_of_two_servers_approach_each_other_as_published() {
    const FILLED: Instant = Instant::from_secs(300);
    let mut world = World::new(&opposite()).expect("valid");
    divide_oppositely(&mut world);
    world.advance(FILLED).expect("the books balance");
    // Rounds in which partitions had yet to fill do not count.
    divide_oppositely(&mut world);
    let before = differences(&world);
    assert!(before.iter().all(|bytes| *bytes > PAGES * PAGE * 3 / 4), "{before:?}");
    // After a tenth of the rounds the difference is 0.99^36 of that, 70%.
    world.advance(FILLED + Duration::from_secs(36 * 5)).expect("the books balance");
    let early = differences(&world);
    // After 360 rounds it is 0.99^360 of that, 2.7%, and what whole pages of tax leave.
    world.advance(FILLED + Duration::from_secs(360 * 5)).expect("the books balance");
    let late = differences(&world);
    for ((before, early), late) in before.into_iter().zip(early).zip(late) {
        assert!(early > before / 2, "{early} of {before} bytes");
        assert!(late <= before * 4 / 100 + 2 * PAGE, "{late} of {before} bytes");
    }
}
