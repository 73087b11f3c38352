//! Backends with several replicas, chosen by the dispatchers.

use std::sync::Arc;

use sherwood_model::BackendId;
use sherwood_workload::onerf::Model;

use super::{Setup, Work, World, run};
use crate::world::Event;

/// A system of requests for one uncached object each, at one of `backends` backends, `rate` per
/// second in total. A call takes 20 ms on average; `service` gives workers and replicas.
fn system(backends: usize, rate: f64, service: &str, limits: &str) -> Setup {
    let backend = |id| {
        format!(
            r#"{{"id":{id},"name":"b{id}","objects":{{"p":1}},"zipf_alpha":0,"unique_fraction":1,
            "size":{{"dist":"lognormal","mean_bytes":100,"ln_mu":4.6,"ln_sigma":0,"min":100,"max":100}},
            "service":{{"base_ms":20,"per_item_ms":0,"cv":1,{service}}}}}"#
        )
    };
    let numbers = 1..=backends;
    let all = numbers.clone().map(backend).collect::<Vec<_>>().join(",");
    let types = numbers.map(|id| format!("[{},[[{id},1]]]", 1.0 / backends as f64));
    let types = types.collect::<Vec<_>>().join(",");
    let document = format!(
        r#"{{"schema":"onerf-workload/1","name":"replicas",
        "slo":{{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5}},"timeout_ms":1000,"hit_latency_ms":0,
        "profiles":{{"p":{{"app_servers":1,"request_rate":{rate},"cache_bytes_per_server":65536,
            "alloc_granularity_bytes":1,"alloc_floor_bytes":0}}}},
        "backends":[{all}],"request_types":[{types}],
        "scenarios":{{"s":{{"warmup_min":0.1,"measure_min":2,"kind":"piecewise_linear","limits":{{{limits}}}}}}}}}"#
    );
    let model = Arc::new(Model::from_json(&document).expect("a valid model"));
    Setup { model, profile: "p".to_owned(), ..Setup::new("s", "shared-lru", 3) }
}

fn bytes(world: &World) -> String {
    serde_json::to_string(&world.results()).expect("plain figures")
}

/// Runs `setup` and returns its world, with the numbers of calls and of echoes that each of two
/// replicas served.
fn done(setup: &Setup) -> (World, [u64; 2], [u64; 2]) {
    let mut world = World::new(setup).expect("a valid setup");
    let (mut calls, mut echoes) = ([0; 2], [0; 2]);
    while let Some((at, event)) = world.events.take_before(world.end) {
        world.now = at;
        if let Event::Done { job, .. } = event {
            let job = world.servers.jobs.get(job).expect("a job is there until it is done");
            match job.work {
                Work::Call { .. } => calls[job.replica.index()] += 1,
                Work::Echo { .. } => echoes[job.replica.index()] += 1,
                Work::Probe | Work::Write { .. } => {}
            }
        }
        world.happen(event);
    }
    world.run(world.end).expect("the books balance");
    (world, calls, echoes)
}

/// Returns the mean response time of calls in a run with this seed, in seconds.
fn call_s(mut setup: Setup, seed: u64) -> f64 {
    (setup.seed, setup.knobs.measure_min) = (seed, Some(5.0));
    let mut world = World::new(&setup).expect("a valid setup");
    let (mut calls, mut seconds) = (0.0, 0.0);
    while let Some((at, event)) = world.events.take_before(world.end) {
        world.now = at;
        if let Event::Done { job, .. } = event {
            let job = world.servers.jobs.get(job).expect("a job is there until it is done");
            seconds += (at - job.sent).as_secs_f64();
            calls += 1.0;
        }
        world.happen(event);
    }
    seconds / calls
}

