//! Tests of refused configurations and their messages.

use super::*;

#[test]
fn configured_size_out_of_range_is_refused() {
    assert_refused(&[
        (
            "[memory]\n    total = 0",
            "a.toml:2:13: [memory] total is 0 bytes; it must be at least 1MiB: set total = \"1GiB\"",
        ),
        (
            "[memory]\ntotal = \"2MiB\"\nmax_item_size = \"3MiB\"",
            "a.toml:3:17: [memory] max_item_size is 3MiB; it must be 1KiB to 2MiB: set max_item_size = \"1MiB\"",
        ),
        (
            "[memory]\nbuffers = \"1MiB\"",
            "a.toml:2:11: [memory] buffers is 1MiB; it must be at least 32MiB: set buffers = \"256MiB\"",
        ),
        (
            "[memory]\nmrc_sample = 1.5",
            "a.toml:2:14: [memory] mrc_sample is 1.5; it must be 0 to 1: set mrc_sample = 0.03125",
        ),
        (
            "[server]\nthreads = 0",
            "a.toml:2:11: [server] threads is 0; it must be at least 1: set threads = 2",
        ),
        (
            "[server]\nmax_connections = 70000",
            "a.toml:2:19: [server] max_connections is 70000; it must be 1 to 65536: set max_connections = 1024",
        ),
        (
            "[server]\nidle_timeout = \"0s\"",
            "a.toml:2:16: [server] idle_timeout is 0s; it must be at least 1s: set idle_timeout = \"5m\"",
        ),
    ]);
}

#[test]
fn control_option_out_of_range_is_refused() {
    assert_refused(&[
        (
            "[slo]\npercentile = 100",
            "a.toml:2:14: [slo] percentile is 100; it must be 1 to 99.99: set percentile = 99.0",
        ),
        (
            "[slo]\npercentile = nan",
            "a.toml:2:14: [slo] percentile is NaN; it must be 1 to 99.99: set percentile = 99.0",
        ),
        (
            "[slo]\nbound = \"0s\"",
            "a.toml:2:9: [slo] bound is 0s; it must be at least 1ms: set bound = \"150ms\"",
        ),
        (
            "[slo]\nwindow = \"3s\"\nobserve = \"4s\"",
            "a.toml:3:11: [slo] observe is 4s; it must be 1ms to 3s: set observe = \"3s\"",
        ),
        ("[control]\ntax = -0.1", "a.toml:2:7: [control] tax is -0.1; it must be at least 0: set tax = 0.01"),
        (
            "[control]\nband = [99.5, 98.5]",
            "a.toml:2:8: [control] band is [99.5, 98.5]; it must be two percentiles from 0 to 100, the lower first: \
             set band = [98.5, 99.5]",
        ),
        (
            "[control]\nband = []",
            "a.toml:2:8: [control] band is []; it must be two percentiles from 0 to 100, the lower first: set band = \
             [98.5, 99.5]",
        ),
        (
            "[control.lama]\ngrid = 0.2",
            "a.toml:2:8: [control.lama] grid is 0.2; it must be 0.001 to 0.1: set grid = 0.005",
        ),
        (
            "[control.tao]\nlearn = \"0s\"",
            "a.toml:2:9: [control.tao] learn is 0s; it must be at least 1ms: set learn = \"36m\"",
        ),
        (
            "[control.fair]\nmode = \"waterfal\"",
            "a.toml:2:8: [control.fair] mode is \"waterfal\"; it must be \"feedback\" or \"waterfill\": did you mean \
             \"waterfill\"?",
        ),
        (
            "[control]\npolicy = \"robinhod\"",
            "a.toml:2:10: [control] policy is \"robinhod\"; it must be one of \"robinhood\", \"shared-lru\", \
             \"static\": did you mean \"robinhood\"?",
        ),
    ]);
}

#[test]
fn invalid_address_is_refused() {
    assert_refused(&[
        (
            "[admin]\nbind = \"localhost\"",
            "a.toml:2:8: [admin] bind is \"localhost\"; it must be an IP address, or localhost, and a port: set bind = \
             \"127.0.0.1:8080\"",
        ),
        (
            "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nbind = \"127.0.0.1:1\"",
            "a.toml:4:8: [[listener]] bind is 127.0.0.1:1, which [[listener]] bind (line 2) has already; each needs \
             its own: change the port of one",
        ),
        (
            "[[listener]]\nbind = \"127.0.0.1:8080\"",
            "a.toml:2:8: [[listener]] bind is 127.0.0.1:8080, which [admin] bind (by default) has already; each needs \
             its own: change the port of one",
        ),
        (
            "[[listener]]\nbackend = \"default\"",
            "a.toml:1:1: [[listener]] has no bind; it must name an address and a port: set bind = \"127.0.0.1:11211\"",
        ),
        (
            "[admin]\nbind = \"off\"",
            "a.toml: there is nothing to listen on; a node needs a listener or the admin API: add a [[listener]], \
             give --memcached 127.0.0.1:11211, or leave the admin API on",
        ),
    ]);
}

