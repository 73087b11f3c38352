//! Tests with memcached and Redis: their counts and the report's must agree.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts a server and waits for it to listen"
)]

mod support;

use std::collections::HashSet;
use std::io::{Cursor, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sherwood_load::cache::{Ended, Login, Options, Protocol, Workload, run};
use sherwood_load::{Control, Gaps, LoadError, Pace, tenants};
use sherwood_workload::tenants::Scenario;
use sherwood_workload::trace::{built_in, cache2k};
use sherwood_workload::{KeyValueOptions, ValueSizes};

use support::{Cache, free_port, with_each};

fn key_value(options: KeyValueOptions) -> Workload {
    Workload::KeyValue { options, batch: 1, prefixes: Vec::new(), seed: 3 }
}

#[test]
fn replayed_trace_hits_every_known_key_when_memory_is_ample() {
    with_each(|cache| {
        let accesses = cache2k::read(built_in("orm-busy").unwrap()).unwrap().take(20_000).map(Result::unwrap);
        let accesses: Vec<cache2k::Access> = accesses.collect();
        let words = accesses.iter().flat_map(|access| access.word().to_be_bytes());
        let input = Box::new(Cursor::new(words.collect::<Vec<u8>>()));
        let workload = Workload::Cache2k { input, value_sizes: ValueSizes::default(), seed: 1 };

        let report = run(&cache.options(), workload, &Control::default(), |_| {}).unwrap();

        let distinct: HashSet<_> = accesses.iter().collect();
        assert_eq!((report.ops, report.errors, report.complete), (20_000, 0, true));
        assert_eq!((report.hits, report.misses), (20_000 - distinct.len() as u64, distinct.len() as u64));
        assert_eq!(report.sets, report.misses);
        for (name, counts) in &report.by_partition {
            let of_type = |access: &&cache2k::Access| cache2k::partition_name(access.object_type()) == *name;
            let distinct = distinct.iter().copied().filter(of_type).count() as u64;
            let all = accesses.iter().filter(of_type).count() as u64;
            assert_eq!((counts.misses, counts.hits), (distinct, all - distinct), "{name}");
        }
    });
}

#[test]
fn pipelined_open_loop_ends_every_scheduled_operation_once() {
    with_each(|cache| {
        let pace = Pace::Open { rate_per_s: 5_000.0, gaps: Gaps::Fixed };
        let duration = Some(Duration::from_millis(200));
        let options = Options { pace, connections: 4, pipeline: 8, duration, ..cache.options() };
        let workload = key_value(KeyValueOptions { keys: 500, get_ratio: 0.8, ..KeyValueOptions::default() });
        let report = run(&options, workload, &Control::default(), |_| {}).unwrap();
        // At gaps of 0.2 ms: starts at 0.2, 0.4, ... 199.8 ms, sent or, on a machine that fell
        // behind, counted as unsent.
        assert_eq!(report.ops, 999);
        assert_eq!(report.errors, report.unsent);
        assert!(report.hits > 0 && report.misses > 0 && report.sets > report.misses);
        assert_eq!(report.by_partition.keys().collect::<Vec<_>>(), ["all"]);
    });
}

/// A trace of requests for one object each, with these sizes; an object's size is also its key.
fn one_object_requests(sizes: &[u32]) -> Workload {
    let line =
        |size| format!("{{\"t\":0,\"d\":[{{\"b\":{{\"S\":[{size}],\"U\":[\"{size}\"],\"C\":[1]}}}}]}}\n");
    Workload::RobinHood { input: Box::new(Cursor::new(sizes.iter().map(line).collect::<String>())) }
}

#[test]
fn value_refused_by_the_cache_is_an_error_and_the_connection_stays_usable() {
    let Some(memcached) = Cache::memcached() else { return };
    let workload = one_object_requests(&[2 << 20, 100, 2 << 20, 100]);
    let report = run(&memcached.options(), workload, &Control::default(), |_| {}).unwrap();
    assert_eq!((report.ops, report.errors, report.complete), (4, 2, true));
    assert_eq!(report.first_error.as_deref(), Some("`SERVER_ERROR object too large for cache`"));
    assert_eq!((report.hits, report.misses, report.sets), (1, 3, 1));
}

#[test]
fn values_larger_than_the_receive_buffer_are_read() {
    with_each(|cache| {
        let report =
            run(&cache.options(), one_object_requests(&[300_000; 5]), &Control::default(), |_| {}).unwrap();
        assert_eq!((report.hits, report.misses, report.errors, report.complete), (4, 1, 0, true));
    });
}

#[test]
fn run_ends_with_the_address_of_a_target_that_dies() {
    with_each(|mut cache| {
        let options = cache.options();
        let control = Control::default();
        let report = std::thread::scope(|scope| {
            let running =
                scope.spawn(|| run(&options, key_value(KeyValueOptions::default()), &control, |_| {}));
            while control.done() < 100 && !running.is_finished() {
                std::thread::yield_now();
            }
            cache.process.kill().unwrap();
            running.join().unwrap().unwrap()
        });
        assert!(!report.complete && report.ops >= 100);
        assert!(report.incomplete_because.unwrap().contains(&options.address));
    });
}

#[test]
fn observer_is_called_with_every_operation_of_a_bounded_run() {
    with_each(|cache| {
        let options = Options { operations_max: Some(500), ..cache.options() };
        let workload = key_value(KeyValueOptions { keys: 50, ..KeyValueOptions::default() });
        let mut seen = Vec::new();
        let report = run(&options, workload, &Control::default(), |ended| seen.push(*ended)).unwrap();
        assert_eq!((report.ops, report.complete, seen.len()), (500, true, 500));
        let keys = |of: fn(&Ended) -> u32| seen.iter().map(|ended| u64::from(of(ended))).sum::<u64>();
        assert_eq!((keys(|ended| ended.hits), keys(|ended| ended.misses)), (report.hits, report.misses));
        assert!(seen.is_sorted_by_key(|ended| ended.intended) && seen.iter().all(|ended| !ended.failed));
        let longest = seen.iter().map(|ended| ended.latency).max().unwrap();
        assert_eq!(longest.as_nanos() as f64 / 1e3, report.latency_us.max);
    });
}

#[test]
fn report_counts_every_key_of_a_multi_get() {
    with_each(|cache| {
        let half = KeyValueOptions { keys: 20, zipf: 0.0, get_ratio: 0.5, ..KeyValueOptions::default() };
        let duration = Some(Duration::from_millis(200));
        let pace = Pace::Open { rate_per_s: 5_000.0, gaps: Gaps::Fixed };
        let options = Options { pace, duration, pipeline: 8, look_aside: false, ..cache.options() };
        let workload = Workload::KeyValue { options: half, batch: 10, prefixes: Vec::new(), seed: 3 };
        let report = run(&options, workload, &Control::default(), |_| {}).unwrap();
        assert_eq!(report.hits + report.misses, (report.ops - report.unsent - report.sets) * 10);
        assert!(report.hits > 0 && report.errors == report.unsent, "{report}");
    });
}

#[test]
fn stopped_run_is_reported_as_incomplete() {
    with_each(|cache| {
        let control = Control::default();
        control.stop();
        let report = run(&cache.options(), key_value(KeyValueOptions::default()), &control, |_| {}).unwrap();
        assert_eq!((report.ops, report.complete), (0, false));
    });
}

#[test]
fn error_names_an_unreachable_cache() {
    let address = format!("127.0.0.1:{}", free_port());
    let options = Options {
        protocol: Protocol::Redis,
        address: address.clone(),
        pace: Pace::Closed,
        connections: 1,
        pipeline: 1,
        duration: None,
        operations_max: None,
        look_aside: false,
        deadline: None,
        tls: None,
        login: None,
        seed: 1,
    };
    let error = run(&options, key_value(KeyValueOptions::default()), &Control::default(), |_| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains(&address), "{error}");
}

#[test]
fn set_refused_by_a_full_redis_is_an_error_that_is_quoted() {
    let Some(redis) = Cache::redis(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]) else { return };
    let options = Options { operations_max: Some(100), pipeline: 4, ..redis.options() };
    let report = run(&options, key_value(KeyValueOptions::default()), &Control::default(), |_| {}).unwrap();
    assert_eq!((report.ops, report.errors, report.hits, report.sets), (100, 100, 0, 0));
    assert!(report.complete && report.first_error.unwrap().starts_with("`OOM "));
}

