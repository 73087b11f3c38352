//! Redis commands of a write-through listener.

use super::*;

/// A listener whose keys with prefix `w/` are written through, and others are not.
fn write_through() -> (Listener, Arc<Known>) {
    let through = Target { write_through: true, ..target(0, true) };
    let routes = [("w/".to_owned(), through), (String::new(), target(1, false))];
    let known = known();
    let backends: Option<Arc<dyn Backends>> = Some(Arc::clone(&known) as _);
    (Listener::new(cache(2), Routing::by_prefix(TenantId(0), routes).unwrap(), backends), known)
}

fn asked(known: &Known) -> Vec<String> {
    std::mem::take(&mut known.asked.lock().unwrap())
}

#[test]
fn values_are_stored_before_they_are_acknowledged() {
    let (listener, known) = write_through();
    let mut client = listener.client();
    listener.check(
        &mut client,
        &[
            ("SET w/a 1", "+OK"),
            ("SET w/b 2 EX 60", "+OK"),
            ("PSETEX w/c 500 3", "+OK"),
            ("MSET w/d 4 other 5 w/e 6", "+OK"),
            ("MSET w/f 1 w/g 2 w/f 3", "+OK"),
            ("GET other", "$1 5"),
            ("DEL w/a other w/a none", ":2"),
            ("UNLINK w/b", ":1"),
            ("GET w/z", "$3 <z>"),
        ],
    );
    let stored = [
        "a = 1",
        "b = 2 for 60s",
        "c = 3 for 500ms",
        "d = 4",
        "e = 6",
        "f = 3",
        "g = 2",
        "a deleted",
        "b deleted",
        "z",
    ];
    assert_eq!(asked(&known), stored);
}

#[test]
fn write_that_the_store_refuses_is_an_error_and_others_of_a_pipeline_go_on() {
    let (listener, _) = write_through();
    let mut client = listener.client();
    let sent: Vec<u8> = ["SET w/bad 1", "SET w/a 2", "MSET w/b 1 w/bad 2", "DEL w/bad", "SET w/full 1"]
        .iter()
        .flat_map(|line| request(line))
        .collect();
    let answer = listener.send(&mut client, &sent);
    let (broken, full) = ("-ERR the store is down\r\n", "-REJECTED try again in 2s\r\n");
    assert_eq!(String::from_utf8(answer).unwrap(), format!("{broken}+OK\r\n{broken}{broken}{full}"));
}

#[test]
fn redis_command_that_depends_on_the_present_value_is_refused() {
    let (listener, known) = write_through();
    let mut client = listener.client();
    for command in [
        "APPEND w/a x",
        "INCR w/a",
        "DECRBY w/a 3",
        "INCRBYFLOAT w/a 1",
        "SETNX w/a 1",
        "MSETNX w/a 1",
        "GETSET w/a 1",
        "GETDEL w/a",
        "SETRANGE w/a 1 x",
        "RENAME other w/a",
        "COPY w/a other",
    ] {
        let answer = listener.ask(&mut client, command);
        assert!(answer.contains("is refused by a write-through listener"), "{command}: {answer}");
    }
    for command in ["SET w/a 1 NX", "SET w/a 1 XX", "SET w/a 1 GET", "SET w/a 1 KEEPTTL"] {
        let answer = listener.ask(&mut client, command);
        assert!(answer.contains("are refused by a write-through listener"), "{command}: {answer}");
    }
    assert_eq!(asked(&known), [""; 0]);
    listener.check(&mut client, &[("INCR other", ":1"), ("SETNX other 5", ":0")]);
    listener.check(
        &mut client,
        &[
            ("EXPIRE w/a 10", ":0"),
            ("PERSIST w/a", ":0"),
            ("MSET w/a", "-ERR wrong number of arguments for 'mset' command"),
        ],
    );
}

#[test]
fn client_that_wants_no_answers_gets_none_to_its_writes() {
    let (listener, known) = write_through();
    let mut client = listener.client();
    let sent: Vec<u8> = ["CLIENT REPLY OFF", "SET w/a 1", "SET w/bad 1", "CLIENT REPLY ON", "SET w/b 1"]
        .iter()
        .flat_map(|line| request(line))
        .collect();
    assert_eq!(listener.send(&mut client, &sent), b"+OK\r\n+OK\r\n");
    assert_eq!(asked(&known), ["a = 1", "bad = 1", "b = 1"]);
}
