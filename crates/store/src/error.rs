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

    /// The cause.
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
    /// The store works, and refuses this call at any time, as would every replica.
    Rejected,
    /// The store failed during the call. A read may be sent to another replica; a write may have
    /// been done or not.
    Broken,
}

/// The operation attempted on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A read of this many keys.
    Get {
        /// Keys in the call.
        keys: usize,
    },
    /// A write of one key.
    Put,
    /// A removal of one key.
    Delete,
    /// A check that the store answers, which also identifies it.
    Check,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get { keys: 1 } => f.write_str("get 1 key"),
            Self::Get { keys } => write!(f, "get {keys} keys"),
            Self::Put => f.write_str("put a key"),
            Self::Delete => f.write_str("delete a key"),
            Self::Check => f.write_str("look"),
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
        /// The bound of the queue.
        queued_calls_max: usize,
    },
    /// The store is busy: another process holds the database, or the server is overloaded. Nothing
    /// was done; the same call can succeed later.
    #[error("others keep it busy ({detail})")]
    Busy {
        /// The engine's or the server's text.
        detail: String,
    },
    /// The store is shutting down.
    #[error("it is shutting down")]
    Closed,
    /// The kind of store does not support the call or the key, or the option for it is missing; a
    /// retry cannot help.
    #[error("{reason}")]
    Unsupported {
        /// The reason and the remedy.
        reason: &'static str,
    },
    /// The store is read-only, and a write or removal was attempted.
    #[error("{reason}")]
    ReadOnly {
        /// The reason and the remedy.
        reason: &'static str,
    },
    /// The key or the value is out of range; a retry cannot help.
    #[error("the {what} has {bytes} bytes, where {min} to {max} are accepted")]
    Refused {
        /// `key` or `value`.
        what: &'static str,
        /// The length.
        bytes: usize,
        /// Shortest length accepted.
        min: usize,
        /// Longest length accepted.
        max: usize,
    },
    /// The engine failed. A write may be in its log; after a restart it is either complete or
    /// absent.
    #[error("the engine failed ({detail})")]
    Engine {
        /// The engine's text.
        detail: String,
    },
    /// Nothing accepts connections at the address. Nothing was done.
    #[error("{address} cannot be reached ({detail})")]
    Unreachable {
        /// The address.
        address: String,
        /// The system's error.
        detail: String,
    },
    /// The host's name cannot be resolved. Nothing was done.
    #[error("the name `{host}` has no address ({detail})")]
    Name {
        /// The name.
        host: String,
        /// The system's error.
        detail: String,
    },
    /// The server accepted the connection and then sent nothing, not even a greeting. Nothing was
    /// done.
    #[error("{address} accepts connections but said nothing for {waited_ms} ms")]
    Silent {
        /// The server's address.
        address: String,
        /// Time waited, in milliseconds.
        waited_ms: u64,
    },
    /// The server received the call and did not answer in time. A write may have been done or not.
    #[error("{address} gave no answer within {waited_ms} ms")]
    Unanswered {
        /// The server's address.
        address: String,
        /// Time waited, in milliseconds.
        waited_ms: u64,
    },
    /// TLS failed: the peers do not trust each other. Nothing was done.
    #[error("{address} cannot be trusted ({detail})")]
    Certificate {
        /// The server's address.
        address: String,
        /// The problem.
        detail: String,
    },
    /// The server refused the credentials. Nothing was done.
    #[error("the server refused the credentials ({detail})")]
    Credentials {
        /// The server's text, without any secret.
        detail: String,
    },
    /// The server denies this user access to this key, which HTTP services and Redis may do.
    /// Nothing was done.
    #[error("the server forbids it ({detail})")]
    Forbidden {
        /// The server's text, without any secret.
        detail: String,
    },
    /// The server does not understand the statement, or refuses to execute it; a retry cannot help.
    #[error("the server refused the statement ({detail})")]
    Statement {
        /// The server's text.
        detail: String,
    },
    /// An object named by the statement does not exist; a retry cannot help until it does.
    #[error("{what} is missing ({detail})")]
    Missing {
        /// The kind of object: a table, a column, a database.
        what: &'static str,
        /// The server's text.
        detail: String,
    },
    /// Another server has to be asked: this one is a replica, or has other keys of a cluster.
    #[error("this server does not do it ({detail})")]
    WrongServer {
        /// The server's text.
        detail: String,
        /// The server to use instead.
        remedy: &'static str,
    },
    /// The answer is larger than the limit; it was not read completely.
    #[error("the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
    /// The connection broke before the answer was complete. A write may have been done or not.
    #[error("{address} broke the connection off ({detail})")]
    Reset {
        /// The server's address.
        address: String,
        /// The system's error.
        detail: String,
    },
    /// The bytes received are not an answer of the protocol. A write may have been done or not.
    #[error("{address} answered what {expected} does not allow ({detail})")]
    Protocol {
        /// The server's address.
        address: String,
        /// The protocol expected.
        expected: &'static str,
        /// The bytes or the message received instead.
        detail: String,
    },
    /// The server reported a failure of its own.
    #[error("the server failed ({detail})")]
    Server {
        /// The server's text.
        detail: String,
    },
    /// The key does not fit into the statement; a retry cannot help.
    #[error("the key does not fit ({detail})")]
    Key {
        /// The problem.
        detail: String,
    },
}

impl Cause {
    /// A server at `address` that accepted the connection and sent nothing for this long.
    pub(crate) fn silent(address: impl fmt::Display, waited: Duration) -> Self {
        Self::Silent { address: address.to_string(), waited_ms: milliseconds(waited) }
    }

    /// A server at `address` that received a call and did not answer for this long.
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
    /// The store's name.
    pub store: String,
    /// The store's path, if its kind has one.
    pub path: Option<PathBuf>,
    /// The cause.
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
        /// The option's name.
        option: &'static str,
        /// The value given.
        value: u64,
        /// Least accepted.
        min: u64,
        /// Most accepted.
        max: u64,
    },
    /// The directory or file cannot be created or accessed.
    #[error("{source}; make the directory writable for this user, or choose another `path`")]
    Directory {
        /// The system's error.
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
        /// The engine's text.
        detail: String,
    },
    /// The configured statement cannot be used.
    #[error("`query` cannot be used ({detail}); {remedy}")]
    Query {
        /// The problem.
        detail: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Values cannot be loaded into this kind of store.
    #[error("a {kind} store has nothing to load: its values follow from their keys")]
    NothingToLoad {
        /// The kind of store.
        kind: crate::StoreKind,
    },
    /// A remote store's options cannot be used.
    #[error("`{option}` cannot be used ({detail}); {remedy}")]
    Remote {
        /// The option's name.
        option: &'static str,
        /// The problem, without any secret.
        detail: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The system refused a thread.
    #[error("the system refused a thread ({source}); lower `threads`, or raise the limit of processes")]
    Threads {
        /// The system's error.
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
