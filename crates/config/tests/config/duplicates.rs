//! Tests of `duplicates` of a `[[backend]]`, and of what belongs to it.

use sherwood_path::{Acknowledge, Consistency};

use super::*;

/// A backend with this many memcached servers, on lines 1 to 3.
fn backend(servers: usize, keys: &str) -> String {
    let server = |n: usize| format!("{{ kind = \"memcached\", address = \"10.0.0.{n}\" }}");
    let servers: Vec<_> = (1..=servers).map(server).collect();
    format!("[[backend]]\nname = \"a\"\nreplicas = [{}]\n{keys}", servers.join(", "))
}

fn duplicates(servers: usize, keys: &str) -> Option<Duplicates> {
    config(&backend(servers, keys)).backends[0].duplicates.clone()
}

#[test]
fn duplicates_of_a_backend_are_those_of_the_file() {
    assert_eq!(duplicates(2, ""), None);
    let default = Duplicates {
        partitions: 1,
        duplicates: 2,
        consistency: Consistency::ReadYourWrites,
        acknowledge: Acknowledge::All,
        entries_max: 100_000,
        bytes_max: 64 << 20,
        path: None,
    };
    assert_eq!(duplicates(2, "duplicates = 2"), Some(default));
    let keys = "duplicates = 3\npartitions = 2\nconsistency = \"causal\"\nack = \"majority\"\n\
                log = { entries = 1, bytes = \"1KiB\", path = \"/var/lib/a\" }";
    let given = Duplicates {
        partitions: 2,
        duplicates: 3,
        consistency: Consistency::Causal,
        acknowledge: Acknowledge::Majority,
        entries_max: 1,
        bytes_max: 1024,
        path: Some("/var/lib/a".into()),
    };
    assert_eq!(duplicates(6, keys), Some(given));
}

#[test]
fn numbers_of_duplicates_out_of_range_are_refused() {
    assert_refused(&[
        (
            &backend(1, "duplicates = 0"),
            "a.toml:4:14: [[backend]] duplicates is 0; it must be at least 1: set duplicates = 2",
        ),
        (
            &backend(1, "duplicates = 9"),
            "a.toml:4:14: [[backend]] duplicates is 9; it must be 1 to 8: set duplicates = 2",
        ),
        (
            &backend(3, "duplicates = 2"),
            "a.toml:4:14: [[backend]] has 3 replicas, 1 partitions and 2 duplicates; it must have 1 times 2 replicas: list 2, \
             or change partitions and duplicates",
        ),
        (
            &backend(2, "duplicates = 2\nconsistency = \"casual\""),
            "a.toml:5:15: [[backend]] consistency is \"casual\"; it must be one of \"read-your-writes\", \"eventual\", \
             \"causal\": did you mean \"causal\"?",
        ),
        (
            &backend(2, "duplicates = 2\nlog.path = \"\""),
            "a.toml:5:12: [[backend]] log.path is empty; it must name a directory of this backend alone: set log.path = \
             \"/var/lib/sherwood/a\", or remove it",
        ),
        (
            &backend(2, "duplicates = 2\nlog.entries = 0"),
            "a.toml:5:15: [[backend]] log.entries is 0; it must be at least 1: set log.entries = 100000",
        ),
    ]);
}

#[test]
fn keys_that_contradict_duplicates_are_refused() {
    assert_refused(&[
        (
            &backend(2, "ack = \"first\""),
            "a.toml:4:7: [[backend]] ack is for a store that the node replicates, and duplicates is missing: set duplicates = \
             2, or remove ack",
        ),
        (
            &backend(2, "log.path = \"/var/lib/a\""),
            "a.toml:4:12: [[backend]] log is for a store that the node replicates, and duplicates is missing: set duplicates = \
             2, or remove log",
        ),
        (
            &backend(2, "duplicates = 2\nwrites = { to = \"all\" }"),
            "a.toml:4:14: [[backend]] has duplicates and writes; the logs of its partitions order its writes: remove one of \
             them",
        ),
        (
            "[[backend]]\nname = \"a\"\nreplicas = [{ kind = \"synthetic\" }]\nduplicates = 1",
            "a.toml:3:13: [[backend]] replicas has a store of kind \"synthetic\"; a duplicate must be of kind \"memcached\", \
             \"redis\", \"zookeeper\" or \"cassandra\": change it, or remove duplicates",
        ),
        (
            "[[backend]]\nname = \"a\"\nduplicates = 2\nreplicas = [{ kind = \"redis\", address = \"h:1\" }, { kind = \
             \"redis\", address = \"h:1\", answer_timeout = \"9s\" }]",
            "a.toml:4:50: [[backend]] replicas has the same server as on line 4; each duplicate must be another one, or have a \
             key_prefix with which the other's does not begin: change one",
        ),
        (
            "[[backend]]\nname = \"a\"\nstore = { kind = \"redis\", address = \"h\" }\n[[backend]]\nname = \"b\"\nduplicates \
             = 1\nreplicas = [{ kind = \"redis\", address = \"h\", key_prefix = \"b:\" }]",
            "a.toml:7:13: [[backend]] has a store with the same items as on line 3, and one of them is a duplicate, from which \
             the node removes items: choose another server, or key_prefixes of which none begins with the other",
        ),
        (
            "[[backend]]\nname = \"a\"\nprefix = \"sherwood.log.\"",
            "a.toml:3:10: [[backend]] prefix is \"sherwood.log.\"; keys that begin with \"sherwood.log.\" are reserved for the \
             node's own records: choose another one",
        ),
        (
            "[[backend]]\nname = \"a\"\nstore = { kind = \"redis\", address = \"h\", key_prefix = \"sherwood.log.x\" }",
            "a.toml:3:55: [[backend]] store.key_prefix is \"sherwood.log.x\"; keys that begin with \"sherwood.log.\" are \
             reserved for the node's own records: choose another one",
        ),
    ]);
}

#[test]
fn examples_of_replicated_stores_are_valid() {
    let text = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/stores");
        std::fs::read_to_string(format!("{folder}/{name}.toml")).expect(name)
    };
    let mut names = vec![("redis", 2, 2), ("memcached", 1, 3)];
    if cfg!(feature = "zookeeper") {
        names.push(("zookeeper", 1, 3));
    }
    if cfg!(feature = "cassandra") {
        names.push(("cassandra", 1, 2));
    }
    for (name, partitions, duplicates) in names {
        let store = config(&text(name)).backends[0].duplicates.clone().expect(name);
        assert_eq!((store.partitions, store.duplicates), (partitions, duplicates), "{name}");
    }
}
