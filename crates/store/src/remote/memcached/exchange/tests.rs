use proptest::prelude::*;

use super::*;
use crate::Fault;
use crate::remote::pipeline::read_in_pieces as read;

fn get(keys: &[&'static str], value_bytes_max: u32) -> Request {
    Request::values(keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect(), value_bytes_max)
}

fn outcome(request: impl Fn() -> Request, answer: &[u8]) -> Result<Outcome, Cause> {
    let whole = read(request(), answer, answer.len()).expect("an answer").0;
    for piece in 1..answer.len() {
        assert_eq!(read(request(), answer, piece).expect("an answer").0, whole, "in pieces of {piece}");
    }
    whole
}

fn values(outcome: &Outcome) -> Vec<Option<(&[u8], u32)>> {
    let found = outcome.values.iter().map(|found| found.as_ref().expect("a value or none").as_ref());
    found.map(|found| found.map(|found| (&found.value[..], found.flags))).collect()
}

/// The result of each key of a `get`: the length of its value, or the label of its error.
fn each(outcome: &Outcome) -> Vec<Result<Option<usize>, &'static str>> {
    let length = |found: &Option<Found>| found.as_ref().map(|found| found.value.len());
    outcome.values.iter().map(|found| found.as_ref().map(length).map_err(Cause::label)).collect()
}

#[test]
fn values_of_a_get_are_matched_to_their_keys() {
    let answer = b"VALUE b 7 2\r\nxy\r\nVALUE d 0 0\r\n\r\nEND\r\n";
    let outcome = outcome(|| get(&["a", "b", "c", "d"], 16), answer).unwrap();
    assert_eq!(values(&outcome), [None, Some((&b"xy"[..], 7)), None, Some((b"", 0))]);
}