#[test]
fn redis_with_a_password_fails_every_operation_and_is_quoted() {
    let Some(redis) = Cache::redis(&["--requirepass", "secret"]) else { return };
    let options = Options { operations_max: Some(10), look_aside: false, ..redis.options() };
    let workload =
        Workload::KeyValue { options: KeyValueOptions::default(), batch: 3, prefixes: Vec::new(), seed: 3 };
    let report = run(&options, workload, &Control::default(), |_| {}).unwrap();
    assert_eq!((report.ops, report.errors, report.complete), (10, 10, true));
    assert!(report.first_error.unwrap().starts_with("`NOAUTH "));
}

const TENANTS: &str = r#"
    name = "pair"
    warm_up = "100ms"
    measure = "900ms"
    backends = [{ name = "db" }]
    [[tenants]]
    name = "one"
    cache = "1MiB"
    clients = { processes = 2, depth = 3 }
    loads = [{ backend = "db", keys = 100, write_ratio = 0.5 }]
    [[tenants]]
    name = "two"
    cache = "1MiB"
    arrivals = [{ at = "0s", per_s = 1000 }]
    loads = [{ backend = "db", keys = 100, scan_max = 5 }]
"#;

/// Options of a run whose tenants log in with this password.
fn tenants_options(cache: &Cache, password: &str) -> tenants::Options {
    let Options { protocol, address, .. } = cache.options();
    let login = |user: &str| Some(Login { user: user.to_owned(), password: password.to_owned() });
    let logins = vec![login("one"), login("two")];
    tenants::Options { protocol, address, tls: None, logins, interval: Duration::from_millis(300), seed: 1 }
}

