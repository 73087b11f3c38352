//! Commands that execute one operation for each of their keys: `DEL`, `UNLINK`, `EXISTS` and
//! `TOUCH`, which answer a count, and `MSET`.
//!
//! A request may have a million keys. It is executed in portions, between which other connections
//! run: the change of each key is atomic, but not that of all keys together. An `MSET` locks out
//! other commands that write several keys during a portion, so its portions are as large as the
//! bound on one command's work allows.

use sherwood_wire::resp::{Args, reply};

use super::aside::{Aside, KeptKeys};
use super::failure::Failure;
use super::session::{CommandResult, Session, arg};
use super::through::rest_untold;
use crate::output::Output;
use crate::work::{ARGUMENT, CHANGE, COMMAND_MAX};

/// An operation on one key. `run` returns true if the key counts towards the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) run: fn(&Session<'_>, &[u8]) -> bool,
    /// Work of the operation on one key, units.
    pub(super) work: u64,
    /// True if the operation changes its key, so that it may be refused.
    pub(super) changes: bool,
}

/// A command with keys left to process.
#[derive(Debug)]
pub(super) struct Each {
    operation: Operation,
    keys: KeptKeys,
    count: usize,
    muted: bool,
}

impl Each {
    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Returns the memory of the keys, bytes.
    pub(super) fn memory(&self) -> usize {
        self.keys.capacity()
    }

    /// Executes a portion of the command. Returns true after the last portion or the first refused
    /// key, when the command is answered.
    pub(super) fn go_on(&mut self, session: &Session<'_>, out: &mut Output) -> bool {
        let Self { operation, keys, count, muted } = self;
        while !out.work.ends_turn() {
            let Some(key) = keys.next() else {
                if !*muted {
                    reply::integer(out, *count as i64);
                }
                return true;
            };
            if operation.changes && session.refuses_rest(Some(key)) {
                if !*muted {
                    reply::error(out, &rest_untold().0);
                }
                return true;
            }
            out.work.add(operation.work);
            *count += usize::from((operation.run)(session, key));
        }
        false
    }
}

/// Work of storing one pair of an `MSET`.
const PAIR_WORK: u64 = CHANGE + 2 * ARGUMENT;
/// Maximum number of pairs of an `MSET` that are stored in one portion.
const PAIRS_MAX: usize = (COMMAND_MAX / PAIR_WORK) as usize;

/// An `MSET` with pairs left to store.
#[derive(Debug)]
pub(super) struct Pairs {
    arguments: KeptKeys,
    muted: bool,
}

impl Pairs {
    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Returns the memory of the keys and values, bytes.
    pub(super) fn memory(&self) -> usize {
        self.arguments.capacity()
    }

    /// Stores a portion of the pairs. Returns true after the last pair or the first refused pair,
    /// when the command is answered.
    pub(super) fn go_on(&mut self, session: &Session<'_>, out: &mut Output) -> bool {
        if out.work.ends_turn() {
            return false;
        }
        let before = out.mark();
        match self.store_some(session, out) {
            Ok(false) => return false,
            Ok(true) => out.extend_from_slice(reply::OK),
            Err(failure) => reply::error(out, &failure.0),
        }
        if self.muted {
            out.reset(before);
        }
        true
    }

    /// Stores up to [`PAIRS_MAX`] pairs. Returns true if no pair is left.
    fn store_some(&mut self, session: &Session<'_>, out: &mut Output) -> Result<bool, Failure> {
        let _order = session.order();
        for _ in 0..PAIRS_MAX {
            let Some((key, value)) = self.arguments.next_pair() else { return Ok(true) };
            if session.refuses_rest(Some(key)) {
                return Err(rest_untold());
            }
            out.work.add(PAIR_WORK);
            session.store(key, value, None)?;
        }
        Ok(false)
    }
}

/// Executes the Redis command `MSET key value …`.
pub(super) fn mset(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("mset"));
    }
    let all = args.len();
    let end = if session.exclusive.is_some() { all } else { all.min(1 + 2 * PAIRS_MAX) };
    {
        let _order = session.order();
        for index in (1..end).step_by(2) {
            session.store(arg(args, index), arg(args, index + 1), None)?;
        }
    }
    if session.exclusive.is_none() && end > 1 + 2 * KEYS_FREE {
        out.work.add(PAIR_WORK * (end / 2) as u64);
    }
    if end < all {
        session.client.aside = Some(Aside::Pairs(Pairs { arguments: KeptKeys::of(args, end), muted: false }));
        return Ok(());
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

impl Session<'_> {
    /// Executes `operation` for each key of a command and answers how many keys counted. Outside of
    /// a transaction, keys left at the end of the scheduling turn are kept for later turns.
    pub(super) fn each(&mut self, args: Args<'_>, operation: Operation, out: &mut Output) -> CommandResult {
        let mut count = 0;
        for (index, key) in args.from(1).enumerate() {
            // The first keys cost no more than their bytes of input, and a transaction has counted
            // all of them.
            if index >= KEYS_FREE && self.exclusive.is_none() {
                if out.work.ends_turn() {
                    let keys = KeptKeys::of(args, 1 + index);
                    self.client.aside = Some(Aside::Each(Each { operation, keys, count, muted: false }));
                    return Ok(());
                }
                out.work.add(operation.work);
            }
            count += usize::from((operation.run)(self, key));
        }
        reply::integer(out, count as i64);
        Ok(())
    }
}

/// Number of keys of a command that are not counted as work.
const KEYS_FREE: usize = 16;
