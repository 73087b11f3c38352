use sherwood_wire::memcached::client::{Progress, Reply, ReplyError, parse};
use sherwood_wire::memcached::{KEY_BYTES_MAX, reply};

use crate::stream::{Step, expanded, same_however_cut};

/// Limits on a value's length in bytes: one that single words exceed, and one that lines do not
/// exceed.
const VALUE_BYTES_MAX: [u32; 2] = [40, 20_000];
/// Most bytes of a reply besides its value, as documented by [`parse`].
const LINE_BYTES: usize = 2052;

/// Parses `input` as replies of a memcached server or of any other server.
///
/// # Panics
/// When the client's parser violates its contract.
pub fn memcached_client(input: &[u8]) {
    let stream = expanded(input);
    for bytes_max in VALUE_BYTES_MAX {
        same_however_cut(&stream, bytes_max as usize + LINE_BYTES, || move |bytes| step(bytes, bytes_max));
    }
}

fn step(bytes: &[u8], bytes_max: u32) -> Step<Result<Reply<'_>, ReplyError>> {
    match parse(bytes, bytes_max) {
        Ok(Progress::Incomplete { need }) => Step::Incomplete { consumed: 0, need },
        Ok(Progress::Reply { consumed, reply }) => {
            check(reply, bytes_max);
            Step::Said { consumed, what: Ok(reply) }
        }
        Err(error) => Step::Broken(Err(error)),
    }
}

fn check(reply: Reply<'_>, bytes_max: u32) {
    let mut written = Vec::new();
    match reply {
        Reply::Value { key, flags, cas, value } if key.len() <= KEY_BYTES_MAX => {
            assert!(value.len() <= bytes_max as usize, "a value of {}", value.len());
            reply::value(&mut written, key, flags, cas, value);
        }
        Reply::Number(number) => reply::number(&mut written, number),
        _ => return,
    }
    assert_eq!(parse(&written, bytes_max), Ok(Progress::Reply { consumed: written.len(), reply }));
}