#[test]
fn invalid_unix_socket_is_refused() {
    assert_refused(&[
        (
            "[[listener]]\nbind = \"unix:\"",
            "a.toml:2:8: [[listener]] bind names a socket by 0 bytes; its path must have 1 to 107, none of them zero: \
             set bind = \"unix:/run/sherwood.sock\"",
        ),
        (
            "[[listener]]\nbind = \"unix:/s\"\npermissions = \"0788\"",
            "a.toml:3:15: [[listener]] permissions is \"0788\"; it must be octal, \"0000\" to \"0777\": set permissions \
             = \"0700\"",
        ),
        (
            "[[listener]]\nbind = \"unix:/s\"\npermissions = \"4755\"",
            "a.toml:3:15: [[listener]] permissions is \"4755\"; it must be octal, \"0000\" to \"0777\": set permissions \
             = \"0700\"",
        ),
        (
            "[[listener]]\nbind = \"127.0.0.1:1\"\npermissions = \"0700\"",
            "a.toml:3:15: [[listener]] permissions are those of a UNIX socket, and bind is none: remove them, or set \
             bind = \"unix:/run/sherwood.sock\"",
        ),
        (
            "[[listener]]\nbind = \"unix:/s\"\n[[listener]]\nbind = \"unix:/s\"",
            "a.toml:4:8: [[listener]] bind is unix:/s, which [[listener]] bind (line 2) has already; each needs its \
             own: change the path of one",
        ),
    ]);
    let flags = Flags { unix_socket: Some("x".repeat(108)), ..Flags::default() };
    let expected = "--unix-socket names a socket by 108 bytes; its path must have 1 to 107, none of them zero: give \
                    --unix-socket /run/sherwood.sock";
    assert_eq!(refusal("", &flags), [expected]);
}

#[test]
fn class_of_a_listener_without_an_slo_is_refused() {
    let listener = "[[listener]]\nbind = \"127.0.0.1:1\"\nclass = \"pgae\"\n";
    let expected = "a.toml:3:9: [[listener]] class is \"pgae\", and no class has an SLO; it must be one that has: add a \
                    [[slo.class]] of that name";
    assert_eq!(refusal(listener, &Flags::default()), [expected]);
    let slos = "[[slo.class]]\nname = \"page\"\n[[slo.class]]\nname = \"feed\"\n";
    let expected =
        "a.toml:3:9: [[listener]] class is \"pgae\"; it must be \"page\" or \"feed\": did you mean \"page\"?";
    assert_eq!(refusal(&format!("{listener}{slos}"), &Flags::default()), [expected]);
}

#[test]
fn listener_without_a_valid_route_is_refused() {
    let listener = "[[listener]]\nbind = \"127.0.0.1:1\"\n";
    let backends = "[[backend]]\nname = \"a\"\n[[backend]]\nname = \"b\"\n";
    let cases = [
        (
            "backend = \"c\"\n",
            "a.toml:3:11: [[listener]] backend is \"c\"; it must be \"a\" or \"b\": did you mean \"a\"?",
        ),
        (
            "route = \"prefix\"\n",
            "a.toml:3:9: [[listener]] route is \"prefix\", but no backend has a prefix; at least one must: set prefix \
             = \"catalog/\" there, or backend instead of route here",
        ),
        (
            "route = \"p\"\n",
            "a.toml:3:9: [[listener]] route is \"p\"; it must be \"prefix\": set route = \"prefix\"",
        ),
        (
            "route = \"prefix\"\nbackend = \"a\"\n",
            "a.toml:3:9: [[listener]] has both route and backend; it must have one of them: remove one",
        ),
        (
            "",
            "a.toml:1:1: a listener has neither route nor backend, and there are 2 backends; it must have one of them: \
             set route = \"prefix\" or backend = \"a\"",
        ),
        (
            "backend = \"a\"\nprotocol = \"http\"\n",
            "a.toml:4:12: [[listener]] protocol is \"http\"; it must be \"memcached\" or \"redis\": set protocol = \
             \"memcached\"",
        ),
        (
            "backend = \"a\"\nmode = \"read-through\"\n",
            "a.toml:4:8: [[listener]] mode is \"read-through\", but backend \"a\" has no store: give it \
             a store, or set mode = \"look-aside\"",
        ),
        (
            "backend = \"a\"\nmode = \"write-through\"\n",
            "a.toml:4:8: [[listener]] mode is \"write-through\", but backend \"a\" has no store: give it \
             a store, or set mode = \"look-aside\"",
        ),
        (
            "backend = \"a\"\nwrite_admit = false\n",
            "a.toml:4:15: [[listener]] has write_admit, but its mode is not \"write-through\"; only that writes to a \
             store: remove write_admit, or set mode = \"write-through\"",
        ),
    ];
    for (keys, expected) in cases {
        assert_refused(&[(&format!("{listener}{keys}{backends}"), expected)]);
    }
}

