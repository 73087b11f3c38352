//! Checks the Redis parsers on any bytes, however they are split: no panic, a bounded buffer, the
//! same requests.

#[path = "common/pieces.rs"]
mod pieces;

use proptest::collection::vec;
use proptest::prelude::*;
use sherwood_wire::resp::client::{self, Progress};
use sherwood_wire::resp::{Event, Limits, Parsed, Parser};

use pieces::Step;

const LIMITS: Limits = Limits { argument_bytes_max: 300, request_bytes_max: 1000 };

/// Returns the events of the request parser when the bytes arrive in pieces of these lengths, in
/// turn.
fn said(bytes: &[u8], pieces: &[usize]) -> Vec<String> {
    let mut parser = Parser::new(LIMITS);
    pieces::said(bytes, pieces, LIMITS.buffer_bytes_max(), |bytes| {
        let Parsed { consumed, event } = parser.parse(bytes);
        let step = match event {
            Event::Incomplete { need } => Step::Need(need),
            Event::Request(args) => Step::Said(format!("{:?}", args.from(0).collect::<Vec<_>>())),
            Event::TooLarge(args) => Step::Said(format!("over {:?}", args.from(0).collect::<Vec<_>>())),
            Event::Broken(error) => Step::Said(error.to_string()),
        };
        (consumed, step)
    })
}

/// Generates fragments that form requests, almost requests and garbage when they are joined at
/// random.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("*1\r\n"),
        Just("*3\r\n"),
        Just("*-1\r\n"),
        Just("*70\r\n"),
        Just("$3\r\nGET\r\n"),
        Just("$1\r\nk\r\n"),
        Just("$0\r\n\r\n"),
        Just("$301\r\n"),
        Just("$-1\r\n"),
        Just("$12\r\n"),
        Just("$"),
        Just("*"),
        Just("\r\n"),
        Just("\r"),
        Just("\n"),
        Just("PING"),
        Just("GET 'a b' \"\\x41\"\r\n"),
        Just("\""),
        Just(" "),
    ];
    prop_oneof![
        8 => word.prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
        1 => (0..600_usize).prop_map(|len| vec![b'x'; len]),
    ]
}

proptest! {
    #[test]
    fn any_split_of_redis_input_gives_the_same_requests(fragments in vec(fragment(), 0..20), pieces in vec(1..40_usize, 1..6)) {
        let bytes = fragments.concat();
        prop_assert_eq!(said(&bytes, &[bytes.len()]), said(&bytes, &pieces));
    }

    #[test]
    fn redis_requests_of_the_client_are_parsed_by_the_server(requests in vec(vec(vec(any::<u8>(), 0..30), 1..8), 0..8)) {
        let mut bytes = Vec::new();
        for request in &requests {
            client::request(&mut bytes, &request.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        let expected: Vec<String> = requests.iter().map(|request| format!("{request:?}")).collect();
        prop_assert_eq!(said(&bytes, &[bytes.len()]), expected);
    }

    #[test]
    fn redis_client_parses_any_bytes_without_a_panic(bytes in vec(prop_oneof![4 => proptest::sample::select(b"+-:$*_\r\n0123".to_vec()), 1 => any::<u8>()], 0..60)) {
        let mut rest = bytes.as_slice();
        while let Ok(Progress::Reply(_, used)) = client::parse(rest) {
            prop_assert!(used > 0 && used <= rest.len());
            rest = &rest[used..];
        }
    }
}
