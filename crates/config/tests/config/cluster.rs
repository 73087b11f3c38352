//! Tests of `[cluster]`, and of `shared` of a `[[backend]]`.

use super::*;

/// A cluster of three nodes, on lines 1 to 4.
const NAMES: &str = "[cluster]\nname = \"shop\"\nnode = \"b\"\nnodes = [\"a\", \"b\", \"c\"]\n";
/// The bus of the cluster, on line 5.
const BUS: &str = "bus.servers = [\"nats://127.0.0.1:4222\"]\n";

fn cluster(text: &str) -> ClusterSetup {
    config(text).cluster.expect("there is one")
}

fn bus(keys: &str) -> BusSetup {
    cluster(&format!("{NAMES}bus = {{ {keys} }}")).bus
}

#[test]
fn configuration_without_a_cluster_has_none_and_shares_nothing() {
    let config = config("[[backend]]\nname = \"a\"");
    assert_eq!((config.cluster, config.backends[0].shared), (None, None));
}

#[test]
fn cluster_without_options_merges_everywhere_with_equal_weights() {
    let expected = ClusterSetup {
        name: "shop".to_owned(),
        node: "b".to_owned(),
        nodes: ["a", "b", "c"].map(str::to_owned).to_vec(),
        weights: vec![1.0 / 3.0; 3],
        statistics: Vec::new(),
        bus: BusSetup {
            servers: vec!["nats://127.0.0.1:4222".parse().unwrap()],
            credentials: None,
            tls: None,
        },
    };
    assert_eq!(cluster(&format!("{NAMES}{BUS}")), expected);
}

#[test]
fn node_flag_overrides_the_file_and_needs_a_cluster() {
    let flags = |node: &str| Flags { node: Some(node.to_owned()), ..Flags::default() };
    let text = format!("{NAMES}{BUS}");
    let named = |node: &str| parse("a.toml", &text, &flags(node), POLICIES);
    assert_eq!(named("c").unwrap().cluster.unwrap().node, "c");
    let without = text.replace("node = \"b\"\n", "");
    let config = parse("a.toml", &without, &flags("a"), POLICIES).unwrap();
    assert_eq!(config.cluster.unwrap().node, "a", "the file need not name one");
    assert_eq!(
        refusal(&text, &flags("d")),
        [
            "--node is \"d\", which nodes lacks; it must be one of \"a\", \"b\", \"c\": add it to nodes on every node, or \
          give --node a"
        ]
    );
    assert_eq!(
        refusal(&text, &flags("D")),
        ["--node is \"D\"; it must be 1 to 64 of a-z, 0-9 and '-': give --node a"]
    );
    assert_eq!(
        refusal("", &flags("a")),
        [
            "--node is \"a\", and there is no [cluster]; only its nodes have names: add [cluster], or leave --node out"
        ]
    );
}

#[test]
fn weights_become_shares_in_the_order_of_nodes() {
    let text = format!("{NAMES}{BUS}weights = {{ c = 5, a = 2 }}\nstatistics = [\"c\", \"a\"]");
    let cluster = cluster(&text);
    assert_eq!(cluster.weights, [2.0 / 8.0, 1.0 / 8.0, 5.0 / 8.0]);
    assert_eq!(cluster.statistics, ["c", "a"], "their order is that of preference");
}

#[test]
fn every_access_to_the_bus_is_resolved() {
    let far = "servers = [\"nats://bus-1:4222\", \"tls://10.0.0.2:4222\"]";
    let access = |keys: &str| bus(&format!("{far}, {keys}")).credentials;
    assert_eq!(bus(&format!("{far}, token_file = \"t\"")).servers.len(), 2);
    assert_eq!(access("credentials = \"c\""), Some(BusCredentials::File("c".into())));
    assert_eq!(access("token_file = \"t\""), Some(BusCredentials::Token("t".into())));
    let password = BusCredentials::Password { user: "u".to_owned(), password_file: "p".into() };
    assert_eq!(access("user = \"u\", password_file = \"p\""), Some(password));
    let tls = bus(&format!("{far}, tls = {{ ca = \"a\", cert = \"c\", key = \"k\" }}")).tls.unwrap();
    assert_eq!((tls.ca, tls.cert, tls.key), (Some("a".into()), Some("c".into()), Some("k".into())));
    assert!(bus(&format!("{far}, tls = {{}}")).tls.is_some());
    assert!(bus("servers = [\"tls://bus-1:4222\", \"nats://localhost:4222\"]").tls.is_none());
}

