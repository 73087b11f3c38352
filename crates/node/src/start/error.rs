//! Reasons why a node does not start.

use std::io;
use std::net::SocketAddr;

use crate::access::AccessError;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What was asked for cannot work.
    #[error(transparent)]
    Cache(#[from] sherwood_cache::OptionsError),
    /// A backend's dispatcher cannot work.
    #[error("backend `{backend}`: {error}")]
    Dispatch {
        /// The backend.
        backend: String,
        /// Why.
        error: sherwood_dispatch::OptionsError,
    },
    /// The loop's options make no sense.
    #[error(transparent)]
    Control(#[from] sherwood_policy::OptionsError),
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] sherwood_policy::PolicyError),
    /// A port could not be bound.
    #[error(
        "the admin API cannot listen on {address}: {error}; choose another port (--admin, [admin] bind), or stop what uses it"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// A listener could not be bound.
    #[error(transparent)]
    Listener(#[from] sherwood_listener::BindError),
    /// A file of certificates, keys, tokens or passwords is of no use.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// What is to be kept at the end could not be written.
    #[error(
        "the snapshot {path} cannot be written: {error}; make its directory, writable for this user, or choose another path \
         ([memory] snapshot)"
    )]
    Snapshot {
        /// The file that was tried.
        path: String,
        /// The system's words.
        error: io::Error,
    },
    /// Something else is where the snapshot is to be.
    #[error(
        "the snapshot would take the place of {path}, which is {what}; remove that, or choose another path ([memory] snapshot)"
    )]
    SnapshotPlace {
        /// What is there, or beside it.
        path: String,
        /// What it is, such as `a directory`.
        what: &'static str,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; raise the limit on processes (ulimit -u)")]
    Thread(io::Error),
    /// A listener's keys would have nowhere to go.
    #[error("a listener leads to backend `{backend}`, which has no partition of the default tenant; add one")]
    NoPartition {
        /// The backend.
        backend: String,
    },
    /// Keys cannot be told apart by their prefixes.
    #[error(transparent)]
    Routing(#[from] sherwood_listener::RoutingError),
}

impl StartError {
    pub(crate) fn no_partition(backend: &str) -> Self {
        Self::NoPartition { backend: backend.to_owned() }
    }
}
