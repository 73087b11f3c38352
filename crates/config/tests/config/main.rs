//! Tests of whole configurations: resolved values, and messages of refused ones.

#![allow(clippy::disallowed_methods, reason = "tests of a driver read files and run validators")]

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sherwood_config::*;
use sherwood_model::BackendId;

use sherwood_listener::{Address, Io, UnixSocket};

const EXAMPLE: &str = include_str!("../../../../sherwood.example.toml");
const POLICIES: &[&str] = &["robinhood", "shared-lru", "static"];

fn config(text: &str) -> Config {
    parse("a.toml", text, &Flags::default(), POLICIES).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str, flags: &Flags) -> Vec<String> {
    let error = parse("a.toml", text, flags, POLICIES).expect_err("it is wrong");
    error.problems.iter().map(ToString::to_string).collect()
}

/// Returns the message of the only problem of the configuration `text`.
fn problem(text: &str) -> String {
    refusal(text, &Flags::default()).remove(0)
}

/// Checks that each configuration text is refused with the one message beside it.
fn assert_refused(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(refusal(text, &Flags::default()), [*expected], "for\n{text}");
    }
}

mod meaning {
    use super::*;

    #[test]
    fn empty_configuration_is_a_plain_cache_with_an_admin_api() {
        let config = load(&Flags::default(), POLICIES).expect("valid");
        assert_eq!(config, super::config(""));
        assert_eq!((config.memory.total_bytes, config.memory.item_bytes_max), (64 << 20, 1 << 20));
        assert_eq!(
            config.server,
            Server {
                threads: None,
                connections_max: 1024,
                idle_timeout: None,
                pin_threads: false,
                io: Io::Auto
            }
        );
        assert_eq!(config.admin.map(|admin| admin.to_string()).as_deref(), Some("127.0.0.1:8080"));
        assert!(config.listeners.is_empty());
        let names: Vec<&str> = config.partitions.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!((names, config.partitions[0].initial_bytes), (vec!["default"], 64 << 20));
        assert_eq!(config.control.policy, "robinhood");
        assert_eq!(config.memory_line(), "memory: 64MiB for the cache");
    }

    #[test]
    fn flags_without_a_file_are_a_complete_configuration() {
        let text = |text: &str| Some(text.to_owned());
        let flags = Flags {
            config: None,
            memory: text("1GiB"),
            memcached: text("127.0.0.1:11211"),
            unix_socket: text("/run/sherwood.sock"),
            redis: text("127.0.0.1:6379"),
            admin: text("off"),
            threads: Some(2),
            max_connections: Some(10),
            pin: true,
            io: text("epoll"),
            max_item_size: text("2MiB"),
            eviction: text("lru"),
            policy: text("static"),
            node: None,
        };
        let config = load(&flags, POLICIES).expect("valid");
        assert_eq!((config.memory.total_bytes, config.memory.item_bytes_max), (1 << 30, 2 << 20));
        assert_eq!(config.memory.eviction, sherwood_cache::Eviction::Lru);
        assert_eq!(
            config.server,
            Server {
                threads: Some(2),
                connections_max: 10,
                idle_timeout: None,
                pin_threads: true,
                io: Io::Epoll
            }
        );
        let tcp = |address: &str| Address::Tcp(address.parse().expect("an address"));
        let unix = UnixSocket { path: "/run/sherwood.sock".into(), permissions: 0o700 };
        let listener = |(protocol, bind)| Listener {
            auth_file: None,
            tls: None,
            tenant: None,
            protocol,
            bind,
            route: Route::Backend(BackendId(0)),
            mode: Mode::LookAside,
            requests: BatchMode::Auto,
            class: None,
            databases: 1,
        };
        let listeners = [
            (Protocol::Memcached, tcp("127.0.0.1:11211")),
            (Protocol::Redis, tcp("127.0.0.1:6379")),
            (Protocol::Memcached, Address::Unix(unix)),
        ];
        assert_eq!(config.listeners, listeners.map(listener));
        assert_eq!((config.admin, config.control.policy.as_str()), (None, "static"));
    }

    #[test]
    fn zero_sample_ratio_disables_miss_ratio_curves() {
        let ratio = |text| config(text).memory.mrc_sample_ratio;
        assert_eq!(
            [ratio(""), ratio("[memory]\nmrc_sample = 0"), ratio("[memory]\nmrc_sample = 1.0")],
            [1.0 / 32.0, 0.0, 1.0]
        );
    }

