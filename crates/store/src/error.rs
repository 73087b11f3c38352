//! What can go wrong, said so that the reader knows whose fault it is and what to do.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::{Kind, words};

/// A call to a store that failed: what was attempted, on which store, why, and what to do. One line
/// of text, however it was told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("could not {attempt} on store `{store}`: {}", self.explanation())]
pub struct StoreError {
    store: Arc<str>,
    kind: Kind,
    attempt: Attempt,
    cause: Cause,
}

impl StoreError {
    /// An error at `attempt` of `store`, which is of this kind.
    #[must_use]
    pub fn new(store: impl Into<Arc<str>>, kind: Kind, attempt: Attempt, cause: Cause) -> Self {
        Self { store: store.into(), kind, attempt, cause: cause.plain() }
    }

    /// What it says about the store.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.cause.fault()
    }

    /// Why it failed.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Why it failed and, after the last `; `, what to do with a store of this kind.
    #[must_use]
    pub fn explanation(&self) -> String {
        let Self { kind, cause, .. } = self;
        match cause.remedy(*kind) {
            Some(remedy) => format!("{cause}; {remedy}"),
            None => cause.to_string(),
        }
    }
}

/// What a failed call says about the store, for whoever decides where the next call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It takes no calls; nothing was done. Another replica may do it.
    Unreachable,
    /// It works, but had no room for this call; nothing was done. A later attempt or another
    /// replica may succeed.
    Overloaded,
    /// It works, and declines this call whenever it is sent; so would every replica.
    Rejected,
    /// It failed amid the call. Another replica may do what only reads; a write may have been done
    /// or not.
    Broken,
}

/// What was attempted on a store.
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
    /// A first look at the store.
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

/// Why a call failed. What to do depends on the kind of store, too: [`StoreError::explanation`]
/// says both.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The queue before the engine is full. Nothing was done; the same call can succeed later.
    #[error("{queued_calls_max} calls wait already, the most it holds")]
    Overloaded {
        /// The bound of the queue.
        queued_calls_max: usize,
    },
    /// Others keep it busy: a process that holds the database, or more work than the server takes.
    /// Nothing was done; the same call can succeed later.
    #[error("others keep it busy ({detail})")]
    Busy {
        /// The engine's or the server's own words.
        detail: String,
    },
    /// The store is shutting down.
    #[error("it is shutting down")]
    Closed,
    /// The kind of store cannot do this, or not with this key, or was not told how; trying again
    /// cannot help.
    #[error("{reason}")]
    Unsupported {
        /// Why it cannot, and what can.
        reason: &'static str,
    },
    /// The store takes no changes at all.
    #[error("{reason}")]
    ReadOnly {
        /// Why it does not, and what does.
        reason: &'static str,
    },
    /// The key or the value is out of range; trying again cannot help.
    #[error("the {what} has {bytes} bytes, where {min} to {max} are accepted")]
    Refused {
        /// `key` or `value`.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// Shortest length accepted.
        min: usize,
        /// Longest length accepted.
        max: usize,
    },
    /// The engine failed. A write that failed so may have happened in part of its log; after a
    /// restart it is either there or not.
    #[error("the engine failed ({detail})")]
    Engine {
        /// The engine's own words.
        detail: String,
    },
    /// Nobody takes connections there. Nothing was done.
    #[error("{address} cannot be reached ({detail})")]
    Unreachable {
        /// Where it was tried.
        address: String,
        /// The system's words.
        detail: String,
    },
    /// The host's name has no address. Nothing was done.
    #[error("the name `{host}` has no address ({detail})")]
    Name {
        /// The name.
        host: String,
        /// The system's words.
        detail: String,
    },
    /// The server took the connection and then said nothing, not even a greeting. Nothing was done.
    #[error("{address} accepts connections but said nothing for {waited_ms} ms")]
    Silent {
        /// Where it is.
        address: String,
        /// How long it was listened to.
        waited_ms: u64,
    },
    /// The server was asked and gave no answer in time. A write may have been done or not.
    #[error("{address} gave no answer within {waited_ms} ms")]
    Unanswered {
        /// Where it is.
        address: String,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// There is no trusted, encrypted connection. Nothing was done.
    #[error("{address} cannot be trusted ({detail})")]
    Certificate {
        /// Where it is.
        address: String,
        /// What is wrong.
        detail: String,
    },
    /// The server does not let this user in. Nothing was done.
    #[error("the server refused the credentials ({detail})")]
    Credentials {
        /// The server's words, without any secret.
        detail: String,
    },
    /// The server lets this user in, and not at this key, as HTTP services and Redis may say.
    /// Nothing was done.
    #[error("the server forbids it ({detail})")]
    Forbidden {
        /// The server's words, without any secret.
        detail: String,
    },
    /// The server does not understand the statement, or does not do what it says; trying again
    /// cannot help.
    #[error("the server refused the statement ({detail})")]
    Statement {
        /// The server's words.
        detail: String,
    },
    /// What the statement names is not there; trying again cannot help until it is.
    #[error("{what} is missing ({detail})")]
    Missing {
        /// What kind of thing: a table, a column, a database.
        what: &'static str,
        /// The server's words.
        detail: String,
    },
    /// It is not this server that does this; one elsewhere might.
    #[error("this server does not do it ({detail})")]
    WrongServer {
        /// The server's words.
        detail: String,
        /// Whom to ask instead.
        remedy: &'static str,
    },
    /// The answer is larger than what is accepted; it was not read to its end.
    #[error("the answer is larger than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
    /// The connection broke before the answer was whole. A write may have been done or not.
    #[error("{address} broke the connection off ({detail})")]
    Reset {
        /// Where it is.
        address: String,
        /// The system's words.
        detail: String,
    },
    /// What came is no answer of the protocol. A write may have been done or not.
    #[error("{address} answered what {expected} does not allow ({detail})")]
    Protocol {
        /// Where it is.
        address: String,
        /// What was expected to be spoken there.
        expected: &'static str,
        /// What came instead.
        detail: String,
    },
    /// The server failed at the call by its own account.
    #[error("the server failed ({detail})")]
    Server {
        /// The server's words.
        detail: String,
    },
    /// The key cannot be put into the statement; trying again cannot help.
    #[error("the key does not fit ({detail})")]
    Key {
        /// What is wrong with it.
        detail: String,
    },
}

