//! Commands on keys whatever their values: `DEL`, `EXISTS`, `TOUCH`, `TYPE` and `OBJECT`.

use sherwood_wire::resp::{Args, integer, reply};

use super::each::Operation;
use super::failure::Failure;
use super::session::{CommandResult, Session, arg};
use super::words;
use crate::output::Output;
use crate::work::{CHANGE, KEY};

/// Executes the Redis commands `DEL key …` and `UNLINK key …`, which do the same: freeing memory
/// here is fast.
pub(super) fn del(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let run = |session: &Session<'_>, key: &[u8]| session.remove(key);
    session.each(args, Operation { run, work: CHANGE, changes: true }, out)
}

/// Executes the Redis command `EXISTS key …`.
pub(super) fn exists(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let run = |session: &Session<'_>, key: &[u8]| session.peek(key, |_| ()).is_some();
    session.each(args, Operation { run, work: KEY, changes: false }, out)
}

/// Executes the Redis command `TOUCH key …`.
pub(super) fn touch(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let run = |session: &Session<'_>, key: &[u8]| session.read(key, |_| ()).is_some();
    session.each(args, Operation { run, work: KEY, changes: false }, out)
}

/// Executes the Redis command `TYPE key`.
pub(super) fn type_of(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let found = session.peek(arg(args, 1), |_| ()).is_some();
    reply::simple(out, if found { "string" } else { "none" });
    Ok(())
}

/// Maximum length of a value that Redis stores in one allocation with its header, in bytes.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Executes the Redis command `OBJECT ENCODING key`: the encoding Redis would have chosen for a
/// value stored by `SET`.
pub(super) fn encoding(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    about(session, args, out, |value, out| {
        let encoding = match value {
            value if integer(value).is_some() => "int",
            value if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
            _ => "raw",
        };
        reply::bulk(out, encoding.as_bytes());
        Ok(())
    })
}

/// Executes the Redis command `OBJECT REFCOUNT key`: always 1, since values are never shared.
pub(super) fn refcount(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    about(session, args, out, |_, out| {
        reply::integer(out, 1);
        Ok(())
    })
}

/// Executes the Redis command `OBJECT IDLETIME key`: seconds since its last use, or since it was
/// stored if the eviction policy does not record uses.
pub(super) fn idletime(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    match session.idle(arg(args, 2)) {
        Some(idle) => reply::integer(out, idle.as_secs() as i64),
        None => reply::null(out, session.version()),
    }
    Ok(())
}

/// Executes the Redis command `OBJECT FREQ key`.
pub(super) fn freq(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    about(session, args, out, |_, _| Err(NO_FREQUENCY))
}

const NO_FREQUENCY: Failure = Failure::text(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
     between policies at runtime LRU and LFU data will take some time to adjust.",
);

fn about(
    session: &Session<'_>,
    args: Args<'_>,
    out: &mut Output,
    tell: impl FnOnce(&[u8], &mut Vec<u8>) -> CommandResult,
) -> CommandResult {
    match session.peek(arg(args, 2), |old| tell(old.value, out)) {
        Some(told) => told,
        None => {
            reply::null(out, session.version());
            Ok(())
        }
    }
}

/// Executes the Redis command `OBJECT HELP`.
pub(super) fn object_help(_: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    words::help(
        out,
        "OBJECT",
        &[
            ("ENCODING <key>", "How Redis would represent the value."),
            ("REFCOUNT <key>", "How many share the value, always 1."),
            ("IDLETIME <key>", "Seconds since its last use, or since it was stored."),
            ("FREQ <key>", "Not tracked, an error."),
        ],
    );
    Ok(())
}
