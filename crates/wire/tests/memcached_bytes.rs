//! Checks the memcached parsers on any bytes, however they are split: no panic, a bounded buffer,
//! the same commands.

#[path = "common/pieces.rs"]
mod pieces;

use proptest::collection::vec;
use proptest::prelude::*;
use sherwood_wire::memcached::client::{self, Progress};
use sherwood_wire::memcached::{Event, KEYS_BYTES_MAX, Limits, Parsed, Parser};

use pieces::Step;

const LIMITS: Limits = Limits { value_bytes_max: 300 };

/// Returns the events of the command parser when the bytes arrive in pieces of these lengths, in
/// turn.
fn said(bytes: &[u8], pieces: &[usize]) -> Vec<String> {
    let mut parser = Parser::new(LIMITS);
    pieces::said(bytes, pieces, LIMITS.buffer_bytes_max(), |bytes| {
        let Parsed { consumed, event } = parser.parse(bytes);
        let step = match event {
            Event::Incomplete { need } => Step::Need(need),
            other => Step::Said(format!("{other:?}")),
        };
        (consumed, step)
    })
}

/// Generates fragments that form commands, almost commands and garbage when they are joined at
/// random.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("get "),
        Just("gets "),
        Just("gat 5 "),
        Just("set a 0 0 3\r\nabc\r\n"),
        Just("set a 0 0 5\r\n"),
        Just("cas k 1 2 3 4\r\nxyz\r\n"),
        Just("set a 0 0 400\r\n"),
        Just("set a x 0 40\r\n"),
        Just("incr a 1"),
        Just("delete a"),
        Just(" noreply"),
        Just("\r\n"),
        Just("\n"),
        Just("\r"),
        Just(" "),
        Just("key"),
        Just("stats"),
        Just("flush_all"),
        Just("touch k 0\r\n"),
        Just("mg a v t"),
        Just("ms a 3 T5 MA\r\nabc\r\n"),
        Just("ms YQ== 400 b"),
        Just("ms a 5 z\r\n"),
        Just("ma a D5 MD"),
        Just("md a I x q\r\n"),
        Just("me a b"),
        Just("mn\r\n"),
        Just(" b k"),
        Just(" Oq N-1 C18446744073709551616"),
        Just("0"),
        Just("-1"),
        Just("99999999999999999999"),
        Just("\0"),
    ];
    prop_oneof![
        8 => word.prop_map(|word| word.as_bytes().to_vec()),
        2 => vec(any::<u8>(), 0..20),
        1 => (0_usize..600).prop_map(|length| vec![b'x'; length]),
        1 => (0_usize..KEYS_BYTES_MAX / 2).prop_map(|keys| b"kk ".repeat(keys)),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    vec(fragment(), 0..40).prop_map(|fragments| fragments.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_split_of_memcached_input_gives_the_same_commands(bytes in stream(), pieces in vec(1_usize..3000, 1..8)) {
        prop_assert_eq!(said(&bytes, &pieces), said(&bytes, &[usize::MAX / 2]));
    }

    #[test]
    fn memcached_input_of_one_byte_at_a_time_gives_the_same_commands(bytes in vec(fragment(), 0..8).prop_map(|fragments| fragments.concat())) {
        let short = &bytes[..bytes.len().min(3000)];
        prop_assert_eq!(said(short, &[1]), said(short, &[usize::MAX / 2]));
    }

    #[test]
    fn any_bytes_are_parsed_as_memcached_commands_without_a_panic(bytes in vec(any::<u8>(), 0..4000), pieces in vec(1_usize..500, 1..4)) {
        said(&bytes, &pieces);
    }

    #[test]
    fn any_bytes_are_parsed_as_memcached_replies_without_a_panic(bytes in vec(any::<u8>(), 0..400), tail in vec(any::<u8>(), 0..40)) {
        for start in [&b""[..], b"VALUE ", b"VALUE k 0 3\r\n", b"STAT ", b"1"] {
            let reply = [start, &bytes, b"\r\n", &tail].concat();
            if let Ok(Progress::Reply { consumed, .. }) = client::parse(&reply, 100) {
                prop_assert!(consumed > 0 && consumed <= reply.len());
            }
        }
    }
}
