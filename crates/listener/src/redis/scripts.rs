//! `EVAL`, `EVALSHA` and `SCRIPT` for the scripts with which widespread clients take, extend and
//! release a lock. Such a script is recognized by its text, regardless of white space and quotes,
//! and replaced by an equivalent command. All other scripts are refused, since the cache executes
//! no programs of clients.

use sherwood_cache::{Change, NewItem};
use sherwood_wire::resp::{Args, reply};

use super::compare::delete_if;
use super::comparison::Comparison;
use super::failure::{Failure, SCRIPTS};
use super::known_scripts::{Meaning, Scripts, digest_of, meaning_of};
use super::session::{CommandResult, Session, arg, number};
use super::words;
use crate::output::Output;
use crate::work::KEY;

const NO_SCRIPT: Failure = Failure::text("NOSCRIPT No matching script. Please use EVAL.");
const ONE_KEY: Failure =
    Failure::text("ERR this script takes one key, and the arguments that its text names");

/// Executes the Redis command `EVAL script numkeys key … arg …`.
pub(super) fn eval(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (_, meaning) = session.learn(arg(args, 1))?;
    session.execute_script(meaning, args, out)
}

/// Executes the Redis command `EVALSHA sha1 numkeys key … arg …`.
pub(super) fn evalsha(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let meaning = session.scripts(|scripts| scripts.meaning(arg(args, 1))).ok_or(NO_SCRIPT)?;
    session.execute_script(meaning, args, out)
}

/// Executes the Redis command `SCRIPT LOAD script`.
pub(super) fn load(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (digest, _) = session.learn(arg(args, 2))?;
    reply::bulk(out, digest.as_bytes());
    Ok(())
}

/// Executes the Redis command `SCRIPT EXISTS sha1 …`.
pub(super) fn exists(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    out.work.begin(KEY * args.len() as u64)?;
    reply::array(out, args.len() - 2);
    session.scripts(|scripts| {
        args.from(2).for_each(|digest| reply::integer(out, i64::from(scripts.meaning(digest).is_some())));
    });
    Ok(())
}

/// Executes the Redis command `SCRIPT FLUSH [ASYNC | SYNC]`.
pub(super) fn flush(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.scripts(Scripts::clear);
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `SCRIPT HELP`.
pub(super) fn help(_: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    words::help(
        out,
        "SCRIPT",
        &[
            ("EXISTS <sha1> [<sha1> ...]", "Which scripts EVALSHA would find."),
            ("FLUSH [ASYNC|SYNC]", "Forget the scripts for EVALSHA."),
            ("LOAD <script>", "Remember a script of a lock for EVALSHA; others are refused."),
        ],
    );
    Ok(())
}

impl Session<'_> {
    fn scripts<R>(&self, use_them: impl FnOnce(&mut Scripts) -> R) -> R {
        self.hub.with_scripts(self.client.slot, use_them)
    }

    /// Remembers a script and returns its digest and meaning, or an error if the script is not a
    /// known one.
    fn learn(&self, script: &[u8]) -> Result<(String, Meaning), Failure> {
        let meaning = meaning_of(script).ok_or(SCRIPTS)?;
        let digest = digest_of(script);
        self.scripts(|scripts| scripts.remember(digest.clone(), meaning));
        Ok((digest, meaning))
    }

    /// Executes a known script; the number of keys is argument 2, the key argument 3.
    fn execute_script(&self, meaning: Meaning, args: Args<'_>, out: &mut Output) -> CommandResult {
        let arguments = match meaning {
            Meaning::Release => 1,
            Meaning::Extend | Meaning::Add => 2,
            Meaning::ExtendBy => 3,
        };
        if number(arg(args, 2))? != 1 || args.len() < 4 + arguments {
            return Err(ONE_KEY);
        }
        let (key, value) = (arg(args, 3), arg(args, 4));
        match meaning {
            Meaning::Release => delete_if(self, key, Comparison::Equal(value), out),
            Meaning::Extend => self.extend_if(key, value, number(arg(args, 5))?, None, out),
            Meaning::ExtendBy => {
                let adds = arg(args, 6) == b"0";
                self.extend_if(key, value, number(arg(args, 5))?, Some(adds), out)
            }
            Meaning::Add => self.add_for(key, value, number(arg(args, 5))?, out),
        }
    }

    /// Sets the expiry of a key to `millis` from now, if the key has this value. If `adds` is
    /// given, only for a key that already has an expiry; if it is true, `millis` are added to the
    /// time left.
    fn extend_if(
        &self,
        key: &[u8],
        value: &[u8],
        millis: i64,
        adds: Option<bool>,
        out: &mut Output,
    ) -> CommandResult {
        let (needs_expiry, adds) = (adds.is_some(), adds.unwrap_or(false));
        let now = self.unix_ms();
        let extended = self.update(key, |old| {
            let Some(old) = old.filter(|old| old.value == value) else { return (Change::Keep, false) };
            let left = old.expires.map(|at| self.unix_ms_of(at).saturating_sub(now));
            if needs_expiry && left.is_none() {
                return (Change::Keep, false);
            }
            let at = now.saturating_add(millis).saturating_add(left.filter(|_| adds).unwrap_or(0));
            (if at <= now { Change::Remove } else { old.expiring(Some(self.instant(at))) }, true)
        })?;
        reply::integer(out, i64::from(extended));
        Ok(())
    }

    /// Stores a value for `seconds` if its key does not exist.
    fn add_for(&self, key: &[u8], value: &[u8], seconds: i64, out: &mut Output) -> CommandResult {
        let at = seconds.checked_mul(1000).filter(|millis| *millis > 0);
        let at = at.and_then(|millis| millis.checked_add(self.unix_ms()));
        let expires = at.map(|at| self.instant(at)).ok_or_else(|| Failure::expire_time("setex"))?;
        match self.add(key, NewItem { expires: Some(expires), ..NewItem::bytes(value) })? {
            true => out.extend_from_slice(reply::OK),
            false => reply::null(out, self.version()),
        }
        Ok(())
    }
}
