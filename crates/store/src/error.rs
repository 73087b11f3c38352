//! Errors of stores. Each states the attempted operation, the cause and the remedy.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::{StoreKind, escape};

/// A failed call to a store: the attempt, the store, the cause and the remedy, as one line of text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("could not {attempt} on store `{store}`: {}", self.explanation())]
pub struct StoreError {
    store: Arc<str>,
    kind: StoreKind,
    attempt: Attempt,
    cause: Cause,
}

impl StoreError {
    /// Makes the error of a failed `attempt` on the store called `store`, which is of this kind.
    #[must_use]
    pub fn new(store: impl Into<Arc<str>>, kind: StoreKind, attempt: Attempt, cause: Cause) -> Self {
        Self { store: store.into(), kind, attempt, cause: cause.plain() }
    }

    /// The state of the store that this error indicates, for decisions about retries.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.cause.fault()
    }

    /// The cause of the failed call.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// The cause and, after the last `; `, the remedy for a store of this kind.
    #[must_use]
    pub fn explanation(&self) -> String {
        let Self { kind, cause, .. } = self;
        match cause.remedy(*kind) {
            Some(remedy) => format!("{cause}; {remedy}"),
            None => cause.to_string(),
        }
    }
}

/// The state of a store that a failed call indicates; it decides about retries and routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store takes no calls; nothing was done. Another replica may succeed.
    Unreachable,
    /// The store works, but had no capacity for this call; nothing was done. A later attempt or
    /// another replica may succeed.
    Overloaded,
    /// The store works, but the rate that is paid for is used up; nothing was done. An attempt at
    /// once would be refused as well, and replicas of a table share its rate. A later one may
    /// succeed.
    Throttled,
    /// The store works, and refuses this call at any time, as would every replica.
    Rejected,
    /// The store failed during the call. A read may be sent to another replica; a write may have
    /// been done or not.
    Broken,
}

/// The operation attempted on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A read of `keys` keys.
    Get {
        /// Number of keys in the read.
        keys: usize,
    },
    /// A write of one key to the store.
    Put,
    /// A removal of one key from the store.
    Delete,
    /// A check that the store answers, which also identifies it.
    Check,
    /// The opening of a connection that is not one of the store's pool.
    Connect,
    /// A walk through all keys of the store.
    Walk,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get { keys: 1 } => f.write_str("get 1 key"),
            Self::Get { keys } => write!(f, "get {keys} keys"),
            Self::Put => f.write_str("put a key"),
            Self::Delete => f.write_str("delete a key"),
            Self::Check => f.write_str("look"),
            Self::Connect => f.write_str("open a connection"),
            Self::Walk => f.write_str("list the keys"),
        }
    }
}

