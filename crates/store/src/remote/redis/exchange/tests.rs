use proptest::prelude::*;

use super::*;
use crate::remote::pipeline::read_in_pieces as read;

fn outcome(request: impl Fn() -> Request, answer: &[u8]) -> Result<Outcome, Cause> {
    let whole = read(request(), answer, answer.len()).expect("an answer").0;
    for piece in 1..answer.len() {
        assert_eq!(read(request(), answer, piece).expect("an answer").0, whole, "in pieces of {piece}");
    }
    whole
}

fn values(outcome: &Outcome) -> Vec<Option<(&[u8], Option<u64>)>> {
    let ms = |found: &Found| found.good_for.map(|good_for| good_for.as_millis() as u64);
    let found = outcome.values.iter().map(|found| found.as_ref().expect("a value or none").as_ref());
    found.map(|found| found.map(|found| (&found.value[..], ms(found)))).collect()
}

/// The result of each key of an `MGET`: the length of its value, or the label of its error.
fn each(outcome: &Outcome) -> Vec<Result<Option<usize>, &'static str>> {
    let length = |found: &Option<Found>| found.as_ref().map(|found| found.value.len());
    outcome.values.iter().map(|found| found.as_ref().map(length).map_err(Cause::label)).collect()
}

#[test]
fn values_of_an_mget_are_in_the_order_of_the_keys() {
    let outcome = outcome(|| Request::values(3, false, 16), b"*3\r\n$1\r\nx\r\n$-1\r\n$0\r\n\r\n").unwrap();
    assert_eq!(values(&outcome), [Some((&b"x"[..], None)), None, Some((b"", None))]);
}

#[test]
fn times_to_live_are_read_before_the_values_and_that_of_an_absent_key_is_zero() {
    let answer = b":-1\r\n:1500\r\n:-2\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n";
    let outcome = outcome(|| Request::values(3, true, 16), answer).unwrap();
    assert_eq!(values(&outcome), [Some((&b"a"[..], None)), Some((b"b", Some(1500))), Some((b"c", Some(0)))]);
}

#[test]
fn redis_reply_with_a_value_over_the_limit_fails_only_its_key() {
    for (answer, used, expected) in [
        (
            &b"*3\r\n$1\r\nx\r\n$9\r\n.\r\n$1\r\n..\r\n$1\r\nz\r\n+next"[..],
            33,
            [Ok(Some(1)), Err("too_large"), Ok(Some(1))],
        ),
        (b"*3\r\n$1\r\nx\r\n$-1\r\n$9\r\n.........\r\n:1", 31, [Ok(Some(1)), Ok(None), Err("too_large")]),
    ] {
        let request = || Request::values(3, false, 8);
        assert_eq!(each(&outcome(request, answer).unwrap()), expected);
        assert_eq!(read(request(), answer, answer.len()).unwrap().1, used);
    }
    assert!(outcome(|| Request::text(8), b"$9\r\n.........\r\n").is_err());
}

#[test]
fn redis_values_that_exceed_the_limit_together_fail_only_their_keys() {
    let answer = b"*4\r\n$5\r\n12345\r\n$-1\r\n$4\r\n1234\r\n$3\r\n123\r\n";
    let read = |bytes_max| each(&outcome(|| Request::values(4, false, bytes_max), answer).unwrap());
    assert_eq!(read(8), [Ok(Some(5)), Ok(None), Err("too_large"), Ok(Some(3))]);
    assert_eq!(read(12), [Ok(Some(5)), Ok(None), Ok(Some(4)), Ok(Some(3))]);
}

#[test]
fn error_in_the_array_of_an_mget_fails_only_its_key() {
    let answer = b"*3\r\n$1\r\nx\r\n-ERR upstream failure\r\n$1\r\nz\r\n";
    let outcome = outcome(|| Request::values(3, false, 8), answer).unwrap();
    assert_eq!(each(&outcome), [Ok(Some(1)), Err("statement"), Ok(Some(1))]);
}

#[test]
fn error_of_a_key_with_an_mget_of_its_own_fails_only_that_key() {
    let answer =
        b"*1\r\n$1\r\nx\r\n-NOPERM No permissions to access a key\r\n*1\r\n$9\r\n.........\r\n*1\r\n$-1\r\n";
    let told_all = outcome(|| Request::values_alone(4, false, 8), answer).unwrap();
    assert_eq!(each(&told_all), [Ok(Some(1)), Err("credentials"), Err("too_large"), Ok(None)]);
    let timed = b":-1\r\n-NOPERM No permissions to access a key\r\n*1\r\n$1\r\nx\r\n*1\r\n$1\r\ny\r\n";
    let told_all = outcome(|| Request::values_alone(2, true, 8), timed).unwrap();
    assert_eq!(each(&told_all), [Ok(Some(1)), Err("credentials")], "its time to live is unknown");
    let last = outcome(|| Request::values_alone(1, false, 8), b"*1\r\n$9\r\n.........\r\n").unwrap();
    assert_eq!(each(&last), [Err("too_large")]);
}