    #[test]
    fn flags_override_the_configuration_file() {
        let file = "[memory]\ntotal = 0\n[[listener]]\nbind = \"0.0.0.0:1\"\nmode = \"look-aside\"\n\
                    [admin]\nbind = \"off\"\n[control]\npolicy = \"none\"";
        let flags = Flags {
            memory: Some("2MiB".to_owned()),
            memcached: Some("127.0.0.1:11211".to_owned()),
            admin: Some("127.0.0.1:9000".to_owned()),
            policy: Some("static".to_owned()),
            ..Flags::default()
        };
        let config = parse("a.toml", file, &flags, POLICIES).expect("what is wrong is overridden");
        assert_eq!(config.memory.total_bytes, 2 << 20);
        assert_eq!(config.listeners[0].bind.to_string(), "127.0.0.1:11211");
        assert_eq!(config.admin.map(|admin| admin.port()), Some(9000));
    }

    #[test]
    fn example_configuration_resolves_to_its_documented_values() {
        let config = config(EXAMPLE);
        let names: Vec<&str> = config.backends.iter().map(|backend| backend.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "catalog", "prices", "similar", "measured", "sessions", "profiles", "regions", "accounts",
                "items", "products", "people", "orders"
            ]
        );
        let [catalog, prices, similar, ..] = &config.backends[..] else { panic!("three backends") };
        assert_eq!(catalog.freshness.rules.ttl, Some(Duration::from_secs(60)));
        assert_eq!((catalog.replicas.len(), prices.replicas.len(), similar.replicas.len()), (1, 2, 1));
        let routes: Vec<(Route, Mode)> =
            config.listeners.iter().map(|listener| (listener.route, listener.mode)).collect();
        assert_eq!(
            routes,
            [
                (Route::Prefix, Mode::ReadThrough),
                (
                    Route::Backend(BackendId(0)),
                    Mode::WriteThrough(WriteThrough { cache_first: false, admit: true })
                ),
                (Route::Backend(BackendId(0)), Mode::LookAside),
                (Route::Prefix, Mode::LookAside)
            ]
        );
        let databases: Vec<u8> = config.listeners.iter().map(|listener| listener.databases).collect();
        assert_eq!(databases, [1, 1, 16, 1]);
        assert_eq!(
            config.memory_line(),
            "memory: 1GiB for the cache + 12MiB for 8 embedded stores = 1036MiB"
        );
        let initial: Vec<u64> = config.partitions.iter().map(|partition| partition.initial_bytes).collect();
        // The others have equal shares, to the byte.
        let share = (448_u64 << 20) / 11;
        assert!(initial.len() == 24 && initial[0].abs_diff(64 << 20) <= 1, "{initial:?}");
        assert!(initial[1..12].iter().all(|bytes| bytes.abs_diff(share) <= 1), "{initial:?}");
        let share = (512_u64 << 20) / 12;
        assert!(initial[12..].iter().all(|bytes| bytes.abs_diff(share) <= 1), "{initial:?}");
        let names: Vec<&str> = config.partitions.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!((names[0], names[12]), ("catalog", "gold:catalog"));
    }

    #[test]
    fn defaults_stated_in_the_example_configuration_are_those_in_force() {
        let (example, default) = (config(EXAMPLE), config(""));
        assert_eq!(example.slo, default.slo);
        // The example has tenants, among whom there is no guard.
        assert_eq!(example.control, Control { guard: None, ..default.control.clone() });
        let (_, guard) = EXAMPLE.split_once("[control.guard]").expect("its table");
        let (guard, _) = guard.split_once("[control.tao]").expect("the next table");
        let guard = guard.replace("enabled = false", "enabled = true");
        assert_eq!(config(&format!("[control.guard]{guard}")).control, default.control);
        assert_eq!(example.admin, default.admin);
        assert_eq!(example.memory.item_bytes_max, default.memory.item_bytes_max);
        assert_eq!(example.memory.eviction, default.memory.eviction);
        assert_eq!(example.memory.buffers_bytes_max, default.memory.buffers_bytes_max);
        assert_eq!(example.server.connections_max, default.server.connections_max);
        let store = |kind: &str| config(&format!("[[backend]]\nname = \"a\"\nstore = {{ kind = {kind} }}"));
        let replica = |config: &Config, at: usize| config.backends[at].replicas[0].clone();
        assert_eq!(replica(&example, 0), replica(&store("\"kv\", path = \"data/catalog\""), 0));
        assert_eq!(replica(&example, 2), replica(&store("\"compute\""), 0));
        let ramp = Some(sherwood_dispatch::RampOptions::default());
        assert_eq!(
            example.backends[0].dispatch,
            sherwood_dispatch::Options { ramp, ..config("").backends[0].dispatch }
        );
        assert_eq!(example.snapshot.map(|one| one.time_max), Some(Duration::from_secs(10)));
    }

    #[test]
    fn accepted_ranges_of_a_store_are_those_of_the_store_crate() {
        let text = |n: u64, threads: u64| {
            format!(
                "[[backend]]\nname = \"a\"\nstore = {{ kind = \"compute\", n = {n}, threads = {threads} }}"
            )
        };
        let (n, threads) = (u64::from(*ComputeOptions::N.end()), u64::from(*StoreOptions::THREADS.end()));
        let StoreOptions::Compute(options) = config(&text(n, threads)).backends[0].replicas[0].clone() else {
            panic!("a compute store")
        };
        assert_eq!((u64::from(options.n), u64::from(options.threads)), (n, threads));
        assert_eq!(refusal(&text(n + 1, threads + 1), &Flags::default()).len(), 2);
    }

    #[test]
    fn every_option_of_a_dispatcher_can_be_set() {
        let set = "batch_keys_max = 1, in_flight_calls_max = 2, queued_calls_max = 0, waiters_max = 4, \
                   retry = { per_call_max = 5, ratio = 0, burst = 6 }, \
                   probe = { failures_max = 7, interval_min = \"20s\", interval_max = \"30s\" }";
        let ramp = "start = 7, grow = 3, wait = 0.25, interval = \"1s\", settle = \"20s\"";
        let text = format!(
            "[[backend]]\nname = \"a\"\ntimeout = \"3s\"\ndispatch = {{ {set} }}\nramp = {{ {ramp} }}"
        );
        let expected = sherwood_dispatch::Options {
            batch_keys_max: 1,
            in_flight_calls_max: 2,
            queued_calls_max: 0,
            waiters_max: 4,
            timeout: Duration::from_secs(3),
            retry: sherwood_dispatch::RetryOptions { per_call_max: 5, ratio: 0.0, burst: 6 },
            probe: sherwood_dispatch::ProbeOptions {
                failures_max: 7,
                interval_min: Duration::from_secs(20),
                interval_max: Duration::from_secs(30),
            },
            ramp: Some(sherwood_dispatch::RampOptions {
                start_keys: 7,
                grow_ratio: 3.0,
                wait_ratio: 0.25,
                interval: Duration::from_secs(1),
                settle: Duration::from_secs(20),
            }),
            ..sherwood_dispatch::Options::default()
        };
        assert_eq!(config(&text).backends[0].dispatch, expected);
        assert_eq!(config("").backends[0].dispatch, sherwood_dispatch::Options::default());
        let rules = |keys: &str| {
            config(&format!("[[backend]]\nname = \"a\"\ndispatch = {{ {keys} }}")).backends[0].dispatch
        };
        let percent = |percent| sherwood_model::Percent::new("alpha", percent).expect("in range");
        let expected = sherwood_dispatch::Options {
            queue: sherwood_dispatch::QueueChoice::Edf { alpha: percent(7.5) },
            balance: sherwood_dispatch::BalanceChoice::Tickets,
            admit: sherwood_dispatch::AdmitChoice::Deadline { target: None },
            beta: percent(70.0),
            ..sherwood_dispatch::Options::default()
        };
        let microfuge = "queue = \"edf\", balance = \"tickets\", admit = \"deadline\"";
        assert_eq!(rules(&format!("{microfuge}, alpha = 7.5, beta = 70")), expected);
        let admit = sherwood_dispatch::AdmitChoice::Deadline { target: Some(percent(3.0)) };
        assert_eq!(rules("admit = \"deadline\", target = 0.03").admit, admit);
        let target = Duration::from_millis(5);
        let delay = rules("admit = \"delay\", target_delay = \"5ms\"").admit;
        assert_eq!(delay, sherwood_dispatch::AdmitChoice::Delay { target });
    }

    #[test]
    fn rules_and_retry_budget_of_a_dispatcher_can_be_chosen_by_name() {
        let rules = "queue = \"fifo\", balance = \"round-robin\", admit = \"open\", copies = \"one\"";
        let budget = "extra_ratio = 0.5, extra_burst = 8";
        let text = format!("[[backend]]\nname = \"a\"\ndispatch = {{ {rules}, {budget} }}");
        let default = sherwood_dispatch::Options::default();
        let expected = sherwood_dispatch::Options {
            balance: sherwood_dispatch::BalanceChoice::RoundRobin,
            retry: sherwood_dispatch::RetryOptions { ratio: 0.5, burst: 8, ..default.retry },
            ..default
        };
        assert_eq!(config(&text).backends[0].dispatch, expected);
    }

    #[test]
    fn partition_name_includes_its_tenant() {
        let config = config(
            "[[backend]]\nname = \"a\"\n[[backend]]\nname = \"b\"\n[[partition]]\nbackend = \"b\"\ntenant = \"t\"\n\
             [[partition]]\nbackend = \"b\"\n",
        );
        assert_eq!(config.tenants, ["default", "t"]);
        let names: Vec<&str> = config.partitions.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["t:b", "b", "a"]);
    }

    #[test]
    fn every_backend_has_a_partition_of_the_default_tenant() {
        let config = config("[[backend]]\nname = \"a\"\n[[partition]]\nbackend = \"a\"\ntenant = \"t\"");
        let names: Vec<&str> = config.partitions.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["t:a", "a"]);
    }

    #[test]
    fn start_up_line_on_buffers_sums_the_most_that_all_clients_use() {
        let listener = "[server]\nmax_connections = 10\n[[listener]]\nbind = \"127.0.0.1:1\"";
        assert_eq!(
            config(listener).buffers_line(),
            "buffers: at most 415.4MiB more if every client uses all it may: 256.0MiB for requests, answers and fetched \
             values, 31.4MiB for 10 memcached connections, 128.0MiB for 1024 HTTP connections; less with a lower \
             max_connections, max_item_size or buffers"
        );
        let off = format!("{listener}\n[admin]\nbind = \"off\"");
        assert!(!config(&off).buffers_line().contains("HTTP"));
    }

    #[test]
    fn start_up_lines_name_backends_and_sources_of_requests() {
        let plain = config("[[listener]]\nbind = \"127.0.0.1:1\"");
        assert_eq!(plain.backends_line(), "backends: none, a plain cache");
        assert_eq!(
            plain.requests_line(),
            "requests: from the gateway, reports and traces, else from batches of listeners' clients"
        );
        let store =
            |name: &str| format!("[[backend]]\nname = \"{name}\"\nstore = {{ kind = \"synthetic\" }}\n");
        let two =
            "[[backend]]\nname = \"b\"\nreplicas = [{ kind = \"synthetic\" }, { kind = \"synthetic\" }]";
        let of_two = config(&format!("{}{two}", store("a")));
        assert_eq!(of_two.backends_line(), "backends: a (synthetic), b (synthetic, 2 replicas)");
        assert_eq!(of_two.requests_line(), "requests: from the gateway, reports and traces");
        let many = config(&(1..=12).map(|n| store(&format!("s{n}"))).collect::<String>());
        assert!(many.backends_line().ends_with(", s10 (synthetic), 2 more"), "{}", many.backends_line());
        let line = |requests: &str, otlp: &str| {
            let listener = format!("[[listener]]\nbind = \"127.0.0.1:1\"\nrequests = \"{requests}\"\n");
            config(&format!("{listener}[admin]\nbind = \"off\"\n{otlp}")).requests_line()
        };
        assert_eq!(line("off", ""), "requests: none: [admin], [otlp] and batches of listeners are off");
        assert_eq!(line("batches", ""), "requests: from batches of listeners' clients");
        assert_eq!(line("auto", ""), line("batches", ""));
        let otlp = "[otlp]\nbind = \"127.0.0.1:2\"";
        assert_eq!(line("auto", otlp), "requests: from traces, else from batches of listeners' clients");
    }

    #[test]
    fn memory_slack_is_a_share_of_the_total_with_a_minimum() {
        let slack =
            |total: &str| config(&format!("[memory]\ntotal = \"{total}\"")).memory.slack_bytes() >> 20;
        assert_eq!((slack("1MiB"), slack("256MiB"), slack("10GiB")), (64, 64, 1535));
    }

    #[test]
    fn listener_routes_by_prefix_if_a_backend_has_one() {
        let listeners =
            |backends: &str| config(&format!("[[listener]]\nbind = \"127.0.0.1:1\"\n{backends}")).listeners;
        assert_eq!(listeners("[[backend]]\nname = \"a\"\nprefix = \"a/\"")[0].route, Route::Prefix);
        assert_eq!(listeners("[[backend]]\nname = \"a\"")[0].route, Route::Backend(BackendId(0)));
    }

    #[test]
    fn listener_on_a_unix_socket_is_accepted() {
        let bind = |permissions: &str| {
            let file = format!("[[listener]]\nbind = \"unix:/run/s.sock\"\n{permissions}");
            config(&file).listeners.remove(0).bind
        };
        let unix = |permissions| Address::Unix(UnixSocket { path: "/run/s.sock".into(), permissions });
        assert_eq!(bind(""), unix(0o700));
        assert_eq!(bind("permissions = \"0660\""), unix(0o660));
        assert_eq!(bind("permissions = \"777\"").to_string(), "unix:/run/s.sock");
    }

    #[test]
    fn flag_adds_a_unix_socket_to_the_listeners_of_the_file() {
        let flags = Flags { unix_socket: Some("s.sock".to_owned()), ..Flags::default() };
        let file = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nbind = \"127.0.0.1:2\"";
        let config = parse("a.toml", file, &flags, POLICIES).expect("valid");
        let places: Vec<String> = config.listeners.iter().map(|listener| listener.bind.to_string()).collect();
        assert_eq!(places, ["127.0.0.1:1", "127.0.0.1:2", "unix:s.sock"]);
    }

    #[test]
    fn empty_prefix_is_accepted_with_other_prefixes() {
        let config =
            config("[[backend]]\nname = \"a\"\nprefix = \"a/\"\n[[backend]]\nname = \"b\"\nprefix = \"\"");
        assert_eq!(config.backends[1].prefix.as_deref(), Some(""));
    }
}

