use sherwood_wire::resp::client::{Progress, Reply, ReplyError, parse};
use sherwood_wire::resp::{BULK_BYTES_MAX, LINE_BYTES_MAX, Version, reply};

use crate::stream::{Step, expanded, same_however_cut};

/// Most bytes that the parser may need at once: the longest byte string with the longest line
/// before it, including marks and line ends.
const NEED_MAX: usize = 1 + LINE_BYTES_MAX + BULK_BYTES_MAX as usize + 2;

/// Parses `input` as answers of a Redis server or of any other server.
///
/// # Panics
/// When the client's parser violates its contract.
pub fn resp_client(input: &[u8]) {
    same_however_cut(&expanded(input), NEED_MAX, || step);
}

fn step(bytes: &[u8]) -> Step<Result<Reply<'_>, ReplyError>> {
    match parse(bytes) {
        Ok(Progress::Incomplete(need)) => Step::Incomplete { consumed: 0, need },
        Ok(Progress::Reply(reply, consumed)) => {
            check(reply);
            Step::Said { consumed, what: Ok(reply) }
        }
        Err(error) => Step::Broken(Err(error)),
    }
}

fn check(reply: Reply<'_>) {
    let mut written = Vec::new();
    match reply {
        Reply::Integer(number) => reply::integer(&mut written, number),
        Reply::Bulk(bytes) => reply::bulk(&mut written, bytes),
        Reply::Null => reply::null(&mut written, Version::Resp3),
        Reply::Array(len) => reply::array(&mut written, len),
        Reply::Simple(_) | Reply::Error(_) => return,
    }
    assert_eq!(parse(&written), Ok(Progress::Reply(reply, written.len())));
}