#[test]
fn ambiguous_backends_are_refused() {
    assert_refused(&[
        ("[[backend]]", "a.toml:1:1: [[backend]] has no name; it must have one: set name = \"catalog\""),
        (
            "[[backend]]\nname = \"a b\"",
            "a.toml:2:8: [[backend]] name is \"a b\"; it must be 1 to 64 letters, digits, '.', '_' or '-': set name = \
             \"catalog\"",
        ),
        (
            "[[backend]]\nname = \"a\"\n[[backend]]\nname = \"a\"",
            "a.toml:4:8: [[backend]] name is \"a\" as on line 2; names must be unique: rename one",
        ),
        (
            "[[backend]]\nname = \"a\"\nprefix = \"p/\"\n[[backend]]\nname = \"b\"\nprefix = \"p/q/\"",
            "a.toml:6:10: [[backend]] prefix is \"p/q/\" while line 3 has \"p/\"; none may start with another, or a \
             key would belong to two backends: change one",
        ),
        (
            "[[backend]]\nname = \"a\"\nprefix = \"\"\n[[backend]]\nname = \"b\"\nprefix = \"\"",
            "a.toml:6:10: [[backend]] prefix is \"\" while line 3 has \"\"; none may start with another, or a key \
             would belong to two backends: change one",
        ),
        (
            "[[backend]]\nname = \"a\"\nprefix = \"p q\"",
            "a.toml:3:10: [[backend]] prefix is \"p q\"; it must be at most 200 bytes without blanks or control \
             characters: set prefix = \"catalog/\"",
        ),
        (
            "[[backend]]\nname = \"a\"\ntimeout = \"0s\"",
            "a.toml:3:11: [[backend]] timeout is 0s; it must be at least 1ms: set timeout = \"2s\"",
        ),
        (
            "[[backend]]\nname = \"a\"\nttl = \"0s\"",
            "a.toml:3:7: [[backend]] ttl is 0s; it must be at least 1ms: set ttl = \"60s\"",
        ),
    ]);
}

#[test]
fn policy_that_needs_unavailable_options_is_refused() {
    for policy in ["offline_opt", "bubble_wrap"] {
        let text = format!("[control]\npolicy = \"{policy}\"");
        let policies = sherwood_policy::available_without_options();
        let error = parse("a.toml", &text, &Flags::default(), policies).expect_err("it has no schedule");
        let reason = format!(
            "cannot use policy \"{policy}\" without a schedule, its option of that name; choose one of"
        );
        assert!(error.to_string().starts_with(&format!("a.toml:2:10: [control] policy: {reason} robinhood")));
    }
}