#[test]
fn tenants_log_in_and_their_operations_are_counted_apart() {
    // The second user may not write, which its load does not.
    let users = [
        "--user",
        "one",
        "on",
        ">password",
        "~*",
        "+@all",
        "--user",
        "two",
        "on",
        ">password",
        "~*",
        "+@read",
    ];
    let Some(redis) = Cache::redis(&users) else { return };
    let scenario = Scenario::from_toml(TENANTS).unwrap();
    let options = tenants_options(&redis, "password");
    let report = tenants::run(&options, &scenario, &Control::default()).unwrap();
    let [one, two] = &report.tenants[..] else { panic!("{report:?}") };
    assert!(report.complete && one.ops > 0 && two.ops > 0, "{report:?}");
    assert_eq!((one.errors, two.errors, &one.name, &two.name), (0, 0, &"one".to_owned(), &"two".to_owned()));
    assert_eq!((one.throughput_by_interval.len(), two.throughput_by_interval.len()), (3, 3));
    let Err(LoadError::Login { user, source }) =
        tenants::run(&tenants_options(&redis, "wrong"), &scenario, &Control::default())
    else {
        panic!("a wrong password was taken");
    };
    assert!(user == "one" && source.to_string().contains("WRONGPASS"), "{user}: {source}");
}

#[test]
fn tenant_with_loads_of_several_backends_is_refused() {
    let text = TENANTS.replace("[{ name = \"db\" }]", "[{ name = \"db\" }, { name = \"b\" }]").replace(
        "loads = [{ backend = \"db\", keys = 100, scan_max = 5 }]",
        "loads = [{ backend = \"db\", keys = 100 }, { backend = \"b\", keys = 100 }]",
    );
    let options = tenants::Options {
        tls: None,
        protocol: Protocol::Redis,
        address: format!("127.0.0.1:{}", free_port()),
        logins: Vec::new(),
        interval: Duration::from_secs(1),
        seed: 1,
    };
    let Ok(scenario) = Scenario::from_toml(&text) else { panic!("{text}") };
    let slow = tenants::Options { interval: Duration::from_secs(2), ..options.clone() };
    let error = tenants::run(&slow, &scenario, &Control::default()).unwrap_err().to_string();
    assert!(error.contains("number of intervals of 0"), "{error}");
    let scenario = Scenario { tenants: scenario.tenants[1..].to_vec(), ..scenario };
    let options = tenants::Options { interval: Duration::from_millis(100), ..options };
    let error = tenants::run(&options, &scenario, &Control::default()).unwrap_err().to_string();
    assert!(error.contains("number of loads of 2 of tenant two"), "{error}");
}

#[test]
fn clients_of_a_tenant_pause_until_the_time_that_a_refusal_names() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = target.local_addr().unwrap().to_string();
    // A connection has one command in flight, so each piece of input is a command.
    let serve = |mut client: TcpStream| {
        let mut input = [0; 4_096];
        while client.read(&mut input).is_ok_and(|bytes| bytes > 0) {
            let refusal =
                b"-REJECTED beyond the rate of reads: it allows a start in 100ms, try again then\r\n";
            if client.write_all(refusal).is_err() {
                return;
            }
        }
    };
    thread::spawn(move || {
        target.incoming().flatten().for_each(|client| drop(thread::spawn(move || serve(client))))
    });
    let scenario = Scenario::from_toml(
        "name = \"refused\"\nwarm_up = \"0s\"\nmeasure = \"1s\"\nbackends = [{ name = \"db\" }]\n[[tenants]]\nname = \"a\"\n\
         cache = \"1MiB\"\nclients = { processes = 2, depth = 1 }\nloads = [{ backend = \"db\", keys = 10 }]\n",
    );
    let options = tenants::Options {
        tls: None,
        protocol: Protocol::Redis,
        address,
        logins: vec![None],
        interval: Duration::from_secs(1),
        seed: 1,
    };
    let report = tenants::run(&options, &scenario.unwrap(), &Control::default()).unwrap();
    let tenant = &report.tenants[0];
    assert!((2..=22).contains(&tenant.ops), "at most 11 of each client: {}", tenant.ops);
    assert_eq!(tenant.errors, tenant.ops);
}
