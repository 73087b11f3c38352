//! Checks that the server's parser reads the requests of the memcached client, and the client the
//! replies of the server.

use proptest::collection::vec;
use proptest::prelude::*;
use sherwood_wire::memcached::client::{self, Answer, Item, Key, Progress, Reply};
use sherwood_wire::memcached::{
    Command, Delta, Event, Exptime, Limits, Parsed, Parser, Refusal, Retrieval, Storage, StorageVerb, reply,
};

const LIMITS: Limits = Limits { value_bytes_max: 2000 };

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0x21_u8..0x7f, 0x80_u8..=0xff], 1..=250)
}

fn verb() -> impl Strategy<Value = StorageVerb> {
    prop_oneof![
        Just(StorageVerb::Set),
        Just(StorageVerb::Add),
        Just(StorageVerb::Replace),
        Just(StorageVerb::Append),
        Just(StorageVerb::Prepend),
        any::<u64>().prop_map(StorageVerb::Cas),
    ]
}

fn delta() -> impl Strategy<Value = Delta> {
    prop_oneof![any::<u64>().prop_map(Delta::Increase), any::<u64>().prop_map(Delta::Decrease)]
}

/// Parses `bytes`, which have to be exactly one command.
fn command(bytes: &[u8]) -> Command<'_> {
    match Parser::new(LIMITS).parse(bytes) {
        Parsed { consumed, event: Event::Command(command) } if consumed == bytes.len() => command,
        other => panic!("not one command: {other:?}"),
    }
}