#[test]
fn invalid_dispatcher_is_refused() {
    let backend = "[[backend]]\nname = \"a\"\n";
    let cases = [
        (
            "dispatch = { waiters_max = 0 }",
            "a.toml:3:28: [[backend]] setting up dispatch: `waiters_max` is 0, must be at least 1; raise it or leave it \
             out for the default",
        ),
        (
            "dispatch.retry.ratio = 2",
            "a.toml:3:24: [[backend]] setting up dispatch: `retry.ratio` is 2, must be 0 to 1; 0.1 allows one retry in \
             ten calls",
        ),
        (
            "[backend.dispatch.probe]\ninterval_min = \"20s\"",
            "a.toml:4:16: [[backend]] setting up dispatch: `probe.interval_max` is 10s, must be at least \
             `probe.interval_min` (20s); swap them",
        ),
        (
            "dispatch = { probe = { interval_min = \"0s\" } }",
            "a.toml:3:39: [[backend]] dispatch.probe.interval_min is 0s; it must be at least 1ms: set \
             dispatch.probe.interval_min = \"100ms\"",
        ),
        (
            "dispatch = { batch_keys_max = -1 }",
            "a.toml:3:31: [[backend]] dispatch.batch_keys_max: -1 is not accepted; write a whole number (at least 1)",
        ),
        (
            "dispatch = { queue = \"lifo\" }",
            "a.toml:3:22: [[backend]] dispatch: `queue` is \"lifo\", which is no rule; choose fifo, edf: did you \
             mean \"fifo\"?",
        ),
        (
            "dispatch = { balance = \"fastest\" }",
            "a.toml:3:24: [[backend]] dispatch: `balance` is \"fastest\", which is no rule; choose power-of-two, \
             round-robin, random, tickets, tickets-all, tokens, peak-ewma, c3, prequal",
        ),
        (
            "dispatch = { copies = \"fixed\", factor = 3 }\nreplicas = [{ kind = \"synthetic\" }, { kind = \"synthetic\" }]",
            "a.toml:3:41: [[backend]] setting up dispatch: `factor` is 3, must be 1 to 2, as each attempt goes to another \
             replica; lower it, or add replicas",
        ),
        (
            "dispatch = { factor = 2 }",
            "a.toml:3:23: [[backend]] dispatch: `factor` has an effect with copies = \"fixed\", \"tied\" or \"idle\" only; \
             choose that rule, or remove `factor`",
        ),
        (
            "dispatch = { copies = \"hedge\", hedge = { percentile = 100 } }",
            "a.toml:3:55: [[backend]] dispatch: `hedge.percentile` is 100 percent, must be 0.01 to 99.99; leave it out for \
             the default",
        ),
        (
            "dispatch = { balance = \"tokens\", tokens = 0 }",
            "a.toml:3:43: [[backend]] setting up dispatch: `tokens` is 0, must be at least 1; raise it or leave it out for \
             the default",
        ),
        (
            "dispatch = { balance = \"tokens\", tokens = 4, in_flight_calls_max = 4 }",
            "a.toml:3:43: [[backend]] dispatch: `tokens` and `in_flight_calls_max` are two names of one option with \
             balance = \"tokens\"; remove one of them",
        ),
        (
            "[replication]\ntiers = [\"b\"]",
            "a.toml:4:9: [replication] tiers: \"b\" is no [[backend]]; name one of a",
        ),
        (
            "dispatch = { admit = \"slack\" }",
            "a.toml:3:22: [[backend]] dispatch: `admit` is \"slack\", which is no rule; choose open, deadline, delay",
        ),
        (
            "dispatch = { copies = \"heged\" }",
            "a.toml:3:23: [[backend]] dispatch: `copies` is \"heged\", which is no rule; choose one, fixed, hedge, tied, \
             idle: did you mean \"hedge\"?",
        ),
        (
            "dispatch = { target = 0.03 }",
            "a.toml:3:23: [[backend]] dispatch: `target` has an effect with admit = \"deadline\" only; choose that rule, or \
             remove `target`",
        ),
        (
            "dispatch = { admit = \"deadline\", target = 3 }",
            "a.toml:3:43: [[backend]] dispatch: `target` is 3, must be 0.0001 to 0.9999, a share of the deadlines; 0.03 \
             lets three of a hundred be missed",
        ),
        (
            "dispatch = { alpha = 15 }",
            "a.toml:3:22: [[backend]] dispatch: `alpha` has an effect with queue = \"edf\" only; choose that rule, or \
             remove `alpha`",
        ),
        (
            "dispatch = { queue = \"edf\", beta = 88 }",
            "a.toml:3:36: [[backend]] dispatch: `beta` has an effect with balance = \"tickets\", admit = \"deadline\" or \
             admit = \"delay\" only; choose that rule, or remove `beta`",
        ),
        (
            "dispatch = { admit = \"deadline\", target_delay = \"20ms\" }",
            "a.toml:3:49: [[backend]] dispatch: `target_delay` has an effect with admit = \"delay\" only; choose that \
             rule, or remove `target_delay`",
        ),
        (
            "dispatch = { queue = \"edf\", alpha = 0 }",
            "a.toml:3:37: [[backend]] dispatch: `alpha` is 0 percent, must be 0.01 to 99.99; leave it out for the default",
        ),
        (
            "dispatch = { balance = \"tickets\", beta = 100 }",
            "a.toml:3:42: [[backend]] dispatch: `beta` is 100 percent, must be 0.01 to 99.99; leave it out for the default",
        ),
        (
            "dispatch = { admit = \"delay\", target_delay = \"0s\" }",
            "a.toml:3:46: [[backend]] dispatch.target_delay is 0s; it must be at least 1ms: set dispatch.target_delay = \
             \"20ms\"",
        ),
        (
            "dispatch = { cancel = \"always\" }",
            "a.toml:3:23: [[backend]] dispatch: `cancel` has an effect with copies other than \"one\" only; choose that rule, or \
             remove `cancel`",
        ),
        (
            "dispatch = { retry = { ratio = 0.1 }, extra_ratio = 0.1 }",
            "a.toml:3:53: [[backend]] dispatch: `extra_ratio` and `retry.ratio` are two names of one option; \
             remove one of them",
        ),
        (
            "dispatch = { retry = { burst = 1 }, extra_burst = 2 }",
            "a.toml:3:51: [[backend]] dispatch: `extra_burst` and `retry.burst` are two names of one option; \
             remove one of them",
        ),
        (
            "dispatch = { extra_ratio = 1.5 }",
            "a.toml:3:28: [[backend]] setting up dispatch: `extra_ratio` is 1.5, must be 0 to 1; 0.1 allows one retry in \
             ten calls",
        ),
        (
            "dispatch = { extra_burst = 1000001 }",
            "a.toml:3:28: [[backend]] setting up dispatch: `extra_burst` is 1000001, must be at most 1000000; lower it",
        ),
        (
            "dispatch = { retry = { bursts = 1 } }",
            "a.toml:3:24: [[backend]] dispatch.retry: unknown key `bursts`; the keys here are per_call_max, ratio, \
             burst: did you mean `burst`?",
        ),
    ];
    for (keys, expected) in cases {
        assert_refused(&[(&format!("{backend}{keys}"), expected)]);
    }
    let both = "dispatch = { waiters_max = 0, in_flight_calls_max = 0 }";
    assert_eq!(refusal(&format!("{backend}{both}"), &Flags::default()).len(), 2);
}

