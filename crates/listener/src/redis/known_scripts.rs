//! The scripts with which widespread clients take, extend and release a lock, recognized by their
//! text.

use std::collections::VecDeque;

use sha1::{Digest, Sha1};

/// Maximum number of scripts per tenant whose digests are remembered for `EVALSHA`. Clients send
/// the text of a forgotten script again.
const REMEMBERED_MAX: usize = 16;
/// Longest script that is compared with the known ones, bytes.
const SCRIPT_BYTES_MAX: usize = 1024;

/// The effect of a script on its one key, with the script's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Removes the key if it has the value of the first argument.
    Release,
    /// If the key has the value of the first argument, sets its expiry to the second argument, in
    /// milliseconds from now.
    Extend,
    /// Like `Extend`, for a key that already has an expiry; if the third argument is `0`, the
    /// milliseconds are added to the time left.
    ExtendBy,
    /// Stores the first argument if the key does not exist, with the second argument as its time to
    /// live in seconds.
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

/// The digests of known scripts that the clients of a tenant have sent, the latest at the end.
#[derive(Debug, Default)]
pub(super) struct Scripts(VecDeque<(String, Meaning)>);

impl Scripts {
    /// Forgets all scripts.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Remembers the digest of a script.
    pub(super) fn remember(&mut self, digest: String, meaning: Meaning) {
        if self.meaning(digest.as_bytes()).is_none() {
            if self.0.len() == REMEMBERED_MAX {
                self.0.pop_front();
            }
            self.0.push_back((digest, meaning));
        }
    }

    /// Returns the meaning of the script with this digest, if it is remembered.
    pub(super) fn meaning(&self, digest: &[u8]) -> Option<Meaning> {
        let known = |(known, _): &&(String, Meaning)| known.as_bytes().eq_ignore_ascii_case(digest);
        self.0.iter().find(known).map(|(_, meaning)| *meaning)
    }
}

/// Returns the meaning of a script; none if it is not known.
pub(super) fn meaning_of(script: &[u8]) -> Option<Meaning> {
    let text = std::str::from_utf8(script).ok().filter(|text| text.len() <= SCRIPT_BYTES_MAX)?;
    known(&normal(text))
}

/// Returns the SHA-1 digest that clients send instead of the script, in hexadecimal.
pub(super) fn digest_of(script: &[u8]) -> String {
    Sha1::digest(script).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn known(normal: &str) -> Option<Meaning> {
    KNOWN.iter().find(|(text, _)| *text == normal).map(|(_, meaning)| *meaning)
}

/// Normalizes a script: single quotes, one space between words, no space next to other characters.
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
    fn lock_scripts_are_recognized_regardless_of_white_space_and_quotes() {
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
    fn number_of_remembered_scripts_is_bounded_and_the_oldest_is_forgotten() {
        let mut scripts = Scripts::default();
        for number in 0..=REMEMBERED_MAX {
            scripts.remember(number.to_string(), Meaning::Release);
        }
        assert_eq!(scripts.0.len(), REMEMBERED_MAX);
        assert_eq!((scripts.meaning(b"0"), scripts.meaning(b"1")), (None, Some(Meaning::Release)));
    }
}
