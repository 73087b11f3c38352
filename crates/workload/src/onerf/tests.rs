//! The built-in model compared with the figures it was fitted to, and documents that must be
//! refused.

use sherwood_model::{BackendId, ReplicaId};

use super::*;
use crate::draw::rng_from_seed;

const DOCUMENT: &str = include_str!("../../data/onerf.json");

/// Counts of 100,000 requests, per backend.
struct Census {
    requests: Vec<f64>,
    queries: Vec<f64>,
    fanout: Vec<f64>,
    all_queries: f64,
    all_fanout: f64,
}

const DRAWN: u32 = 100_000;

fn census() -> Census {
    let model = Model::onerf();
    let mut mix = model.mix("s100").unwrap();
    let mut rng = rng_from_seed(42);
    let zeros = vec![0.0; model.backends().len()];
    let mut census = Census {
        requests: zeros.clone(),
        queries: zeros.clone(),
        fanout: zeros,
        all_queries: 0.0,
        all_fanout: 0.0,
    };
    for _ in 0..DRAWN {
        let request = mix.next_request(&mut rng);
        census.all_fanout += request.len() as f64;
        for batch in &request {
            let index = batch.backend.index();
            census.requests[index] += 1.0;
            census.queries[index] += batch.objects.len() as f64;
            census.fanout[index] += request.len() as f64;
            census.all_queries += batch.objects.len() as f64;
        }
    }
    census
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{what}: {found} is not {expected} +- {tolerance}");
}

#[test]
fn generated_requests_match_the_fitted_aggregates() {
    // Query %, request % (of all requests, empty ones included), mean batch, mean fanout: the exact
    // expectations of the fit.
    let expected = [
        (38.4, 15.0, 25.8, 5.60),
        (16.2, 4.52, 36.1, 7.40),
        (15.4, 4.54, 34.0, 7.40),
        (13.2, 19.2, 6.9, 4.80),
        (7.5, 19.2, 3.9, 4.90),
        (4.3, 4.63, 9.4, 7.30),
        (2.4, 10.8, 2.22, 5.30),
        (1.6, 15.5, 1.04, 5.30),
        (0.70, 3.40, 2.07, 7.50),
        (0.20, 0.70, 2.85, 9.10),
    ];
    let census = census();
    let total = f64::from(DRAWN);
    let non_empty = 1.0 - Model::onerf().empty_request_fraction();
    assert_near("queries of a request", census.all_queries / total, 48.5, 0.8);
    assert_near("fanout of a request", census.all_fanout / total, 4.77, 0.03);
    for (index, (query_pct, request_pct, mean_batch, mean_fanout)) in expected.into_iter().enumerate() {
        let backend = index + 1;
        let (requests, queries) = (census.requests[index], census.queries[index]);
        let share = |what: &str| format!("backend {backend}: {what}");
        assert_near(
            &share("query %"),
            queries / census.all_queries * 100.0,
            query_pct,
            0.03 * query_pct + 0.05,
        );
        assert_near(
            &share("request %"),
            requests / total * non_empty * 100.0,
            request_pct,
            0.01 * request_pct + 0.05,
        );
        assert_near(&share("mean batch"), queries / requests, mean_batch, 0.03 * mean_batch);
        assert_near(&share("mean fanout"), census.fanout[index] / requests, mean_fanout, 0.1);
    }
}

#[test]
fn objects_of_a_batch_are_distinct_and_new_ones_numbered_consecutively() {
    let model = Model::onerf();
    let mut mix = model.mix("s100").unwrap();
    let mut rng = rng_from_seed(7);
    let mut next_new: Vec<u64> = model.backends().iter().map(|backend| backend.objects["s100"]).collect();
    let (mut new, mut all) = (0.0, 0.0);
    for _ in 0..5_000 {
        for Batch { backend, objects } in mix.next_request(&mut rng) {
            let catalogue = model.backend(backend).objects["s100"];
            assert!((1..=300).contains(&objects.len()));
            let mut sorted = objects.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), objects.len());
            for object in objects.into_iter().filter(|&object| object >= catalogue) {
                assert_eq!(object, next_new[backend.index()]);
                next_new[backend.index()] += 1;
                new += f64::from(u8::from(backend == BackendId(0)));
            }
            all += if backend == BackendId(0) { sorted.len() as f64 } else { 0.0 };
        }
    }
    assert_near("unique fraction of backend 1", new / all, 0.015, 0.002);
}