/// The cause of a failed call, without the remedy, which also depends on the kind of store:
/// [`StoreError::explanation`] has both.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The queue before the engine is full. Nothing was done; the same call can succeed later.
    #[error("{queued_calls_max} calls wait already, the most it holds")]
    Overloaded {
        /// Most calls that may wait in the queue.
        queued_calls_max: usize,
    },
    /// The store is busy: another process holds the database, or the server is overloaded. Nothing
    /// was done; the same call can succeed later.
    #[error("others keep it busy ({detail})")]
    Busy {
        /// The engine's or the server's text.
        detail: String,
    },
    /// The store refused the call because of its rate limit: the capacity provisioned for a table
    /// is used up. Nothing was done; the same call can succeed later.
    #[error("its capacity is used up ({detail})")]
    Throttled {
        /// The server's text.
        detail: String,
    },
    /// The store is shutting down and takes no calls.
    #[error("it is shutting down")]
    Closed,
    /// The kind of store does not support the call or the key, or the option for it is missing; a
    /// retry cannot help.
    #[error("{reason}")]
    Unsupported {
        /// The reason why the call is not supported, and the remedy.
        reason: &'static str,
    },
    /// The store is read-only, and a write or removal was attempted.
    #[error("{reason}")]
    ReadOnly {
        /// The reason why the store is read-only, and the remedy.
        reason: &'static str,
    },
    /// The length of the key or the value is out of range; a retry cannot help.
    #[error("the {what} has {bytes} bytes, where {min} to {max} are accepted")]
    Refused {
        /// `key` or `value`, the one that is out of range.
        what: &'static str,
        /// Length of the key or value in bytes.
        bytes: usize,
        /// Shortest length in bytes that the store accepts.
        min: usize,
        /// Longest length in bytes that the store accepts.
        max: usize,
    },
    /// The engine failed. A write may be in its log; after a restart it is either complete or
    /// absent.
    #[error("the engine failed ({detail})")]
    Engine {
        /// The engine's text of the error.
        detail: String,
    },
    /// Nothing accepts connections at the address. Nothing was done.
    #[error("{address} cannot be reached ({detail})")]
    Unreachable {
        /// The address at which nothing accepts connections.
        address: String,
        /// The system's text of the error.
        detail: String,
    },
    /// The host's name cannot be resolved. Nothing was done.
    #[error("the name `{host}` has no address ({detail})")]
    Name {
        /// The host's name that cannot be resolved.
        host: String,
        /// The system's text of the error.
        detail: String,
    },
    /// The server accepted the connection and then sent nothing, not even a greeting. Nothing was
    /// done.
    #[error("{address} accepts connections but said nothing for {waited_ms} ms")]
    Silent {
        /// The address of the silent server.
        address: String,
        /// Time waited for bytes from the server, in milliseconds.
        waited_ms: u64,
    },
    /// The server received the call and did not answer in time. A write may have been done or not.
    #[error("{address} gave no answer within {waited_ms} ms")]
    Unanswered {
        /// The address of the server that did not answer.
        address: String,
        /// Time waited for the answer, in milliseconds.
        waited_ms: u64,
    },
    /// TLS failed: the peers do not trust each other. Nothing was done.
    #[error("{address} cannot be trusted ({detail})")]
    Certificate {
        /// The address of the server to which TLS failed.
        address: String,
        /// The problem with a certificate or the handshake.
        detail: String,
    },
    /// The server refused the credentials. Nothing was done.
    #[error("the server refused the credentials ({detail})")]
    Credentials {
        /// The server's text, without any secret.
        detail: String,
    },
    /// The server denies the connector's user access to this key, as HTTP services and Redis may
    /// do. Nothing was done.
    #[error("the server forbids it ({detail})")]
    Forbidden {
        /// The server's text, without any secret.
        detail: String,
    },
    /// The server does not understand the statement, or refuses to execute it; a retry cannot help.
    #[error("the server refused the statement ({detail})")]
    Statement {
        /// The server's text of the error.
        detail: String,
    },
    /// An object named by the statement does not exist; a retry cannot help until it does.
    #[error("{what} is missing ({detail})")]
    Missing {
        /// The kind of object: a table, a column, a database.
        what: &'static str,
        /// The server's text of the error.
        detail: String,
    },
    /// The call has to be sent to another server: the server asked is a replica, or has other keys
    /// of a cluster.
    #[error("this server does not do it ({detail})")]
    WrongServer {
        /// The server's text of the error.
        detail: String,
        /// The server to use instead.
        remedy: &'static str,
    },
    /// The answer is larger than the limit on its bytes; it was not read completely.
    #[error("the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// Most bytes accepted of an answer.
        bytes_max: u64,
    },
    /// The connection broke before the answer was complete. A write may have been done or not.
    #[error("{address} broke the connection off ({detail})")]
    Reset {
        /// The address of the server whose connection broke.
        address: String,
        /// The system's text of the error.
        detail: String,
    },
    /// The bytes received are not an answer of the protocol. A write may have been done or not.
    #[error("{address} answered what {expected} does not allow ({detail})")]
    Protocol {
        /// The address of the server that sent the bytes.
        address: String,
        /// The name of the protocol that was expected.
        expected: &'static str,
        /// The bytes or the message received instead.
        detail: String,
    },
    /// The server reported a failure of its own, such as an internal error.
    #[error("the server failed ({detail})")]
    Server {
        /// The server's text of the error.
        detail: String,
    },
    /// The key does not fit into the statement; a retry cannot help.
    #[error("the key does not fit ({detail})")]
    Key {
        /// The problem with the key.
        detail: String,
    },
}

impl Cause {
    /// The cause for a server at `address` that accepted the connection and sent nothing for the
    /// time `waited`.
    pub(crate) fn silent(address: impl fmt::Display, waited: Duration) -> Self {
        Self::Silent { address: address.to_string(), waited_ms: milliseconds(waited) }
    }

    /// The cause for a server at `address` that received a call and did not answer for the time
    /// `waited`.
    pub(crate) fn unanswered(address: impl fmt::Display, waited: Duration) -> Self {
        Self::Unanswered { address: address.to_string(), waited_ms: milliseconds(waited) }
    }

