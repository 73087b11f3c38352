//! Commands that set and report the expiry of keys.

use sherwood_cache::Change;
use sherwood_wire::resp::{Args, reply};

use super::failure::Failure;
use super::session::{CommandResult, Session, arg, is, number};
use crate::counters::Count;
use crate::output::Output;

/// Executes the Redis command `EXPIRE key seconds [NX | XX | GT | LT]`.
pub(super) fn expire(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    set_expiry(session, args, "expire", out)
}

/// Executes the Redis command `PEXPIRE key milliseconds [NX | XX | GT | LT]`.
pub(super) fn pexpire(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    set_expiry(session, args, "pexpire", out)
}

/// Executes the Redis command `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`.
pub(super) fn expireat(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    set_expiry(session, args, "expireat", out)
}

/// Executes the Redis command `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`.
pub(super) fn pexpireat(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    set_expiry(session, args, "pexpireat", out)
}

/// Returns the expiry that one of these commands sets, in milliseconds since 1970; an error if it
/// is out of range.
fn expiry_of(session: &Session<'_>, args: Args<'_>, name: &str) -> Result<i64, Failure> {
    let unit_ms = if name.starts_with('p') { 1 } else { 1000 };
    let from_ms = if name.ends_with("at") { 0 } else { session.unix_ms() };
    let at = number(arg(args, 2))?.checked_mul(unit_ms).and_then(|span| span.checked_add(from_ms));
    at.ok_or_else(|| Failure::expire_time(name))
}

impl Session<'_> {
    /// Returns true if the command `name`, one of these, removes its key because the time is past.
    /// Its conditions may still keep the key.
    pub(super) fn is_past_expiry(&self, args: Args<'_>, name: &str) -> bool {
        expiry_of(self, args, name).is_ok_and(|at| at <= self.unix_ms())
    }
}

/// The conditions `NX`, `XX`, `GT` and `LT`, under which a key's expiry is changed.
#[derive(Clone, Copy, Default)]
struct Conditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Conditions {
    fn parse(args: Args<'_>) -> Result<Self, Failure> {
        let mut these = Self::default();
        for word in args.from(3) {
            match word {
                _ if is(word, "nx") => these.nx = true,
                _ if is(word, "xx") => these.xx = true,
                _ if is(word, "gt") => these.gt = true,
                _ if is(word, "lt") => these.lt = true,
                _ => return Err(Failure::about("ERR Unsupported option ", word, "")),
            }
        }
        if these.nx && (these.xx || these.gt || these.lt) {
            return Err(Failure::text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if these.gt && these.lt {
            return Err(Failure::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(these)
    }

    /// Returns whether an item that expires at `current`, if ever, may expire at `at` instead.
    fn allow(self, current: Option<i64>, at: i64) -> bool {
        let Self { nx, xx, gt, lt } = self;
        !(nx && current.is_some()
            || xx && current.is_none()
            || gt && current.is_none_or(|current| at <= current)
            || lt && current.is_some_and(|current| at >= current))
    }
}

fn set_expiry(session: &Session<'_>, args: Args<'_>, name: &str, out: &mut Output) -> CommandResult {
    let conditions = Conditions::parse(args)?;
    let at = expiry_of(session, args, name)?;
    let changed = session.update(arg(args, 1), |old| {
        let Some(old) = old else { return (Change::Keep, false) };
        if !conditions.allow(old.expires.map(|expires| session.unix_ms_of(expires)), at) {
            return (Change::Keep, false);
        }
        match at <= session.unix_ms() {
            true => (Change::Remove, true),
            false => (old.expiring(Some(session.instant(at))), true),
        }
    })?;
    note_touch(session, changed);
    reply::integer(out, i64::from(changed));
    Ok(())
}

/// Executes the Redis command `PERSIST key`.
pub(super) fn persist(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let changed = session.update(arg(args, 1), |old| match old {
        Some(old) if old.expires.is_some() => (old.expiring(None), true),
        _ => (Change::Keep, false),
    })?;
    note_touch(session, changed);
    reply::integer(out, i64::from(changed));
    Ok(())
}

fn note_touch(session: &Session<'_>, changed: bool) {
    session.counters.increment(Count::CmdTouch);
    session.counters.increment(if changed { Count::TouchHits } else { Count::TouchMisses });
}

/// Executes the Redis command `TTL key`.
pub(super) fn ttl(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    tell_expiry(session, args, out, |at, now| seconds((at - now).max(0)))
}

/// Executes the Redis command `PTTL key`.
pub(super) fn pttl(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    tell_expiry(session, args, out, |at, now| (at - now).max(0))
}

/// Executes the Redis command `EXPIRETIME key`.
pub(super) fn expiretime(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    tell_expiry(session, args, out, |at, _| seconds(at))
}

/// Executes the Redis command `PEXPIRETIME key`.
pub(super) fn pexpiretime(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    tell_expiry(session, args, out, |at, _| at)
}

/// Answers -2 for a missing key, -1 for a key without expiry, else the number that `tell` makes of
/// the expiry and the current time, both in milliseconds since 1970.
fn tell_expiry(
    session: &Session<'_>,
    args: Args<'_>,
    out: &mut Output,
    tell: impl FnOnce(i64, i64) -> i64,
) -> CommandResult {
    let answer = match session.peek(arg(args, 1), |old| old.expires) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => tell(session.unix_ms_of(at), session.unix_ms()),
    };
    reply::integer(out, answer);
    Ok(())
}

/// Converts milliseconds to seconds, rounded to the nearest as in Redis.
fn seconds(millis: i64) -> i64 {
    millis.saturating_add(500) / 1000
}
