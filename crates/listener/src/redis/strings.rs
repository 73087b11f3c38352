//! Redis commands on one string: `GET`, `SET` and their variants, and ranges of strings.

use sherwood_cache::{Change, Item, NewItem};
use sherwood_model::{Instant, Tags};
use sherwood_wire::resp::{Args, reply};

use super::comparison::Comparison;
use super::failure::{Failure, SYNTAX, TOO_LONG};
use super::session::{Changed, CommandResult, Old, Session, arg, is, number};
use crate::counters::Count;
use crate::output::Output;
use crate::work::rebuilt;

/// Executes the Redis command `GET key`.
pub(super) fn get(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    session.values(args, 1, out)
}

/// Executes the Redis command `SET key value [NX | XX | IFEQ value | IFNE value] [GET] [EX seconds
/// | PX milliseconds | EXAT seconds | PXAT milliseconds | KEEPTTL]`.
pub(super) fn set(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (key, value) = (arg(args, 1), arg(args, 2));
    let options = Options::parse(args, 3, OptionSyntax::Set)?;
    let expires = options.expire.map(|expire| session.deadline(expire, "set")).transpose()?;
    if options.only == Some(Only::IfNotThere) && !options.get {
        return set_new(session, key, value, expires, out);
    }
    if options.get || options.only.is_some() || options.keep_ttl {
        return set_if(session, key, value, &options, expires, out);
    }
    session.store(key, value, expires)?;
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Returns the expiry of a `SET` without a condition on the present item; an error for others.
pub(super) fn unconditional_set(session: &Session<'_>, args: Args<'_>) -> Result<Option<Instant>, Failure> {
    let options = Options::parse(args, 3, OptionSyntax::Set)?;
    if options.get || options.only.is_some() || options.keep_ttl {
        return Err(CONDITIONAL_SET);
    }
    options.expire.map(|expire| session.deadline(expire, "set")).transpose()
}

/// Returns the expiry of a `SETEX` or `PSETEX`.
pub(super) fn expiry_of_set(session: &Session<'_>, args: Args<'_>, name: &str) -> Result<Instant, Failure> {
    session.deadline(Expire { value: arg(args, 2), millis: name == "psetex", absolute: false }, name)
}

/// The error of a `SET` that a write-through listener refuses.
const CONDITIONAL_SET: Failure = Failure::text(
    "ERR NX, XX, IFEQ, IFNE, GET and KEEPTTL are refused by a write-through listener: they depend on a value that only the store knows",
);

/// Executes a `SET` with `NX`, as clients fill a cache.
fn set_new(
    session: &Session<'_>,
    key: &[u8],
    value: &[u8],
    expires: Option<Instant>,
    out: &mut Output,
) -> CommandResult {
    let item = NewItem { expires, received: session.received, ..NewItem::bytes(value) };
    match session.add(key, item)? {
        true => out.extend_from_slice(reply::OK),
        false => reply::null(out, session.version()),
    }
    Ok(())
}

/// Executes a `SET` with options that depend on the present item.
fn set_if(
    session: &Session<'_>,
    key: &[u8],
    value: &[u8],
    options: &Options<'_>,
    expires: Option<Instant>,
    out: &mut Output,
) -> CommandResult {
    let version = session.version();
    let Changed { target, result: stored, .. } = session.change(key, |old| {
        if options.get {
            bulk_or_null(session, old, out);
        }
        let stores = options.only.is_none_or(|only| only.allows(old));
        if !stores {
            return (Change::Keep, false);
        }
        let kept = old.filter(|_| options.keep_ttl).and_then(|old| old.expires);
        let (expires, received) = (expires.or(kept), session.received);
        (Change::Store(NewItem { expires, received, ..NewItem::bytes(value) }), true)
    })?;
    let name = session.routing().find(key).map_or(key, |(_, name)| name);
    session.ended.note_set((target, name), stored);
    let stored = stored.map_err(|refused| session.refused(refused))?;
    session.counters.increment(Count::CmdSet);
    if stored {
        session.counters.increment(Count::TotalItems);
    }
    match stored {
        _ if options.get => {}
        true => out.extend_from_slice(reply::OK),
        false => reply::null(out, version),
    }
    Ok(())
}

/// Executes the Redis command `SETEX key seconds value`.
pub(super) fn setex(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    set_for(session, args, Expire { value: arg(args, 2), millis: false, absolute: false }, "setex", out)
}

/// Executes the Redis command `PSETEX key milliseconds value`.
pub(super) fn psetex(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    set_for(session, args, Expire { value: arg(args, 2), millis: true, absolute: false }, "psetex", out)
}

fn set_for(
    session: &Session<'_>,
    args: Args<'_>,
    expire: Expire<'_>,
    name: &str,
    out: &mut Output,
) -> CommandResult {
    let expires = session.deadline(expire, name)?;
    session.store(arg(args, 1), arg(args, 3), Some(expires))?;
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `SETNX key value`.
pub(super) fn setnx(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let added =
        session.add(arg(args, 1), NewItem { received: session.received, ..NewItem::bytes(arg(args, 2)) })?;
    reply::integer(out, i64::from(added));
    Ok(())
}

/// Executes the Redis command `GETSET key value`.
pub(super) fn getset(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let options = Options { get: true, ..Options::default() };
    set_if(session, arg(args, 1), arg(args, 2), &options, None, out)
}

/// Executes the Redis command `GETEX key [EX seconds | PX milliseconds | EXAT seconds | PXAT
/// milliseconds | PERSIST]`.
pub(super) fn getex(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let options = Options::parse(args, 2, OptionSyntax::GetEx)?;
    let session = &*session;
    session.update(arg(args, 1), |old| {
        session.count_read(old.is_some());
        let Some(old) = old else {
            bulk_or_null(session, None, out);
            return (Change::Keep, Ok(()));
        };
        // As in Redis, the expiry is only checked if the key exists.
        let expires = match options.expire.map(|expire| session.deadline(expire, "getex")).transpose() {
            Ok(expires) => expires,
            Err(failure) => return (Change::Keep, Err(failure)),
        };
        bulk(old, out);
        let change = match expires {
            Some(at) if at <= session.moment.now => Change::Remove,
            Some(at) => old.expiring(Some(at)),
            None if options.persist => old.expiring(None),
            None => Change::Touch(old.expires),
        };
        (change, Ok(()))
    })?
}

/// Returns true if a `GETEX` removes its key because its time is past.
pub(super) fn getex_is_past(session: &Session<'_>, args: Args<'_>) -> bool {
    let expire = Options::parse(args, 2, OptionSyntax::GetEx).ok().and_then(|options| options.expire);
    let at = expire.and_then(|expire| session.deadline(expire, "getex").ok());
    at.is_some_and(|at| at <= session.moment.now)
}

/// Executes the Redis command `GETDEL key`.
pub(super) fn getdel(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let session = &*session;
    session.update(arg(args, 1), |old| {
        session.count_read(old.is_some());
        bulk_or_null(session, old, out);
        (Change::Remove, ())
    })
}

/// Executes the Redis command `APPEND key value`.
pub(super) fn append(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let added = arg(args, 2);
    let max = session.value_bytes_max();
    let len = session.try_update(arg(args, 1), |old| {
        let Some(old) = old else { return Ok((Change::Store(NewItem::bytes(added)), added.len())) };
        let len = old.value.len() + added.len();
        if len > max {
            return Err(TOO_LONG);
        }
        out.work.begin(rebuilt(len))?;
        Ok((old.with([old.value, added].concat()), len))
    })?;
    reply::integer(out, len as i64);
    Ok(())
}

/// Executes the Redis command `STRLEN key`.
pub(super) fn strlen(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let len = session.read(arg(args, 1), |old| old.value.len()).unwrap_or(0);
    reply::integer(out, len as i64);
    Ok(())
}

/// Executes the Redis command `GETRANGE key start end`.
pub(super) fn getrange(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (start, end) = (number(arg(args, 2))?, number(arg(args, 3))?);
    let value = session.read(arg(args, 1), |old| old.unlocked());
    let part = range(value.as_deref().unwrap_or_default(), start, end);
    out.work.begin(part.len() as u64)?;
    reply::bulk(out, part);
    Ok(())
}

/// Returns the bytes of a value from `start` to `end`, both inclusive; negative indices count from
/// the end of the value.
fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    let from_start = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let both_from_end_and_crossed = start < 0 && end < 0 && start > end;
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if both_from_end_and_crossed || start > end {
        return b"";
    }
    // Both are within the value now.
    &value[start as usize..=end as usize]
}

/// Executes the Redis command `SETRANGE key offset value`.
pub(super) fn setrange(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (offset, part) = (number(arg(args, 2))?, arg(args, 3));
    let offset = usize::try_from(offset).map_err(|_| Failure::text("ERR offset is out of range"))?;
    let max = session.value_bytes_max();
    let len = session.try_update(arg(args, 1), |old| {
        let len = old.map_or(0, |old| old.value.len());
        if part.is_empty() {
            return Ok((Change::Keep, len));
        }
        let end = offset.saturating_add(part.len());
        if end > max {
            return Err(TOO_LONG);
        }
        let len = len.max(end);
        out.work.begin(rebuilt(len))?;
        let mut value = old.map_or_else(Vec::new, |old| old.value.to_vec());
        value.resize(len, 0);
        value[offset..end].copy_from_slice(part);
        let change = match old {
            Some(old) => old.with(value),
            None => Change::StoreOwned { value, flags: 0, expires: None, tags: Tags::NONE },
        };
        Ok((change, len))
    })?;
    reply::integer(out, len as i64);
    Ok(())
}

/// The parsed options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, Default)]
struct Options<'a> {
    only: Option<Only<'a>>,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expire: Option<Expire<'a>>,
}