/// Parses `bytes`, which have to be complete replies.
fn replies(mut bytes: &[u8]) -> Vec<Reply<'_>> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        match client::parse(bytes, LIMITS.value_bytes_max) {
            Ok(Progress::Reply { consumed, reply }) => {
                replies.push(reply);
                bytes = &bytes[consumed..];
            }
            other => panic!("not a reply: {other:?}"),
        }
    }
    replies
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn storage_commands_of_the_client_are_parsed_by_the_server(
        verb in verb(),
        key in key(),
        value in vec(any::<u8>(), 0..2000),
        flags: u32,
        secs: i64,
        noreply: bool,
    ) {
        let mut bytes = Vec::new();
        let exptime = Exptime(secs);
        let answer = if noreply { Answer::Unwanted } else { Answer::Expected };
        let item = Item { value: &value, flags, exptime };
        client::store(&mut bytes, verb, Key::new(&key).unwrap(), item, answer);
        let expected = Storage { verb, key: &key, flags, exptime, value: &value, noreply };
        prop_assert_eq!(command(&bytes), Command::Storage(expected));
    }

    #[test]
    fn get_commands_of_the_client_are_parsed_by_the_server(keys in vec(key(), 1..30), cas: bool, touch in proptest::option::of(any::<i64>())) {
        let mut bytes = Vec::new();
        let sent = keys.iter().map(|key| Key::new(key).unwrap());
        match (cas, touch) {
            (false, None) => client::get(&mut bytes, sent),
            (true, None) => client::gets(&mut bytes, sent),
            (false, Some(secs)) => client::gat(&mut bytes, Exptime(secs), sent),
            (true, Some(secs)) => client::gats(&mut bytes, Exptime(secs), sent),
        }
        let Command::Retrieval(Retrieval { keys: found, cas: found_cas, touch: found_touch, last }) = command(&bytes)
        else { panic!("no retrieval") };
        prop_assert!(last);
        prop_assert_eq!((found_cas, found_touch), (cas, touch.map(Exptime)));
        prop_assert!(found.eq(keys.iter().map(|key| key.as_slice())));
    }

    #[test]
    fn one_line_commands_of_the_client_are_parsed_by_the_server(key in key(), delta in delta(), secs: i64, noreply: bool) {
        let answer = if noreply { Answer::Unwanted } else { Answer::Expected };
        let sent = Key::new(&key).unwrap();
        let exptime = Exptime(secs);
        let mut bytes = Vec::new();
        client::arithmetic(&mut bytes, sent, delta, answer);
        prop_assert_eq!(command(&bytes), Command::Arithmetic { key: &key, delta, noreply });
        bytes.clear();
        client::touch(&mut bytes, sent, exptime, answer);
        prop_assert_eq!(command(&bytes), Command::Touch { key: &key, exptime, noreply });
        bytes.clear();
        client::delete(&mut bytes, sent, answer);
        prop_assert_eq!(command(&bytes), Command::Delete { key: &key, noreply });
        bytes.clear();
        client::flush_all(&mut bytes, exptime, answer);
        prop_assert_eq!(command(&bytes), Command::FlushAll { delay: exptime, noreply });
    }

    #[test]
    fn values_written_by_the_server_are_parsed_by_the_client(items in vec((key(), any::<u32>(), proptest::option::of(any::<u64>()), vec(any::<u8>(), 0..2000)), 0..8)) {
        let mut bytes = Vec::new();
        for (key, flags, cas, value) in &items {
            reply::value(&mut bytes, key, *flags, *cas, value);
        }
        bytes.extend_from_slice(reply::END);
        let mut expected: Vec<_> = items
            .iter()
            .map(|(key, flags, cas, value)| Reply::Value { key, flags: *flags, cas: *cas, value })
            .collect();
        expected.push(Reply::End);
        prop_assert_eq!(replies(&bytes), expected);
    }

    #[test]
    fn truncated_memcached_reply_is_incomplete(value in vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        reply::value(&mut bytes, b"key", 1, Some(2), &value);
        let cut = cut.index(bytes.len());
        match client::parse(&bytes[..cut], LIMITS.value_bytes_max) {
            Ok(Progress::Incomplete { need }) => prop_assert!(need > cut && need <= bytes.len()),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn every_one_line_reply_of_the_server_is_parsed_by_the_client() {
    let mut bytes = [
        reply::STORED,
        reply::NOT_STORED,
        reply::EXISTS,
        reply::NOT_FOUND,
        reply::DELETED,
        reply::TOUCHED,
        reply::OK,
        reply::RESET,
        reply::END,
        reply::TOO_LARGE,
        reply::NON_NUMERIC,
        reply::TOO_MANY_CONNECTIONS,
        Refusal::BadChunk.line(),
        Refusal::Unknown.line(),
    ]
    .concat();
    reply::number(&mut bytes, u64::MAX);
    reply::stat(&mut bytes, "version", "1 beta");
    reply::version(&mut bytes, "1.2");
    bytes.extend_from_slice(b"SERVER_ERROR no backend\r\n");
    let expected = [
        Reply::Stored,
        Reply::NotStored,
        Reply::Exists,
        Reply::NotFound,
        Reply::Deleted,
        Reply::Touched,
        Reply::Ok,
        Reply::Reset,
        Reply::End,
        Reply::ServerError(b"object too large for cache"),
        Reply::ClientError(b"cannot increment or decrement non-numeric value"),
        Reply::Error(b"Too many open connections"),
        Reply::ClientError(b"bad data chunk"),
        Reply::Error(b""),
        Reply::Number(u64::MAX),
        Reply::Stat(b"version", b"1 beta"),
        Reply::Version(b"1.2"),
        Reply::ServerError(b"no backend"),
    ];
    assert_eq!(replies(&bytes), expected);
}

#[test]
fn flags_and_remaining_time_of_a_meta_value_are_parsed() {
    let value = |flags, remaining_s| Reply::MetaValue { flags, remaining_s, value: b"ab" };
    for (line, expected) in [
        ("VA 2 f4294967295 t98", value(u32::MAX, Some(98))),
        ("VA 2 kk1 t-1 f7 s2", value(7, None)),
        ("VA 2", value(0, None)),
    ] {
        assert_eq!(replies(format!("{line}\r\nab\r\n").as_bytes()), [expected]);
    }
    assert_eq!(replies(b"EN\r\nHD\r\n"), [Reply::MetaMiss, Reply::MetaDone]);
    for line in ["VA 2 f-1", "VA 2 f4294967296", "VA 2 t-2", "VA 2 tx", "VA x f1"] {
        let parsed = client::parse(format!("{line}\r\nab\r\n").as_bytes(), 10).map(drop);
        assert_eq!(parsed, Err(client::ReplyError::Unknown(line.to_owned())));
    }
}

#[test]
fn meta_requests_of_the_client_name_the_wanted_parts_of_an_item() {
    let mut bytes = Vec::new();
    client::meta_item(&mut bytes, Key::new(b"k").unwrap());
    client::meta_exists(&mut bytes, Key::new(b"k").unwrap());
    assert_eq!(bytes, b"mg k f t v\r\nmg k\r\n");
}

#[test]
fn memcached_key_with_a_space_or_a_control_character_is_refused() {
    for bytes in [&b""[..], b"a b", b"a\r\nquit", b"a\n", b"\0", b"\x7f", &[b'k'; 251]] {
        assert!(Key::new(bytes).is_err(), "{bytes:?}");
    }
    let error = Key::new(b"a b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "a memcached key with byte 0x20 at 1 was to be sent; spaces and control characters are not allowed"
    );
}

#[test]
fn reply_of_another_protocol_than_memcached_is_an_error() {
    use client::{ReplyError, parse};
    assert_eq!(parse(&[b'x'; 2049], 10), Err(ReplyError::LineTooLong));
    assert_eq!(parse(b"VALUE a 0 11\r\n", 10), Err(ReplyError::ValueTooLarge { bytes: 11, bytes_max: 10 }));
    assert_eq!(parse(b"VALUE a 0 1\r\nxyz", 10), Err(ReplyError::ValueEnd(1)));
    for line in
        ["VALUE a 0\r\n", "VALUE a -1 2\r\n", "VALUE a 0 1 x\r\n", "HTTP/1.1 200 OK\r\n", "\r\n", "1x\r\n"]
    {
        assert!(matches!(parse(line.as_bytes(), 10), Err(ReplyError::Unknown(_))), "{line:?}");
    }
}
