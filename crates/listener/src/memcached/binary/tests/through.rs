//! Tests of the binary protocol on read-through and write-through listeners.

use super::*;
use crate::backends::Backends;
use crate::routing::Target;
use crate::tests::Fake;

/// A client of a listener that is read-through for keys with the prefix `a/`, read-through and
/// write-through for `w/`, and look-aside for all others.
fn through() -> (Client, Arc<Fake>) {
    let reads = Target { read_through: true, ..target(0) };
    let writes = Target { read_through: true, write_through: true, ..target(1) };
    let routes = [("a/".to_owned(), reads), ("w/".to_owned(), writes), (String::new(), target(2))];
    let fake = crate::tests::fake();
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&fake) as _);
    let routing = Routing::by_prefix(sherwood_model::TenantId(0), routes).unwrap();
    (Client::new(service(cache(3), routing, backends)), fake)
}

#[test]
fn misses_of_consecutive_gets_are_fetched_together_and_answered_in_order() {
    let (mut client, fake) = through();
    client.check(&[set("a/hit", "h"), set("aside", "s")], &["01", "01"]);
    fake.log();
    let gets = [
        frame(GETKQ, "a/1"),
        frame(GETKQ, "a/hit"),
        frame(GETKQ, "a/no"),
        frame(GETKQ, "aside"),
        frame(GETK, "a/no"),
        frame(GATQ, "a/2").numbers(&[100]),
        frame(NOOP, ""),
        frame(GET, "a/3"),
    ];
    let answers =
        ["0d 0 a/1 <1>", "0d 0 a/hit h", "0d 0 aside s", "0c error 1 a/no", "1e 0 <2>", "0a", "00 0 <3>"];
    client.check(&gets, &answers);
    assert_eq!(fake.log(), ["fetch 0 1,no,no,2", "fetch 0 3"]);
    assert_eq!(client.count(Count::Fetches), 5);
}

#[test]
fn command_after_a_binary_get_is_executed_once_the_missing_key_is_fetched() {
    let (mut client, fake) = through();
    client.check(&[frame(GET, "a/1"), set("a/1", "new"), frame(GET, "a/1")], &["00 0 <1>", "01", "00 0 new"]);
    assert_eq!(fake.log(), ["fetch 0 1", "write 0 1"]);
    // Also if it is refused, or closes the connection.
    client.check(&[frame(GETQ, "a/2"), frame(0x77, "")], &["09 0 <2>", "77 error 81 Unknown command"]);
    client.check(
        &[frame(GETQ, "a/3"), frame(GET, "")],
        &["09 0 <3>", "00 error 4 Invalid arguments", "closed"],
    );
}

#[test]
fn more_binary_misses_than_one_fetch_can_hold_are_all_answered() {
    let (mut client, _) = through();
    let keys: Vec<String> = (0..150).map(|key| format!("a/{key}")).collect();
    let mut gets: Vec<Frame> = keys.iter().map(|key| frame(GETKQ, key)).collect();
    gets.push(frame(NOOP, ""));
    let mut expected: Vec<String> = (0..150).map(|key| format!("0d 0 a/{key} <{key}>")).collect();
    expected.push("0a".to_owned());
    assert_eq!(client.send(&gets), expected);
}

#[test]
fn failed_fetch_is_a_miss_and_a_rejected_fetch_an_error_unless_the_get_is_quiet() {
    let (mut client, _) = through();
    let rejected = "00 error 86 the answer is expected after 35.2 ms, too late";
    let gets = ["a/bad", "a/rejected", "a/full"].map(|key| frame(GET, key));
    client.check(&gets, &["00 error 1 Not found", rejected, "00 error 86 try again in 2s"]);
    let quiet = ["a/bad", "a/rejected"].map(|key| frame(GETQ, key));
    client.check(&[&quiet[..], &[frame(NOOP, "")]].concat(), &["0a"]);
    assert_eq!(client.count(Count::FetchErrors), 5);
}

#[test]
fn binary_writes_are_answered_once_the_store_has_acknowledged_them() {
    let (mut client, fake) = through();
    let put = frame(SET, "w/1").numbers(&[0, 60]).with("abc");
    client.check(&[put, frame(DELETE, "w/1"), frame(NOOP, "")], &["01", "04", "0a"]);
    let quiet = frame(SETQ, "w/2").numbers(&[0, 0]).with("x");
    client.check(&[quiet, frame(DELETEQ, "w/2"), frame(NOOP, "")], &["0a"]);
    assert_eq!(fake.log(), ["store 1 1 abc for 60s", "delete 1 1", "store 1 2 x", "delete 1 2"]);
    let bad = frame(SETQ, "w/bad").numbers(&[0, 0]).with("x");
    let full = frame(SETQ, "w/full").numbers(&[0, 0]).with("x");
    client.check(&[bad, full], &["11 error 84 the store\nis down", "11 error 86 try again\nin 2s"]);
}

#[test]
fn write_through_refuses_binary_commands_with_client_flags_or_that_need_the_old_value() {
    let (mut client, fake) = through();
    for refused in [
        frame(ADD, "w/1").numbers(&[0, 0]).with("x"),
        frame(REPLACE, "w/1").numbers(&[0, 0]).with("x"),
        frame(APPEND, "w/1").with("x"),
        set("w/1", "x").cas(7),
        frame(DELETE, "w/1").cas(7),
        count(INCREMENTQ, "w/1", 1, 0, 0),
        frame(SETQ, "w/1").numbers(&[5, 0]).with("x"),
    ] {
        let answer = client.send(std::slice::from_ref(&refused)).concat();
        assert!(answer.contains(" error 83 ") && answer.contains("refused by a write-through"), "{answer}");
    }
    assert_eq!(fake.log(), [""; 0]);
    client.check(&[count(INCREMENTQ, "other", 1, 5, 0), frame(GET, "other")], &["00 0 5"]);
}
