use sherwood_wire::resp::{Args, Event, Limits, Parsed, Parser, ProtocolError, client};

use crate::stream::{Step, expanded, same_however_cut};

/// Limits of the request parser: some that a few words exceed, and some larger than the limit of a
/// line.
const LIMITS: [Limits; 2] = [
    Limits { argument_bytes_max: 20, request_bytes_max: 100 },
    Limits { argument_bytes_max: 100_000, request_bytes_max: 150_000 },
];

/// Parses `input` as requests on a Redis connection.
///
/// # Panics
/// When the parser violates its contract.
pub fn resp_server(input: &[u8]) {
    let stream = expanded(input);
    for limits in LIMITS {
        same_however_cut(&stream, limits.buffer_bytes_max(), || {
            let mut parser = Parser::new(limits);
            move |bytes| step(parser.parse(bytes), limits)
        });
    }
}

/// A result of the request parser; requests are in the form that a client writes.
#[derive(Debug, PartialEq)]
enum Said {
    Request(Vec<u8>),
    TooLarge(Vec<u8>),
    Broken(ProtocolError),
}

fn step(Parsed { consumed, event }: Parsed<'_>, limits: Limits) -> Step<Said> {
    let what = match event {
        Event::Incomplete { need } => return Step::Incomplete { consumed, need },
        Event::Request(args) => {
            assert!(args.len() > 0, "a request has a name");
            Said::Request(understood_again(args))
        }
        Event::TooLarge(args) => {
            let bytes_max = limits.argument_bytes_max as usize;
            assert!(args.from(0).all(|arg| arg.len() <= bytes_max), "an argument over {bytes_max}");
            Said::TooLarge(written(args))
        }
        Event::Broken(error) => Said::Broken(error),
    };
    Step::Said { consumed, what }
}

/// Formats the request as a client writes it, after checking that this form is parsed as the same
/// request.
fn understood_again(args: Args<'_>) -> Vec<u8> {
    let bytes = written(args);
    let mut parser = Parser::new(Limits { argument_bytes_max: u32::MAX, request_bytes_max: u32::MAX });
    let Parsed { consumed, event } = parser.parse(&bytes);
    assert_eq!(consumed, bytes.len(), "{args:?}");
    assert!(
        matches!(event, Event::Request(again) if again.from(0).eq(args.from(0))),
        "{args:?}, then {event:?}"
    );
    bytes
}

fn written(args: Args<'_>) -> Vec<u8> {
    let all: Vec<&[u8]> = args.from(0).collect();
    assert_eq!(all.len(), args.len(), "every argument is there");
    let mut bytes = Vec::new();
    client::request(&mut bytes, &all);
    bytes
}
