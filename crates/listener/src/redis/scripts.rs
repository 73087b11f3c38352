//! `EVAL`, `EVALSHA` and `SCRIPT` for the scripts by which widespread clients take, extend and
//! release a lock. Each is known by its text, whatever its white space and quotes, and executed as
//! the command that it stands for; any other script is refused, since the cache executes no
//! programs of clients.

use std::collections::VecDeque;

use sha1::{Digest, Sha1};
use sherwood_cache::{Change, NewItem};
use sherwood_wire::resp::{Args, reply};

use super::compare::{Comparison, delete_if};
use super::failure::{Failure, SCRIPTS};
use super::session::{CommandResult, Session, arg, number};
use super::words;
use crate::output::Output;
use crate::work::KEY;

/// Most scripts whose digests are remembered for `EVALSHA`; clients send the text of a forgotten
/// one again.
const REMEMBERED_MAX: usize = 64;
/// Longest script that is compared with the known ones, bytes.
const SCRIPT_BYTES_MAX: usize = 1024;

const NO_SCRIPT: Failure = Failure::text("NOSCRIPT No matching script. Please use EVAL.");
const ONE_KEY: Failure =
    Failure::text("ERR this script takes one key, and the arguments that its text names");

/// The command that a script stands for, with one key and the script's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Removes the key if it has the value of the first argument.
    Release,
    /// The same, and then lets the key expire after the milliseconds of the second argument.
    Extend,
    /// The same, in addition to the time that is left unless the third argument is `1`.
    ExtendBy,
    /// Stores the first argument for the seconds of the second one if the key does not exist.
    Add,
}

/// The known scripts in their [normal form](normal).
const KNOWN: [(&str, Meaning); 6] = [
    // phpredis, Laravel, redlock.
    (
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end",
        Meaning::Release,
    ),
    // redis-py.
    (
        "local token=redis.call('get',KEYS[1]) if not token or token~=ARGV[1] then return 0 end \
         redis.call('del',KEYS[1]) return 1",
        Meaning::Release,
    ),
    (
        "local token=redis.call('get',KEYS[1]) if not token or token~=ARGV[1] then return 0 end \
         redis.call('pexpire',KEYS[1],ARGV[2]) return 1",
        Meaning::Extend,
    ),
    (
        "local token=redis.call('get',KEYS[1]) if not token or token~=ARGV[1] then return 0 end \
         local expiration=redis.call('pttl',KEYS[1]) if not expiration then expiration=0 end \
         if expiration<0 then return 0 end local newttl=ARGV[2] \
         if ARGV[3]=='0' then newttl=ARGV[2]+expiration end redis.call('pexpire',KEYS[1],newttl) return 1",
        Meaning::ExtendBy,
    ),
    // redlock.
    (
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
        Meaning::Extend,
    ),
    // Laravel.
    ("return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])", Meaning::Add),
];

/// The digests of known scripts that clients have sent, the last one at the end.
#[derive(Debug, Default)]
pub(super) struct Scripts(VecDeque<(String, Meaning)>);

impl Scripts {
    fn remember(&mut self, digest: String, meaning: Meaning) {
        if self.meaning(digest.as_bytes()).is_none() {
            if self.0.len() == REMEMBERED_MAX {
                self.0.pop_front();
            }
            self.0.push_back((digest, meaning));
        }
    }

    fn meaning(&self, digest: &[u8]) -> Option<Meaning> {
        let known = |(known, _): &&(String, Meaning)| known.as_bytes().eq_ignore_ascii_case(digest);
        self.0.iter().find(known).map(|(_, meaning)| *meaning)
    }
}

/// Executes the Redis command `EVAL script numkeys key … arg …`.
pub(super) fn eval(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (_, meaning) = session.learn(arg(args, 1))?;
    session.execute_script(meaning, args, out)
}

/// Executes the Redis command `EVALSHA sha1 numkeys key … arg …`.
pub(super) fn evalsha(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let meaning = session.hub.scripts().meaning(arg(args, 1)).ok_or(NO_SCRIPT)?;
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
    let scripts = session.hub.scripts();
    reply::array(out, args.len() - 2);
    args.from(2).for_each(|digest| reply::integer(out, i64::from(scripts.meaning(digest).is_some())));
    Ok(())
}

