//! Errors of Redis commands, with Redis's texts, which clients and people match on.

use std::borrow::Cow;

use sherwood_cache::Refused;

use crate::work::TooMuch;

/// The text of an error that a command answers; it begins with the error's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure(pub(super) Cow<'static, [u8]>);

pub(super) const SYNTAX: Failure = Failure::text("ERR syntax error");
pub(super) const NOT_AN_INTEGER: Failure = Failure::text("ERR value is not an integer or out of range");
pub(super) const NOT_A_FLOAT: Failure = Failure::text("ERR value is not a valid float");
pub(super) const OVERFLOW: Failure = Failure::text("ERR increment or decrement would overflow");
pub(super) const TOO_LONG: Failure =
    Failure::text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(super) const NO_SUCH_KEY: Failure = Failure::text("ERR no such key");
/// Error for `SWAPDB`, which no listener executes.
pub(super) const SWAP: Failure = Failure::text(
    "ERR SWAPDB is refused: every key of two databases would have to be renamed at once; move keys by MOVE, or let \
     clients SELECT the other database",
);
/// Error for scripts and functions. Redis has no counterpart.
pub(super) const SCRIPTS: Failure = Failure::text(
    "ERR scripts are refused, except for those of known clients' locks: the cache executes no programs of clients; what \
     locks and counters need instead is in docs/src/redis.md, Locks (SET NX PX; DELEX; WATCH, MULTI and EXEC)",
);
pub(super) const DATABASE_NUMBER: Failure =
    Failure::text("ERR value is out of range, value must between -2147483648 and 2147483647");
pub(super) const WRONG_PASSWORD: Failure =
    Failure::text("WRONGPASS invalid username-password pair or user is disabled.");
pub(super) const NO_AUTH: Failure = Failure::text("NOAUTH Authentication required.");
pub(super) const NO_AUTH_HELLO: Failure = Failure::text(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be \
     used to authenticate the client and select the RESP protocol version at the same time",
);
const OUT_OF_MEMORY: Failure = Failure::text("OOM command not allowed when used memory > 'maxmemory'.");
/// Error for a key that matches no route to a partition. Redis has no counterpart.
const NO_BACKEND: Failure = Failure::text("ERR no backend for this key's prefix");
/// Error for an empty key, which Redis would accept.
const EMPTY_KEY: Failure = Failure::text("ERR a key is empty; keys have 1 to 250 bytes");

impl Failure {
    pub(super) const fn text(text: &'static str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }

    /// Builds an error that quotes the client's bytes `what` between two texts.
    pub(super) fn about(before: &str, what: &[u8], after: &str) -> Self {
        Self(Cow::Owned([before.as_bytes(), quoted(what), after.as_bytes()].concat()))
    }

    /// Returns the error for a key that matches no route to a partition.
    pub(super) fn nowhere(key: &[u8]) -> Self {
        if key.is_empty() { EMPTY_KEY } else { NO_BACKEND }
    }

    pub(super) fn arity(command: &str) -> Self {
        Self::about("ERR wrong number of arguments for '", command.as_bytes(), "' command")
    }

    pub(super) fn expire_time(command: &str) -> Self {
        Self::about("ERR invalid expire time in '", command.as_bytes(), "' command")
    }
}

/// Returns the part of a client's argument that an error repeats: as in Redis, up to the first zero
/// byte.
pub(super) fn quoted(word: &[u8]) -> &[u8] {
    word.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Error for a command beyond the bound on its work. Redis has no counterpart.
const TOO_MUCH: Failure = Failure::text(
    "ERR refused: the command would work as long as it takes to touch more than 16 MiB, while other clients wait; split \
     it, or use smaller values",
);

impl From<TooMuch> for Failure {
    fn from(TooMuch: TooMuch) -> Self {
        TOO_MUCH
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::KeyTooLong { .. } => Self(Cow::Owned(format!("ERR {refused}").into_bytes())),
            Refused::ValueTooLarge { .. } => TOO_LONG,
            Refused::OverBudget { .. } => OUT_OF_MEMORY,
        }
    }
}