#[test]
fn cluster_without_a_required_key_is_refused() {
    assert_refused(&[
        (
            &format!("[cluster]\nnode = \"a\"\nnodes = [\"a\"]\n{BUS}"),
            "a.toml:1:1: [cluster] has no name; it must have one: set name = \"shop\"",
        ),
        (
            &format!("[cluster]\nname = \"s\"\nnodes = [\"a\"]\n{BUS}"),
            "a.toml:1:1: [cluster] has no node; it must have one: set node = \"a\"",
        ),
        (
            &format!("[cluster]\nname = \"s\"\nnode = \"a\"\n{BUS}"),
            "a.toml:1:1: [cluster] has no nodes; it must list the names of all nodes: set nodes = [\"a\", \"b\", \"c\"]",
        ),
        (
            NAMES,
            "a.toml:1:1: [cluster] has no bus; it must name servers of NATS: set bus = { servers = \
             [\"nats://127.0.0.1:4222\"] }",
        ),
        (
            &format!("{NAMES}bus = {{}}"),
            "a.toml:5:7: [cluster] bus has no servers; it must name 1 to 16 of NATS: set bus = { servers = \
             [\"nats://127.0.0.1:4222\"] }",
        ),
    ]);
}

#[test]
fn wrong_names_of_a_cluster_are_refused() {
    let named = |name: &str, nodes: &str| {
        format!("[cluster]\nname = \"{name}\"\nnode = \"a\"\nnodes = [{nodes}]\n{BUS}")
    };
    let long = "x".repeat(65);
    let many = (0..65).map(|node| format!("\"n{node}\"")).collect::<Vec<_>>().join(", ");
    assert_refused(&[
        (
            &named("my.shop", "\"a\""),
            "a.toml:2:8: [cluster] name is \"my.shop\"; it must be 1 to 64 of a-z, 0-9 and '-': set name = \"shop\"",
        ),
        (
            &named("", "\"a\""),
            "a.toml:2:8: [cluster] name is \"\"; it must be 1 to 64 of a-z, 0-9 and '-': set name = \"shop\"",
        ),
        (
            &named("s", "\"a\", \"B\""),
            "a.toml:4:15: [cluster] nodes has \"B\"; a name must be 1 to 64 of a-z, 0-9 and '-': rename it",
        ),
        (
            &named("s", "\"a\", \"b\", \"a\""),
            "a.toml:4:20: [cluster] nodes has \"a\" twice; names must be unique: remove one",
        ),
        (
            &named("s", ""),
            "a.toml:4:9: [cluster] nodes has 0 names; it must have 1 to 64: set nodes = [\"a\", \"b\", \"c\"]",
        ),
        (
            &named("s", &format!("\"a\", {}", many.replace("\"n0\", ", ""))),
            "a.toml:4:9: [cluster] nodes has 65 names; it must have 1 to 64: set nodes = [\"a\", \"b\", \"c\"]",
        ),
        (
            &named("s", "\"b\", \"c\""),
            "a.toml:3:8: [cluster] node is \"a\", which nodes lacks; it must be \"b\" or \"c\": add it to nodes on every \
             node, or set node = \"a\"",
        ),
    ]);
    assert!(problem(&named(&long, "\"a\"")).contains("it must be 1 to 64 of"), "65 characters");
}

#[test]
fn weights_and_statistics_of_unknown_nodes_are_refused() {
    let with = |keys: &str| format!("{NAMES}{BUS}{keys}");
    assert_refused(&[
        (
            &with("weights = { d = 1 }"),
            "a.toml:6:17: [cluster] weights has \"d\", which nodes lacks; it must be one of \"a\", \"b\", \"c\": remove it, or add \
             it to nodes",
        ),
        (
            &with("weights = { a = 0 }"),
            "a.toml:6:17: [cluster] weights.a is 0; it must be 0.001 to 1000: set weights.a = 1",
        ),
        (
            &with("weights = { a = nan }"),
            "a.toml:6:17: [cluster] weights.a is NaN; it must be 0.001 to 1000: set weights.a = 1",
        ),
        (
            &with("weights.a = 1000.5"),
            "a.toml:6:13: [cluster] weights.a is 1000.5; it must be 0.001 to 1000: set weights.a = 1",
        ),
        (
            &with("statistics = [\"a\", \"d\"]"),
            "a.toml:6:20: [cluster] statistics has \"d\", which nodes lacks; it must be one of \"a\", \"b\", \"c\": remove it, or \
             add it to nodes",
        ),
        (
            &with("statistics = [\"a\", \"a\"]"),
            "a.toml:6:20: [cluster] statistics has \"a\" twice; list each once: remove one",
        ),
    ]);
}

#[test]
fn wrong_servers_of_the_bus_are_refused() {
    let with = |servers: &str| format!("{NAMES}bus.servers = [{servers}]");
    let many = ["\"nats://[::1]:4222\""; 17].join(", ");
    let example = "set bus = { servers = [\"nats://127.0.0.1:4222\"] }";
    let grammar = "it must be nats:// or tls://, a host, a port, and nothing else";
    let refused = |servers: &str| problem(&with(servers));
    let files = "; credentials go into files";
    assert_eq!(
        refused("\"127.0.0.1:4222\""),
        format!("a.toml:5:16: [cluster] bus.servers has \"127.0.0.1:4222\"; {grammar}: {example}{files}")
    );
    assert_eq!(
        refused("\"nats://me:secret@bus:4222\""),
        format!("a.toml:5:16: [cluster] bus.servers has \"…\"; {grammar}: {example}{files}")
    );
    let count = |count| format!("[cluster] bus.servers has {count} servers; it must have 1 to 16: {example}");
    assert_eq!(refused(""), format!("a.toml:5:15: {}", count(0)));
    assert_eq!(refused(&many), format!("a.toml:5:15: {}", count(17)));
    assert_eq!(
        refused("\"nats://127.0.0.1:1\", \"nats://bus-1:4222\""),
        "a.toml:5:38: [cluster] bus.servers has nats://bus-1:4222, which other machines may reach; beyond loopback the \
         bus must have credentials or TLS: set bus.credentials = \"bus.creds\", or bus.tls = { ca = \"ca.pem\" }"
    );
}

