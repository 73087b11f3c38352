//! Tests of valid and invalid Redis requests, complete and split; `tests/resp_bytes.rs` parses
//! arbitrary bytes.

use super::*;

const LIMITS: Limits = Limits { argument_bytes_max: 20, request_bytes_max: 100 };

/// Returns the events of parsing `bytes`, one line of text each, and true if all bytes were
/// consumed.
fn parsed(bytes: &[u8]) -> (Vec<String>, bool) {
    let mut parser = Parser::new(LIMITS);
    let mut parsed = Vec::new();
    let mut start = 0;
    loop {
        let Parsed { consumed, event } = parser.parse(&bytes[start..]);
        start += consumed;
        match event {
            Event::Incomplete { .. } => return (parsed, start == bytes.len()),
            Event::Request(args) => parsed.push(words(args)),
            Event::TooLarge(args) => parsed.push(format!("{} (too large)", words(args))),
            Event::Broken(error) => parsed.push(error.to_string()),
        }
    }
}

fn words(args: Args<'_>) -> String {
    args.from(0).map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join("|")
}

#[track_caller]
fn check(bytes: &str, expected: &[&str]) {
    let (parsed, all) = parsed(bytes.as_bytes());
    assert_eq!(
        (parsed.iter().map(String::as_str).collect::<Vec<_>>(), all),
        (expected.to_vec(), true),
        "{bytes:?}"
    );
}

#[test]
fn consecutive_redis_requests_are_parsed() {
    check("*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n", &["GET|a", "PING"]);
    check("PING\r\n*1\r\n$4\r\nPING\r\nGET a\n", &["PING", "PING", "GET|a"]);
}

#[test]
fn arguments_of_a_request_may_be_any_bytes_or_empty() {
    check("*3\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n$1\r\nx\r\n", &["|\r\n*1|x"]);
}

#[test]
fn empty_redis_request_is_ignored() {
    check("\r\n\n*0\r\n*-10\r\n  \r\nPING\r\n", &["PING"]);
}

#[test]
fn invalid_redis_request_is_an_error_with_the_text_of_redis_and_ends_parsing() {
    for (bytes, error) in [
        ("*x\r\n", "invalid multibulk length"),
        ("*3000000000\r\n", "invalid multibulk length"),
        ("*1048577\r\n", "invalid multibulk length"),
        ("*\r\n", "invalid multibulk length"),
        ("*1\r\nfoo\r\n", "expected '$', got 'f'"),
        ("*2\r\n$3\r\nGET\r\n:1\r\n", "expected '$', got ':'"),
        ("*1\r\n$-10\r\n", "invalid bulk length"),
        ("*1\r\n$2000000000\r\n", "invalid bulk length"),
        ("*1\r\n$blabla\r\n", "invalid bulk length"),
        ("set \"\"\"test-key\"\"\" test-value\r\n", "unbalanced quotes in request"),
    ] {
        check(&format!("{bytes}PING\r\n"), &[&format!("Protocol error: {error}")]);
    }
}

#[test]
fn line_of_a_request_without_an_end_is_refused_at_its_limit() {
    for (start, error) in [
        ("", "too big inline request"),
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
    ] {
        let almost = LINE_BYTES_MAX - usize::from(!start.is_empty());
        let (before, _) = parsed(format!("{start}{}", "1".repeat(almost)).as_bytes());
        assert_eq!(before, Vec::<String>::new());
        check(&format!("{start}{}", "1".repeat(almost + 1)), &[&format!("Protocol error: {error}")]);
    }
}

#[test]
fn argument_over_the_limit_is_skipped_and_the_next_request_parsed() {
    let (fits, over) = ("x".repeat(20), "x".repeat(21));
    check(&format!("*2\r\n$3\r\nGET\r\n$20\r\n{fits}\r\nPING\r\n"), &[&format!("GET|{fits}"), "PING"]);
    check(
        &format!("*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$21\r\n{over}\r\n$2\r\nEX\r\nPING\r\n"),
        &["SET|k (too large)", "PING"],
    );
    check(&format!("*1\r\n$21\r\n{over}\r\nPING\r\n"), &[" (too large)", "PING"]);
    check(
        &format!("*2\r\n$21\r\n{over}\r\nx\r\nPING\r\n"),
        &[" (too large)", "Protocol error: expected '$', got 'x'"],
    );
}

#[test]
fn request_over_the_limit_is_skipped_though_its_arguments_are_under_theirs() {
    let argument = "$20\r\n12345678901234567890\r\n";
    check(
        &format!("*3\r\n{}PING\r\n", argument.repeat(3)),
        &["12345678901234567890|12345678901234567890|12345678901234567890", "PING"],
    );
    check(
        &format!("*4\r\n{}PING\r\n", argument.repeat(4)),
        &["12345678901234567890|12345678901234567890|12345678901234567890 (too large)", "PING"],
    );
}

#[test]
fn incomplete_redis_request_returns_the_number_of_bytes_needed() {
    let mut parser = Parser::new(LIMITS);
    let mut need = |bytes: &[u8]| match parser.parse(bytes) {
        Parsed { consumed: 0, event: Event::Incomplete { need } } => need,
        other => panic!("{other:?}"),
    };
    let bytes = b"*2\r\n$3\r\nGET\r\n$10\r\n";
    assert_eq!(need(b""), 1);
    assert_eq!(need(&bytes[..3]), 4);
    assert_eq!(need(&bytes[..8]), 13);
    assert_eq!(need(bytes), bytes.len() + 12);
}

#[test]
fn memory_for_many_arguments_is_freed_at_the_next_request() {
    let limits = Limits { argument_bytes_max: 10, request_bytes_max: 1 << 20 };
    let mut parser = Parser::new(limits);
    let many = format!("*100000\r\n{}", "$0\r\n\r\n".repeat(100_000));
    assert!(matches!(parser.parse(many.as_bytes()).event, Event::Request(args) if args.len() == 100_000));
    assert!(parser.spans.capacity() * size_of::<Span>() <= limits.parser_bytes_max());
    assert!(matches!(parser.parse(b"PING\r\n").event, Event::Request(_)));
    assert!(parser.spans.capacity() <= SPANS_KEPT);
}