#[test]
fn key_repeated_in_a_get_has_two_values() {
    let outcome =
        outcome(|| get(&["a", "a"], 16), b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n").unwrap();
    assert_eq!(values(&outcome), [Some((&b"x"[..], 0)), Some((b"x", 0))]);
}

#[test]
fn more_keys_than_fit_on_a_line_are_read_by_several_get_lines() {
    let keys: Vec<Bytes> = (0..=KEYS_PER_LINE_MAX).map(|i| Bytes::from(format!("k{i}"))).collect();
    let answer = format!("VALUE k0 0 1\r\na\r\nEND\r\nVALUE k{KEYS_PER_LINE_MAX} 0 1\r\nb\r\nEND\r\n");
    let outcome = outcome(|| Request::values(keys.clone(), 16), answer.as_bytes()).unwrap();
    let values = values(&outcome);
    assert_eq!(values.iter().flatten().count(), 2);
    assert_eq!(values.last(), Some(&Some((&b"b"[..], 0))));
}

#[test]
fn values_in_another_order_than_requested_are_matched_once_per_key() {
    let answer = b"VALUE c 0 1\r\n3\r\nVALUE a 0 1\r\n1\r\nVALUE b 0 1\r\n2\r\nEND\r\n";
    let outcome = outcome(|| get(&["a", "b", "c"], 16), answer).unwrap();
    assert_eq!(values(&outcome), [Some((&b"1"[..], 0)), Some((b"2", 0)), Some((b"3", 0))]);
    let twice = b"VALUE a 0 1\r\n1\r\nVALUE a 0 1\r\n1\r\nEND\r\n";
    assert!(read(get(&["a", "b"], 16), twice, twice.len()).is_err());
}

#[test]
fn memcached_reply_with_a_value_over_the_limit_fails_only_its_key() {
    let answer = b"VALUE a 0 1\r\nx\r\nVALUE b 0 9\r\n\r\nEND\r\n..\r\nVALUE c 0 1\r\nz\r\nEND\r\nnext";
    let read_all = each(&outcome(|| get(&["a", "b", "c"], 8), answer).unwrap());
    assert_eq!(read_all, [Ok(Some(1)), Err("too_large"), Ok(Some(1))]);
    assert_eq!(read(get(&["a", "b", "c"], 8), answer, answer.len()).unwrap().1, answer.len() - 4);
}

#[test]
fn memcached_values_that_exceed_the_limit_together_fail_only_their_keys() {
    let answer = b"VALUE a 0 5\r\n12345\r\nVALUE b 0 4\r\n1234\r\nVALUE c 0 3\r\n123\r\nEND\r\nnext";
    let request = |bytes_max| get(&["a", "b", "c"], bytes_max);
    let read_all = |bytes_max| each(&outcome(|| request(bytes_max), answer).unwrap());
    assert_eq!(read_all(8), [Ok(Some(5)), Err("too_large"), Ok(Some(3))]);
    assert_eq!(read_all(12), [Ok(Some(5)), Ok(Some(4)), Ok(Some(3))]);
    assert_eq!(read(request(8), answer, answer.len()).unwrap().1, answer.len() - 4);
}

#[test]
fn memcached_value_whose_length_differs_from_the_announced_one_is_invalid() {
    for answer in [
        "VALUE a 0 5\r\nval1\r\nEND\r\n",
        "VALUE a 0 3\r\nval1\r\nEND\r\n",
        // Over the limit, and skipped.
        "VALUE a 0 9\r\nvalue678\r\nEND\r\n",
        "VALUE a 0 9\r\nvalue67890\r\nEND\r\n",
    ] {
        for piece in 1..=answer.len() {
            assert!(read(get(&["a"], 8), answer.as_bytes(), piece).is_err(), "{answer}");
        }
    }
}

#[test]
fn value_longer_than_memcached_can_hold_is_an_invalid_reply() {
    assert!(read(get(&["a"], 8), b"VALUE a 0 99999999999\r\n", 64).is_err());
}

#[test]
fn memcached_errors_are_mapped_to_their_causes() {
    for (answer, label) in [
        ("CLIENT_ERROR unauthenticated\r\n", "credentials"),
        ("ERROR Too many open connections\r\n", "busy"),
        ("SERVER_ERROR out of memory storing object\r\n", "busy"),
        ("SERVER_ERROR boom\r\n", "server"),
        ("ERROR\r\n", "statement"),
        ("CLIENT_ERROR bad data chunk\r\n", "statement"),
    ] {
        for request in [|| get(&["a"], 8), || Request::Deleted, || Request::Version] {
            assert_eq!(outcome(request, answer.as_bytes()).unwrap_err().label(), label, "{answer}");
        }
        // The old value may be gone.
        let is_done = answer.starts_with("SERVER_ERROR");
        let written = outcome(|| Request::Stored, answer.as_bytes()).unwrap_err();
        assert_eq!(written.label(), if is_done { "server" } else { label }, "{answer}");
        assert_eq!(written.fault() == Fault::Broken, is_done, "{answer}");
    }
    let too_large = outcome(|| Request::Stored, b"SERVER_ERROR object too large for cache\r\n").unwrap_err();
    assert_eq!((too_large.label(), too_large.fault()), ("server", Fault::Broken));
    assert!(too_large.to_string().contains("raise its item size (memcached -I)"), "{too_large}");
    let refused = outcome(|| Request::Login, b"CLIENT_ERROR authentication failure\r\n").unwrap_err();
    assert_eq!(refused.label(), "credentials");
}

#[test]
fn each_memcached_request_is_acknowledged_by_its_own_reply() {
    assert!(outcome(|| Request::Stored, b"STORED\r\n").is_ok());
    assert!(outcome(|| Request::Login, b"STORED\r\n").is_ok());
    assert!(outcome(|| Request::Deleted, b"DELETED\r\n").is_ok());
    assert!(outcome(|| Request::Deleted, b"NOT_FOUND\r\n").is_ok());
    assert_eq!(outcome(|| Request::Version, b"VERSION 1.6.18\r\n").unwrap().text, "1.6.18");
}

#[test]
fn memcached_replies_of_another_request_are_an_error() {
    for answer in
        ["STORED\r\n", "VALUE z 0 1\r\nx\r\n", "HTTP/1.1 400 Bad Request\r\n", "VALUE a 0 1\r\nxyz\r\n"]
    {
        assert!(read(get(&["a"], 8), answer.as_bytes(), 64).is_err(), "{answer}");
    }
    assert!(read(Request::Stored, b"END\r\n", 64).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_read_as_memcached_replies_without_a_panic(answer: Vec<u8>, piece in 1_usize..64) {
        let _ = read(get(&["a", "b"], 8), &answer, piece);
        let _ = read(Request::Stored, &answer, piece);
    }

    #[test]
    fn any_fragments_of_memcached_replies_are_read_without_a_panic(
        words in proptest::collection::vec("VALUE a 0 [0-9]{1,3}\r\n|END\r\n|x{0,9}|\r\n|ERROR\r\n", 0..20),
        piece in 1_usize..64,
    ) {
        let _ = read(get(&["a", "b"], 8), words.concat().as_bytes(), piece);
    }
}