#[test]
fn equal_seeds_draw_equal_requests_from_the_model() {
    let model = Model::onerf();
    let draw = |seed| {
        let (mut mix, mut rng) = (model.mix("demo").unwrap(), rng_from_seed(seed));
        (0..20).map(|_| mix.next_request(&mut rng)).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn object_sizes_follow_the_size_law() {
    let model = Model::onerf();
    let sum: f64 = model
        .backends()
        .iter()
        .map(|backend| backend.objects["s10"] as f64 * mean_bytes(backend, 20_000))
        .sum();
    let objects: f64 = model.backends().iter().map(|backend| backend.objects["s10"] as f64).sum();
    assert_near("mean object over the catalogue", sum / objects, 23_700.0, 500.0);
    for backend in model.backends() {
        let expected = backend.size.as_ref().unwrap().mean_bytes;
        assert_near(&backend.name, mean_bytes(backend, 20_000), expected, 0.06 * expected);
    }
    // Computed independently of this crate in double precision, from the document's definition.
    let sizes: Vec<u32> = (0..4).map(|object| model.backend(BackendId(0)).object_bytes(object)).collect();
    assert_eq!(sizes, SIZES_OF_BACKEND_1);
}

const SIZES_OF_BACKEND_1: [u32; 4] = [815, 2_875, 993, 3_887];

fn mean_bytes(backend: &BackendModel, sample: u64) -> f64 {
    (0..sample).map(|object| f64::from(backend.object_bytes(object))).sum::<f64>() / sample as f64
}

#[test]
fn service_times_have_the_stated_mean_and_spread() {
    let model = Model::onerf();
    let backend = model.backend(BackendId(6));
    let mut rng = rng_from_seed(11);
    let mut ms = || backend.service_time(3, 0.5, rand_core::Rng::next_u64(&mut rng)).as_secs_f64() * 1e3;
    let times: Vec<f64> = (0..100_000).map(|_| ms()).collect();
    let mean = times.iter().sum::<f64>() / 1e5;
    let variance = times.iter().map(|time| (time - mean) * (time - mean)).sum::<f64>() / 1e5;
    // (5.89 + 3 x 4.13) / 0.5, and a coefficient of variation of 0.8.
    assert_near("mean", mean, 36.56, 0.4);
    assert_near("cv", variance.sqrt() / mean, 0.8, 0.03);
    assert_eq!(backend.service_time(1, 0.0, 1 << 63), std::time::Duration::MAX);
}

#[test]
fn piecewise_limits_are_exact_at_points_and_linear_between_them() {
    let model = Model::onerf();
    let limits = model.scenario("onerf-spikes").unwrap().limits(Walk::Given);
    let of_6 = |minute| limits.limit(BackendId(5), minute);
    assert_eq!((of_6(-1.0), of_6(0.0), of_6(15.0), of_6(51.0), of_6(500.0)), (1.0, 1.0, 0.41, 1.0, 1.0));
    assert_near("between minutes 0 and 15", of_6(7.5), 0.705, 1e-12);
    assert_near("between minutes 15 and 35", of_6(25.0), 0.405, 1e-12);
    assert_eq!(limits.limit(BackendId(1), 25.0), 1.0, "backend 2 is never limited");
    assert_eq!(limits.backends().collect::<Vec<_>>(), [0, 4, 5, 7].map(BackendId));
    let ramp = model.scenario("ramp-1-slow").unwrap().limits(Walk::Given);
    assert_eq!(
        (ramp.limit(BackendId(0), -0.1), ramp.limit(BackendId(0), 0.0)),
        (1.0, 0.8),
        "no limit while warming up"
    );
    assert_eq!(ramp.limit(BackendId(0), 99.0), 0.265);
}

#[test]
fn replica_uses_its_own_limit_else_its_backends() {
    let several = DOCUMENT
        .replacen(r#""workers":{"full":20,"#, r#""replicas":3,"workers":{"full":20,"#, 1)
        .replacen(r#""limits":{"6":"#, r#""limits":{"1/2":[[10,0.2]],"6":"#, 1);
    let model = Model::from_json(&several).unwrap();
    assert_eq!([0, 1].map(|backend| model.backends()[backend].service.replicas.at("full")), [3, 1]);
    let limits = model.scenario("onerf-spikes").unwrap().limits(Walk::Given);
    let of = |backend, replica, minute| limits.replica_limit(BackendId(backend), ReplicaId(replica), minute);
    for minute in [-1.0, 0.0, 20.0, 120.0, 150.0] {
        assert_eq!(of(0, 1, minute), limits.limit(BackendId(0), minute));
        assert_eq!(of(5, 0, minute), limits.limit(BackendId(5), minute));
        assert_eq!(of(0, 2, minute), if minute < 0.0 { 1.0 } else { 0.2 });
    }
    let only = several.replacen(r#"[[10,0.2]],"6":"#, r#"[[10,0.2]],"2/0":"#, 1);
    let limits = Model::from_json(&only).unwrap().scenario("onerf-spikes").unwrap().limits(Walk::Given);
    assert_eq!(limits.backends().collect::<Vec<_>>(), [0, 1, 4, 7].map(BackendId));
}

#[test]
fn depth_of_limits_is_one_unless_given_for_the_profile() {
    let document = DOCUMENT.replacen(r#""depth":{"full":1.27}"#, r#""depth":{"full":1.25}"#, 1);
    let model = Model::from_json(&document).unwrap();
    let depth = |scenario, profile| model.scenario(scenario).unwrap().depth(profile);
    assert_eq!((depth("onerf-spikes", "full"), depth("onerf-spikes", "s100")), (1.25, 1.0));
    assert_eq!(depth("ramp-1-slow", "full"), 1.0);
    let plain = DOCUMENT.replacen(r#""depth":{"full":1.27},"#, "", 1);
    assert!(Model::from_json(&plain).unwrap().scenario("onerf-spikes").unwrap().depth.is_empty());
}

#[test]
fn random_walk_in_a_document_equals_the_one_drawn_from_its_seed() {
    let model = Model::onerf();
    let scenario = model.scenario("onerf-random").unwrap();
    let given = scenario.limits(Walk::Given);
    assert_eq!(given, scenario.limits(Walk::Drawn { seed: 1_644 }));
    assert_ne!(given, scenario.limits(Walk::Drawn { seed: 1_645 }));
}

#[test]
fn random_walk_of_limits_is_constant_within_a_step_and_after_the_last() {
    let model = Model::onerf();
    let limits = model.scenario("onerf-random").unwrap().limits(Walk::Given);
    let of_1 = |seconds: f64| limits.limit(BackendId(0), seconds / 60.0);
    let level = |level: f64| 0.375 + 0.625 * level / 12.0;
    // The walk begins 7, 6, 5, … after a start level of 8, and its last step is at level 1.
    assert_near("step 1", of_1(0.0), level(7.0), 1e-12);
    assert_near("step 1, later", of_1(19.9), level(7.0), 1e-12);
    assert_near("step 2", of_1(20.1), level(6.0), 1e-12);
    assert_near("after the end", of_1(1e6), level(1.0), 1e-12);
    assert_eq!(of_1(-1.0), 1.0);
}

#[test]
fn unknown_profile_or_scenario_is_refused_with_the_known_names() {
    let model = Model::onerf();
    let error = model.mix("s1000").unwrap_err().to_string();
    assert_eq!(error, "the workload model has no profile `s1000`; it has: demo, full, s10, s100");
    assert!(model.scenario("spikes").unwrap_err().to_string().contains("onerf-spikes"));
    assert_eq!(model.profile("demo").unwrap().request_rate, 400.0);
}

#[test]
fn invalid_model_document_is_refused_with_place_and_range() {
    let cases = [
        (
            r#""schema":"onerf-workload/1""#,
            r#""schema":"onerf-workload/2""#,
            "this version reads `onerf-workload/1`",
        ),
        (r#""timeout_ms":10000"#, r#""timeout_ms":-1"#, "timeout_ms is -1; it must be 0.001 to 3600000"),
        (r#""timeout_ms":10000"#, r#""timeout":10000"#, "unknown key `timeout`; the keys here are "),
        (r#""id":2,"#, r#""id":3,"#, "backends[1].id is 3; it must be 2"),
        (
            r#""name":"b03""#,
            r#""name":"b01""#,
            "backends[2].name is `b01`, as is backends[0].name; it must be a name of its own",
        ),
        (r#""zipf_alpha":0.75"#, r#""zipf_alpha":-0.75"#, "backends[1].zipf_alpha is -0.75"),
        (r#""s100":9257"#, r#""s100":0"#, "backends[0].objects.s100 is 0"),
        (
            r#""workers":{"full":20,"#,
            r#""workers":{"ful":20,"#,
            "backends[0].service.workers.full is missing",
        ),
        (
            r#""limits":{"6":"#,
            r#""limits":{"66":"#,
            "scenarios.onerf-spikes.limits.66 is of backend 66; it must be of one of the backends, 1 to 20",
        ),
        (
            r#""limits":{"6":"#,
            r#""limits":{"6/1":"#,
            "scenarios.onerf-spikes.limits.6/1 is a limit of replica 1; it must be of a replica that backend 6 has in every profile, 0 to 0",
        ),
        (r#""limits":{"6":"#, r#""limits":{"b06":"#, "a limit is of `b06`, expected a backend's number"),
        (
            r#""workers":{"full":20,"#,
            r#""replicas":"two","workers":{"full":20,"#,
            r#"backends[0].service.replicas is "two"; it must be a whole number from 1 to 64, or one for every profile"#,
        ),
        (
            r#""workers":{"full":20,"#,
            r#""replicas":{"full":4},"workers":{"full":20,"#,
            "backends[0].service.replicas.demo is missing; it must be given for every profile",
        ),
        (
            "[[0,1],[15,0.41]",
            "[[0,1],[0,0.41]",
            "[1][0], the minute, is 0; it must be later than the minute before it, 0",
        ),
        ("[[0,1],[15,0.41]", "[[0,1],[15,1.41]", "[1][1], the limit, is 1.41; it must be 0.00001 to 1"),
        (r#""walk":{"1":"7"#, r#""walk":{"1":"z"#, "scenarios.onerf-random.walk.1"),
        (
            r#""step_s":20,"#,
            r#""step_s":0.001,"#,
            "step_s is 0.001, 10800000 steps of 4 backends over measure_min; it must be long enough for at most 1000000",
        ),
        (
            r#""depth":{"full":1.27}"#,
            r#""depth":{"large":1.0}"#,
            "scenarios.onerf-spikes.depth.large is of a profile there is not; it must be of one of: demo, full, s10, s100",
        ),
        (
            r#""depth":{"full":1.27}"#,
            r#""depth":{"full":-0.5}"#,
            "scenarios.onerf-spikes.depth.full is -0.5; it must be 0 to 1000",
        ),
        (r#""app_servers":16"#, r#""app_servers":1025"#, "app_servers is 1025; it must be 1 to 1024"),
        (r#""step_s":20,"#, "", "a random_walk scenario has `step_s`"),
        ("[6.13e-06,[[1,", "[6.13e-06,[[1.5,", "neither [backend, objects] nor [backend, median, sigma]"),
        ("[6.13e-06,", "[-0.613,", "request_types[319][0], the probability, is -0.613; it must be 0 to 1"),
        (
            "[6.13e-06,[[1,",
            "[6.13e-06,[[21,",
            "request_types[319][1][0][0], the backend, is 21; it must be 1 to 20",
        ),
        (
            "[6.13e-06,[[1,",
            "[6.13e-06,[[1,301],[3,",
            "request_types[319][1][0][1], the objects, is 301; it must be 1 to 300",
        ),
        ("[6.13e-06,", "[0.613,", "request_types: the sum of the probabilities is"),
        (
            "[6.13e-06,[[1,",
            "[6.13e-06,[[2,",
            "request_types[319][1][1][0], the backend, is 2, asked twice; it must be a backend once for each type",
        ),
    ];
    for (sound, faulty, expected) in cases {
        assert!(DOCUMENT.contains(sound), "{sound}");
        let error = Model::from_json(&DOCUMENT.replacen(sound, faulty, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{faulty}: {error}");
    }
    let without = DOCUMENT.replacen(r#""zipf_alpha":0.75,"#, "", 1);
    let error = Model::from_json(&without).unwrap_err().to_string();
    assert_eq!(
        error,
        "workload model: backends[1].zipf_alpha is missing; it must be given, as requests are drawn"
    );
    let cut = Model::from_json(&DOCUMENT[..DOCUMENT.len() / 2]).unwrap_err().to_string();
    assert!(cut.contains("line"), "{cut}");
}

/// A model whose requests come from a trace.
const REPLAY: &str = r#"{"schema":"onerf-workload/1","name":"shop",
    "slo":{"percentile":99,"limit_ms":150,"window_s":60,"every_s":5},"timeout_ms":1000,"hit_latency_ms":0.5,
    "profiles":{"shop":{"app_servers":1,"request_rate":10,"cache_bytes_per_server":1000,
        "alloc_granularity_bytes":1,"alloc_floor_bytes":0}},
    "backends":[
        {"id":1,"name":"a","service":{"base_ms":1,"per_item_ms":0,"cv":0,"workers":{"shop":1}}},
        {"id":2,"name":"b","service":{"quantiles_ms":[[0.5,1],[1,9]],"workers":{"shop":1}}}],
    "trace":{"file":"t.trace","format":"cache2k","value_bytes":100,"route":{"types":{"1":1},"others":2}},
    "scenarios":{"none":{"warmup_min":0,"measure_min":1,"kind":"piecewise_linear","limits":{}}}}"#;

/// The `trace` entry of the model [`REPLAY`].
const REPLAY_TRACE: &str =
    r#""trace":{"file":"t.trace","format":"cache2k","value_bytes":100,"route":{"types":{"1":1},"others":2}}"#;

#[test]
fn model_with_a_trace_is_read_and_validated() {
    let model = Model::from_json(REPLAY).unwrap();
    let replay = model.replay().unwrap();
    assert_eq!((replay.times(), replay.batch(), replay.value_bytes()), (Times::Rate, 1, 100));
    assert_eq!(
        model.mix("shop").unwrap_err().to_string(),
        "the workload model has no request types to draw from: its requests are in the trace t.trace"
    );
    let trace = r#""trace":{"file":"t.trace","format":"cache2k","value_bytes":100,"route":{"types":{"1":1},"others":2}}"#;
    let cases = [
        (trace.to_owned() + ",", String::new(), "request_types is missing; it must be given, or a `trace`"),
        (
            trace.to_owned(),
            format!(r#"{trace},"request_types":[]"#),
            "request_types is given; it must be left out",
        ),
        (
            r#""name":"a""#.into(),
            r#""name":"a","zipf_alpha":1"#.into(),
            "backends[0].zipf_alpha is given; it must be left out: objects are those of the `trace`",
        ),
        (
            r#""file":"t.trace""#.into(),
            r#""file":"""#.into(),
            "trace.file is empty; it must be the name of a file",
        ),
        (
            r#""value_bytes":100"#.into(),
            r#""batch":2"#.into(),
            "trace.value_bytes is missing; it must be given, for accesses",
        ),
        (
            r#""value_bytes":100"#.into(),
            r#""value_bytes":100,"batch":0"#.into(),
            "trace.batch is 0; it must be 1 to 65535",
        ),
        (
            r#""value_bytes":100"#.into(),
            r#""value_bytes":100,"times":"s""#.into(),
            "trace.times is a unit of time; it must be left out",
        ),
        (r#""others":2"#.into(), r#""others":3"#.into(), "trace.route.others is 3; it must be 1 to 2"),
        (r#"{"1":1},"#.into(), r#"{"32":1},"#.into(), "trace.route.types type is 32; it must be 0 to 31"),
        (
            r#","route":{"types":{"1":1},"others":2}"#.into(),
            String::new(),
            "trace.route is missing; it must be given, since there are several backends",
        ),
        (
            r#"{"types":{"1":1},"others":2}"#.into(),
            r#"{"shares":{"1":0.5,"2":0.4}}"#.into(),
            "sum of trace.route.shares is 0.9; it must be 0.9999999 to 1.0000001",
        ),
        (
            r#"{"types":{"1":1},"others":2}"#.into(),
            r#"{"prefixes":{"u":1}}"#.into(),
            "trace.route.prefixes is given; it must be left out but for a twitter trace",
        ),
        (
            r#"{"types":{"1":1},"others":2}"#.into(),
            r#"{"backend":1,"others":2}"#.into(),
            "`route` takes one of `backend`, `shares`, `types` and `prefixes`",
        ),
        (
            r#""cache2k","value_bytes":100"#.into(),
            r#""robinhood""#.into(),
            "trace.route is given; it must be left out: the trace says itself",
        ),
        (
            r#""cache2k""#.into(),
            r#""csv""#.into(),
            r#"unknown name "csv"; write "cache2k", "oracleGeneral", "twitter", "robinhood""#,
        ),
        (
            r#""request_rate":10,"#.into(),
            String::new(),
            "profiles.shop.request_rate is 0; it must be 0.001 to 1000000000",
        ),
    ];
    for (sound, faulty, expected) in cases {
        assert!(REPLAY.contains(&sound), "{sound}");
        let error = Model::from_json(&REPLAY.replacen(&sound, &faulty, 1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{faulty}: {error}");
    }
    let timed = REPLAY
        .replace(r#""request_rate":10,"#, "")
        .replace(r#""cache2k","value_bytes":100"#, r#""oracleGeneral""#);
    let timed = timed.replace(r#"{"types":{"1":1},"others":2}"#, r#"{"backend":2}"#);
    assert_eq!(Model::from_json(&timed).unwrap().replay().unwrap().times(), Times::S);
}

#[test]
fn repeated_key_is_refused_in_every_map_of_a_model_document() {
    let walk = r#""walk":{"warmup_min":1,"measure_min":1,"kind":"random_walk","step_s":60,"levels":1,"start_level":0,
        "range":{"1":[0.5,1]},"seed":1,"walk":{"1":"0"}},"#;
    let profile = r#""shop":{"app_servers":1,"cache_bytes_per_server":1,"alloc_granularity_bytes":1,"alloc_floor_bytes":1},"#;
    let example = include_str!("../../../../examples/two-backends.sim.json")
        .replacen(r#""scenarios": {"#, &format!(r#""scenarios": {{ {walk}"#), 1)
        .replacen(r#""shop": 8 }"#, r#""shop": 8 }, "replicas": { "shop": 1 }"#, 1)
        .replacen(r#""warmup_min": 20"#, r#""depth": { "shop": 1 }, "warmup_min": 20"#, 1);
    let routed = |format: &str, route: &str| {
        let trace = format!(r#""trace":{{"file":"f","format":"{format}","route":{{{route}}}}}"#);
        REPLAY.replacen(REPLAY_TRACE, &trace, 1)
    };
    let cases = [
        (&example, r#""profiles": {"#, profile, "shop"),
        (&example, r#""objects": {"#, r#""shop": 1,"#, "shop"),
        (&example, r#""workers": {"#, r#""shop": 1,"#, "shop"),
        (&example, r#""replicas": {"#, r#""shop": 1,"#, "shop"),
        (&example, r#""scenarios": {"#, walk, "walk"),
        (&example, r#""depth": {"#, r#""shop": 2,"#, "shop"),
        (&example, r#""limits": {"#, r#""2": [[0, 1]],"#, "2"),
        (&example, r#""range":{"#, r#""1":[0.5,1],"#, "1"),
        (&example, r#""walk":{"1""#, r#":"0","1""#, "1"),
        (&routed("oracleGeneral", r#""shares":{"1":1}"#), r#""shares":{"#, r#""1":1,"#, "1"),
        (&routed("cache2k", r#""types":{"1":1}"#), r#""types":{"#, r#""1":2,"#, "1"),
        (&routed("twitter", r#""prefixes":{"p":1}"#), r#""prefixes":{"#, r#""p":2,"#, "p"),
    ];
    for (document, map, entry, key) in cases {
        assert!(document.contains(map), "{map}");
        let expected = format!("the key \"{key}\" is repeated, expected each key once");
        let error =
            Model::from_json(&document.replacen(map, &format!("{map}{entry}"), 1)).unwrap_err().to_string();
        assert!(error.contains(": line ") && error.contains(&expected), "{map}: {error}");
    }
}
