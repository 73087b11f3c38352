//! Checks that answers do not depend on how the network splits a client's input.

use std::ops::Range;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use sherwood_listener::{Clock, InMemoryClient};

use crate::conversations::{answers, clock, frames, memcached, redis};

/// Valid, malformed and random pieces of memcached input.
const MEMCACHED: &[&str] = &[
    "get a k kb none\r\n",
    "gets a\r\n",
    "gat 5 kc a\r\n",
    "set a 0 0 3\r\nabc\r\n",
    "set kb 1 0 5 noreply\r\nabcde\r\n",
    "set a 0 0 301\r\n",
    "set a 0 0 2\r\nabc\r\n",
    "append a 0 0 3\r\n\r\nx\r\n",
    "cas a 0 0 1 1\r\nx\r\n",
    "incr a 1\r\n",
    "touch a 0\r\n",
    "delete a\r\n",
    "flush_all\r\n",
    "stats\r\n",
    "mg kb v c t N30\r\n",
    "ms a 3 T5\r\nabc\r\n",
    "md a I\r\n",
    "ma a N0 J5 v\r\n",
    "me a\r\n",
    "mn\r\n",
    "\r\n",
    "\n",
    "x",
    " ",
    "quit\r\n",
];

/// Valid, malformed and random pieces of Redis input.
const REDIS: &[&str] = &[
    "*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\n\r\nabc\r\n",
    "*3\r\n$4\r\nMGET\r\n$2\r\nkb\r\n$1\r\na\r\n",
    "SET a x EX 10\r\n",
    "SETRANGE a 150 x\r\n",
    "MGET a a kc a\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$301\r\n",
    "INCR n\r\n",
    "KEYS *\r\n",
    "SCAN 0\r\n",
    "INFO\r\n",
    "HELLO 3\r\n",
    "CLIENT LIST\r\n",
    "CLIENT REPLY SKIP\r\n",
    "CLIENT REPLY OFF\r\n",
    "CLIENT REPLY ON\r\n",
    "DEL a kb\r\n",
    "AUTH x\r\n",
    "*1\r\n",
    "*0\r\n",
    "$1\r\n",
    "\r\n",
    "'",
    "x",
    "QUIT\r\n",
];

/// Ranges of the lengths of pieces that input is split into: a few bytes, about a line, several
/// lines.
const PIECES: [Range<usize>; 3] = [1..4, 1..40, 20..400];

fn stream(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        20 => prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
        1 => (0..700_usize).prop_map(|len| vec![b'y'; len]),
    ];
    vec(part, 0..30).prop_map(|parts| parts.concat())
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop::sample::select(&PIECES).prop_flat_map(|lengths| vec(lengths, 1..8))
}

/// Splits `stream` into pieces of `lengths`, in turn.
fn cut<'s>(mut stream: &'s [u8], lengths: &[usize]) -> Vec<&'s [u8]> {
    let mut pieces = Vec::new();
    for &length in lengths.iter().cycle() {
        let (piece, rest) = stream.split_at(length.min(stream.len()));
        pieces.push(piece);
        stream = rest;
        if stream.is_empty() {
            break;
        }
    }
    pieces
}

fn check(
    stream: &[u8],
    lengths: &[usize],
    open: fn(Arc<dyn Clock>) -> InMemoryClient,
) -> Result<(), TestCaseError> {
    let clock = clock();
    let moment = clock.moment();
    let shown =
        |pieces: &[&[u8]]| answers(pieces, moment, open(Arc::clone(&clock))).escape_ascii().to_string();
    prop_assert_eq!(shown(&cut(stream, lengths)), shown(&[stream]));
    Ok(())
}

proptest! {
    #[test]
    fn memcached_answers_do_not_depend_on_how_input_is_split(stream in stream(MEMCACHED), lengths in lengths()) {
        check(&stream, &lengths, memcached)?;
    }

    #[test]
    fn memcached_binary_answers_do_not_depend_on_how_input_is_split(
        made in vec((0_u8..0x28, any::<u8>(), any::<u8>(), any::<u8>()), 0..40),
        rest in vec(any::<u8>(), 0..30),
        lengths in lengths(),
    ) {
        let made: Vec<u8> = made.into_iter().flat_map(|(opcode, extras, key, value)| [opcode, extras, key, value]).collect();
        let stream = [frames(&made), rest].concat();
        check(&stream, &lengths, memcached)?;
    }

    #[test]
    fn redis_answers_do_not_depend_on_how_input_is_split(stream in stream(REDIS), lengths in lengths()) {
        check(&stream, &lengths, redis)?;
    }
}
