//! Redis commands on values that other nodes cache, too.

use super::*;
use crate::backends::SharedTrust;

const DOUBTED: SharedTrust = SharedTrust { doubts_values: true, refuses_changes: false };
const CLOSED: SharedTrust = SharedTrust { doubts_values: false, refuses_changes: true };
const TRUSTED: SharedTrust = SharedTrust { doubts_values: false, refuses_changes: false };

/// The error of a change that other nodes would miss.
const REFUSED: &str = "-ERR the other nodes of the cluster do not know this process yet and would serve older values; nothing was changed, try again later";

/// A listener with these routes, and its backends.
fn sharing<const N: usize>(routes: [(&str, Target); N]) -> (Listener, Arc<Known>) {
    let cache = cache(2);
    let known = FakeBackends::new(Requested::default(), fetched).storing(stored);
    let known = known.sharing(Arc::clone(&cache)).shared();
    let routes = routes.map(|(prefix, target)| (prefix.to_owned(), target));
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&known) as _);
    (Listener::new(cache, Routing::by_prefix(TenantId(0), routes).unwrap(), backends), known)
}

/// The target of a partition that other nodes cache, too.
fn shared_target(read_through: bool) -> Target {
    Target { shared: true, ..target(0, read_through) }
}

#[test]
fn commands_find_no_value_that_is_not_trusted() {
    let (listener, known) = sharing([("", shared_target(false))]);
    let mut client = listener.client();
    for (command, answer) in [
        ("GET k", "$-1"),
        ("MGET k", "*1 $-1"),
        ("EXISTS k", ":0"),
        ("TOUCH k", ":0"),
        ("TTL k", ":-2"),
        ("STRLEN k", ":0"),
        ("EXPIRE k 100", ":0"),
        ("GETEX k", "$-1"),
        ("APPEND k 2", ":1"),
        ("SETNX k 2", ":1"),
        ("OBJECT ENCODING k", "$-1"),
        ("OBJECT IDLETIME k", "$-1"),
    ] {
        known.trust(TRUSTED);
        listener.check(&mut client, &[("SET k value", "+OK"), ("STRLEN k", ":5")]);
        known.trust(DOUBTED);
        listener.check(&mut client, &[(command, answer)]);
    }
}

#[test]
fn changes_are_refused_and_reads_are_not_while_other_nodes_would_miss_changes() {
    let (listener, known) = sharing([("", shared_target(false))]);
    let mut client = listener.client();
    listener.check(&mut client, &[("SET k 1", "+OK")]);
    known.trust(CLOSED);
    for command in ["SET k 2", "DEL k", "INCR k", "GETDEL k", "MSET k 2", "RENAME k l", "FLUSHALL", "FLUSHDB"]
    {
        listener.check(&mut client, &[(command, REFUSED)]);
    }
    listener.check(
        &mut client,
        &[("GET k", "$1 1"), ("MULTI", "+OK"), ("SET k 2", "+QUEUED"), ("EXEC", REFUSED)],
    );
    listener.check(&mut client, &[("EXPIRE k 100", ":1"), ("PERSIST k", ":1"), ("GET k", "$1 1")]);
    known.trust(TRUSTED);
    listener.check(&mut client, &[("SET k 2", "+OK")]);
}

#[test]
fn other_partitions_of_the_listener_are_changed_while_a_shared_one_is_not() {
    let (listener, known) = sharing([("s/", shared_target(false)), ("", target(1, false))]);
    known.trust(CLOSED);
    let mut client = listener.client();
    listener.check(&mut client, &[("SET own 1", "+OK"), ("MSET own 2 s/k 2", REFUSED), ("GET own", "$1 1")]);
}

#[test]
fn command_is_refused_if_it_changes_a_shared_key_beside_keys_that_are_written_through() {
    let through = Target { write_through: true, ..target(1, false) };
    let (listener, known) = sharing([("", shared_target(false)), ("w/", through)]);
    let mut client = listener.client();
    listener.check(&mut client, &[("SET k 1", "+OK")]);
    known.trust(CLOSED);
    for command in ["MSET k 2 w/k 2", "DEL w/k k", "UNLINK k w/k"] {
        listener.check(&mut client, &[(command, REFUSED)]);
    }
    assert_eq!(*known.asked.lock().unwrap(), [""; 0]);
    listener.check(&mut client, &[("GET k", "$1 1"), ("MSET w/k 2 w/l 3", "+OK"), ("DEL w/k", ":1")]);
}

#[test]
fn past_expiry_is_refused_since_it_removes_the_key() {
    let (listener, known) = sharing([("", shared_target(false))]);
    let mut client = listener.client();
    listener.check(&mut client, &[("SET k 1", "+OK")]);
    known.trust(CLOSED);
    for command in [
        "EXPIRE k -1",
        "EXPIRE k 0",
        "PEXPIRE k -1",
        "EXPIREAT k 5",
        "PEXPIREAT k 5",
        "GETEX k EXAT 5",
        "GETEX k PXAT 5",
    ] {
        listener.check(&mut client, &[(command, REFUSED)]);
        listener.check(&mut client, &[("MULTI", "+OK"), (command, "+QUEUED"), ("EXEC", REFUSED)]);
    }
    listener.check(
        &mut client,
        &[
            ("GETEX k EX 100", "$1 1"),
            ("EXPIRE k x", "-ERR value is not an integer or out of range"),
            ("PEXPIRE k 100000", ":1"),
            ("EXPIREAT k 1900000000", ":1"),
            ("GET k", "$1 1"),
        ],
    );
    known.trust(TRUSTED);
    listener.check(&mut client, &[("EXPIRE k -1", ":1"), ("EXISTS k", ":0")]);
}