/// Compares the mean of ten runs by a confidence interval of 99.9% (Student's t, 9 degrees of
/// freedom).
#[test]
fn response_times_of_calls_match_pollaczek_khinchine() {
    const T: f64 = 4.781;
    let (service_s, load, cv) = (0.02, 0.6, 1.0);
    let expected = service_s + load * service_s * (1.0 + cv * cv) / (2.0 * (1.0 - load));
    let means: Vec<f64> =
        (1..=10).map(|seed| call_s(system(1, load / service_s, r#""workers":{"p":1}"#, ""), seed)).collect();
    let mean = means.iter().sum::<f64>() / 10.0;
    let variance = means.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 9.0;
    let half = T * (variance / 10.0).sqrt();
    assert!((mean - expected).abs() <= half, "{mean} ± {half}, expected {expected}");
    assert!(half < 0.15 * expected, "confidence interval too wide: {mean} ± {half}");
}

/// By theory, at a load of 0.8, calls wait 4 times their service time on average with separate
/// queues, about once with the less loaded of two random replicas, and three quarters of it with a
/// common queue.
#[test]
fn waiting_at_replicas_is_between_separate_queues_and_one_queue() {
    let apart = run(&system(4, 160.0, r#""workers":{"p":1}"#, ""));
    let replicas = run(&system(1, 160.0, r#""workers":{"p":1},"replicas":4"#, ""));
    let one = run(&system(1, 160.0, r#""workers":{"p":4}"#, ""));
    assert_eq!([apart.queries(), one.queries()], [replicas.queries(); 2], "equal arrivals");
    let [apart, replicas, one] = [apart, replicas, one].map(|world| world.results());
    for (apart, replicas, one) in [
        (apart.p50_ms, replicas.p50_ms, one.p50_ms),
        (apart.p90_ms, replicas.p90_ms, one.p90_ms),
        (apart.p99_ms, replicas.p99_ms, one.p99_ms),
    ] {
        assert!(replicas < 0.7 * apart && one < 0.95 * replicas, "{one} < {replicas} < {apart}");
    }
}

#[test]
fn slow_replica_gets_fewer_calls() {
    let service = r#""workers":{"p":1},"replicas":2"#;
    let (even, calls, _) = done(&system(1, 40.0, service, ""));
    let share = calls[0] as f64 / (calls[0] + calls[1]) as f64;
    assert!((0.47..0.53).contains(&share), "{calls:?}");
    // Half of the calls would exceed its capacity of 12.5 per second.
    let (slowed, calls, _) = done(&system(1, 40.0, service, r#""1/0":[[0,0.25]]"#));
    let share = calls[0] as f64 / (calls[0] + calls[1]) as f64;
    assert!((0.1..0.3).contains(&share), "{calls:?}");
    let (even, slowed) = (even.results(), slowed.results());
    assert!(even.errors == 0 && slowed.errors * 50 < slowed.requests, "{slowed:?}");
    // A replica's limit replaces the backend's.
    let both = r#""1":[[0,0.5]],"1/0":[[0,1]]"#;
    let (_, calls, _) = done(&system(1, 40.0, service, both));
    assert!(calls[0] > calls[1] * 5 / 4, "{calls:?}");
}

#[test]
fn echoes_of_a_sampled_call_go_to_its_replica() {
    let mut setup = system(1, 80.0, r#""workers":{"p":2},"replicas":2"#, r#""1/0":[[0,0.3]]"#);
    setup.knobs.sample = 4;
    let (_, calls, echoes) = done(&setup);
    let share = |jobs: [u64; 2]| jobs[0] as f64 / (jobs[0] + jobs[1]) as f64;
    assert!((share(calls) - share(echoes)).abs() < 0.03, "{calls:?} {echoes:?}");
    assert!(share(calls) < 0.45, "{calls:?}");
}

/// A call takes 4 s at that replica, four times the timeout.
#[test]
fn replica_that_exceeds_the_timeout_goes_down_and_recovers() {
    let limits = r#""1/0":[[0,0.005],[0.9,0.005],[1,1]]"#;
    let setup = system(1, 40.0, r#""workers":{"p":1},"replicas":2"#, limits);
    let mut world = World::new(&setup).expect("a valid setup");
    let seen = |world: &World| {
        let stats = world.nodes[0].machines[0].stats();
        (stats.replicas[0].downs, stats.replicas[0].up, stats.replicas[1].downs, stats.counters.probes)
    };
    world.advance(world.family.measured_from + super::Duration::from_secs(50)).expect("the books balance");
    let (downs, up, other, probes) = seen(&world);
    assert!(downs > 0 && !up && other == 0 && probes > 0, "{:?}", seen(&world));
    world.advance(world.end).expect("the books balance");
    assert!(seen(&world).1, "a probe was answered in time");
    assert!(world.servers.waiting(BackendId(0)) < 20, "cancelled calls leave the queue");
}

#[test]
fn reported_measurements_cover_all_replicas_of_a_backend() {
    let limits = r#""1":[[0,0.8]],"1/1":[[0,0.2]]"#;
    let world = run(&system(1, 120.0, r#""workers":{"p":1},"replicas":3"#, limits));
    let last = world.samples().last().expect("it was observed").backends[0];
    assert!((last.limit - 0.6).abs() < 1e-12, "{}", last.limit);
    assert_eq!(last.waiting, world.servers.waiting(BackendId(0)) as u64);
    assert!(last.waiting > 10, "{}", last.waiting);
    let line = &crate::LimitLine::of(&world.family.setup).expect("there is such a scenario")[0];
    assert_eq!(line.points[0].1.to_bits(), last.limit.to_bits());
}

#[test]
fn declaring_one_replica_changes_no_result_and_several_are_deterministic() {
    let results = |service: &str, limits: &str| bytes(&run(&system(1, 40.0, service, limits)));
    let plain = results(r#""workers":{"p":1}"#, r#""1":[[0,0.7]]"#);
    assert_eq!(plain, results(r#""workers":{"p":1},"replicas":1"#, r#""1":[[0,0.7]]"#));
    assert_eq!(plain, results(r#""workers":{"p":1},"replicas":{"p":1}"#, r#""1/0":[[0,0.7]]"#));
    let setup = system(1, 40.0, r#""workers":{"p":1},"replicas":2"#, r#""1/0":[[0,0.7]]"#);
    let alone = bytes(&run(&setup));
    assert_eq!(alone, bytes(&run(&setup)));
    assert_ne!(alone, plain);
    let mut warm = World::new(&setup).expect("a valid setup");
    warm.advance(warm.measured_from()).expect("the books balance");
    let mut fork = warm.fork(&setup).expect("it is the same run");
    fork.advance(fork.end()).expect("the books balance");
    assert_eq!(alone, bytes(&fork));
}