mod access;
mod classes;
mod cluster;
mod duplicates;
mod forms;
mod freshness;
#[path = "../../../listener/tests/common/missing.rs"]
mod missing;
#[path = "../../../listener/tests/common/programs.rs"]
#[allow(dead_code, reason = "no client library is run here")]
mod programs;
mod rails;
mod refusals;
mod remote;
mod schema;
mod tenants;

#[test]
fn every_example_configuration_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files =
        std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("a file").path());
    let configs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(!configs.is_empty());
    for path in configs {
        let flags = Flags { config: Some(path), ..Flags::default() };
        load(&flags, POLICIES).unwrap_or_else(|error| panic!("{error}"));
    }
}

proptest! {
    #[test]
    fn parsing_arbitrary_bytes_as_configuration_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse("a.toml", &String::from_utf8_lossy(&bytes), &Flags::default(), POLICIES);
    }

    #[test]
    fn parsing_a_damaged_example_configuration_never_panics(at in 0..EXAMPLE.len(), length in 0_usize..200, with in "\\PC{0,8}") {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        bytes.splice(at..(at + length).min(EXAMPLE.len()), with.into_bytes());
        if let Err(error) = parse("a.toml", &String::from_utf8_lossy(&bytes), &Flags::default(), POLICIES) {
            prop_assert!((1..=PROBLEMS_MAX).contains(&error.problems.len()));
        }
    }

    #[test]
    fn accepted_partitions_fit_into_the_total(
        total_mib in 1_u64..64,
        sizes in prop::collection::vec((0_u64..8, 0_u64..64, prop::option::of(0_u64..16)), 1..8),
    ) {
        let mut text = format!("[memory]\ntotal = \"{total_mib}MiB\"\nmax_item_size = \"1KiB\"\n");
        for (index, (min, more, initial)) in sizes.iter().enumerate() {
            let initial = initial.map_or(String::new(), |initial| format!("initial = \"{initial}MiB\"\n"));
            text += &format!(
                "[[backend]]\nname = \"b{index}\"\n[[partition]]\nbackend = \"b{index}\"\nmin = \"{min}MiB\"\nmax = \
                 \"{}MiB\"\n{initial}",
                min + more
            );
        }
        if let Ok(config) = parse("a.toml", &text, &Flags::default(), POLICIES) {
            let sum: u64 = config.partitions.iter().map(|partition| partition.initial_bytes).sum();
            prop_assert!(sum <= config.memory.total_bytes);
            for partition in &config.partitions {
                prop_assert!(partition.bytes_min <= partition.initial_bytes);
                prop_assert!(partition.initial_bytes <= partition.bytes_max);
            }
        }
    }
}