#[test]
fn invalid_store_is_refused() {
    let backend = "[[backend]]\nname = \"a\"\n";
    let cases = [
        (
            "store = { path = \"p\" }",
            "a.toml:3:9: [[backend]] store has no kind; it must be one of \"kv\", \"sqlite\", \"compute\", \"synthetic\", \
             \"memcached\", \"redis\", \"http\", \"mysql\", \"postgres\", \"dynamodb\", \"zookeeper\", \"cassandra\": set kind = \"kv\"",
        ),
        (
            "store = { kind = \"sqlte\" }",
            "a.toml:3:18: [[backend]] store.kind is \"sqlte\"; it must be one of \"kv\", \"sqlite\", \"compute\", \"synthetic\", \
             \"memcached\", \"redis\", \"http\", \"mysql\", \"postgres\", \"dynamodb\", \"zookeeper\", \"cassandra\": did you mean \"sqlite\"?",
        ),
        (
            "store = { kind = \"kv\" }",
            "a.toml:3:9: [[backend]] store has no path; it must name where its data is kept: set path = \"data/catalog\"",
        ),
        (
            "store = { kind = \"compute\", path = \"p\" }",
            "a.toml:3:36: [[backend]] store.path is a key of kv and sqlite stores, not of compute: remove it",
        ),
        (
            "store = { kind = \"synthetic\", latency = \"1m\" }",
            "a.toml:3:41: [[backend]] store.latency is 1m; it must be 0s to 10s: set store.latency = \"5ms\"",
        ),
        (
            "store = { kind = \"synthetic\", queued_calls_max = 9 }",
            "a.toml:3:50: [[backend]] store.queued_calls_max is a key of kv, sqlite, compute, memcached, redis, http, mysql, \
             postgres, dynamodb, zookeeper and cassandra stores, not of synthetic: remove it",
        ),
        (
            "store = { kind = \"compute\", n = 2000 }",
            "a.toml:3:33: [[backend]] store.n is 2000; it must be 1 to 1024: set store.n = 32",
        ),
        (
            "store = { kind = \"kv\", path = \"p\", cache_bytes = 1 }",
            "a.toml:3:50: [[backend]] store.cache_bytes is 1B; it must be at least 64KiB: set store.cache_bytes = \
             \"4MiB\"",
        ),
        (
            "replicas = []",
            "a.toml:3:12: [[backend]] replicas has 0 stores; it must have 1 to 64: list each once",
        ),
        (
            "store = { kind = \"compute\" }\nreplicas = [ { kind = \"compute\" } ]",
            "a.toml:4:12: [[backend]] has both store and replicas; it must have one of them: make the store one of \
             the replicas",
        ),
        (
            "replicas = [ { kind = \"kv\", path = \"p\" }, { kind = \"kv\", path = \"p\" } ]",
            "a.toml:3:43: [[backend]] store.path is \"p\" as on line 3; each kv store needs its own: change one",
        ),
    ];
    for (keys, expected) in cases {
        assert_refused(&[(&format!("{backend}{keys}"), expected)]);
    }
}

#[test]
fn partitions_that_exceed_limits_are_refused() {
    let backends = "[memory]\ntotal = \"10MiB\"\n[[backend]]\nname = \"a\"\n[[backend]]\nname = \"b\"\n";
    let cases = [
        (
            "[[partition]]\nbackend = \"a\"\nmin = \"6MiB\"\n[[partition]]\nbackend = \"b\"\nmin = \"5MiB\"",
            "a.toml:12:7: [[partition]] min of all partitions is 11MiB in sum; it must be at most the total of \
             10MiB: lower this min or raise [memory] total",
        ),
        (
            "[[partition]]\nbackend = \"a\"\nmin = \"6MiB\"\n[[partition]]\nbackend = \"b\"\ninitial = \"5MiB\"",
            "a.toml:12:11: [[partition]] initial of all partitions is 11MiB in sum, counting min where there is no \
             initial; it must be at most the total of 10MiB: lower this initial or raise [memory] total",
        ),
        (
            "[[partition]]\nbackend = \"a\"\nmin = \"11MiB\"",
            "a.toml:9:7: [[partition]] min is 11MiB; it must be 0 bytes to 10MiB: set min = \"1MiB\"",
        ),
        (
            "[[partition]]\nbackend = \"a\"\nmin = \"3MiB\"\nmax = \"2MiB\"",
            "a.toml:10:7: [[partition]] max is 2MiB; it must be at least 3MiB: set max = \"512MiB\"",
        ),
        (
            "[[partition]]\nbackend = \"a\"\nmax = \"2MiB\"\ninitial = \"3MiB\"",
            "a.toml:10:11: [[partition]] initial is 3MiB; it must be 0 bytes to 2MiB: set initial = \"2MiB\"",
        ),
        (
            "[[partition]]\nbackend = \"a\"\nmax = \"4MiB\"\n[[partition]]\nbackend = \"b\"\nmax = \"5MiB\"",
            "a.toml:12:7: [[partition]] max of all partitions is 9MiB in sum; it must be at least the total of 10MiB: \
             raise a max or lower [memory] total",
        ),
        (
            "[[partition]]\nbackend = \"a\"\n[[partition]]\nbackend = \"a\"",
            "a.toml:9:1: [[partition]] a is there on line 7 already; list each once: remove one",
        ),
        (
            "[[partition]]\nbackend = \"aa\"",
            "a.toml:8:11: [[partition]] backend is \"aa\"; it must be \"a\" or \"b\": did you mean \"a\"?",
        ),
        (
            "[[partition]]\nbackend = \"catalog\"",
            "a.toml:8:11: [[partition]] backend is \"catalog\"; it must be \"a\" or \"b\": set backend = \"a\"",
        ),
        (
            "[[partition]]",
            "a.toml:7:1: [[partition]] has no backend; it must name one: set backend = \"catalog\"",
        ),
    ];
    for (tables, expected) in cases {
        assert_refused(&[(&format!("{backends}{tables}"), expected)]);
    }
}