/// Executes the Redis command `SCRIPT FLUSH [ASYNC | SYNC]`.
pub(super) fn flush(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.hub.scripts().0.clear();
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
    /// Remembers a known script and returns its digest and meaning.
    fn learn(&self, script: &[u8]) -> Result<(String, Meaning), Failure> {
        let text = std::str::from_utf8(script).ok().filter(|text| text.len() <= SCRIPT_BYTES_MAX);
        let meaning = text.map(normal).and_then(|text| known(&text)).ok_or(SCRIPTS)?;
        let digest: String = Sha1::digest(script).iter().map(|byte| format!("{byte:02x}")).collect();
        self.hub.scripts().remember(digest.clone(), meaning);
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
            Meaning::Extend => self.extend_if(key, value, number(arg(args, 5))?, false, out),
            Meaning::ExtendBy => self.extend_if(key, value, number(arg(args, 5))?, arg(args, 6) == b"0", out),
            Meaning::Add => self.add_for(key, value, number(arg(args, 5))?, out),
        }
    }

    /// Lets a key with this value expire after `millis`, in addition to what is left if `adds`.
    fn extend_if(
        &self,
        key: &[u8],
        value: &[u8],
        millis: i64,
        adds: bool,
        out: &mut Output,
    ) -> CommandResult {
        let now = self.unix_ms();
        let extended = self.update(key, |old| {
            let Some(old) = old.filter(|old| old.value == value) else { return (Change::Keep, false) };
            let left = old.expires.map(|at| self.unix_ms_of(at).saturating_sub(now));
            match (adds, left) {
                (true, None) => (Change::Keep, false),
                (adds, left) => {
                    let at = now.saturating_add(millis).saturating_add(left.filter(|_| adds).unwrap_or(0));
                    (if at <= now { Change::Remove } else { old.expiring(Some(self.instant(at))) }, true)
                }
            }
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

fn known(normal: &str) -> Option<Meaning> {
    KNOWN.iter().find(|(text, _)| *text == normal).map(|(_, meaning)| *meaning)
}

/// Returns a script with single quotes, one space between words, and none beside other characters.
fn normal(script: &str) -> String {
    let script = script.replace('"', "'");
    let mut normal = String::with_capacity(script.len());
    for word in script.split_ascii_whitespace() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == ')' || c == ']' || c == '\'';
        let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && normal.ends_with(is_word) {
            normal.push(' ');
        }
        normal.push_str(word);
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_locks_are_known_whatever_their_white_space_and_quotes() {
        for (script, meaning) in [
            (
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end",
                Meaning::Release,
            ),
            (
                "\nif redis.call(\"get\", KEYS[1]) == ARGV[1] then\n    return redis.call(\"del\", KEYS[1])\nelse\n    \
                 return 0\nend\n",
                Meaning::Release,
            ),
            (
                "\n        local token = redis.call('get', KEYS[1])\n        if not token or token ~= ARGV[1] then\n            \
                 return 0\n        end\n        redis.call('del', KEYS[1])\n        return 1\n    ",
                Meaning::Release,
            ),
            (
                "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])",
                Meaning::Add,
            ),
        ] {
            assert_eq!(known(&normal(script)), Some(meaning), "{script}: {}", normal(script));
        }
        for (text, meaning) in KNOWN {
            assert_eq!((normal(text).as_str(), known(text)), (text, Some(meaning)));
        }
        for script in ["", "return 1", "return redis.call('del',KEYS[1])"] {
            assert_eq!(known(&normal(script)), None, "{script}");
        }
    }

    #[test]
    fn remembered_scripts_are_bounded() {
        let mut scripts = Scripts::default();
        for number in 0..=REMEMBERED_MAX {
            scripts.remember(number.to_string(), Meaning::Release);
        }
        assert_eq!(scripts.0.len(), REMEMBERED_MAX);
        assert_eq!((scripts.meaning(b"0"), scripts.meaning(b"1")), (None, Some(Meaning::Release)));
    }
}
