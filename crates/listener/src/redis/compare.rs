//! `DELEX` and `DELIFEQ`, by which a client releases a lock without a script.

use sherwood_cache::Change;
use sherwood_wire::resp::{Args, reply};

use super::comparison::Comparison;
use super::failure::SYNTAX;
use super::session::{CommandResult, Session, arg};
use crate::output::Output;

/// Executes the command `DELEX key [IFEQ value | IFNE value]` of Redis 8.4.
pub(super) fn delex(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    match args.len() {
        2 => super::keys::del(session, args, out),
        4 => {
            let comparison = Comparison::parse(args, 2).ok_or(SYNTAX)?;
            delete_if(session, arg(args, 1), comparison, out)
        }
        _ => Err(SYNTAX),
    }
}

/// Executes the command `DELIFEQ key value` of Valkey 9.
pub(super) fn delifeq(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    delete_if(session, arg(args, 1), Comparison::Equal(arg(args, 2)), out)
}

/// Removes a key if the comparison holds, and answers the number of removed keys.
pub(super) fn delete_if(
    session: &Session<'_>,
    key: &[u8],
    comparison: Comparison<'_>,
    out: &mut Output,
) -> CommandResult {
    let removed = session.update(key, |old| match old {
        Some(old) if comparison.holds(Some(old.value)) => (Change::Remove, true),
        _ => (Change::Keep, false),
    })?;
    session.count_removal(removed);
    reply::integer(out, i64::from(removed));
    Ok(())
}