#[test]
fn message_of_a_refused_flag_names_it() {
    let text = |text: &str| Some(text.to_owned());
    let flags = Flags {
        memory: text("0"),
        memcached: text("192.0.2.1:11211"),
        redis: text("192.0.2.1:6379"),
        admin: text("127.0.0.1"),
        threads: Some(1000),
        max_item_size: text("1Mb"),
        eviction: text("lru2"),
        policy: text("tao"),
        ..Flags::default()
    };
    let error = load(&flags, POLICIES).expect_err("all of it is wrong");
    assert_eq!(
        error.to_string(),
        "--memory is 0 bytes; it must be at least 1MiB: give --memory 1GiB\n\
         --max-item-size: \"1Mb\" is no size; write whole bytes as B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, such as \"64MiB\"\n\
         --eviction is \"lru2\"; it must be \"s3-fifo\" or \"lru\": did you mean \"lru\"?\n\
         --threads is 1000; it must be 1 to 256: give --threads 2\n\
         --admin is \"127.0.0.1\"; it must be an IP address, or localhost, and a port: give --admin 127.0.0.1:8080\n\
         --memcached is 192.0.2.1:11211, which other machines may reach; beyond loopback a listener must ask for a \
         password, and have TLS or a network that is said to be trusted: set auth_file = \"passwords\" and tls = { cert = \
         \"cert.pem\", key = \"key.pem\" } or network = \"trusted\" in [[listener]], or give --memcached 127.0.0.1:11211\n\
         --redis is 192.0.2.1:6379, which other machines may reach; beyond loopback a listener must ask for a \
         password, and have TLS or a network that is said to be trusted: set auth_file = \"passwords\" and tls = { cert = \
         \"cert.pem\", key = \"key.pem\" } or network = \"trusted\" in [[listener]], or give --redis 127.0.0.1:6379\n\
         --policy is \"tao\"; it must be one of \"robinhood\", \"shared-lru\", \"static\": give --policy robinhood"
    );
}

#[test]
fn path_without_unix_prefix_is_refused_with_the_remedy() {
    let flags = Flags { memcached: Some("/run/m.sock".to_owned()), ..Flags::default() };
    let expected = "--memcached is \"/run/m.sock\"; it must be an IP address, or localhost, and a port, or a UNIX socket with unix: before \
                    its path: write unix:/run/m.sock";
    assert_eq!(refusal("", &flags), [expected]);
}

#[test]
fn refused_listener_is_not_also_reported_missing() {
    let off = || Some("off".to_owned());
    let flags = Flags { memcached: Some("nowhere:1".to_owned()), admin: off(), ..Flags::default() };
    let one = "it must be an IP address, or localhost, and a port";
    assert!(matches!(&refusal("", &flags)[..], [only] if only.contains(one)));
    let file = "[[listener]]\nbind = \"nowhere:1\"";
    let found = refusal(file, &Flags { admin: off(), ..Flags::default() });
    assert!(matches!(&found[..], [only] if only.contains(one)), "{found:?}");
}

#[test]
fn localhost_is_the_loopback_address() {
    let flags = Flags { memcached: Some("localhost:1".to_owned()), ..Flags::default() };
    let config = load(&flags, POLICIES).expect("valid");
    assert_eq!(config.listeners[0].bind.to_string(), "127.0.0.1:1");
}