    /// The cause for a write or removal when no statement for it is configured; `has_other_ways` is
    /// true if a statement is configured for the other of the two.
    pub(crate) const fn no_way(reason: &'static str, has_other_ways: bool) -> Self {
        if has_other_ways { Self::Unsupported { reason } } else { Self::ReadOnly { reason } }
    }

    /// The state of the store that this cause indicates, for decisions about retries.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Closed
            | Self::Unreachable { .. }
            | Self::Name { .. }
            | Self::Silent { .. }
            | Self::Certificate { .. }
            | Self::Credentials { .. } => Fault::Unreachable,
            Self::Overloaded { .. } | Self::Busy { .. } => Fault::Overloaded,
            Self::Throttled { .. } => Fault::Throttled,
            Self::Unsupported { .. }
            | Self::ReadOnly { .. }
            | Self::Refused { .. }
            | Self::Forbidden { .. }
            | Self::Key { .. }
            | Self::Statement { .. }
            | Self::Missing { .. }
            | Self::WrongServer { .. }
            | Self::TooLarge { .. } => Fault::Rejected,
            Self::Engine { .. }
            | Self::Unanswered { .. }
            | Self::Reset { .. }
            | Self::Protocol { .. }
            | Self::Server { .. } => Fault::Broken,
        }
    }

    /// Makes the text of a server or engine in this cause safe for one line of a log or terminal.
    /// All errors pass through here.
    fn plain(mut self) -> Self {
        match &mut self {
            Self::Busy { detail }
            | Self::Throttled { detail }
            | Self::Engine { detail }
            | Self::Unreachable { detail, address: _ }
            | Self::Name { detail, host: _ }
            | Self::Certificate { detail, address: _ }
            | Self::Credentials { detail }
            | Self::Forbidden { detail }
            | Self::Statement { detail }
            | Self::Missing { detail, what: _ }
            | Self::WrongServer { detail, remedy: _ }
            | Self::Reset { detail, address: _ }
            | Self::Protocol { detail, address: _, expected: _ }
            | Self::Server { detail }
            | Self::Key { detail } => *detail = escape::plain(detail, DETAIL_CHARS_MAX),
            Self::Overloaded { queued_calls_max: _ }
            | Self::Closed
            | Self::Unsupported { reason: _ }
            | Self::ReadOnly { reason: _ }
            | Self::Refused { what: _, bytes: _, min: _, max: _ }
            | Self::Silent { address: _, waited_ms: _ }
            | Self::Unanswered { address: _, waited_ms: _ }
            | Self::TooLarge { bytes_max: _ } => {}
        }
        self
    }

    /// A short name of the cause, the label of counters and log fields.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Overloaded { .. } => "overloaded",
            Self::Busy { .. } => "busy",
            Self::Throttled { .. } => "throttled",
            Self::Closed => "closed",
            Self::Unsupported { .. } | Self::ReadOnly { .. } => "unsupported",
            Self::Refused { .. } => "refused",
            Self::Engine { .. } => "engine",
            Self::Unreachable { .. } => "unreachable",
            Self::Name { .. } => "name",
            Self::Silent { .. } | Self::Unanswered { .. } => "silent",
            Self::Certificate { .. } => "certificate",
            Self::Credentials { .. } | Self::Forbidden { .. } => "credentials",
            Self::Statement { .. } => "statement",
            Self::Missing { .. } => "missing",
            Self::WrongServer { .. } => "wrong_server",
            Self::TooLarge { .. } => "too_large",
            Self::Reset { .. } => "reset",
            Self::Protocol { .. } => "protocol",
            Self::Server { .. } => "server",
            Self::Key { .. } => "key",
        }
    }
}

/// Most characters kept of a cause's detail: enough for a server's text and our comment on it.
const DETAIL_CHARS_MAX: usize = 400;

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A store that could not be opened: its name, its path, the cause and the remedy.
#[derive(Debug, Error)]
#[error("could not open store `{store}`{}: {cause}", at(.path))]
pub struct OpenError {
    /// Name of the store that could not be opened.
    pub store: String,
    /// The store's path, if its kind has one.
    pub path: Option<PathBuf>,
    /// The cause why the store could not be opened.
    pub cause: OpenCause,
}

fn at(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" at {}", path.display())).unwrap_or_default()
}