impl Cause {
    /// A server at `address` that took the connection and said nothing for so long.
    pub(crate) fn silent(address: impl fmt::Display, waited: Duration) -> Self {
        Self::Silent { address: address.to_string(), waited_ms: milliseconds(waited) }
    }

    /// A server at `address` that was asked and gave no answer for so long.
    pub(crate) fn unanswered(address: impl fmt::Display, waited: Duration) -> Self {
        Self::Unanswered { address: address.to_string(), waited_ms: milliseconds(waited) }
    }

    /// A change that a store was told no way to make, though perhaps one to make others.
    pub(crate) const fn no_way(reason: &'static str, has_other_ways: bool) -> Self {
        if has_other_ways { Self::Unsupported { reason } } else { Self::ReadOnly { reason } }
    }

    /// What it says about the store.
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

    /// The same with its detail fit for a line of a log or a terminal, of which this is the one
    /// place that makes sure.
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
            | Self::Key { detail } => *detail = words::plain(detail, DETAIL_CHARS_MAX),
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

    /// One word for counters and logs.
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

/// Characters of a detail: room for what a server said and for what is said of it here.
const DETAIL_CHARS_MAX: usize = 400;

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A store that could not be opened: which, where, why and what to do.
#[derive(Debug, Error)]
#[error("could not open store `{store}`{}: {cause}", at(.path))]
pub struct OpenError {
    /// The store's name.
    pub store: String,
    /// The path it was to be opened at, where its kind has one.
    pub path: Option<PathBuf>,
    /// Why it could not.
    pub cause: OpenCause,
}

fn at(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!(" at {}", path.display())).unwrap_or_default()
}

/// Why a store could not be opened, each with its remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenCause {
    /// An option is out of range.
    #[error("`{option}` is {value}, where {min} to {max} is accepted; change it in the store's options")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// Least accepted.
        min: u64,
        /// Most accepted.
        max: u64,
    },
    /// The directory or file cannot be made or reached.
    #[error("{source}; make the directory writable for this user, or choose another `path`")]
    Directory {
        /// The system's answer.
        source: std::io::Error,
    },
    /// Another process has it open.
    #[error("another process has it open; stop that process, or choose another `path`")]
    Locked,
    /// The engine does not accept what it found.
    #[error("{detail}; if this is not a {kind} store, choose another `path`, else restore it from a copy")]
    Engine {
        /// The kind of store expected there.
        kind: crate::Kind,
        /// The engine's own words.
        detail: String,
    },
    /// The configured statement cannot be used.
    #[error("`query` cannot be used ({detail}); {remedy}")]
    Query {
        /// What is wrong with it.
        detail: String,
        /// What it has to look like.
        remedy: &'static str,
    },
    /// Values cannot be loaded into this kind of store.
    #[error("a {kind} store has nothing to load: its values follow from their keys")]
    NothingToLoad {
        /// The kind of store.
        kind: crate::Kind,
    },
    /// A remote store's options cannot be used.
    #[error("`{option}` cannot be used ({detail}); {remedy}")]
    Remote {
        /// The option's name.
        option: &'static str,
        /// What is wrong with it, without any secret.
        detail: String,
        /// What it has to look like.
        remedy: &'static str,
    },
    /// The system refused a thread.
    #[error("the system refused a thread ({source}); lower `threads`, or raise the limit of processes")]
    Threads {
        /// The system's answer.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_attempt_the_store_and_the_remedy() {
        let error = StoreError::new(
            "b03",
            Kind::Kv,
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
    fn a_fault_tells_a_store_without_room_from_one_that_is_broken() {
        let fault = |cause| StoreError::new("b03", Kind::Kv, Attempt::Put, cause).fault();
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
    fn whatever_a_server_says_is_one_line_of_bounded_length() {
        let detail = format!("a\n2026-01-01 ERROR forged\u{1b}[2J {}", "x".repeat(10_000));
        let address = || "h:1".to_owned();
        for cause in [
            Cause::Server { detail: detail.clone() },
            Cause::Statement { detail: detail.clone() },
            Cause::Protocol { address: address(), expected: "Redis", detail: detail.clone() },
            Cause::Reset { address: address(), detail: detail.clone() },
        ] {
            let said = StoreError::new("b", Kind::Redis, Attempt::Put, cause).to_string();
            assert!(said.contains("a\\n2026-01-01 ERROR forged\\u{1b}[2J xxx"), "{said}");
            assert!(!said.contains(char::is_control) && said.len() < 700, "{said}");
        }
    }
}