#[test]
fn address_flag_for_several_listeners_is_refused() {
    let file = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nbind = \"127.0.0.1:2\"\n";
    let flags = Flags { memcached: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let expected =
        "--memcached cannot say which of 2 listeners it moves; it must be one: change bind in the file";
    assert_eq!(refusal(file, &flags), [expected]);
}

#[test]
fn address_flag_moves_the_only_listener_of_its_protocol_or_adds_one() {
    let file =
        "[[listener]]\nbind = \"127.0.0.1:1\"\n[[listener]]\nprotocol = \"redis\"\nbind = \"127.0.0.1:2\"\n";
    let text = |text: &str| Some(text.to_owned());
    let ports = |file: &str, flags: Flags| -> Vec<(Protocol, u16)> {
        let config = parse("a.toml", file, &flags, POLICIES).expect("valid");
        let port = |listener: &Listener| listener.bind.tcp().expect("a port").port();
        config.listeners.iter().map(|listener| (listener.protocol, port(listener))).collect()
    };
    let moved = ports(file, Flags { redis: text("127.0.0.1:3"), ..Flags::default() });
    assert_eq!(moved, [(Protocol::Memcached, 1), (Protocol::Redis, 3)]);
    let added = ports(
        "[[listener]]\nbind = \"127.0.0.1:1\"\n",
        Flags { redis: text("127.0.0.1:3"), ..Flags::default() },
    );
    assert_eq!(added, [(Protocol::Memcached, 1), (Protocol::Redis, 3)]);
}

#[test]
fn all_problems_of_a_configuration_are_reported_at_once() {
    let found = refusal(
        "[memory]\ntotal = 1\n[[listener]]\nbind = \"127.0.0.1:8080\"\n[slo]\nbound = \"2h\"\n[control]\ntax = 1",
        &Flags::default(),
    );
    let places: Vec<&str> = found.iter().filter_map(|problem| problem.split(": ").next()).collect();
    assert_eq!(places, ["a.toml:2:9", "a.toml:4:8", "a.toml:6:9", "a.toml:8:7"]);
}

#[test]
fn integer_is_accepted_where_a_fraction_is_expected() {
    assert_eq!(config("[control]\nband = [98, 99]").control.band, (98.0, 99.0));
}

#[test]
fn deeply_nested_configuration_is_refused() {
    for opening in ["[", "{ a = "] {
        let found = refusal(&format!("a = {}", opening.repeat(100_000)), &Flags::default());
        assert!(found[0].contains("this is not TOML"), "{found:?}");
    }
    assert!(!refusal(&format!("{}a = 1", "a.".repeat(50_000)), &Flags::default()).is_empty());
}

#[test]
fn more_backends_or_partitions_than_the_maximum_are_refused() {
    let backends =
        |count| (0..count).map(|index| format!("[[backend]]\nname = \"b{index}\"\n")).collect::<String>();
    assert_eq!(config(&backends(1024)).partitions.len(), 1024);
    let expected = "a.toml:2049:1: there are 1025 backends; at most 1024 are accepted: remove some";
    assert_refused(&[(&backends(1025), expected)]);
    let tenant = |index| format!("[[partition]]\ntenant = \"t{index}\"\nbackend = \"b0\"\n");
    let tenants: String = (0..1024).map(tenant).collect();
    let expected = "a.toml: there are 1026 partitions, counting the default tenant's of every backend; at most 1024 \
                    are accepted: merge backends or tenants";
    assert_refused(&[(&format!("{}{tenants}", backends(2)), expected)]);
}

#[test]
fn unreadable_configuration_file_is_named() {
    let flags = Flags { config: Some("no/such/file.toml".into()), ..Flags::default() };
    let error = load(&flags, POLICIES).expect_err("there is no such file").to_string();
    assert!(error.starts_with("no/such/file.toml: cannot read the configuration: "), "{error}");
}

#[test]
fn oversized_or_binary_configuration_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.toml");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        let flags = Flags { config: Some(path.clone()), ..Flags::default() };
        load(&flags, POLICIES).expect_err("it is wrong").to_string()
    };
    assert!(refused(&vec![b'#'; (4 << 20) + 1]).contains("it is larger than 4 MiB"));
    assert!(refused(&[0xff, 0xfe]).contains("cannot read the configuration: it is not text"));
    let flags = Flags { config: Some(folder.path().to_owned()), ..Flags::default() };
    assert!(load(&flags, POLICIES).expect_err("a directory").to_string().contains("it is a directory"));
}

#[test]
fn configuration_in_a_pipe_or_device_is_refused_because_a_reload_could_not_reread_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    let refused = |path: &std::path::Path| {
        let flags = Flags { config: Some(path.to_owned()), ..Flags::default() };
        load(&flags, POLICIES).expect_err("it is no file").to_string()
    };
    // No process ever writes to it.
    assert!(refused(&path).contains("it is a pipe, which a reload could not read again: write"));
    assert!(refused("/dev/null".as_ref()).contains("it is a device, which"));
}

#[test]
fn byte_order_mark_and_carriage_returns_of_a_configuration_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.toml");
    std::fs::write(&path, "\u{feff}[memory]\r\ntotal = \"32MiB\"\r\n").expect("written");
    let flags = Flags { config: Some(path), ..Flags::default() };
    assert_eq!(load(&flags, POLICIES).expect("it is valid").memory.total_bytes, 32 << 20);
}

#[test]
fn scheduler_that_cannot_be_served_is_refused() {
    assert_refused(&[
        (
            "[[scheduler]]\nslots = 0",
            "a.toml:2:9: [[scheduler]] slots is 0; it must be at least 1: set slots = 1",
        ),
        (
            "[[scheduler]]\nname = \"a b\"",
            "a.toml:2:8: [[scheduler]] name is \"a b\"; it must be 1 to 64 letters, digits, '.', '_' or '-': set name = \"catalog-1\"",
        ),
        (
            "[[scheduler]]\n[[scheduler]]\nname = \"default\"",
            "a.toml:3:8: [[scheduler]] name is \"default\" as on line 1; names must be unique: rename one",
        ),
        (
            "[[scheduler]]\nalpha = 100",
            "a.toml:2:9: [[scheduler]] `alpha` is 100 percent, must be 0.01 to 99.99; leave it out for the default",
        ),
        (
            "[admin]\nbind = \"off\"\n[[listener]]\nbind = \"127.0.0.1:1\"\n[[scheduler]]",
            "a.toml:5:1: [[scheduler]] is served by the admin API, which is off: leave it on, or remove the table",
        ),
    ]);
}