/// The cause why a store could not be opened, with its remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenCause {
    /// An option is out of range.
    #[error("`{option}` is {value}, where {min} to {max} is accepted; change it in the store's options")]
    Option {
        /// Name of the option that is out of range.
        option: &'static str,
        /// The value given for the option.
        value: u64,
        /// Least value that the option accepts.
        min: u64,
        /// Greatest value that the option accepts.
        max: u64,
    },
    /// The directory or file cannot be created or accessed.
    #[error("{source}; make the directory writable for this user, or choose another `path`")]
    Directory {
        /// The system's error for the directory or file.
        source: std::io::Error,
    },
    /// Another process has the store's directory or file open.
    #[error("another process has it open; stop that process, or choose another `path`")]
    Locked,
    /// The engine does not accept the store's files.
    #[error("{detail}; if this is not a {kind} store, choose another `path`, else restore it from a copy")]
    Engine {
        /// The kind of store that was expected in the files.
        kind: crate::StoreKind,
        /// The engine's text of the error.
        detail: String,
    },
    /// The configured statement cannot be used.
    #[error("`query` cannot be used ({detail}); {remedy}")]
    Query {
        /// The problem with the statement.
        detail: String,
        /// The remedy for the statement.
        remedy: &'static str,
    },
    /// Values cannot be loaded into this kind of store.
    #[error("a {kind} store has nothing to load: its values follow from their keys")]
    NothingToLoad {
        /// The kind of store into which no values can be loaded.
        kind: crate::StoreKind,
    },
    /// A remote store's options cannot be used.
    #[error("`{option}` cannot be used ({detail}); {remedy}")]
    Remote {
        /// Name of the option that cannot be used.
        option: &'static str,
        /// The problem with the option, without any secret.
        detail: String,
        /// The remedy for the option.
        remedy: &'static str,
    },
    /// The system refused to create a thread of the store.
    #[error("the system refused a thread ({source}); lower `threads`, or raise the limit of processes")]
    Threads {
        /// The system's error for the thread.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_attempt_the_store_and_the_remedy() {
        let error = StoreError::new(
            "b03",
            StoreKind::Kv,
            Attempt::Get { keys: 7 },
            Cause::Overloaded { queued_calls_max: 64 },
        );
        assert_eq!(
            error.to_string(),
            "could not get 7 keys on store `b03`: 64 calls wait already, the most it holds; send less at once, or \
             raise its `queued_calls_max`"
        );
    }

    #[test]
    fn fault_of_an_error_follows_from_its_cause() {
        let fault = |cause| StoreError::new("b03", StoreKind::Kv, Attempt::Put, cause).fault();
        let detail = || String::from("as told");
        assert_eq!(fault(Cause::Closed), Fault::Unreachable);
        assert_eq!(fault(Cause::Overloaded { queued_calls_max: 64 }), Fault::Overloaded);
        assert_eq!(fault(Cause::Busy { detail: detail() }), Fault::Overloaded);
        assert_eq!(fault(Cause::Throttled { detail: detail() }), Fault::Throttled);
        assert_eq!(fault(Cause::Unsupported { reason: "no" }), Fault::Rejected);
        assert_eq!(fault(Cause::ReadOnly { reason: "no" }), Fault::Rejected);
        assert_eq!(fault(Cause::Refused { what: "key", bytes: 0, min: 1, max: 9 }), Fault::Rejected);
        assert_eq!(fault(Cause::Engine { detail: detail() }), Fault::Broken);
        assert_eq!(fault(Cause::Credentials { detail: detail() }), Fault::Unreachable);
        assert_eq!(fault(Cause::Missing { what: "a table", detail: detail() }), Fault::Rejected);
        let (address, waited_ms) = (String::from("db:1"), 9);
        assert_eq!(fault(Cause::Silent { address: address.clone(), waited_ms }), Fault::Unreachable);
        assert_eq!(fault(Cause::Unanswered { address: address.clone(), waited_ms }), Fault::Broken);
        assert_eq!(fault(Cause::Reset { address, detail: detail() }), Fault::Broken);
    }

    #[test]
    fn text_of_a_server_in_an_error_becomes_one_line_of_bounded_length() {
        let detail = format!("a\n2026-01-01 ERROR forged\u{1b}[2J {}", "x".repeat(10_000));
        let address = || "h:1".to_owned();
        for cause in [
            Cause::Server { detail: detail.clone() },
            Cause::Statement { detail: detail.clone() },
            Cause::Protocol { address: address(), expected: "Redis", detail: detail.clone() },
            Cause::Reset { address: address(), detail: detail.clone() },
        ] {
            let said = StoreError::new("b", StoreKind::Redis, Attempt::Put, cause).to_string();
            assert!(said.contains("a\\n2026-01-01 ERROR forged\\u{1b}[2J xxx"), "{said}");
            assert!(!said.contains(char::is_control) && said.len() < 700, "{said}");
        }
    }
}
