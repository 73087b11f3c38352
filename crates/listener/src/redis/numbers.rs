//! Redis commands that increment and decrement numbers.

use sherwood_cache::{Change, NewItem};
use sherwood_wire::resp::{Args, integer, reply};

use super::decimal::{Decimal, Number, digits_max};
use super::failure::{Failure, NOT_A_FLOAT, NOT_AN_INTEGER, OVERFLOW};
use super::session::{CommandResult, Old, Session, arg, number};
use crate::counters::Count;
use crate::output::Output;
use crate::work::digits;

/// Executes the Redis command `INCR key`.
pub(super) fn incr(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    count(session, arg(args, 1), 1, out)
}

/// Executes the Redis command `DECR key`.
pub(super) fn decr(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    count(session, arg(args, 1), -1, out)
}

/// Executes the Redis command `INCRBY key increment`.
pub(super) fn incrby(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    count(session, arg(args, 1), number(arg(args, 2))?, out)
}

/// Executes the Redis command `DECRBY key decrement`.
pub(super) fn decrby(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let by = number(arg(args, 2))?.checked_neg().ok_or(Failure::text("ERR decrement would overflow"))?;
    count(session, arg(args, 1), by, out)
}

fn count(session: &Session<'_>, key: &[u8], by: i64, out: &mut Output) -> CommandResult {
    let number = session.update(key, |old| {
        note(session, by >= 0, old.is_some());
        let before = match old {
            Some(old) => integer(old.value).ok_or(NOT_AN_INTEGER),
            None => Ok(0),
        };
        match before.and_then(|before| before.checked_add(by).ok_or(OVERFLOW)) {
            Ok(number) => (stored(old, number.to_string()), Ok(number)),
            Err(failure) => (Change::Keep, Err(failure)),
        }
    })??;
    reply::integer(out, number);
    Ok(())
}

/// Executes the Redis command `INCRBYFLOAT key increment`.
pub(super) fn incrbyfloat(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let session = &*session;
    let by = arg(args, 2);
    let text = session.try_update(arg(args, 1), |old| {
        note(session, true, old.is_some());
        let value = old.map_or(&b"0"[..], |old| old.value);
        out.work.add(digits(digits_max(value) + digits_max(by)));
        let text = sum(value, by)?.text();
        Ok((stored(old, text.clone()), text))
    })?;
    reply::bulk(out, text.as_bytes());
    Ok(())
}

fn sum(value: &[u8], by: &[u8]) -> Result<Decimal, Failure> {
    let (value, by) = (Number::parse(value).ok_or(NOT_A_FLOAT)?, Number::parse(by).ok_or(NOT_A_FLOAT)?);
    let sum = match (value, by) {
        (Number::Finite(value), Number::Finite(by)) => value.plus(&by),
        _ => None,
    };
    sum.ok_or(Failure::text("ERR increment would produce NaN or Infinity"))
}

/// Returns a change that stores the number `text` as the item's value; the expiry stays.
fn stored(old: Option<Old<'_>>, text: String) -> Change<'static> {
    let NewItem { flags, expires, tags, .. } = NewItem::bytes(b"");
    match old {
        Some(old) => old.with(text.into_bytes()),
        None => Change::StoreOwned { value: text.into_bytes(), flags, expires, tags },
    }
}

fn note(session: &Session<'_>, up: bool, found: bool) {
    session.counters.increment(match (up, found) {
        (true, true) => Count::IncrHits,
        (true, false) => Count::IncrMisses,
        (false, true) => Count::DecrHits,
        (false, false) => Count::DecrMisses,
    });
}
