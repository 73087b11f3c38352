//! Constructors of the rows of the command table, and the flags and key positions that many rows
//! share.

use super::{Command, Run};

/// Redis's flags of commands that only read keys.
pub(super) const READ: &[&str] = &["readonly"];
pub(super) const READ_FAST: &[&str] = &["readonly", "fast"];
/// Redis's flags of commands that change keys and need no memory.
pub(super) const WRITE: &[&str] = &["write"];
pub(super) const WRITE_FAST: &[&str] = &["write", "fast"];
/// Redis's flags of commands that store values.
pub(super) const STORE: &[&str] = &["write", "denyoom"];
pub(super) const STORE_FAST: &[&str] = &["write", "denyoom", "fast"];
/// Redis's flags of commands that neither read keys nor change any.
pub(super) const NONE: &[&str] = &[];
pub(super) const FAST: &[&str] = &["fast"];
pub(super) const STALE: &[&str] = &["loading", "stale"];
pub(super) const STALE_FAST: &[&str] = &["loading", "stale", "fast"];
pub(super) const CLIENT: &[&str] = &["noscript", "loading", "stale"];
pub(super) const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];
/// Redis's flags of commands that a client may send before it is authenticated.
pub(super) const NO_AUTH: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];

/// Redis's flags of commands that begin and end transactions.
pub(super) const TRANSACTION: &[&str] = &["noscript", "loading", "stale", "fast"];

/// Key positions of a command without keys.
pub(super) const NO_KEYS: [i64; 3] = [0, 0, 0];
/// Key positions of a command whose first argument is the only key.
pub(super) const KEY: [i64; 3] = [1, 1, 1];
/// Key positions of a command whose arguments are all keys.
pub(super) const KEYS: [i64; 3] = [1, -1, 1];
/// Key positions of a command whose first two arguments are keys.
pub(super) const TWO_KEYS: [i64; 3] = [1, 2, 1];
/// Key positions of a command whose arguments are keys and values in turn.
pub(super) const PAIRS: [i64; 3] = [1, -1, 2];
/// Key positions of a subcommand whose first argument is the only key.
pub(super) const SUB_KEY: [i64; 3] = [2, 2, 1];

/// Key positions of a script with one key.
pub(super) const SCRIPT_KEY: [i64; 3] = [3, 3, 1];

/// Returns the row of a command in Redis's group `string`.
pub(super) const fn string(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: [i64; 3],
    since: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { name, arity, flags, keys, group: "string", since, summary, run, subcommands: &[] }
}

/// Returns the row of a command in Redis's group `bitmap`, whose first argument is the key.
pub(super) const fn bitmap(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    since: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { group: "bitmap", ..string(name, arity, flags, KEY, since, summary, run) }
}

/// Returns the row of a command in Redis's group `generic`.
pub(super) const fn generic(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: [i64; 3],
    since: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { group: "generic", ..string(name, arity, flags, keys, since, summary, run) }
}

/// Returns the row of a command in Redis's group `connection`, which has no keys.
pub(super) const fn connection(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    since: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { group: "connection", ..string(name, arity, flags, NO_KEYS, since, summary, run) }
}

/// Returns the row of a command in Redis's group `transactions`.
pub(super) const fn transactions(
    name: &'static str,
    arity: i64,
    keys: [i64; 3],
    since: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { group: "transactions", ..string(name, arity, TRANSACTION, keys, since, summary, run) }
}

/// Returns the row of a command in Redis's group `server`, which has no keys.
pub(super) const fn server(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    since: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { group: "server", ..string(name, arity, flags, NO_KEYS, since, summary, run) }
}