/// The condition under which a `SET` stores its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only<'a> {
    IfThere,
    IfNotThere,
    If(Comparison<'a>),
}

impl Only<'_> {
    fn allows(self, old: Option<Old<'_>>) -> bool {
        match self {
            Self::IfThere => old.is_some(),
            Self::IfNotThere => old.is_none(),
            Self::If(comparison) => comparison.holds(old.map(|old| old.value)),
        }
    }
}

/// An expiry as given in a command, with its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expire<'a> {
    value: &'a [u8],
    millis: bool,
    /// True if `value` is a time since 1970, false if it is a time from now.
    absolute: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionSyntax {
    Set,
    GetEx,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>, first: usize, syntax: OptionSyntax) -> Result<Self, Failure> {
        let mut options = Self::default();
        let mut index = first;
        while let Some(word) = args.get(index) {
            index += 1;
            match word {
                _ if syntax == OptionSyntax::Set && is(word, "nx") => options.allow(Only::IfNotThere)?,
                _ if syntax == OptionSyntax::Set && is(word, "xx") => options.allow(Only::IfThere)?,
                _ if syntax == OptionSyntax::Set && (is(word, "ifeq") || is(word, "ifne")) => {
                    let comparison = Comparison::parse(args, index - 1).ok_or(SYNTAX)?;
                    options.allow(Only::If(comparison))?;
                    index += 1;
                }
                _ if syntax == OptionSyntax::Set && is(word, "get") => options.get = true,
                _ if syntax == OptionSyntax::Set && is(word, "keepttl") && options.expire.is_none() => {
                    options.keep_ttl = true
                }
                _ if syntax == OptionSyntax::GetEx && is(word, "persist") && options.expire.is_none() => {
                    options.persist = true;
                }
                _ => {
                    let (millis, absolute) = unit(word).ok_or(SYNTAX)?;
                    // The same unit may be repeated; the last value counts.
                    let other =
                        options.expire.is_some_and(|said| (said.millis, said.absolute) != (millis, absolute));
                    if other || options.keep_ttl || options.persist {
                        return Err(SYNTAX);
                    }
                    let value = args.get(index).ok_or(SYNTAX)?;
                    index += 1;
                    options.expire = Some(Expire { value, millis, absolute });
                }
            }
        }
        Ok(options)
    }

    /// Sets the condition of a `SET`. Repeating the same condition is accepted, a different one is
    /// an error.
    fn allow(&mut self, only: Only<'a>) -> Result<(), Failure> {
        match self.only.replace(only) {
            Some(other) if other != only => Err(SYNTAX),
            _ => Ok(()),
        }
    }
}

