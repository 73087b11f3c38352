//! Commands that act if a value equals one that the client gives: `DELEX` and `DELIFEQ`, and the
//! condition of `SET`. A client releases a lock by them, without a script.

use sherwood_cache::Change;
use sherwood_wire::resp::{Args, reply};

use super::failure::SYNTAX;
use super::session::{CommandResult, Session, arg, is};
use crate::output::Output;

/// A comparison with the present value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison<'a> {
    /// `IFEQ`: the key exists and has this value.
    Equal(&'a [u8]),
    /// `IFNE`: the key has another value, or does not exist.
    Different(&'a [u8]),
}

impl<'a> Comparison<'a> {
    /// Parses the option whose name is argument `index`; none if it is no comparison or lacks its
    /// value.
    pub(super) fn parse(args: Args<'a>, index: usize) -> Option<Self> {
        let value = args.get(index + 1)?;
        match arg(args, index) {
            word if is(word, "ifeq") => Some(Self::Equal(value)),
            word if is(word, "ifne") => Some(Self::Different(value)),
            _ => None,
        }
    }

    /// Returns true if it holds for the present value of a key, if there is one.
    pub(super) fn holds(self, present: Option<&[u8]>) -> bool {
        match self {
            Self::Equal(value) => present == Some(value),
            Self::Different(value) => present != Some(value),
        }
    }
}

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