#[test]
fn forbidden_key_is_distinguished_from_a_forbidden_command() {
    for (text, expected) in [
        ("NOPERM No permissions to access a key", true),
        ("NOPERM this user has no permissions to access one of the keys used as arguments", true),
        ("NOPERM No permissions to access database", false),
        ("NOPERM User a has no permissions to run the 'mget' command", false),
        ("NOPERM this user has no permissions to run the 'mget' command or its subcommand", false),
        ("WRONGPASS invalid username-password pair or user is disabled.", false),
    ] {
        let cause = refusal(text.as_bytes());
        assert_eq!(matches!(cause, Cause::Forbidden { .. }), expected, "{text}");
    }
}

#[test]
fn redis_errors_are_mapped_to_their_causes() {
    for (text, label) in [
        ("NOAUTH Authentication required.", "credentials"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "credentials"),
        ("NOPERM User a has no permissions to run the 'get' command", "credentials"),
        ("ERR AUTH <password> called without any password configured for the default user.", "credentials"),
        ("LOADING Redis is loading the dataset in memory", "busy"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "busy"),
        ("ERR max number of clients reached", "busy"),
        ("READONLY You can't write against a read only replica.", "wrong_server"),
        ("MOVED 3999 127.0.0.1:6381", "wrong_server"),
        ("ERR DB index is out of range", "missing"),
        ("ERR unknown command 'MGET'", "statement"),
        ("MISCONF Redis is configured to save RDB snapshots", "server"),
    ] {
        let answer = format!("-{text}\r\n");
        for request in [|| Request::values(1, false, 8), Request::ok, || Request::text(8)] {
            assert_eq!(outcome(request, answer.as_bytes()).unwrap_err().label(), label, "{text}");
        }
        let before = format!("-{text}\r\n-{text}\r\n");
        assert_eq!(
            outcome(|| Request::values(1, true, 8), before.as_bytes()).unwrap_err().label(),
            label,
            "{text}"
        );
    }
}

#[test]
fn redis_replies_of_another_type_than_expected_are_an_error() {
    for answer in ["+OK\r\n", "*2\r\n", "$1\r\nx\r\n", "HTTP/1.1 400\r\n", "*1\r\n:1\r\n", "$99\r\n"] {
        assert!(read(Request::values(1, false, 8), answer.as_bytes(), 64).is_err(), "{answer}");
    }
    for answer in ["$-1\r\n", ":1\r\n", "+QUEUED\r\n", "+OK+OK\r\n", "+OK\n"] {
        assert!(read(Request::ok(), answer.as_bytes(), 64).is_err(), "{answer}");
    }
    for answer in ["+OK\r\n", ":01\r\n", ":1:\r\n", "$1\r\n1\r\n"] {
        assert!(read(Request::number(), answer.as_bytes(), 64).is_err(), "{answer}");
    }
}

#[test]
fn redis_value_whose_length_differs_from_the_announced_one_is_invalid() {
    for answer in [
        "*2\r\n$5\r\nval1\r\n$4\r\nval2\r\n",
        "*2\r\n$3\r\nval1\r\n$4\r\nval2\r\n",
        // Over the limit, and skipped.
        "*2\r\n$9\r\nvalue678\r\n$4\r\nval2\r\n",
        "*2\r\n$9\r\nvalue67890\r\n$4\r\nval2\r\n",
    ] {
        for piece in 1..=answer.len() {
            assert!(read(Request::values(2, false, 8), answer.as_bytes(), piece).is_err(), "{answer}");
        }
    }
    assert!(read(Request::text(8), b"$9\r\nvalue678\r\n+OK\r\n", 64).is_err());
}

#[test]
fn only_redirections_and_lost_logins_mark_a_redis_connection_as_outdated() {
    for (text, expected) in [
        ("READONLY You can't write against a read only replica.", true),
        ("MOVED 3999 127.0.0.1:6381", true),
        ("NOAUTH Authentication required.", true),
        ("WRONGPASS invalid username-password pair or user is disabled.", false),
        ("NOPERM User a has no permissions to run the 'get' command", false),
        ("LOADING Redis is loading the dataset in memory", false),
    ] {
        assert_eq!(Request::is_outdated(&refusal(text.as_bytes())), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_as_redis_replies_without_a_panic(answer: Vec<u8>, piece in 1_usize..64) {
        let _ = read(Request::values(2, true, 8), &answer, piece);
        let _ = read(Request::values_alone(2, true, 8), &answer, piece);
        let _ = read(Request::ok(), &answer, piece);
    }

    #[test]
    fn any_fragments_of_redis_replies_are_read_without_a_panic(
        words in proptest::collection::vec("[*$:-][0-9]{1,3}\r\n|[*]2\r\n|x{0,9}|\r\n|[$]-1\r\n", 0..20),
        piece in 1_usize..64,
    ) {
        let _ = read(Request::values_alone(2, false, 8), words.concat().as_bytes(), piece);
        let _ = read(Request::values(2, false, 8), words.concat().as_bytes(), piece);
        let _ = read(Request::text(8), words.concat().as_bytes(), piece);
    }
}
