//! Memcached commands on values that other nodes cache, too.

use super::*;
use crate::backends::SharedTrust;

const DOUBTED: SharedTrust = SharedTrust { doubts_values: true, refuses_changes: false };
const CLOSED: SharedTrust = SharedTrust { doubts_values: false, refuses_changes: true };
const TRUSTED: SharedTrust = SharedTrust { doubts_values: false, refuses_changes: false };

/// The answer to a change that other nodes would miss.
const REFUSED: &str = "SERVER_ERROR the other nodes of the cluster do not know this process yet and would serve older values; nothing was changed, try again later\r\n";

#[test]
fn commands_find_no_value_that_is_not_trusted() {
    let (service, fake) = shared_service();
    let mut client = Client::new(service);
    for (command, answer) in [
        ("get k\r\n", "END\r\n"),
        ("gets k\r\n", "END\r\n"),
        ("gat 100 k\r\n", "END\r\n"),
        ("touch k 100\r\n", "NOT_FOUND\r\n"),
        ("add k 0 0 1\r\n2\r\n", "STORED\r\n"),
        ("replace k 0 0 1\r\n2\r\n", "NOT_STORED\r\n"),
        ("append k 0 0 1\r\n2\r\n", "NOT_STORED\r\n"),
        ("cas k 0 0 1 1\r\n2\r\n", "NOT_FOUND\r\n"),
        ("incr k 1\r\n", "NOT_FOUND\r\n"),
        ("mg k v\r\n", "EN\r\n"),
        ("mg k T100\r\n", "EN\r\n"),
        ("ma k\r\n", "NF\r\n"),
        ("ms k 1 MR\r\n2\r\n", "NS\r\n"),
        ("me k\r\n", "EN\r\n"),
    ] {
        fake.trust(TRUSTED);
        client.check(&[("set k 0 0 1\r\n1\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n")]);
        fake.trust(DOUBTED);
        client.check(&[(command, answer)]);
    }
}

#[test]
fn changes_are_refused_and_reads_are_not_while_other_nodes_would_miss_changes() {
    let (service, fake) = shared_service();
    let mut client = Client::new(service);
    client.check(&[("set k 0 0 1\r\n1\r\n", "STORED\r\n")]);
    fake.trust(CLOSED);
    for command in [
        "set k 0 0 1\r\n2\r\n",
        "delete k\r\n",
        "incr k 1\r\n",
        "ms k 1\r\n2\r\n",
        "md k\r\n",
        "ma k\r\n",
        "flush_all\r\n",
    ] {
        client.check(&[(command, REFUSED)]);
    }
    client.check(&[
        ("set k 0 0 1 noreply\r\n2\r\nmn\r\n", "MN\r\n"),
        ("touch k 100\r\n", "TOUCHED\r\n"),
        ("gat 100 k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n"),
        ("mg k v T100\r\n", "VA 1\r\n1\r\n"),
        ("add new 0 0 1\r\n1\r\n", "STORED\r\n"),
    ]);
    fake.trust(TRUSTED);
    client.check(&[("set k 0 0 1\r\n2\r\n", "STORED\r\n")]);
}

#[test]
fn past_expiry_is_refused_since_it_removes_the_key() {
    let (service, fake) = shared_service();
    let mut client = Client::new(service);
    client.check(&[("set k 0 0 1\r\n1\r\n", "STORED\r\n")]);
    fake.trust(CLOSED);
    for command in
        ["touch k -1\r\n", "gat -1 k\r\n", "gats -1 none k\r\n", "mg k T-1\r\n", "mg k v q T-1\r\n"]
    {
        client.check(&[(command, REFUSED)]);
    }
    client.check(&[
        ("touch k -1 noreply\r\nmn\r\n", "MN\r\n"),
        ("mg k v t\r\n", "VA 1 t-1\r\n1\r\n"),
        ("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n"),
    ]);
    fake.trust(TRUSTED);
    client.check(&[("touch k -1\r\nget k\r\n", "TOUCHED\r\nEND\r\n")]);
}
