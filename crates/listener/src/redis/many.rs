//! Commands on several keys: `MGET`, `MSETNX`, and commands that copy or rename.
//!
//! The cache changes one key atomically, never two. The writing commands here hold a lock of the
//! listener, so each sees the others completed or not begun. `MSETNX` also adds its keys one by one
//! and removes them again if another client has set one meanwhile. A reader, or a writer of a
//! single key, may still see such a command half done.

use std::collections::HashSet;

use sherwood_cache::{Change, NewItem};
use sherwood_wire::resp::{Args, reply};

use super::failure::{Failure, NO_SUCH_KEY, SYNTAX};
use super::session::{CommandResult, Old, Session, arg, is};
use crate::output::Output;
use crate::work::{Work, rebuilt};

/// Executes the Redis command `MGET key …`.
pub(super) fn mget(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    reply::array(out, args.len() - 1);
    session.values(args, 1, out)
}

/// Executes the Redis command `MSETNX key value …`.
pub(super) fn msetnx(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity("msetnx"));
    }
    let _order = session.order();
    let free = args.from(1).step_by(2).all(|key| session.peek(key, |_| ()).is_none());
    let added = if free { add_all(session, args)? } else { false };
    reply::integer(out, i64::from(added));
    Ok(())
}

/// Stores all keys and values of an `MSETNX`, or none if one of the keys exists.
fn add_all(session: &Session<'_>, args: Args<'_>) -> Result<bool, Failure> {
    let mut known = HashSet::new();
    for index in (1..args.len()).step_by(2) {
        let (key, value) = (arg(args, index), arg(args, index + 1));
        // The same key twice in one command: the last value counts.
        if !known.insert(key) {
            session.store(key, value, None)?;
            continue;
        }
        let added = session.add(key, NewItem::bytes(value));
        if added == Ok(true) {
            continue;
        }
        for earlier in (1..index).step_by(2) {
            take_back(session, arg(args, earlier), arg(args, earlier + 1))?;
        }
        return added;
    }
    Ok(true)
}

/// Removes a key if it still has this value, to undo a store of `MSETNX`.
fn take_back(session: &Session<'_>, key: &[u8], value: &[u8]) -> CommandResult {
    session.update(key, |old| match old {
        Some(old) if old.value == value => (Change::Remove, ()),
        _ => (Change::Keep, ()),
    })
}

/// Executes the Redis command `RENAME key newkey`.
pub(super) fn rename(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (from, to) = (arg(args, 1), arg(args, 2));
    let _order = session.order();
    if from == to {
        session.peek(from, |_| ()).ok_or(NO_SUCH_KEY)?;
    } else {
        move_key(session, from, to, &mut out.work)?;
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `RENAMENX key newkey`.
pub(super) fn renamenx(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (from, to) = (arg(args, 1), arg(args, 2));
    let _order = session.order();
    session.peek(from, |_| ()).ok_or(NO_SUCH_KEY)?;
    let is_free = session.peek(to, |_| ()).is_none();
    if is_free {
        move_key(session, from, to, &mut out.work)?;
    }
    reply::integer(out, i64::from(is_free));
    Ok(())
}

/// Carries out a `RENAME`: removes the item and then stores it under its new name, so that it never
/// exists twice; for a moment it does not exist at all. If the new name is refused, the item is
/// stored under its old name again, unless another client has stored that name meanwhile.
fn move_key(session: &Session<'_>, from: &[u8], to: &[u8], work: &mut Work) -> CommandResult {
    let (value, flags, expires, tags) = session.try_update(from, |old| {
        let old = old.ok_or(NO_SUCH_KEY)?;
        let Old { value, flags, expires, tags, .. } = old;
        work.begin(rebuilt(value.len()))?;
        Ok((Change::Remove, (old.unlocked(), flags, expires, tags)))
    })?;
    let item = NewItem { flags, expires, tags, ..NewItem::bytes(&value) };
    let moved = session.update(to, |_| (Change::Store(item), ()));
    if moved.is_err() {
        session.add(from, item)?;
    }
    moved
}

/// Gives a key another name that is free; false if the key is missing, or the name taken.
pub(super) fn move_between(
    session: &Session<'_>,
    from: &[u8],
    to: &[u8],
    work: &mut Work,
) -> Result<bool, Failure> {
    let _order = session.order();
    let is_possible = session.peek(from, |_| ()).is_some() && session.peek(to, |_| ()).is_none();
    if is_possible {
        move_key(session, from, to, work)?;
    }
    Ok(is_possible)
}

/// Executes the Redis command `COPY source destination [DB index] [REPLACE]`.
pub(super) fn copy(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (from, to) = (arg(args, 1), arg(args, 2));
    let replace = copy_replaces(session, args)?;
    if from == to {
        return Err(Failure::text("ERR source and destination objects are the same"));
    }
    let _order = session.order();
    let source = session.peek(from, |old| {
        out.work.begin(rebuilt(old.value.len()))?;
        Ok::<_, Failure>((old.unlocked(), old.flags, old.expires, old.tags))
    });
    let copied = match source.transpose()? {
        None => false,
        Some((value, flags, expires, tags)) => {
            let item = NewItem { flags, expires, tags, ..NewItem::bytes(&value) };
            match replace {
                true => session.update(to, |_| (Change::Store(item), true))?,
                false => session.add(to, item)?,
            }
        }
    };
    reply::integer(out, i64::from(copied));
    Ok(())
}

fn copy_replaces(session: &Session<'_>, args: Args<'_>) -> Result<bool, Failure> {
    let mut replace = false;
    let mut index = 3;
    while let Some(word) = args.get(index) {
        index += 1;
        if is(word, "replace") {
            replace = true;
        } else if let Some(index_of_db) = args.get(index).filter(|_| is(word, "db")) {
            index += 1;
            // The destination is named already as it is stored there.
            session.database(index_of_db)?;
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(replace)
}
