use sherwood_wire::memcached::binary::client::{self, Key, Progress};
use sherwood_wire::memcached::binary::{
    Ahead, Command, Event, LOGIN_BYTES_MAX, MECHANISM_BYTES_MAX, Parsed, Parser, Request, frame_bytes_max,
};
use sherwood_wire::memcached::{KEY_BYTES_MAX, Limits, Storage};

use crate::stream::{Step, expanded, same_however_cut};

/// Limits on a value's length in bytes: none, one that values of frames exceed, and a larger one.
const VALUE_BYTES_MAX: [u32; 3] = [0, 40, 20_000];

/// Parses `input` as requests on a connection of memcached's binary protocol, and as replies.
///
/// # Panics
/// When a parser violates its contract.
pub fn memcached_binary(input: &[u8]) {
    let stream = expanded(input);
    for value_bytes_max in VALUE_BYTES_MAX {
        let limits = Limits { value_bytes_max };
        same_however_cut(&stream, frame_bytes_max(limits), || {
            let mut parser = Parser::new(limits);
            move |bytes| step(parser.parse(bytes), limits)
        });
    }
    assert!(Ahead::of(&stream).all(|key| (1..=KEY_BYTES_MAX).contains(&key.len())));
    // Header, extras, key, and the largest value.
    let reply_bytes_max = 24 + 255 + 65_535 + VALUE_BYTES_MAX[1] as usize;
    same_however_cut(&stream, reply_bytes_max, || {
        |bytes| match client::parse(bytes, VALUE_BYTES_MAX[1]) {
            Ok(Progress::Reply { consumed, reply }) => Step::Said { consumed, what: Ok(reply) },
            Ok(Progress::Incomplete { need }) => Step::Incomplete { consumed: 0, need },
            Err(error) => Step::Broken(Err(error)),
        }
    });
}

fn step(Parsed { consumed, event }: Parsed<'_>, limits: Limits) -> Step<Event<'_>> {
    match event {
        Event::Incomplete { need } => return Step::Incomplete { consumed, need },
        Event::Request(request) => check(request, limits),
        Event::Refused { .. } | Event::Lost => {}
    }
    Step::Said { consumed, what: event }
}

fn check(request: Request<'_>, limits: Limits) {
    match request.command {
        Command::Storage(Storage { key, value, noreply, .. }) => {
            check_key(key);
            assert!(value.len() <= limits.value_bytes_max as usize, "a value of {}", value.len());
            assert_eq!(noreply, request.quiet);
        }
        Command::Get { key, .. }
        | Command::Touch { key, .. }
        | Command::TooLarge { key, .. }
        | Command::Arithmetic { key, .. }
        | Command::Delete { key } => check_key(key),
        Command::Stat { group } => assert!(group.len() <= KEY_BYTES_MAX),
        Command::SaslAuth { mechanism, data } | Command::SaslStep { mechanism, data } => {
            assert!((1..=MECHANISM_BYTES_MAX).contains(&mechanism.len()) && data.len() <= LOGIN_BYTES_MAX);
        }
        Command::Flush { .. }
        | Command::NoOp
        | Command::Version
        | Command::Verbosity
        | Command::Quit
        | Command::SaslMechanisms => {}
    }
    if let Some(bytes) = written(request) {
        let Parsed { consumed, event } = Parser::new(limits).parse(&bytes);
        assert_eq!(consumed, bytes.len(), "{event:?} of {request:?}");
        assert_eq!(event, Event::Request(request));
    }
}

fn check_key(key: &[u8]) {
    assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "a key of {} bytes", key.len());
}

/// Writes the request as a client does; none for those that the client's side does not have.
fn written(request: Request<'_>) -> Option<Vec<u8>> {
    let (mut out, opaque) = (Vec::new(), request.echo.opaque);
    match (request.command, request.echo.opcode) {
        _ if request.cas != 0 => return None,
        (Command::Get { key, .. }, 0x00) => client::get(&mut out, Key::new(key)?, opaque),
        (Command::Get { key, .. }, 0x09) => client::get_quietly(&mut out, Key::new(key)?, opaque),
        (Command::Storage(Storage { key, flags: 0, exptime, value, .. }), 0x01) if exptime.0 == 0 => {
            client::set(&mut out, Key::new(key)?, value, opaque);
        }
        (Command::NoOp, _) => client::no_op(&mut out, opaque),
        _ => return None,
    }
    Some(out)
}