#[test]
fn contradictory_access_to_the_bus_is_refused() {
    let with = |keys: &str| format!("{NAMES}bus = {{ servers = [\"nats://bus-1:4222\"], {keys} }}");
    let both = |first: &str, second: &str, column: usize| {
        format!(
            "a.toml:5:{column}: [cluster] bus has both {first} and {second}; a node logs in by one of them: remove one"
        )
    };
    let alone = "[cluster] bus has user or password_file alone; it must have both: set bus.user = \"sherwood\" and \
                 bus.password_file = \"bus-password\"";
    assert_refused(&[
        (&with("credentials = \"c\", token_file = \"t\""), &both("credentials", "token_file", 74)),
        (&with("credentials = \"c\", user = \"u\""), &both("credentials", "user", 68)),
        (&with("token_file = \"t\", password_file = \"p\", user = \"u\""), &both("user", "token_file", 55)),
        (&with("user = \"u\""), &format!("a.toml:5:49: {alone}")),
        (&with("password_file = \"p\""), &format!("a.toml:5:58: {alone}")),
        (
            &with("credentials = \"\""),
            "a.toml:5:56: [cluster] bus.credentials names no file; it must have a path: set bus.credentials = \"bus.secret\"",
        ),
        (
            &with("tls = { cert = \"c\" }"),
            "a.toml:5:48: [cluster] bus.tls has cert or key alone; a client certificate needs both: set bus.tls.cert = \
             \"node.pem\" and bus.tls.key = \"node.key\"",
        ),
        (
            &with("tls = { ca = \"\" }"),
            "a.toml:5:55: [cluster] bus.tls.ca names no file; it must have a path: set bus.tls.ca = \"bus.secret\"",
        ),
    ]);
}

#[test]
fn terms_of_a_shared_backend_are_those_of_the_file() {
    let terms = |shared: &str| {
        let text = format!("{NAMES}{BUS}[[backend]]\nname = \"a\"\n{shared}");
        config(&text).backends[0].shared
    };
    assert_eq!(terms(""), None);
    assert_eq!(terms("shared = {}"), Some(SharedTerms::default()));
    let bounded = SharedTerms { stale: Duration::from_secs(2), without_bus: WithoutBus::Bounded };
    assert_eq!(SharedTerms::default(), bounded);
    let ttl = SharedTerms { stale: Duration::from_millis(500), without_bus: WithoutBus::Ttl };
    assert_eq!(
        terms("timeout = \"500ms\"\nshared = { stale = \"500ms\", without_bus = \"ttl\" }"),
        Some(ttl)
    );
}

#[test]
fn wrong_terms_of_a_shared_backend_are_refused() {
    let with = |backend: &str| format!("{NAMES}{BUS}[[backend]]\nname = \"a\"\n{backend}");
    assert_refused(&[
        (
            "[[backend]]\nname = \"a\"\nshared = {}",
            "a.toml:3:10: [[backend]] shared is for the nodes of a cluster, and this node is in none: add [cluster], or \
             remove shared",
        ),
        (
            &with("timeout = \"1ms\"\nshared.stale = \"99ms\""),
            "a.toml:9:16: [[backend]] shared.stale is 99ms; it must be at least 100ms: set shared.stale = \"2s\"",
        ),
        (
            &with("shared.stale = \"11m\""),
            "a.toml:8:16: [[backend]] shared.stale is 11m; it must be 100ms to 10m: set shared.stale = \"2s\"",
        ),
        (
            &with("shared.without_bus = \"bound\""),
            "a.toml:8:22: [[backend]] shared.without_bus is \"bound\"; it must be \"bounded\" or \"ttl\": did you mean \
             \"bounded\"?",
        ),
        (
            &with("shared.stale = \"1s\""),
            "a.toml:8:16: [[backend]] shared.stale is 1s and timeout is 2s; shared.stale must be at least the timeout, since \
             a read may wait for a fetch that began up to a timeout before it: set shared.stale = \"2s\", or lower timeout",
        ),
        (
            &with("timeout = \"5s\"\nshared = {}"),
            "a.toml:9:10: [[backend]] shared.stale is 2s and timeout is 5s; shared.stale must be at least the timeout, since \
             a read may wait for a fetch that began up to a timeout before it: set shared.stale = \"5s\", or lower timeout",
        ),
    ]);
}