#[test]
fn transaction_reads_fetched_values_for_untrusted_ones_and_keeps_those_trusted_at_its_begin() {
    let (listener, known) = sharing([("", shared_target(true))]);
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[("SET k 1", "+OK"), ("MULTI", "+OK"), ("GET k", "+QUEUED"), ("GET other", "+QUEUED")],
    );
    let moment = Moment { now: listener.now, unix_secs: listener.unix_secs() };
    let answer = client.send_with(moment, &request("EXEC"), |wanted| {
        known.trust(DOUBTED);
        wanted.iter().map(|wanted| Ok(Some(wanted.key.clone().into()))).collect()
    });
    assert_eq!(String::from_utf8(answer).unwrap(), "*2\r\n$1\r\n1\r\n$5\r\nother\r\n");
    listener.check(&mut client, &[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*1 $3 <k>")]);
}

#[test]
fn watched_value_is_one_that_is_trusted_and_counts_as_changed_once_it_is_not() {
    let (listener, known) = sharing([("", shared_target(false))]);
    let mut client = listener.client();
    listener.check(&mut client, &[("SET k 1", "+OK")]);
    known.trust(DOUBTED);
    listener.check(
        &mut client,
        &[("WATCH k", "+OK"), ("MULTI", "+OK"), ("SETNX k 2", "+QUEUED"), ("EXEC", "*1 :1")],
    );
    known.trust(TRUSTED);
    listener.check(&mut client, &[("WATCH k", "+OK"), ("MULTI", "+OK"), ("SET l 1", "+QUEUED")]);
    known.trust(DOUBTED);
    listener.check(&mut client, &[("EXEC", "*-1"), ("GET l", "$-1")]);
}

/// Begins a command that takes several turns, then lets changes be refused. Returns the answer.
fn overtaken(listener: &Listener, known: &Known, command: &str) -> String {
    let mut client = listener.client();
    let moment = Moment { now: listener.now, unix_secs: listener.unix_secs() };
    let no_fetch = &mut |_| unreachable!("the listener is look-aside");
    client.receive(&request(command));
    assert_eq!(client.turn(moment, no_fetch), b"", "it takes several turns");
    known.trust(CLOSED);
    let mut answer = Vec::new();
    while answer.is_empty() {
        answer = client.turn(moment, no_fetch);
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn long_command_ends_with_an_error_when_changes_of_its_other_keys_are_refused() {
    let error = format!("-ERR {}\r\n", crate::shared::REFUSED_REST);
    let names: Vec<String> = (0..15_000).map(|key| format!("k{key}")).collect();
    for (name, first, last) in [("MSET", "$1 1", "$-1"), ("DEL", "$-1", "$1 1"), ("EXISTS", "$1 1", "$1 1")] {
        let (listener, known) = sharing([("", shared_target(false))]);
        let pairs: Vec<String> = names.iter().map(|name| format!("{name} 1")).collect();
        let command = match name {
            "MSET" => format!("MSET {}", pairs.join(" ")),
            _ => {
                assert_eq!(listener.ask(&mut listener.client(), &format!("MSET {}", pairs.join(" "))), "+OK");
                format!("{name} {}", names.join(" "))
            }
        };
        let answer = overtaken(&listener, &known, &command);
        if name == "EXISTS" {
            assert_eq!(answer, ":15000\r\n");
        } else {
            assert_eq!(answer, error, "{name}");
        }
        listener.check(&mut listener.client(), &[("GET k0", first), ("GET k14999", last)]);
    }
}

#[test]
fn removal_of_one_database_ends_with_an_error_when_changes_are_refused() {
    let (mut listener, known) = sharing([("", shared_target(false))]);
    Arc::get_mut(&mut listener.shared).unwrap().options.databases = 2;
    let pairs: Vec<String> = (0..15_000).map(|key| format!("k{key} 1")).collect();
    assert_eq!(listener.ask(&mut listener.client(), &format!("MSET {}", pairs.join(" "))), "+OK");
    let answer = overtaken(&listener, &known, "FLUSHDB");
    assert_eq!(answer, format!("-ERR {}\r\n", crate::shared::REFUSED_REST));
    let left = listener.ask(&mut listener.client(), "DBSIZE");
    assert!(!["", ":0", ":15000"].contains(&&*left), "{left} keys are left");
}

#[test]
fn transaction_reports_the_shared_keys_whose_values_it_has_changed() {
    let (listener, known) = sharing([("", shared_target(false)), ("own/", target(1, false))]);
    let mut client = listener.client();
    listener.check(&mut client, &[("MSET kept 1 read 1 taken 1", "+OK"), ("MULTI", "+OK")]);
    for command in [
        "EXPIRE kept 100",
        "SET kept 2 IFEQ 5",
        "SETNX taken 2",
        "GET read",
        "INCR counted",
        "EXPIRE counted 100 NX",
        "SET stored 1",
        "SETNX filled 1",
        "DEL removed",
        "SET own/k 1",
    ] {
        listener.check(&mut client, &[(command, "+QUEUED")]);
    }
    let answer = listener.ask(&mut client, "EXEC");
    assert!(answer.starts_with('*'), "{answer}");
    let mut changed: Vec<_> = known.changed().into_iter().map(|(_, key)| key).collect();
    changed.sort();
    assert_eq!(changed, ["counted", "filled", "removed", "stored"]);
}