/// Parses the option that gives an expiry: the first result is true for milliseconds, the second
/// one for a time since 1970.
fn unit(word: &[u8]) -> Option<(bool, bool)> {
    [("ex", (false, false)), ("px", (true, false)), ("exat", (false, true)), ("pxat", (true, true))]
        .into_iter()
        .find_map(|(name, unit)| is(word, name).then_some(unit))
}

impl Session<'_> {
    /// Returns the instant of an expiry given in a command; an error if it is out of range.
    fn deadline(&self, expire: Expire<'_>, command: &str) -> Result<Instant, Failure> {
        let Expire { value, millis, absolute } = expire;
        let value = number(value)?;
        let millis = if millis { Some(value) } else { value.checked_mul(1000) };
        let from = if absolute { 0 } else { self.unix_ms() };
        let at = millis.filter(|&millis| millis > 0).and_then(|millis| millis.checked_add(from));
        at.map(|at| self.instant(at)).ok_or_else(|| Failure::expire_time(command))
    }

    /// Stores a value under a key, replacing any present one.
    pub(super) fn store(&self, key: &[u8], value: &[u8], expires: Option<Instant>) -> CommandResult {
        self.counters.increment(Count::CmdSet);
        let (target, name) = self.routing().find(key).ok_or_else(|| Failure::nowhere(key))?;
        let (access, item) = (
            self.access_in_class(target, name),
            NewItem { expires, received: self.received, ..NewItem::bytes(value) },
        );
        let stored = match &self.exclusive {
            None => {
                let cache = &self.shared.service.cache;
                let set = || cache.set(target.partition, name, item, &access).map(|_| ());
                self.shared.service.write(target, name, set)
            }
            Some(exclusive) => {
                let set = |_: Option<Item<'_>>| (Change::Store(item), ());
                exclusive.update(target, name, &access, set)
            }
        };
        self.ended.note_set((target, name), stored.map(|()| true));
        stored.map_err(|refused| self.refused(refused))?;
        self.counters.increment(Count::TotalItems);
        Ok(())
    }

    /// Stores an item if its key has none. Returns true if it was stored.
    pub(super) fn add(&self, key: &[u8], item: NewItem<'_>) -> Result<bool, Failure> {
        self.counters.increment(Count::CmdSet);
        let (target, name) = self.routing().find(key).ok_or_else(|| Failure::nowhere(key))?;
        self.drop_untrusted(target, name);
        let access = self.access();
        let added = match &self.exclusive {
            None => {
                let cache = &self.shared.service.cache;
                self.shared.service.fill(target, name, || cache.add(target.partition, name, item, &access))
            }
            Some(exclusive) => {
                let add = |old: Option<Item<'_>>| match old {
                    Some(_) => (Change::Keep, false),
                    None => (Change::Store(item), true),
                };
                exclusive.update(target, name, &access, add)
            }
        };
        self.ended.note_set((target, name), added);
        let added = added.map_err(|refused| self.refused(refused))?;
        self.counters.add(Count::TotalItems, u64::from(added));
        Ok(added)
    }

    /// Returns the maximum length of a value in the cache, in bytes.
    pub(super) fn value_bytes_max(&self) -> usize {
        self.shared.options.item_size_max as usize
    }
}

fn bulk_or_null(session: &Session<'_>, old: Option<Old<'_>>, out: &mut Output) {
    match old {
        Some(old) => bulk(old, out),
        None => reply::null(out, session.version()),
    }
}

/// Appends the value of an item. A large one is not copied, since the shard is locked.
fn bulk(old: Old<'_>, out: &mut Output) {
    out.value(&old.item, old.value, |out| reply::bulk_line(out, old.value.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_a_value_counts_from_either_end_and_is_clamped_to_the_value() {
        for (start, end, expected) in [
            (0, 3, "Hell"),
            (0, -1, "Hello World"),
            (-4, -1, "orld"),
            (5, 3, ""),
            (5, 5000, " World"),
            (-5000, 10000, "Hello World"),
            (-1, -5, ""),
            (-1, -5000, ""),
            (11, 20, ""),
            (i64::MIN, i64::MAX, "Hello World"),
        ] {
            assert_eq!(range(b"Hello World", start, end), expected.as_bytes(), "{start} {end}");
        }
        assert_eq!((range(b"", 0, -1), range(b"", 0, 0)), (&b""[..], &b""[..]));
    }
}