#[test]
fn scheduler_of_a_replica_that_cannot_be_used_is_refused() {
    let backend = |dispatch: &str, tickets: &str| {
        format!(
            "[[backend]]\nname = \"a\"\ndispatch = {{ {dispatch} }}\nreplicas = [\n{{ kind = \"compute\", tickets = {tickets} }},\n\
             {{ kind = \"compute\", tickets = \"https://b:2/c\" }},\n]"
        )
    };
    let (tickets, url) = ("balance = \"tickets\"", "\"http://a:1\"");
    let [no_port, other_rule, delay, target, many, table] = [
        backend(tickets, "\"http://a\""),
        backend("balance = \"random\"", url),
        backend("balance = \"tickets\", admit = \"delay\"", url),
        backend("balance = \"tickets\", admit = \"deadline\", target = 0.03", url),
        backend("balance = \"tickets\", in_flight_calls_max = 257", url),
        backend(tickets, "{ uri = \"http://a:1\" }"),
    ];
    let one_of_two = "[[backend]]\nname = \"a\"\ndispatch = { balance = \"tickets\" }\nreplicas = [\n\
                      { kind = \"compute\", tickets = \"http://a:1\" },\n{ kind = \"compute\" },\n]";
    let said = |text: &str| refusal(text, &Flags::default()).join("\n");
    for (text, expected) in [
        (no_port.as_str(), "store.tickets is \"http://a\"; it must be http:// or https://, a host, a port"),
        (&other_rule, "has an effect with balance = \"tickets\" only"),
        (&delay, "a scheduler elsewhere knows no target"),
        (&target, "a scheduler elsewhere knows no target"),
        (&many, "514 calls of all replicas could wait at one scheduler; a backend with tickets may have 512"),
        (&table, "unknown key `uri`; the keys here are url,"),
        (one_of_two, "1 of 2 have tickets; all or none must have a scheduler"),
    ] {
        assert!(said(text).contains(expected), "{}", said(text));
    }
}

#[test]
fn export_of_spans_needs_the_url_of_a_collector() {
    assert_refused(&[
        (
            "[otlp]\nexport = {}",
            "a.toml:2:10: [otlp] export has no endpoint; it must be the URL of a collector: set export.endpoint = \
             \"http://127.0.0.1:4317\"",
        ),
        (
            "[otlp.export]\nendpoint = \"http://u:p@h\"",
            "a.toml:2:12: [otlp] export.endpoint is \"…\"; it must be http:// or https://, a host and \
             perhaps a port and a path, without user and query: set export.endpoint = \"http://127.0.0.1:4317\"; \
             credentials go into headers_file",
        ),
        (
            "[otlp.export]\nendpoint = \"http://h/v1/traces\"",
            "a.toml:2:12: [otlp] export.endpoint is \"http://h/v1/traces\"; gRPC has no path: leave it out, or set \
             export.protocol = \"http/protobuf\"",
        ),
        (
            "[otlp.export]\nendpoint = \"http://h\"\nprotocol = \"http\"",
            "a.toml:3:12: [otlp] export.protocol is \"http\"; it must be \"grpc\" or \"http/protobuf\": did \
             you mean \"http/protobuf\"?",
        ),
        (
            "[otlp.export]\nendpoint = \"http://h\"\nsample_ratio = 1.5",
            "a.toml:3:16: [otlp] export.sample_ratio is 1.5; it must be 0 to 1: set export.sample_ratio = 0.01",
        ),
    ]);
}

#[test]
fn several_databases_need_redis_and_a_look_aside_listener() {
    let listener = |keys: &str| {
        format!(
            "[[backend]]\nname = \"a\"\nstore = {{ kind = \"compute\" }}\n[[listener]]\nbind = \"127.0.0.1:0\"\n{keys}"
        )
    };
    let said = |keys: &str| refusal(&listener(keys), &Flags::default()).join("\n");
    assert_eq!(
        said("databases = 16"),
        "a.toml:6:13: [[listener]] databases is 16, but its protocol has none: set protocol = \"redis\", or remove databases"
    );
    let through = said("protocol = \"redis\"\nmode = \"read-through\"\ndatabases = 2");
    assert!(
        through.contains("databases is 2, but its mode reads from a backend, which has no databases"),
        "{through}"
    );
    let many = said("protocol = \"redis\"\ndatabases = 17");
    assert!(many.contains("[[listener]] databases is 17; it must be 1 to 16: set databases = 16"), "{many}");
}

#[test]
fn key_of_another_table_is_refused_with_its_place() {
    assert_eq!(
        problem("[control]\ntenants = \"hare\"\n"),
        "a.toml:2:1: [control]: unknown key `tenants`; it is elsewhere: write [tenants] policy = \"hare\""
    );
    assert_eq!(
        problem("[[backend]]\nname = \"a\"\nretry = { ratio = 0.5 }\n"),
        "a.toml:3:1: [[backend]]: unknown key `retry`; it is elsewhere: write [backend.dispatch.retry]"
    );
}
